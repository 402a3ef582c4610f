"""OpenAI's strict mode: a subset of JSON Schema in which every member is required and optional ones are nullable.

Keywords that only narrow a schema are dropped. A schema is refused if converting it would mean widening or guessing.
"""

from collections.abc import Mapping
from typing import Any

from catalog.core.canonical_json import canonical_text, json_type_of
from catalog.exports.flattening import flatten_to_object, resolve_with_siblings
from catalog.schemas.resolver import Schema, child_schemas, subschemas

MAX_PROPERTIES = 5_000
MAX_LEVELS = 10
MAX_CHOICES = 1_000
MANY_CHOICES, MAX_CHOICE_TEXT = 250, 15_000
MAX_TEXT = 120_000

_KEPT_KEYWORDS = (
    *("type", "description", "enum", "const", "anyOf", "$ref", "properties", "items", "pattern", "multipleOf"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"),
)
_SUPPORTED_FORMATS = frozenset(("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"))
_ANNOTATION_KEYWORDS = ("description", "title", "default", "examples", "deprecated", "readOnly", "writeOnly")
_NULL: Schema = {"type": "null"}


class NotStrict(Exception):
    """The schema has no strict form; the text gives the reason."""


def to_strict_schema(schema: Mapping[str, Any]) -> Schema:
    """Return the strict form of a tool's argument schema. Raises NotStrict."""
    flat = flatten_to_object(schema)
    definitions = flat.pop("$defs", {})
    form = _StrictConverter(definitions).form({"additionalProperties": False, **flat}, "")
    if definitions:
        form["$defs"] = {name: _StrictConverter(definitions).form(each, name) for name, each in definitions.items()}
    _check_limits(form)
    return form


class _StrictConverter:
    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions

    def form(self, schema: object, path: str) -> Schema:
        if not isinstance(schema, dict):
            raise NotStrict(f"{_quoted_path(path)} accepts anything or nothing")
        schema = self._simple(schema, path)
        if "$ref" in schema:
            return {"$ref": schema["$ref"]}
        if "anyOf" in schema:
            return self._described(schema, {"anyOf": [self.form(each, path) for each in schema["anyOf"]]})
        kept = {
            word: schema[word] for word in _KEPT_KEYWORDS if word in schema and (word != "description" or schema[word])
        }
        if schema.get("format") in _SUPPORTED_FORMATS:
            kept["format"] = schema["format"]
        if "type" not in schema:  # it follows from the allowed values
            values = schema.get("enum", [schema["const"]] if "const" in schema else [])
            kinds = list(dict.fromkeys(map(json_type_of, values)))
            if not kinds or not {"array", "object"}.isdisjoint(kinds):
                raise NotStrict(f"{_quoted_path(path)} has no type")
            kept["type"] = kinds[0] if len(kinds) == 1 else kinds
        return self._by_type(kept, schema, path)

    def _by_type(self, kept: Schema, schema: Schema, path: str) -> Schema:
        kinds = kept["type"] if isinstance(kept["type"], list) else [kept["type"]]
        if len(kinds) > 1 and {"object", "array"} & {*kinds}:
            branches = [self.form({**schema, "type": kind, "description": ""}, path) for kind in kinds]
            return self._described(schema, {"anyOf": branches})
        if "object" in kinds:
            members, others = schema.get("properties", {}), schema.get("additionalProperties")
            if "patternProperties" in schema or others not in (None, False) or (not members and others is None):
                raise NotStrict(f"{_quoted_path(path)} accepts undeclared members")
            required = schema.get("required", ())
            forms = {}
            for name, member in members.items():
                form = self.form(member, f"{path}.{name}" if path else name)
                forms[name] = form if name in required else self._nullable(form)
            described = {"description": kept["description"]} if kept.get("description") else {}
            return {
                "type": "object",
                **described,
                "properties": forms,
                "required": list(forms),
                "additionalProperties": False,
            }
        if "array" in kinds:
            if "prefixItems" in schema or not isinstance(schema.get("items"), dict):
                raise NotStrict(f"{_quoted_path(path)} is a list without one schema for all entries")
            words = ("type", "description", "minItems", "maxItems")
            entries = {"items": self.form(schema["items"], f"{path}[]")}
            return {word: kept[word] for word in words if kept.get(word)} | entries
        return {word: value for word, value in kept.items() if word not in ("properties", "items")}

    def _simple(self, schema: Schema, path: str) -> Schema:
        """Return the schema without `oneOf`, `allOf`, and keywords that stand beside a reference or alternatives."""
        if "oneOf" in schema:
            if "anyOf" in schema:
                raise NotStrict(f"{_quoted_path(path)} has anyOf and oneOf together")
            schema = {("anyOf" if word == "oneOf" else word): value for word, value in schema.items()}
        if "allOf" in schema:
            parts, rest = schema["allOf"], {word: value for word, value in schema.items() if word != "allOf"}
            if len(parts) != 1 or not isinstance(parts[0], dict) or not {*rest} <= {*_ANNOTATION_KEYWORDS}:
                raise NotStrict(f"{_quoted_path(path)} has allOf")
            schema = self._simple({**parts[0], **rest}, path)
        narrows = any(
            word in _KEPT_KEYWORDS and word not in ("$ref", "anyOf", "type", "description") for word in schema
        )
        if "$ref" in schema and (narrows or "anyOf" in schema):
            return self._simple(resolve_with_siblings(schema, self._definitions), path)
        if "anyOf" in schema and narrows:
            raise NotStrict(f"{_quoted_path(path)} has alternatives that share keywords")
        return schema

    def _nullable(self, form: Schema) -> Schema:
        if "$ref" in form:
            target = resolve_with_siblings(form, self._definitions)
            return form if "null" in _kinds(target) else {"anyOf": [form, _NULL]}
        if "anyOf" in form:
            return form if _NULL in form["anyOf"] else {**form, "anyOf": [*form["anyOf"], _NULL]}
        if "null" in _kinds(form):
            return form
        if "const" in form:
            form = {word: value for word, value in form.items() if word != "const"} | {"enum": [form["const"]]}
        choices = {"enum": [*form["enum"], None]} if "enum" in form else {}
        return {**form, "type": [*_kinds(form), "null"], **choices}

    @staticmethod
    def _described(schema: Schema, form: Schema) -> Schema:
        return ({"description": schema["description"]} if schema.get("description") else {}) | form


def _kinds(form: Schema) -> list[str]:
    kinds = form.get("type", [])
    return kinds if isinstance(kinds, list) else [kinds]


def _quoted_path(path: str) -> str:
    return f"'{path}'" if path else "the whole"


def _check_limits(form: Schema) -> None:
    members = [name for _, each in subschemas(form) for name in each.get("properties", ())]
    choices = [each["enum"] for _, each in subschemas(form) if "enum" in each]
    fixed = [each["const"] for _, each in subschemas(form) if "const" in each]
    texts = [*members, *form.get("$defs", ()), *(_text(value) for values in (*choices, fixed) for value in values)]
    limits = (
        (len(members), MAX_PROPERTIES, "members"),
        (_nesting_depth(form, form.get("$defs", {})), MAX_LEVELS, "levels"),
        (sum(map(len, choices)), MAX_CHOICES, "choices"),
        (sum(map(len, texts)), MAX_TEXT, "characters in names and choices"),
    )
    for count, most, what in limits:
        if count > most:
            raise NotStrict(f"it has {count:,} {what}, and at most {most:,} are accepted")
    if any(
        len(values) > MANY_CHOICES and sum(len(_text(each)) for each in values) > MAX_CHOICE_TEXT for values in choices
    ):
        raise NotStrict(f"more than {MANY_CHOICES} choices have more than {MAX_CHOICE_TEXT:,} characters together")


def _text(value: object) -> str:
    return value if isinstance(value, str) else canonical_text(value)


def _nesting_depth(form: Schema, definitions: Mapping[str, Schema], within: frozenset[str] = frozenset()) -> int:
    """Return the nesting depth of objects and lists; a recursive definition is counted once."""
    name = form.get("$ref", "").rpartition("/")[2]
    if name:
        return 0 if name in within else _nesting_depth(definitions[name], definitions, within | {name})
    inner = (each for each in child_schemas(form, "properties", "items", "anyOf") if isinstance(each, dict))
    inside = max((_nesting_depth(each, definitions, within) for each in inner), default=0)
    return inside + ("object" in _kinds(form) or "array" in _kinds(form))
