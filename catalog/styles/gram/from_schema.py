"""Conversion of JSON Schema to the nearest gram signature, with notes of everything gram cannot express."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from catalog.core.canonical_json import json_type_of
from catalog.errors import TypeSignatureError
from catalog.schemas.resolver import follow_reference
from catalog.styles.gram.signature import (
    Parameter,
    Type,
    TypeSignature,
    signature_text,
    specification_text,
    type_mismatch,
    value_text,
)
from catalog.styles.gram.specification import ToolSpecification

Schema = dict[str, Any]

MAX_HOPS = 20
MAX_NESTING = 8
MAX_REDUCTION_STEPS = 2000
MAX_LINES = 20
MAX_LISTED_PATHS = 5
MAX_COMMENT_NAME = 80
MAX_VARIANTS = 50
# Keywords that gram expresses, that follow from it, or that are only for people.
_EXPRESSIBLE_KEYWORDS = frozenset(
    {
        *("type", "properties", "required", "items", "description", "default"),
        *("$ref", "$defs", "definitions", "allOf", "anyOf", "oneOf"),
        *("additionalProperties", "unevaluatedProperties", "title", "examples", "$schema", "$comment", "deprecated"),
    }
)
_TYPE_BY_KEYWORD = {"properties": "object", "items": "array", "prefixItems": "array", "pattern": "string"}


class OmissionLog:
    """Keywords of a schema that were left out, each with the paths where it occurred."""

    def __init__(self) -> None:
        self._paths: dict[str, list[str]] = {}

    def leave_out(self, what: str, path: str) -> None:
        paths = self._paths.setdefault(what, [])
        if path not in paths:
            paths.append(path)

    def lines(self) -> list[str]:
        """Return one line for each keyword, with the first of its paths; no line contains a line break."""
        named = list(self._paths.items())
        lines = [f"{_single_line(what)}{_format_paths(paths)}" for what, paths in named[:MAX_LINES]]
        return [*lines, f"{len(named) - MAX_LINES} things more"] if len(named) > MAX_LINES else lines


class SchemaReducer:
    """Reduces the parts of one schema with a bounded amount of work, noting what it drops."""

    def __init__(self, root: Mapping[str, Any], log: OmissionLog) -> None:
        self._root = root
        self._notes = log
        self._steps = 0

    def reduced(self, schema: object, path: str, depth: int = 0) -> Schema:
        """Return the schema without references, with one variant for each union, and one `type` other than null."""
        self._steps += 1
        found = self._without_references(schema, path)
        if depth > MAX_NESTING or self._steps > MAX_REDUCTION_STEPS:
            self._notes.leave_out("what lies deeper", path)
            return {"type": str(found.get("type", "object"))}
        for keyword in ("allOf", "anyOf", "oneOf"):
            parts = found.pop(keyword, None)
            if isinstance(parts, list) and parts:
                found = self._with_parts(found, parts[:MAX_VARIANTS], keyword, path, depth)
        declared = found.get("type")
        kinds = [str(kind) for kind in declared] if isinstance(declared, list) else [declared] if declared else []
        if not kinds:
            values = [*found.get("enum", ()), *([found["const"]] if "const" in found else ())]
            implied = (kind for keyword, kind in _TYPE_BY_KEYWORD.items() if keyword in found)
            kinds = list(dict.fromkeys([*map(json_type_of, values), *implied]))
        if "null" in kinds:
            self._notes.leave_out("null", path)
        kinds = [kind for kind in kinds if kind and kind != "null"]
        if len(kinds) != 1:
            self._notes.leave_out("the choice of types" if kinds else "any type", path)
        found["type"] = kinds[0] if kinds else "object"
        for keyword in found:
            if keyword not in _EXPRESSIBLE_KEYWORDS or (
                keyword == "additionalProperties" and isinstance(found[keyword], Mapping)
            ):
                self._notes.leave_out(keyword, path)
        return found

    def _with_parts(self, found: Schema, parts: list[Any], keyword: str, path: str, depth: int) -> Schema:
        if keyword == "allOf":
            return _merge_reduced([found, *(self._without_references(part, path) for part in parts)])
        alternatives = [part for part in parts if not (isinstance(part, Mapping) and part.get("type") == "null")]
        if len(alternatives) < len(parts):
            self._notes.leave_out("null", path)
        if len(alternatives) > 1:
            self._notes.leave_out(keyword, path)
        # One schema for a union: merged records, the common type, else the first variant.
        variants = [self.reduced(part, path, depth + 1) for part in alternatives]
        kinds = {variant["type"] for variant in variants}
        if len(variants) > 1 and kinds == {"object"}:
            needed = set.intersection(*(set(variant.get("required", ())) for variant in variants))
            joined = _merge_reduced([found, *variants])
            return joined | {"required": [*found.get("required", ()), *sorted(needed)]}
        if len(variants) > 1 and len(kinds) == 1:
            return {"type": kinds.pop(), **found}
        return _merge_reduced([found, *variants[:1]])

    def _without_references(self, schema: object, path: str) -> Schema:
        found: Schema = dict(schema) if isinstance(schema, Mapping) else {}
        for _ in range(MAX_HOPS):
            reference = found.pop("$ref", None)
            if reference is None:
                return found
            found = {**follow_reference(reference, self._root), **found}
        self._notes.leave_out("$ref", path)
        return found


def _merge_reduced(schemas: Iterable[Schema]) -> Schema:
    """Return all schemas merged; on conflicts the first counts, but members are combined."""
    whole: Schema = {}
    for schema in schemas:
        first = whole.get("properties")
        second = schema.get("properties")
        ours = dict(first) if isinstance(first, Mapping) else {}
        for name, part in second.items() if isinstance(second, Mapping) else ():
            if name in ours and ours[name] != part:
                ours[name] = {"anyOf": [*(ours[name]["anyOf"] if set(ours[name]) == {"anyOf"} else [ours[name]]), part]}
            ours.setdefault(name, part)
        members = ours
        needed = [*whole.get("required", ()), *schema.get("required", ())]
        whole = {**schema, **whole}
        if members:
            whole["properties"] = members
        if needed:
            whole["required"] = needed
    return whole


def _format_paths(paths: list[str]) -> str:
    named = [_single_line(path) for path in paths if path][:MAX_LISTED_PATHS]
    if not named:
        return ""
    more = len(paths) - len(named)
    return f" ({', '.join(named)}{f' and {more} more' if more else ''})"


def _single_line(text: str) -> str:
    return value_text(text[:MAX_COMMENT_NAME])[1:-1]


TYPE_LABELS = {
    "string": "Text",
    "integer": "Int",
    "number": "Double",
    "boolean": "Bool",
    "object": "Object",
    "array": "Array",
}
MAX_RECORD_DEPTH = 6
MAX_SIGNATURE_TYPES = 400
SAFE_SIGNATURE_LENGTH = 24_000
MAX_GRAM_DESCRIPTION = 16_000
MAX_LINE_WIDTH = 100


@dataclass(frozen=True, slots=True)
class ToolDescription:
    name: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None


def tool_to_gram(tool: ToolDescription) -> str:
    """Return the tool as a gram specification; comments before it list what gram cannot express."""
    for depth, with_texts in ((MAX_RECORD_DEPTH, True), (1, False), (0, False)):
        signature, left_out = schema_to_signature(
            tool.input_schema, tool.output_schema, depth=depth, with_texts=with_texts
        )
        description = tool.description.strip()[:MAX_GRAM_DESCRIPTION] or tool.name
        comments = "".join(f"// Left out, for gram has no form for it: {line}\n" for line in left_out)
        written = signature_text(signature)
        if len(written) > MAX_LINE_WIDTH:
            written = signature_text(signature, gap="\n  ")
        text = comments + specification_text(tool.name, description, written)
        if len(text.encode()) < SAFE_SIGNATURE_LENGTH:
            break
        with suppress(TypeSignatureError):
            ToolSpecification.from_gram(text)
            break
    return text


def schema_to_signature(
    schema: Mapping[str, Any],
    output_schema: Mapping[str, Any] | None = None,
    *,
    depth: int = MAX_RECORD_DEPTH,
    with_texts: bool = True,
) -> tuple[TypeSignature, list[str]]:
    """Return the nearest signature and notes of what it omits; records are spelled out up to `depth`."""
    notes = OmissionLog()
    parameters = _Conversion(schema, notes, with_texts=with_texts).parameters(schema, "", depth)
    if output_schema is None:
        notes.leave_out("the return type, which is not declared", "")
        return TypeSignature(parameters, Type("Text")), notes.lines()
    returns = _Conversion(output_schema, notes, with_texts=False).type(output_schema, "the result", depth)
    return TypeSignature(parameters, returns), notes.lines()


class _Conversion:
    def __init__(self, root: Mapping[str, Any], log: OmissionLog, *, with_texts: bool) -> None:
        self._reduced = SchemaReducer(root, log).reduced
        self._notes = log
        self._with_texts = with_texts
        self._count = 0

    def parameters(self, schema: object, path: str, depth: int) -> tuple[Parameter, ...]:
        return tuple(self._members(self._reduced(schema, path), path, depth, in_list=False))

    def type(self, schema: object, path: str, depth: int, *, in_list: bool = False) -> Type:
        self._count += 1
        return self._typed(self._reduced(schema, path), path, depth, in_list=in_list)

    def _typed(self, found: Schema, path: str, depth: int, *, in_list: bool) -> Type:
        label = TYPE_LABELS.get(found["type"], "Object")
        inside = "properties" if label == "Object" else "items" if label == "Array" else ""
        if not isinstance(found.get(inside), Mapping):
            return Type(label)
        if depth <= 0 or self._count > MAX_SIGNATURE_TYPES:
            self._notes.leave_out("what lies deeper", path)
            return Type(label)
        if label == "Array":
            return Type(label, element=self.type(found["items"], f"{path}[]", depth - 1, in_list=True))
        return Type(label, fields=tuple(self._members(found, path, depth - 1, in_list=in_list)))

    def _members(self, found: Schema, path: str, depth: int, *, in_list: bool) -> Iterator[Parameter]:
        required, members = found.get("required", ()), found.get("properties", {})
        for name, part in members.items():
            inner = f"{path}.{name}" if path else name
            self._count += 1
            if not name.strip() or self._count > MAX_SIGNATURE_TYPES or (depth <= 0 and not path):
                self._notes.leave_out("the parameter", inner)
            else:
                member = self._reduced(part, inner)
                kind = self._typed(member, inner, depth, in_list=in_list)
                yield self._parameter((name, inner), kind, member, optional=name not in required, in_list=in_list)

    def _parameter(
        self, named: tuple[str, str], type_: Type, found: Schema, *, optional: bool, in_list: bool
    ) -> Parameter:
        (name, path), description, default = named, str(found.get("description", "")), found.get("default")
        if default is not None and (in_list or not optional or not self._with_texts or type_mismatch(default, type_)):
            self._notes.leave_out("default", path)
            default = None
        if description.strip() and (in_list or not self._with_texts):
            self._notes.leave_out("description", path)
        kept = description if description.strip() and self._with_texts and not in_list else ""
        return Parameter(name, type_, optional, default, kept)
