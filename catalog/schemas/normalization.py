"""Normalization of arguments: needless nulls are dropped, defaults are filled in.

Strict forms of a tool make models send a null for each omitted member. A null is dropped only if the schema declares
the member, does not require it, and would refuse null.
"""

from collections.abc import Iterator
from typing import Any

from catalog.schemas.resolver import (
    REFERENCE_KEYWORDS,
    Schema,
    child_schemas,
    index_references,
    resolve_reference,
    schemas_in_place,
)
from catalog.schemas.validation import Validator

_ALTERNATIVE_KEYWORDS = ("anyOf", "oneOf")
_IN_PLACE_KEYWORDS = ("allOf", "then", "else", "dependentSchemas", *_ALTERNATIVE_KEYWORDS)


def drop_omitted_nulls(validator: Validator, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments without nulls that stand for omitted members."""
    if not _has_null(arguments) or validator.accepts(arguments) or not validator.explains(arguments):
        return arguments
    cleaned: dict[str, Any] = _NullDropper(validator.schema).cleaned([validator.schema], arguments)
    return cleaned


def _has_null(value: object) -> bool:
    if isinstance(value, dict):
        return any(each is None or _has_null(each) for each in value.values())
    return isinstance(value, list) and any(_has_null(each) for each in value)


class _NullDropper:
    """Drops nulls by one schema. Results for subschemas are cached, because they can be reached in many ways."""

    def __init__(self, root: Schema) -> None:
        self._named = index_references(root)
        self._names_required: dict[int, frozenset[str]] = {}
        self._nulls_taken: dict[int, bool] = {}

    def cleaned(self, schemas: list[object], value: Any) -> Any:
        """Return a value to which these schemas apply, without nulls for omitted members."""
        if not isinstance(value, dict | list):
            return value
        forms = schemas_in_place(schemas, self._named, _IN_PLACE_KEYWORDS)
        if isinstance(value, list):
            return [self.cleaned(self._for_entry(forms, index), each) for index, each in enumerate(value)]
        required = frozenset[str]().union(*map(self._required, schemas))
        kept = {}
        for name, member in value.items():
            declared = [form["properties"][name] for form in forms if name in form.get("properties", {})]
            if member is None and declared and name not in required and not any(map(self._allows_null, declared)):
                continue
            others = [
                each for form in forms for each in child_schemas(form, "additionalProperties", "patternProperties")
            ]
            kept[name] = self.cleaned(declared or others, member)
        return kept

    def _for_entry(self, forms: list[Schema], index: int) -> list[object]:
        first = [[*child_schemas(form, "prefixItems")] for form in forms]
        return [
            *(each[index] for each in first if index < len(each)),
            *(each for form in forms for each in child_schemas(form, "items", "contains")),
        ]

    def _required(self, schema: object) -> frozenset[str]:
        """Return the members that every valid value has."""
        if not isinstance(schema, dict):
            return frozenset()
        if id(schema) not in self._names_required:
            self._names_required[id(schema)] = self._find_required(schema)
        return self._names_required[id(schema)]

    def _find_required(self, schema: Schema) -> frozenset[str]:
        together = map(self._required, self._together(schema))
        either = (
            frozenset.intersection(*map(self._required, schema[word]))
            for word in _ALTERNATIVE_KEYWORDS
            if word in schema
        )
        return frozenset(schema.get("required", ())).union(*together, *either)

    def _allows_null(self, schema: object) -> bool:
        if not isinstance(schema, dict):
            return schema is not False
        if id(schema) not in self._nulls_taken:
            self._nulls_taken[id(schema)] = self._find_null(schema)
        return self._nulls_taken[id(schema)]

    def _find_null(self, schema: Schema) -> bool:
        kinds = schema.get("type", "null")
        fits = "null" in kinds if isinstance(kinds, list) else kinds == "null"
        fits = fits and None in schema.get("enum", [None]) and schema.get("const") is None
        fits = fits and all(map(self._allows_null, self._together(schema)))
        return fits and all(
            any(map(self._allows_null, schema[word])) for word in _ALTERNATIVE_KEYWORDS if word in schema
        )

    def _together(self, schema: Schema) -> list[object]:
        return [*child_schemas(schema, "allOf"), *_references_of(schema, self._named)]


def _references_of(schema: Schema, named: dict[str, object]) -> list[object]:
    return [resolve_reference(schema[word], named) for word in REFERENCE_KEYWORDS if word in schema]


MAX_DEFAULTS_DEPTH = 16


def fill_defaults(schema: Schema, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with the defaults of omitted members filled in, also in nested objects.

    Among alternatives, only the one selected by constants in the arguments is used.
    """
    filled: dict[str, Any] = _fill_schema_defaults([schema], arguments, index_references(schema), MAX_DEFAULTS_DEPTH)
    return filled


def _fill_schema_defaults(schemas: list[object], value: Any, named: dict[str, object], depth: int) -> Any:
    if not isinstance(value, dict) or not depth:
        return value
    members: dict[str, list[object]] = {}
    for form in _applicable_schemas(schemas, value, named, depth):
        for name, member in form.get("properties", {}).items():
            members.setdefault(name, []).append(member)
    filled = dict(value)
    for name, declared in members.items():
        defaults = [each["default"] for each in declared if isinstance(each, dict) and "default" in each]
        if name in value:
            filled[name] = _fill_schema_defaults(declared, value[name], named, depth - 1)
        elif defaults:
            filled[name] = defaults[0]
    return filled


def _applicable_schemas(
    schemas: list[object], value: dict[str, Any], named: dict[str, object], depth: int
) -> Iterator[Schema]:
    """Yield these schemas and those that apply to the same object through them."""
    for schema in schemas:
        if not isinstance(schema, dict) or not depth:
            continue
        yield schema
        more = [*child_schemas(schema, "allOf"), *_references_of(schema, named)]
        for word in _ALTERNATIVE_KEYWORDS:
            chosen = [each for each in child_schemas(schema, word) if _may_apply(each, value, named)]
            more += chosen if len(chosen) == 1 else []
        yield from _applicable_schemas(more, value, named, depth - 1)


def _may_apply(schema: object, value: dict[str, Any], named: dict[str, object]) -> bool:
    """Return whether an alternative matches the object's constants."""
    meant = resolve_reference(schema["$ref"], named) if isinstance(schema, dict) and "$ref" in schema else schema
    if not isinstance(meant, dict) or meant.get("type", "object") != "object":
        return False
    return all(
        value.get(name) == member["const"]
        for name, member in meant.get("properties", {}).items()
        if isinstance(member, dict) and "const" in member
    )
