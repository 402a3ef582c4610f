"""OpenAPI documents (3.0 and 3.1, JSON or YAML) as definitions of HTTP tools.

The document is checked with openapi-pydantic, which has models of both versions and is maintained. Schemas are then
taken from the document itself, because models would change how they are written. References are followed inside the
document only.
"""

import copy
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit

import yaml
from openapi_pydantic.v3 import parse_obj
from pydantic import ValidationError

from catalog.core.canonical_json import json_size
from catalog.core.egress import RequestNotSent, check_url
from catalog.errors import SourceProblem
from catalog.schemas.acceptance import MAX_SCHEMA_BYTES
from catalog.schemas.resolver import schemas_in_place, single_type_of, subschemas
from catalog.sources.definitions import (
    MAX_TOOLS,
    METHOD_LEVELS,
    Definition,
    Listing,
    Schema,
    clean_schema,
    clean_text,
    visible_text,
)
from catalog.sources.http_answers import is_json, without_parameters
from catalog.sources.http_requests import BODYLESS, JSON, Operation
from catalog.sources.settings import HEADER_NAME, MAX_DOCUMENT, RESERVED_HEADERS

MAX_DEPTH = 64
MAX_NODES = 500_000
MAX_REFERENCES = 500
"""Schemas that one operation refers to, directly and indirectly."""
MAX_COPIED = 16 * 1024 * 1024
"""Bytes of the schemas of all operations of a document together; each operation has its own copy."""
MAX_REASON = 500
FORM = "application/x-www-form-urlencoded"
JSON_RANGES = frozenset({"*/*", "application/*", "application/*+json"})
"""Ranges of media types that include JSON."""
CREDENTIAL_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization", "accept", "content-type"})
DROPPED = frozenset({"example", "discriminator", "xml", "externalDocs", "nullable"})
IDEMPOTENT = frozenset({"GET", "HEAD", "PUT"})
"""Methods whose calls may run again after a crash; DELETE is dangerous and never does."""


class _Skipped(Exception):
    """An operation that cannot become a tool, with the reason."""


def read_document(text: str) -> dict[str, Any]:
    """Return a document of JSON or YAML. Raises SourceProblem."""
    if len(text) > MAX_DOCUMENT:
        raise SourceProblem(f"The document has more than {MAX_DOCUMENT:,} characters.")
    try:
        # Not the strict parser of calls: documents give bounds of 64-bit integers, which it refuses.
        value = json.loads(text) if text.lstrip().startswith("{") else yaml.load(text, _Loader)  # noqa: S506 - safe
    except json.JSONDecodeError as error:
        raise SourceProblem(f"The document is not valid JSON (line {error.lineno}).") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" (line {mark.line + 1})" if mark else ""
        raise SourceProblem(f"The document is not valid YAML{place}.") from None
    if not _is_limited(value):
        raise SourceProblem("The document is too deep or too large.")
    if not isinstance(value, dict) or not str(value.get("openapi", "")).startswith(("3.0", "3.1")):
        raise SourceProblem("The document is no OpenAPI 3.0 or 3.1 document.")
    try:
        parse_obj(copy.deepcopy(value))
    except ValidationError as error:
        first = error.errors()[0]
        place = visible_text(".".join(str(each)[:120] for each in first["loc"][:8]))
        raise SourceProblem(f"The document is not valid OpenAPI: {visible_text(first['msg'])} (at {place}).") from None
    except (RecursionError, TypeError, ValueError):
        raise SourceProblem("The document is not valid OpenAPI.") from None
    return value


def _is_limited(value: Any) -> bool:
    """Return whether a document keeps the limits of depth and size."""
    nodes, level = 0, [value]
    for _ in range(MAX_DEPTH):
        nodes += len(level)
        level = [each for part in level if isinstance(part, dict | list) for each in _members(part)]
        if not level or nodes > MAX_NODES:
            break
    return not level and nodes <= MAX_NODES


def _members(part: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return part.values() if isinstance(part, dict) else part


class _Loader(yaml.SafeLoader):
    """YAML without anchors, whose expansion has no limit, and with limits of depth and size."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = self._nodes = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose a node. Raises yaml.YAMLError for an alias and beyond the limits."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("Anchors and aliases are not accepted.")
        self._nodes += 1
        self._depth += 1
        if self._depth > MAX_DEPTH or self._nodes > MAX_NODES:
            raise yaml.YAMLError("The document is too deep or too large.")
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


# Dates and times stay texts: JSON has none.
_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in pairs if tag != "tag:yaml.org,2002:timestamp"]
    for letter, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def list_operations(source: str, text: str, *, url: str = "", base_url: str = "", timeout: float = 30.0) -> Listing:
    """Return a definition for each operation of a document. Raises SourceProblem if the document cannot be used.

    `url` is where the document came from; `base_url` replaces its first server.
    """
    document = read_document(text)
    server = server_of(document, url, base_url)
    usual_servers = {server, *_addresses(_servers(document)[:1], url)}
    schemas = _Schemas()
    found: list[Definition] = []
    problems: list[str] = []
    names: set[str] = set()
    for path, method, item, operation in _operations(document):
        name = _operation_name(operation, method, path)
        if name in names:
            name = f"{method} {path}"
        try:
            if name in names:
                raise _Skipped(f"its name and {name!r} are taken: give it an operationId that no other operation has.")
            names.add(name)
            _check_servers(item, operation, usual_servers, url)
            reader = _Reader(document, schemas, source, server, timeout)
            found.append(reader.definition(name, method, path, item, operation))
            without = "is imported without a parameter"
            problems += [_problem(method, path, reason, without) for reason in reader.left_out]
        except _Skipped as reason:
            problems.append(_problem(method, path, str(reason)))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            problems.append(_problem(method, path, f"{type(error).__name__}."))
        if len(found) > MAX_TOOLS:
            raise SourceProblem(f"The document has more than {MAX_TOOLS:,} operations: cut it down to those you need.")
    return Listing(tuple(found), tuple(problems))


def _problem(method: str, path: str, reason: str, outcome: str = "cannot be imported") -> str:
    """Return a sentence about an operation; both path and reason may quote the document."""
    return visible_text(f"{method} {path[:120]} {outcome}: {reason[:MAX_REASON]}")


def server_of(document: Mapping[str, Any], url: str, base_url: str) -> str:
    """Return the address that paths are appended to. Raises SourceProblem."""
    address = base_url
    if not address:
        try:
            address = _address_of(_servers(document)[0], url)
            is_absolute = bool(urlsplit(address).scheme)
        except ValueError:
            raise SourceProblem("The server of the document cannot be used: its URL is invalid.") from None
        if not is_absolute:
            raise SourceProblem("The document names no absolute server. Set the base URL.")
    try:
        check_url(address)
    except RequestNotSent as error:
        raise SourceProblem(f"The server of the document cannot be used: {error}") from None
    if re.search(r"[?#{]", address):
        raise SourceProblem("The server of the document has a query, a fragment or an open variable. Set the base URL.")
    return address.rstrip("/")


def _servers(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    return document.get("servers") or [{"url": "/"}]


def _addresses(servers: Iterable[Mapping[str, Any]], url: str) -> set[str]:
    found = set()
    for each in servers:
        with suppress(ValueError):
            found.add(_address_of(each, url).rstrip("/"))
    return found


def _check_servers(item: Mapping[str, Any], operation: Mapping[str, Any], usual: Collection[str], url: str) -> None:
    """Raise _Skipped for an operation with servers of its own that include none of the usual ones."""
    own = operation.get("servers") or item.get("servers")
    if own and _addresses(own, url).isdisjoint(usual):
        raise _Skipped(f"it has another server than the document: {own[0].get('url')}.")


def _address_of(server: Mapping[str, Any], url: str) -> str:
    """Return the address of a server; it stays relative without the document's URL. Raises ValueError."""
    address = str(server.get("url", "/"))
    for name, variable in (server.get("variables") or {}).items():
        address = address.replace(f"{{{name}}}", str(variable.get("default", "")))
    return address if urlsplit(address).scheme else urljoin(url, address)


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    for path, item in (document.get("paths") or {}).items():
        if isinstance(item, dict):
            for method in METHOD_LEVELS:
                operation = item.get(method.lower())
                if isinstance(operation, dict):
                    yield str(path), method, item, operation


def _operation_name(operation: Mapping[str, Any], method: str, path: str) -> str:
    given = operation.get("operationId")
    if isinstance(given, str) and given.strip():
        return given.strip()[:200]
    words = re.sub(r"[^A-Za-z0-9]+", "_", path).strip("_")
    return f"{method.lower()}_{words}"[:200]


class _Schemas:
    """The schemas of a document as JSON Schema 2020-12, each converted and measured once however often it is used."""

    def __init__(self) -> None:
        self._converted: dict[int, tuple[Schema, Schema, int]] = {}
        self._texts: dict[str, str] = {}
        self._copied = 0

    def measure(self, schema: Schema) -> int:
        """Return the size of a schema's copy in bytes, where references are as short as those of a tool's schema."""
        return self._convert(schema)[1]

    def copy(self, schema: Schema) -> Schema:
        """Return a copy with references as in the document. Raises SourceProblem if all copies are too large."""
        converted, size = self._convert(schema)
        self._copied += size
        if self._copied > MAX_COPIED:
            raise SourceProblem(
                f"The operations of the document have more than {MAX_COPIED // 1024**2} MiB of schemas: "
                "cut it down to those you need."
            )
        return copy.deepcopy(converted)

    def clean_text(self, text: str) -> str:
        """Return a cleaned description, cleaned once however many operations share it."""
        if text not in self._texts:
            self._texts[text] = clean_text(text).rstrip()
        return self._texts[text]

    def _convert(self, schema: Schema) -> tuple[Schema, int]:
        if id(schema) not in self._converted:
            converted = copy.deepcopy(schema)
            for _, part in list(subschemas(converted)):
                _modernize(part)
            converted = clean_schema({"not": converted})["not"]  # below a keyword, where identifiers are kept
            references = [part["$ref"] for _, part in subschemas(converted) if isinstance(part.get("$ref"), str)]
            shorter = sum(json_size(each) - json_size(_local_reference(_definition_name(each))) for each in references)
            # The schema of the document is kept too: its id() identifies it only while it exists.
            self._converted[id(schema)] = schema, converted, json_size(converted) - shorter
        return self._converted[id(schema)][1:]


@dataclass
class _Reader:
    """Turns one operation into a definition, and collects the schemas that it refers to.

    `room` is how many bytes of schemas are left to it. A little less is counted than the tool's schema will have, so
    that no acceptable operation is skipped: the schema itself is checked when the definition is judged.
    """

    document: Mapping[str, Any]
    schemas: _Schemas
    source: str
    server: str
    timeout: float
    room: int = MAX_SCHEMA_BYTES
    definitions: dict[str, Schema] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    """Why optional parameters are left out."""

    def definition(
        self, name: str, method: str, path: str, item: Mapping[str, Any], operation: Mapping[str, Any]
    ) -> Definition:
        """Return the definition of an operation. Raises _Skipped."""
        if not path.startswith("/"):
            raise _Skipped("its path does not start with '/'.")
        properties: dict[str, Schema] = {}
        required: list[str] = []
        places: dict[str, dict[str, str]] = {"path": {}, "query": {}, "header": {}}
        for parameter in self._parameters(item, operation):
            self._add_parameter(parameter, properties, required, places)
        url = self.server + self._path_template(path, places["path"])
        body = {} if method in BODYLESS else self._body(operation, properties, required)
        schema: Schema = {
            "type": "object",
            "properties": properties,
            "required": sorted(required),
            "additionalProperties": False,
        }
        if self.definitions:
            schema["$defs"] = self.definitions
        level = METHOD_LEVELS[method]
        http = Operation(method=method, url=url, query=places["query"], headers=places["header"], **body)
        words = [operation.get("summary"), operation.get("description")]
        described = "\n\n".join(dict.fromkeys(clean_text(each) for each in words if isinstance(each, str)))
        return Definition(
            kind="http",
            upstream=name,
            description=described.strip() or f"{method} {path}",
            input_schema=schema,
            safety_level=str(level),
            why=f"HTTP method {method}",
            categories=(self.source,),
            timeout=self.timeout,
            retry_safe=method in IDEMPOTENT,
            http=http.as_json(),
        )

    def _parameters(self, item: Mapping[str, Any], operation: Mapping[str, Any]) -> list[dict[str, Any]]:
        merged: dict[tuple[str, str], dict[str, Any]] = {}
        for each in [*(item.get("parameters") or []), *(operation.get("parameters") or [])]:
            parameter = self._resolved(each)
            merged[str(parameter["name"]), str(parameter["in"])] = parameter
        return list(merged.values())

    def _add_parameter(
        self,
        parameter: Mapping[str, Any],
        properties: dict[str, Schema],
        required: list[str],
        places: dict[str, dict[str, str]],
    ) -> None:
        wire, place = str(parameter["name"]), str(parameter["in"])
        is_required = bool(parameter.get("required")) or place == "path"
        if place == "header" and wire.lower() in CREDENTIAL_HEADERS | RESERVED_HEADERS:
            return  # credentials are stored with the source
        if place not in places:
            if is_required:
                raise _Skipped(f"it needs the {place} {wire!r}.")
            return
        name = wire if wire not in properties else f"{place}_{wire}"
        if name in properties:
            raise _Skipped(f"it has two parameters called {wire!r}.")
        schema, media_type = parameter.get("schema"), ""
        if schema is None and parameter.get("content"):
            media_type, content = next(iter(parameter["content"].items()))
            schema = content.get("schema")
        properties[name] = self._schema(name, schema if schema is not None else {"type": "string"})
        if isinstance(parameter.get("description"), str):
            description = self.schemas.clean_text(parameter["description"])
            self._take(len(description) - len(str(properties[name].get("description", ""))))
            properties[name] = {**properties[name], "description": description}
        try:
            self._check_serialization(parameter, media_type, {} if schema is None else properties[name])
        except _Skipped as reason:
            if is_required:
                raise
            del properties[name]
            self.left_out.append(str(reason))
            return
        if is_required:
            required.append(name)
        places[place][name] = wire

    def _check_serialization(self, parameter: Mapping[str, Any], media_type: str, schema: Schema) -> None:
        """Raise _Skipped for a parameter that cannot be sent, or whose values would be sent in another form.

        Requests contain texts as they are, an array in the query as one pair for each item, and other values as JSON.
        """
        place, wire = str(parameter["in"]), str(parameter["name"])
        if place == "header" and not HEADER_NAME.fullmatch(wire):
            raise _Skipped(f"the name of its header parameter {wire!r} is not valid.")
        style = parameter.get("style") or ("form" if place == "query" else "simple")
        explode = parameter.get("explode")
        if explode is None:
            explode = style == "form"
        wrong = {"array", "object"}
        if media_type:
            how = f"the media type {media_type}"
            if _json_media_type(media_type):
                wrong = {"array", "string"} if place == "query" else {"string"}
        elif style in ("label", "matrix"):
            raise _Skipped(f"its {place} parameter {wire!r} has the style {style}, which is not supported.")
        else:
            how = f"style {style} and explode {str(explode).lower()}"
            if place == "query" and explode and style != "deepObject":
                wrong = {"object"}
        found = sorted(self._kinds(schema) & wrong)
        if found:
            kinds = " or ".join(found)
            raise _Skipped(f"its {place} parameter {wire!r} is of type {kinds} with {how}, which is not supported.")

    def _kinds(self, schema: Schema) -> set[str]:
        """Return the types that a schema names or implies; empty for a schema without types."""
        named: dict[str, object] = {_local_reference(name): each for name, each in self.definitions.items()}
        kinds: set[str] = set()
        for part in schemas_in_place([schema], named, ("allOf", "anyOf", "oneOf")):
            kind = part.get("type")
            kinds |= {str(each) for each in kind} if isinstance(kind, list) else {single_type_of(part)}
        return kinds

    @staticmethod
    def _path_template(path: str, arguments: Mapping[str, str]) -> str:
        """Return the path with its placeholders called as the arguments are. Raises _Skipped."""
        by_wire = {wire: name for name, wire in arguments.items()}
        wanted = re.findall(r"\{([^{}]*)\}", path)
        if set(wanted) != set(by_wire):
            raise _Skipped("its path and its path parameters do not match.")
        if "?" in path or "#" in path or not path.isascii() or not path.isprintable() or " " in path or "\\" in path:
            raise _Skipped("its path contains characters that a path cannot have.")
        return re.sub(r"\{([^{}]*)\}", lambda match: f"{{{by_wire[match[1]]}}}", path)

    def _body(self, operation: Mapping[str, Any], properties: dict[str, Schema], required: list[str]) -> dict[str, Any]:
        """Add the body's fields beside the parameters, and return the operation's part about the body."""
        if not operation.get("requestBody"):
            return {}
        body = self._resolved(operation["requestBody"])
        content = body.get("content") or {}
        is_required = bool(body.get("required"))
        kind, encoding = _body_encoding(content, is_required=is_required)
        if not kind:
            return {}
        schema = content[kind].get("schema") or {}
        inner = self._resolved(schema)
        if not _is_plain_object(inner):
            name = "body" if "body" not in properties else "body_body"
            properties[name] = self._schema(name, schema)
            types = self._kinds(properties[name]) - {""}
            if kind == FORM and types and "object" not in types:
                raise _Skipped(f"its form is of type {' or '.join(sorted(types))}; forms are objects.")
            if is_required:
                required.append(name)
            return {**encoding, "body_argument": name}
        fields = {}
        needed = set(inner.get("required") or [])
        for wire, part in inner["properties"].items():
            if isinstance(part, dict) and part.get("readOnly"):
                continue
            name = wire if wire not in properties else f"body_{wire}"
            if name in properties:
                raise _Skipped(f"it has two parameters called {name!r}.")
            properties[name] = self._schema(name, part)
            fields[name] = wire
            if is_required and wire in needed:
                required.append(name)
        return {**encoding, "body_fields": fields}

    def _resolved(self, part: Any) -> dict[str, Any]:
        """Return a part of the document, following references. Raises _Skipped."""
        for _ in range(20):
            if not isinstance(part, dict):
                raise _Skipped("a part of it is no object.")
            if "$ref" not in part:
                return part
            part = self._target(str(part["$ref"]))
        raise _Skipped("its references lead in a circle.")

    def _target(self, reference: str) -> Any:
        if not reference.startswith("#/"):
            raise _Skipped("it refers to another document.")
        target: Any = self.document
        for step in reference[2:].split("/"):
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and key.isdigit() and int(key) < len(target):
                target = target[int(key)]
            elif isinstance(target, dict) and key in target:
                target = target[key]
            else:
                raise _Skipped(f"it refers to {reference[:100]}, which is not there.")
        return target

    def _schema(self, name: str, schema: Any) -> Schema:
        """Return the schema that a property or definition of this name has; what it refers to goes to `definitions`.

        Raises _Skipped, before it is copied, if it exceeds the room that is left.
        """
        self._take(len(name) + len('"":,'))
        if isinstance(schema, bool):
            return {} if schema else {"not": {}}
        if not isinstance(schema, dict):
            raise _Skipped("a schema of it is no object.")
        self._take(self.schemas.measure(schema))
        result = self.schemas.copy(schema)
        for _, part in list(subschemas(result)):
            if isinstance(part.get("$ref"), str):
                part["$ref"] = self._definition_reference(part["$ref"])
        return result

    def _take(self, size: int) -> None:
        self.room -= size
        if self.room < 0:
            raise _Skipped(f"its schemas are too large: at most {MAX_SCHEMA_BYTES:,} bytes are accepted.")

    def _definition_reference(self, reference: str) -> str:
        if reference in self.names:
            return _local_reference(self.names[reference])
        if len(self.names) >= MAX_REFERENCES:
            raise _Skipped(f"it refers to more than {MAX_REFERENCES} schemas.")
        name = _definition_name(reference)
        if name in self.names.values():
            name = f"{name}_{hashlib.sha256(reference.encode()).hexdigest()[:8]}"
        self.names[reference] = name
        self.definitions[name] = {}
        self.definitions[name] = self._schema(name, self._target(reference))
        return _local_reference(name)


def _definition_name(reference: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", reference.rpartition("/")[2])[:60] or "schema"


def _local_reference(name: str) -> str:
    return f"#/$defs/{name}"


def _body_encoding(content: Mapping[str, Any], *, is_required: bool) -> tuple[str, dict[str, str]]:
    """Return the media type that is used of those a body may have, and the fields of the operation for it.

    Both are empty if none is supported. Raises _Skipped if the body is then required.
    """
    json_types = {each: media_type for each in content if (media_type := _json_media_type(each))}
    if json_types:
        used = min(json_types, key=lambda each: json_types[each] != JSON)  # the first, if none is application/json
        return used, {"body": "json", "media_type": json_types[used]}
    if FORM in content:
        return FORM, {"body": "form"}
    if is_required:
        raise _Skipped(f"its body is {', '.join(sorted(content)) or 'of no kind'}; JSON and forms are supported.")
    return "", {}


def _json_media_type(accepted: str) -> str:
    """Return what JSON is sent as where this media type or range is accepted; empty if JSON is not."""
    if without_parameters(accepted) in JSON_RANGES:
        return JSON
    return accepted.strip() if is_json(accepted) and accepted.isascii() and accepted.isprintable() else ""


def _is_plain_object(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema's fields can stand beside the parameters."""
    is_object = schema.get("type", "object") == "object" and isinstance(schema.get("properties"), dict)
    return is_object and bool(schema["properties"]) and not {"allOf", "oneOf", "anyOf", "not"} & schema.keys()


def _modernize(part: Schema) -> None:
    """Write a schema object of OpenAPI 3.0 as JSON Schema 2020-12, in place."""
    if part.get("nullable") is True:
        kind = part.get("type")
        if isinstance(kind, str):
            part["type"] = [kind, "null"]
        if isinstance(part.get("enum"), list) and None not in part["enum"]:
            part["enum"] = [*part["enum"], None]
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(part.get(exclusive), bool) and part.pop(exclusive) and bound in part:
            part[exclusive] = part.pop(bound)
    for word in DROPPED:
        part.pop(word, None)
    for word in [each for each in part if each.startswith("x-") and each != "x-secret"]:
        del part[word]
