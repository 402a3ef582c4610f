"""Nulls that a model sends for arguments it leaves out: a strict form of a tool asks for every member.

Dropped is only what the tool's schema declares, does not require, and would refuse as null; nothing else changes.
"""

from collections.abc import Iterator
from typing import Any

from catalog.schema_places import REFERENCES, Schema, children, target_of, targets
from catalog.schemas import Validator

_ALTERNATIVES = ("anyOf", "oneOf")
_TOGETHER = ("allOf", "then", "else", "dependentSchemas")


def without_left_out(validator: Validator, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments without nulls that stand for what was left out."""
    if not _has_null(arguments) or validator.accepts(arguments) or not validator.explains(arguments):
        return arguments
    cleaned: dict[str, Any] = _Forms(validator.schema).cleaned([validator.schema], arguments)
    return cleaned


def _has_null(value: object) -> bool:
    if isinstance(value, dict):
        return any(each is None or _has_null(each) for each in value.values())
    return isinstance(value, list) and any(_has_null(each) for each in value)


class _Forms:
    """One schema, and what of it applies to a value. What a part alone says is looked up once: many ways lead to it."""

    def __init__(self, root: Schema) -> None:
        self._named = targets(root)
        self._names_required: dict[int, frozenset[str]] = {}
        self._nulls_taken: dict[int, bool] = {}

    def cleaned(self, schemas: list[object], value: Any) -> Any:
        """Return a value that these schemas judge, without what was left out."""
        if not isinstance(value, dict | list):
            return value
        forms = list(self._applied(schemas, set()))
        if isinstance(value, list):
            return [self.cleaned(self._for_entry(forms, index), each) for index, each in enumerate(value)]
        required = frozenset[str]().union(*map(self._required, schemas))
        kept = {}
        for name, member in value.items():
            declared = [form["properties"][name] for form in forms if name in form.get("properties", {})]
            if member is None and declared and name not in required and not any(map(self._takes_null, declared)):
                continue
            others = [each for form in forms for each in children(form, "additionalProperties", "patternProperties")]
            kept[name] = self.cleaned(declared or others, member)
        return kept

    def _for_entry(self, forms: list[Schema], index: int) -> list[object]:
        first = [[*children(form, "prefixItems")] for form in forms]
        return [
            *(each[index] for each in first if index < len(each)),
            *(each for form in forms for each in children(form, "items", "contains")),
        ]

    def _applied(self, schemas: list[object], seen: set[int]) -> Iterator[Schema]:
        """Yield these schemas and all that may judge the same value with them."""
        for schema in schemas:
            if isinstance(schema, dict) and id(schema) not in seen:
                seen.add(id(schema))
                yield schema
                yield from self._applied([*children(schema, *_TOGETHER, *_ALTERNATIVES), *self._meant(schema)], seen)

    def _meant(self, schema: Schema) -> list[object]:
        return [target_of(schema[word], self._named) for word in REFERENCES if word in schema]

    def _required(self, schema: object) -> frozenset[str]:
        """Return the members that every value that fits has."""
        if not isinstance(schema, dict):
            return frozenset()
        if id(schema) not in self._names_required:
            self._names_required[id(schema)] = self._find_required(schema)
        return self._names_required[id(schema)]

    def _find_required(self, schema: Schema) -> frozenset[str]:
        together = map(self._required, self._together(schema))
        either = (
            frozenset.intersection(*map(self._required, schema[word])) for word in _ALTERNATIVES if word in schema
        )
        return frozenset(schema.get("required", ())).union(*together, *either)

    def _takes_null(self, schema: object) -> bool:
        if not isinstance(schema, dict):
            return schema is not False
        if id(schema) not in self._nulls_taken:
            self._nulls_taken[id(schema)] = self._find_null(schema)
        return self._nulls_taken[id(schema)]

    def _find_null(self, schema: Schema) -> bool:
        kinds = schema.get("type", "null")
        fits = "null" in kinds if isinstance(kinds, list) else kinds == "null"
        fits = fits and None in schema.get("enum", [None]) and schema.get("const") is None
        fits = fits and all(map(self._takes_null, self._together(schema)))
        return fits and all(any(map(self._takes_null, schema[word])) for word in _ALTERNATIVES if word in schema)

    def _together(self, schema: Schema) -> list[object]:
        return [*children(schema, "allOf"), *self._meant(schema)]
