"""Which places of a tool's arguments its schema calls secret. Reads JSON Schema and values; judges neither.

A place is secret when any schema that may apply to it says so: `writeOnly`, `format: password`, `x-secret`, or a
property that the tool's author named. So a choice of forms hides a value in all of them.
"""

from collections.abc import Iterable, Iterator

from catalog.schemas.resolver import Schema, children, subschemas, target_of, targets

_SAME_PLACE = ("allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas")
_REFERENCES = ("$ref", "$dynamicRef")

Schemas = tuple[object, ...]


class SecretPlaces:
    """The secret places of one schema; `names` are properties that are secret wherever they stand."""

    def __init__(self, schema: Schema, names: Iterable[str] = ()) -> None:
        self._names = frozenset(names)
        self._targets = targets(schema)
        self.top = self._applying([schema])
        self.any = bool(self._names) or any(says_secret(each) for _, each in subschemas(schema))

    def of_member(self, schemas: Schemas, name: str) -> Schemas:
        """Return what applies to the member `name` of an object to which `schemas` apply."""
        return self._applying(_for_member(schemas, name))

    def of_item(self, schemas: Schemas, index: int) -> Schemas:
        """Return what applies to an item of a list to which `schemas` apply."""
        return self._applying(_for_item(schemas, index))

    def is_secret(self, schemas: Schemas, name: str | None) -> bool:
        """Say whether a value is secret to which `schemas` apply; `name` is its key in an object."""
        return name in self._names or any(isinstance(each, dict) and says_secret(each) for each in schemas)

    def _applying(self, schemas: Iterable[object]) -> Schemas:
        """Return these schemas with all that they refer to or combine at the same place."""
        found: dict[int, object] = {}
        left = list(schemas)
        while left:
            schema = left.pop()
            if not isinstance(schema, dict) or id(schema) in found:
                continue
            found[id(schema)] = schema
            left += children(schema, *_SAME_PLACE)
            left += [self._target(schema[each]) for each in _REFERENCES if isinstance(schema.get(each), str)]
        return tuple(found.values())

    def _target(self, reference: str) -> object:
        try:
            return target_of(reference, self._targets)
        except KeyError:
            return None


def says_secret(schema: Schema) -> bool:
    """Say whether a schema calls its own place secret."""
    return bool(schema.get("writeOnly") is True or schema.get("x-secret") or schema.get("format") == "password")


def _for_member(schemas: Schemas, name: str) -> Iterator[object]:
    for schema in schemas:
        assert isinstance(schema, dict)  # noqa: S101 - `_applying` keeps nothing else
        # A pattern is not tried: what it calls secret is taken as secret under every name.
        yield from children(schema, "patternProperties")
        named = schema.get("properties")
        if isinstance(named, dict) and name in named:
            yield named[name]
        else:
            yield from children(schema, "additionalProperties", "unevaluatedProperties")


def _for_item(schemas: Schemas, index: int) -> Iterator[object]:
    for schema in schemas:
        assert isinstance(schema, dict)  # noqa: S101 - `_applying` keeps nothing else
        yield from children(schema, "contains")
        first = schema.get("prefixItems")
        if isinstance(first, list) and index < len(first):
            yield first[index]
        else:
            yield from children(schema, "items", "unevaluatedItems")
