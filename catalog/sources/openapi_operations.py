"""One operation of an OpenAPI document as the definition of an HTTP tool: its parameters, its body, its request."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from catalog.sources.definitions import Definition, Schema, clean_text
from catalog.sources.http_answers import is_json, without_parameters
from catalog.sources.http_requests import JSON, Operation
from catalog.sources.levels import METHOD_LEVELS
from catalog.sources.openapi_document import MAX_REFERENCE_CHAIN, LeftOut, as_list, as_object, resolved, target_of
from catalog.sources.openapi_schemas import OperationSchemas, require_no_read_only
from catalog.sources.settings import HEADER_NAME, RESERVED_HEADERS

FORM = "application/x-www-form-urlencoded"
JSON_RANGES = frozenset({"*/*", "application/*", "application/*+json"})
"""Ranges of media types that include JSON."""
CREDENTIAL_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization", "accept", "content-type"})
IDEMPOTENT = frozenset({"GET", "HEAD", "PUT"})
"""Methods whose calls may run again after a crash. DELETE is missing, because it is dangerous."""
ARRAY_STYLES = {("form", False): "comma", ("spaceDelimited", False): "space", ("pipeDelimited", False): "pipe"}
"""Styles of arrays in the query by style and `explode` of the document; other styles repeat the parameter."""
LAID_OUT = frozenset(
    {
        *("type", "properties", "required", "additionalProperties", "nullable", "title", "description", "default"),
        *("deprecated", "example", "examples", "externalDocs", "xml", "readOnly", "writeOnly", "$comment"),
    }
)
"""Keywords that the schema of a body may have if its fields become arguments: none of its rules is lost."""
BESIDE_REFERENCE = frozenset({"$ref", "title", "description", "deprecated", "example", "examples"})
"""Keywords beside a `$ref` that add no rule."""


@dataclass(frozen=True, slots=True)
class DocumentOperation:
    """An operation as it stands in the document; `item` is the object of its path."""

    name: str
    method: str
    path: str
    item: Mapping[str, Any]
    operation: Mapping[str, Any]


@dataclass
class OperationReader:
    """Reads one operation. `credentials` names query parameters that the source sets, so they are not arguments."""

    document: Mapping[str, Any]
    schemas: OperationSchemas
    server: str
    category: str
    timeout: float
    credentials: Collection[str] = ()
    properties: dict[str, Schema] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    styles: dict[str, str] = field(default_factory=dict)
    places: dict[str, dict[str, str]] = field(default_factory=lambda: {"path": {}, "query": {}, "header": {}})
    """For each place of parameters, the name in the request by the name of the argument."""
    left_out: list[str] = field(default_factory=list)
    """Why optional parameters and bodies are left out."""

    def definition(self, document_operation: DocumentOperation) -> Definition:
        """Return the definition of an operation. Raises LeftOut."""
        method, path, operation = document_operation.method, document_operation.path, document_operation.operation
        if not path.startswith("/"):
            raise LeftOut("its path does not start with '/'.")
        parameters: dict[tuple[str, str], dict[str, Any]] = {}
        for part in (document_operation.item, operation):  # the operation's own replace those of its path
            for each in as_list(part.get("parameters"), "its list of parameters"):
                parameter = resolved(self.document, each, "a parameter")
                name, place = parameter.get("name"), parameter.get("in")
                if not isinstance(name, str) or not isinstance(place, str) or not name:
                    raise LeftOut("a parameter has no name or no place (`in`).")
                parameters[name, place] = parameter
        for parameter in parameters.values():
            self._add_parameter(parameter)
        url = self.server + _path_template(path, self.places["path"])
        body = self._body(operation)
        schema: Schema = {
            "type": "object",
            "properties": self.properties,
            "required": sorted(self.required),
            "additionalProperties": False,
        }
        if self.schemas.definitions:
            schema["$defs"] = self.schemas.definitions
        require_no_read_only(schema)
        http = Operation(
            method=method,
            url=url,
            query=self.places["query"],
            headers=self.places["header"],
            styles=self.styles,
            **body,
        )
        words = [operation.get("summary"), operation.get("description")]
        described = "\n\n".join(dict.fromkeys(clean_text(each) for each in words if isinstance(each, str)))
        return Definition(
            kind="http",
            upstream=document_operation.name,
            description=described.strip() or f"{method} {path}",
            input_schema=schema,
            safety_level=str(METHOD_LEVELS[method]),
            why=f"HTTP method {method}",
            categories=(self.category,),
            timeout=self.timeout,
            retry_safe=method in IDEMPOTENT,
            http=http.as_json(),
        )

    def _add_parameter(self, parameter: Mapping[str, Any]) -> None:
        wire, place = parameter["name"], parameter["in"]
        is_required = parameter.get("required") is True or place == "path"
        if place == "header" and wire.lower() in CREDENTIAL_HEADERS | RESERVED_HEADERS:
            return  # credentials are stored with the source
        if place == "query" and wire in self.credentials:
            return
        if place not in self.places:
            self._leave_out(f"its {place} parameter {wire!r} cannot be sent.", is_required=is_required)
            return
        name = wire if wire not in self.properties else f"{place}_{wire}"
        if name in self.properties:
            raise LeftOut(f"it has two parameters called {wire!r}.")
        schema, media_type = parameter.get("schema"), ""
        content = as_object(parameter.get("content"), f"the content of its parameter {wire!r}")
        if schema is None and content:
            media_type, media = next(iter(content.items()))
            schema = as_object(media, f"the content of its parameter {wire!r}").get("schema")
        converted = self.schemas.schema(name, schema if schema is not None else {"type": "string"})
        if isinstance(parameter.get("description"), str):
            description = self.schemas.schemas.clean_text(parameter["description"])
            self.schemas.take(len(description) - len(str(converted.get("description", ""))))
            converted = {**converted, "description": description}
        try:
            style = self._style(parameter, media_type, {} if schema is None else converted)
        except LeftOut as reason:
            self._leave_out(str(reason), is_required=is_required)
            return
        self.properties[name] = converted
        if style:
            self.styles[name] = style
        if is_required:
            self.required.append(name)
        self.places[place][name] = wire

    def _leave_out(self, reason: str, *, is_required: bool) -> None:
        """Record why a parameter or body is left out. Raises LeftOut, for the whole operation, if it is required."""
        if is_required:
            raise LeftOut(reason)
        self.left_out.append(reason)

    def _style(self, parameter: Mapping[str, Any], media_type: str, schema: Schema) -> str:
        """Return how a parameter's values are sent (`Operation.styles`). Raises LeftOut if they cannot be sent.

        Without a style, a text is sent unchanged, an array in the query as one pair per item, and other values as JSON.
        """
        place, wire = parameter["in"], parameter["name"]
        if place == "header" and not HEADER_NAME.fullmatch(wire):
            raise LeftOut(f"the name of its header parameter {wire!r} is not valid.")
        kinds = self.schemas.kinds(schema)
        if media_type:
            if _json_media_type(media_type):
                return "json"
            how, style, unsupported = f"the media type {media_type}", "", {"array", "object"}
        else:
            written = str(parameter.get("style") or ("form" if place == "query" else "simple"))
            explode = parameter.get("explode", written == "form") is True
            how = f"style {written} and explode {str(explode).lower()}"
            if written in ("label", "matrix") or (written == "simple") == (place == "query"):
                raise LeftOut(f"its {place} parameter {wire!r} has the style {written}, which is not supported.")
            if place == "query":
                style, unsupported = self._query_style(written, schema, kinds, explode=explode)
            else:
                style, unsupported = "comma" if "array" in kinds else "", {"object"}
        found = sorted(kinds & unsupported)
        if found:
            kind = " or ".join(f"an {each}" for each in found)
            raise LeftOut(f"its {place} parameter {wire!r} may be {kind} with {how}, which is not supported.")
        return style

    def _query_style(self, written: str, schema: Schema, kinds: set[str], *, explode: bool) -> tuple[str, set[str]]:
        is_exploded_form = written == "form" and explode
        if "object" in kinds and (is_exploded_form or written == "deepObject"):
            nested = any(self.schemas.kinds(each) & {"array", "object"} for each in self.schemas.members(schema))
            style = "form" if is_exploded_form else "deepObject"
            return style, {*(["object"] if nested else []), *(["array"] if written == "deepObject" else [])}
        if written == "deepObject":
            return "", {"array"}
        return ARRAY_STYLES.get((written, explode), "") if "array" in kinds else "", {"object"}

    def _body(self, operation: Mapping[str, Any]) -> dict[str, Any]:
        """Add the body, or each of its fields, as arguments; return the fields of `Operation` that describe it."""
        if not operation.get("requestBody"):
            return {}
        body = resolved(self.document, operation["requestBody"], "its body")
        content = as_object(body.get("content"), "the content of its body")
        is_required = body.get("required") is True
        json_types = {each: media_type for each in content if (media_type := _json_media_type(each))}
        if json_types:
            kind = min(json_types, key=lambda each: json_types[each] != JSON)  # the first, if none is application/json
            encoding = {"body": "json", "media_type": json_types[kind]}
        else:
            kind = next((each for each in content if without_parameters(each) == FORM), "")
            encoding = {"body": "form"}
        if not kind:
            media_types = ", ".join(sorted(content)) or "of no media type"
            self._leave_out(f"its body is {media_types}; JSON and forms are supported.", is_required=is_required)
            return {}
        schema = as_object(content[kind], "the content of its body").get("schema")
        schema = {} if schema is None else schema
        fields = self._laid_out_fields(schema, is_required=is_required)
        if not fields:
            name = "body" if "body" not in self.properties else "body_body"
            self.properties[name] = self.schemas.schema(name, schema)
            kinds = self.schemas.kinds(self.properties[name]) - {""}
            if encoding["body"] == "form" and kinds and "object" not in kinds:
                raise LeftOut(f"its form is of type {' or '.join(sorted(kinds))}; forms are objects.")
            if is_required:
                self.required.append(name)
            return {**encoding, "body_argument": name}
        names = {}
        for wire, part in fields.items():
            name = wire if wire not in self.properties else f"body_{wire}"
            if name in self.properties:
                raise LeftOut(f"it has two parameters called {name!r}.")
            self.properties[name] = self.schemas.schema(name, part)
            names[name] = wire
        needed = self._flat_object(schema).get("required") or []
        self.required += [name for name, wire in names.items() if wire in needed]
        return {**encoding, "body_fields": names, "body_optional": not is_required}

    def _laid_out_fields(self, schema: Any, *, is_required: bool) -> dict[str, Any]:
        """Return the fields of a body that can become separate arguments; empty if a rule of its schema would be lost.

        An optional body with required fields stays one argument: it may be missing, but not incomplete.
        """
        whole = self._flat_object(schema)
        properties, needed = whole.get("properties"), whole.get("required") or []
        keywords = {word for word in whole if not word.startswith("x-")}
        if whole.get("type", "object") not in ("object", ["object"]) or not keywords <= LAID_OUT:
            return {}
        if whole.get("additionalProperties", False) is not False or whole.get("nullable") is True:
            return {}
        if not isinstance(properties, dict) or not isinstance(needed, list) or not {*needed} <= {*properties}:
            return {}
        fields = {name: each for name, each in properties.items() if not self.schemas.schemas.is_read_only(each)}
        return {} if {*needed} & {*fields} and not is_required else fields

    def _flat_object(self, schema: Any) -> dict[str, Any]:
        """Return the schema to which references lead. Empty if it is no object, or a reference has other keywords."""
        for _ in range(MAX_REFERENCE_CHAIN):
            if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
                break
            if {word for word in schema if not word.startswith("x-")} - BESIDE_REFERENCE:
                return {}
            schema = target_of(self.document, schema["$ref"])
        return schema if isinstance(schema, dict) else {}


def _path_template(path: str, arguments: Mapping[str, str]) -> str:
    """Return the path with the names of arguments in its placeholders. Raises LeftOut."""
    by_wire = {wire: name for name, wire in arguments.items()}
    wanted = re.findall(r"\{([^{}]*)\}", path)
    if set(wanted) != set(by_wire):
        differing = ", ".join(repr(each[:80]) for each in sorted(set(wanted) ^ set(by_wire))[:5])
        raise LeftOut(f"its path and its path parameters do not match: {differing}.")
    if "?" in path or "#" in path or not path.isascii() or not path.isprintable() or " " in path or "\\" in path:
        raise LeftOut("its path contains characters that a path cannot have.")
    return re.sub(r"\{([^{}]*)\}", lambda match: f"{{{by_wire[match[1]]}}}", path)


def _json_media_type(accepted: str) -> str:
    """Return the JSON media type to send if `accepted`, a media type or range, allows JSON; otherwise empty."""
    if without_parameters(accepted) in JSON_RANGES:
        return JSON
    return accepted.strip() if is_json(accepted) and accepted.isascii() and accepted.isprintable() else ""
