"""Normalization of arguments: needless nulls are dropped, large integers are read from their digits.

Strict forms of a tool make models send a null for each omitted member. Integers beyond ±(2^53 - 1) do not survive most
JSON parsers, so they are sent and stored as texts of digits.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from catalog.core.canonical_json import MAX_SAFE_INTEGER
from catalog.core.json_paths import member_path
from catalog.schemas.resolver import (
    Schema,
    child_schemas,
    index_references,
    referenced_schemas,
    schemas_in_place,
)
from catalog.schemas.validation import Validator

_ALTERNATIVE_KEYWORDS = ("anyOf", "oneOf")
_IN_PLACE_KEYWORDS = ("allOf", "then", "else", "dependentSchemas", *_ALTERNATIVE_KEYWORDS)
_DIGITS = re.compile(r"[+-]?[0-9]{16,4300}")
"""Python converts at most 4,300 digits."""


@dataclass(frozen=True, slots=True)
class NormalizedArguments:
    """Arguments after normalization, with the dotted paths of the nulls that were dropped."""

    arguments: dict[str, Any]
    dropped: tuple[str, ...] = ()


def normalize_arguments(validator: Validator, arguments: dict[str, Any]) -> NormalizedArguments:
    """Drop nulls for omitted members from arguments, and convert large integers that were sent as digits."""
    if not _may_differ(arguments) or validator.accepts(arguments) or not validator.explains(arguments):
        return NormalizedArguments(arguments)
    normalizer = _Normalizer(validator.schema)
    normal: dict[str, Any] = normalizer.normalized([validator.schema], arguments, "")
    return NormalizedArguments(normal, tuple(normalizer.dropped))


def read_large_integers(validator: Validator, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return stored arguments with large integers converted from digits; the same object if there are none."""
    if not any(is_large_integer(text) for text in _texts(arguments)):
        return arguments
    return normalize_arguments(validator, arguments).arguments


def large_integers_as_digits(value: Any) -> Any:
    """Return the value in its stored form: each integer beyond ±(2^53 - 1) becomes a text of its digits."""
    if isinstance(value, dict):
        return {name: large_integers_as_digits(each) for name, each in value.items()}
    if isinstance(value, list):
        return [large_integers_as_digits(each) for each in value]
    return str(value) if type(value) is int and abs(value) > MAX_SAFE_INTEGER else value


def is_large_integer(value: object) -> bool:
    """Return whether a text consists of the digits of an integer beyond ±(2^53 - 1), with or without a sign."""
    if not isinstance(value, str) or not _DIGITS.fullmatch(value):
        return False
    return abs(int(value)) > MAX_SAFE_INTEGER


def _may_differ(value: object) -> bool:
    if isinstance(value, dict | list):
        return any(map(_may_differ, value.values() if isinstance(value, dict) else value))
    return value is None or is_large_integer(value)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value


class _Normalizer:
    """Normalizes by one schema. Results for subschemas are cached, because they can be reached in many ways."""

    def __init__(self, root: Schema) -> None:
        self._named = index_references(root)
        self._names_required: dict[int, frozenset[str]] = {}
        self._nulls_taken: dict[int, bool] = {}
        self.dropped: list[str] = []

    def normalized(self, schemas: list[object], value: Any, path: str) -> Any:
        """Return a value, to which all `schemas` apply, without nulls for omitted members."""
        if not isinstance(value, dict | list):
            if not is_large_integer(value):
                return value
            # An integer if the schemas name that type, and no form of it that is a text.
            declared_types = [form.get("type") for form in schemas_in_place(schemas, self._named, _IN_PLACE_KEYWORDS)]
            named = {name for each in declared_types for name in (each if isinstance(each, list) else [each])}
            return int(value) if "integer" in named and "string" not in named else value
        forms = schemas_in_place(schemas, self._named, _IN_PLACE_KEYWORDS)
        if isinstance(value, list):
            return [
                self.normalized(self._for_entry(forms, index), each, member_path(path, index))
                for index, each in enumerate(value)
            ]
        required = frozenset[str]().union(*map(self._required, schemas))
        kept = {}
        for name, member in value.items():
            declared = [form["properties"][name] for form in forms if name in form.get("properties", {})]
            if member is None and declared and name not in required and not any(map(self._allows_null, declared)):
                self.dropped.append(member_path(path, name))
                continue
            others = [
                each for form in forms for each in child_schemas(form, "additionalProperties", "patternProperties")
            ]
            kept[name] = self.normalized(declared or others, member, member_path(path, name))
        return kept

    def _for_entry(self, forms: list[Schema], index: int) -> list[object]:
        first = [[*child_schemas(form, "prefixItems")] for form in forms]
        return [
            *(each[index] for each in first if index < len(each)),
            *(each for form in forms for each in child_schemas(form, "items", "contains")),
        ]

    def _required(self, schema: object) -> frozenset[str]:
        if not isinstance(schema, dict):
            return frozenset()
        if id(schema) not in self._names_required:
            together = map(self._required, self._together(schema))
            either = (
                frozenset.intersection(*map(self._required, schema[word]))
                for word in _ALTERNATIVE_KEYWORDS
                if word in schema
            )
            self._names_required[id(schema)] = frozenset(schema.get("required", ())).union(*together, *either)
        return self._names_required[id(schema)]

    def _allows_null(self, schema: object) -> bool:
        if not isinstance(schema, dict):
            return schema is not False
        if id(schema) not in self._nulls_taken:
            kinds = schema.get("type", "null")
            fits = "null" in kinds if isinstance(kinds, list) else kinds == "null"
            fits = fits and None in schema.get("enum", [None]) and schema.get("const") is None
            fits = fits and all(map(self._allows_null, self._together(schema)))
            self._nulls_taken[id(schema)] = fits and all(
                any(map(self._allows_null, schema[word])) for word in _ALTERNATIVE_KEYWORDS if word in schema
            )
        return self._nulls_taken[id(schema)]

    def _together(self, schema: Schema) -> list[object]:
        return [*child_schemas(schema, "allOf"), *referenced_schemas(schema, self._named)]
