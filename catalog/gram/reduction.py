"""A JSON Schema reduced to what gram can say: one type each, records, lists; notes everything that it drops."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from catalog.gram.writing import value_text
from catalog.schemas.resolver import target_of, targets

Schema = dict[str, Any]

MAX_HOPS = 20
MAX_NESTING = 8
MAX_STEPS = 2000
MAX_LINES = 20
MAX_PLACES = 5
MAX_NAME = 80
MAX_VARIANTS = 50
# What gram says, what follows from it, and what only people read.
_SAID = frozenset(
    {
        *("type", "properties", "required", "items", "description", "default"),
        *("$ref", "$defs", "definitions", "allOf", "anyOf", "oneOf"),
        *("additionalProperties", "unevaluatedProperties", "title", "examples", "$schema", "$comment", "deprecated"),
    }
)
_BY_KEYWORD = {"properties": "object", "items": "array", "prefixItems": "array", "pattern": "string"}


class Notes:
    """What was left out: keyword → the paths where it stood."""

    def __init__(self) -> None:
        self._paths: dict[str, list[str]] = {}

    def leave_out(self, what: str, path: str) -> None:
        """Note one thing at one place."""
        paths = self._paths.setdefault(what, [])
        if path not in paths:
            paths.append(path)

    def lines(self) -> list[str]:
        """Return a line for each thing with the first places where it stood; neither can hold a line break."""
        named = list(self._paths.items())
        lines = [f"{_on_one_line(what)}{_places(paths)}" for what, paths in named[:MAX_LINES]]
        return [*lines, f"{len(named) - MAX_LINES} things more"] if len(named) > MAX_LINES else lines


class Reduction:
    """Reduces the parts of one schema, noting what it drops; does only so much work, whatever the schema says."""

    def __init__(self, root: Mapping[str, Any], notes: Notes) -> None:
        self._named = targets(dict(root))
        self._notes = notes
        self._steps = 0

    def reduced(self, schema: object, path: str, depth: int = 0) -> Schema:
        """Return the schema with references followed, unions decided, and `type` one type other than null."""
        self._steps += 1
        found = self._without_references(schema, path)
        if depth > MAX_NESTING or self._steps > MAX_STEPS:
            self._notes.leave_out("what lies deeper", path)
            return {"type": str(found.get("type", "object"))}
        for keyword in ("allOf", "anyOf", "oneOf"):
            parts = found.pop(keyword, None)
            if isinstance(parts, list) and parts:
                found = self._with_parts(found, parts[:MAX_VARIANTS], keyword, path, depth)
        found["type"] = _one_type(found, path, self._notes)
        for keyword in found:
            if keyword not in _SAID or (keyword == "additionalProperties" and isinstance(found[keyword], Mapping)):
                self._notes.leave_out(keyword, path)
        return found

    def _with_parts(self, found: Schema, parts: list[Any], keyword: str, path: str, depth: int) -> Schema:
        if keyword == "allOf":
            return _joined([found, *(self._without_references(part, path) for part in parts)])
        wanted = [part for part in parts if not (isinstance(part, Mapping) and part.get("type") == "null")]
        if len(wanted) < len(parts):
            self._notes.leave_out("null", path)
        if len(wanted) > 1:
            self._notes.leave_out(keyword, path)
        return _decided(found, [self.reduced(part, path, depth + 1) for part in wanted])

    def _without_references(self, schema: object, path: str) -> Schema:
        found: Schema = dict(schema) if isinstance(schema, Mapping) else {}
        for _ in range(MAX_HOPS):
            reference = found.pop("$ref", None)
            if reference is None:
                return found
            found = {**self._target(str(reference)), **found}
        self._notes.leave_out("$ref", path)
        return found

    def _target(self, reference: str) -> Mapping[str, Any]:
        """Return what a reference means; one that leads nowhere says nothing."""
        try:
            target = target_of(reference, self._named)
        except KeyError:
            return {}
        return target if isinstance(target, Mapping) else {}


def _decided(found: Schema, variants: list[Schema]) -> Schema:
    """Return one schema for a union: records as one, one kind of thing as that kind, else the first variant."""
    kinds = {variant["type"] for variant in variants}
    if len(variants) > 1 and kinds == {"object"}:
        needed = set.intersection(*(set(variant.get("required", ())) for variant in variants))
        joined = _joined([found, *variants])
        return joined | {"required": [*found.get("required", ()), *sorted(needed)]}
    if len(variants) > 1 and len(kinds) == 1:
        return {"type": kinds.pop(), **found}
    return _joined([found, *variants[:1]])


def _joined(schemas: Iterable[Schema]) -> Schema:
    """Return all schemas as one; of what two of them say, the first counts, but members are put together."""
    whole: Schema = {}
    for schema in schemas:
        members = _joined_members(whole.get("properties"), schema.get("properties"))
        needed = [*whole.get("required", ()), *schema.get("required", ())]
        whole = {**schema, **whole}
        if members:
            whole["properties"] = members
        if needed:
            whole["required"] = needed
    return whole


def _joined_members(first: object, second: object) -> Schema:
    """Return the members of two records; one that both have, and differently, is a choice."""
    ours = dict(first) if isinstance(first, Mapping) else {}
    for name, part in second.items() if isinstance(second, Mapping) else ():
        if name in ours and ours[name] != part:
            ours[name] = {"anyOf": [*(ours[name]["anyOf"] if set(ours[name]) == {"anyOf"} else [ours[name]]), part]}
        ours.setdefault(name, part)
    return ours


def _one_type(schema: Schema, path: str, notes: Notes) -> str:
    declared = schema.get("type")
    kinds = [str(kind) for kind in declared] if isinstance(declared, list) else [declared] if declared else []
    if not kinds:
        kinds = list(dict.fromkeys(_implied(schema)))
    if "null" in kinds:
        notes.leave_out("null", path)
    kinds = [kind for kind in kinds if kind and kind != "null"]
    if len(kinds) != 1:
        notes.leave_out("the choice of types" if kinds else "any type", path)
    return kinds[0] if kinds else "object"


def _implied(schema: Schema) -> Iterator[str]:
    for value in (*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())):
        yield _type_of(value)
    for keyword, kind in _BY_KEYWORD.items():
        if keyword in schema:
            yield kind


def _type_of(value: object) -> str:
    kinds: tuple[tuple[type, str], ...] = (
        *((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string")),
        *((list, "array"), (dict, "object")),
    )
    return next((name for kind, name in kinds if isinstance(value, kind)), "null")


def _places(paths: list[str]) -> str:
    named = [_on_one_line(path) for path in paths if path][:MAX_PLACES]
    if not named:
        return ""
    more = len(paths) - len(named)
    return f" ({', '.join(named)}{f' and {more} more' if more else ''})"


def _on_one_line(text: str) -> str:
    """Return a name as a comment may hold it."""
    return value_text(text[:MAX_NAME])[1:-1]
