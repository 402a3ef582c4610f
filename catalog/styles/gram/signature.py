"""Type signatures in structured form, their JSON Schema and gram text. Parsing that text yields the same signature."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any

from catalog.core.json_paths import member_path

Schema = dict[str, Any]

JSON_TYPES = {
    "Text": "string",
    "String": "string",
    "Int": "integer",
    "Integer": "integer",
    "Double": "number",
    "Number": "number",
    "Bool": "boolean",
    "Boolean": "boolean",
    "Object": "object",
    "Array": "array",
}


@dataclass(frozen=True, slots=True)
class Type:
    """A type by its label. An Object may have `fields`, an Array an `element`; `nullable` occurs only in lists."""

    label: str
    fields: "tuple[Parameter, ...] | None" = None
    element: "Type | None" = None
    nullable: bool = False

    def to_schema(self) -> Schema:
        kind = JSON_TYPES[self.label]
        schema: Schema = {"type": [kind, "null"] if self.nullable else kind}
        if self.fields is not None:
            schema |= _members(self.fields)
        if self.element is not None:
            schema["items"] = self.element.to_schema()
        return schema


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a tool, or a field of a record; `default` is None if there is no default."""

    name: str
    type: Type
    optional: bool = False
    default: Any = None
    description: str = ""

    def to_schema(self) -> Schema:
        schema = self.type.to_schema()
        if self.description:
            schema["description"] = self.description
        if self.default is not None:
            schema["default"] = self.default
        return schema


@dataclass(frozen=True, slots=True)
class TypeSignature:
    """The parameters of a tool, in order, and its return type."""

    parameters: tuple[Parameter, ...]
    returns: Type

    def to_schema(self) -> Schema:
        return {"type": "object"} | _members(self.parameters)


def type_mismatch(value: object, type_: Type, path: str = "") -> str:
    """Return where and how a value does not match a type, as in `tags.0 is not a Text`; empty if it matches."""
    if value is None and type_.nullable:
        return ""
    if not _matches_type(value, JSON_TYPES[type_.label]):
        article = "an" if type_.label[0] in "AIO" else "a"
        return f"{path or 'it'} is not {article} {type_.label}"
    if isinstance(value, dict) and type_.fields is not None:
        return _mismatch_inside(value, type_.fields, path)
    if isinstance(value, list) and type_.element is not None:
        element = type_.element
        return _first(type_mismatch(each, element, member_path(path, index)) for index, each in enumerate(value))
    return ""


def _members(parameters: Iterable[Parameter]) -> Schema:
    listed = tuple(parameters)
    return {
        "properties": {each.name: each.to_schema() for each in listed},
        "required": [each.name for each in listed if not each.optional],
    }


def _matches_type(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, float) and (not isfinite(value) or kind == "integer"):
        return isfinite(value) and value.is_integer()  # 2.0 is an integer in JSON Schema, which validates the calls
    expected = {"string": str, "integer": int, "number": int | float, "object": dict, "array": list}
    return kind in expected and isinstance(value, expected[kind])


def _mismatch_inside(value: dict[str, Any], parameters: tuple[Parameter, ...], path: str) -> str:
    known = {each.name: each for each in parameters}
    unknown = next((name for name in value if name not in known), None)
    if unknown is not None:
        return f"{member_path(path, unknown)} is not one of its fields"
    missing = next((each.name for each in parameters if not each.optional and each.name not in value), None)
    if missing is not None:
        return f"{member_path(path, missing)} is missing"
    return _first(type_mismatch(each, known[name].type, member_path(path, name)) for name, each in value.items())


def _first(found: Iterable[str]) -> str:
    return next((each for each in found if each), "")


_SYMBOL = re.compile(r"[A-Za-z_][0-9A-Za-z_.\-@]*")
_KEYWORDS = frozenset({"Maybe", "IO"})
_ESCAPE_TABLE = str.maketrans({"\\": r"\\", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t"})


def signature_text(signature: TypeSignature, *, gap: str = "") -> str:
    """Return a signature as a gram path, `(…)==>(…)`, with `gap` before each arrow."""
    nodes = [
        _node(each.type, [f"paramName:{value_text(each.name)}", *_common_entries(each)])
        for each in signature.parameters
    ]
    return f"{gap}==>".join([*(nodes or ["()"]), _node(signature.returns, _type_entries(signature.returns))])


def specification_text(name: str, description: str, signature: str) -> str:
    """Return an entire specification with its signature as written."""
    head = f"[{_name_text(name)}:ToolSpecification {{\n  description: {value_text(description)}\n}} |"
    return f"{head}\n  {signature}\n]"


def value_text(value: object) -> str:
    if isinstance(value, str):
        return _quote(value, '"')
    if isinstance(value, dict):
        return _record(f"{_name_text(key)}:{value_text(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return f"[{', '.join(map(value_text, value))}]"
    return json.dumps(value)


def type_text(type_: Type) -> str:
    """Return a type in the older text form used inside lists and records."""
    text = type_.label
    if type_.fields is not None:
        text = _record(
            f"{_name_text(each.name)}: {'Maybe ' * each.optional}{type_text(each.type)}" for each in type_.fields
        )
    elif type_.element is not None:
        text = f"[{type_text(type_.element)}]"
    return f"Maybe {text}" if type_.nullable else text


def _node(type_: Type, entries: Iterable[str]) -> str:
    record = _record(entries)
    label = f"Maybe {type_.label}" if type_.nullable else type_.label
    return f"(::{label} {record})" if record != "{}" else f"(::{label})"


def _common_entries(parameter: Parameter) -> Iterator[str]:
    if parameter.default is not None:
        yield f"default:{value_text(parameter.default)}"
    elif parameter.optional:
        yield "optional:true"
    if parameter.description:
        yield f"description:{value_text(parameter.description)}"
    yield from _type_entries(parameter.type)


def _type_entries(type_: Type) -> Iterator[str]:
    if type_.fields is not None:
        fields = [
            _record([f"name:{value_text(each.name)}", f"type:{value_text(each.type.label)}", *_common_entries(each)])
            for each in type_.fields
        ]
        yield f"fields:[{', '.join(fields)}]"
    if type_.element is not None:
        yield f"elementType:{value_text(type_text(type_.element))}"


def _record(entries: Iterable[str]) -> str:
    return f"{{{', '.join(entries)}}}"


def _name_text(name: str) -> str:
    return name if _SYMBOL.fullmatch(name) and name not in _KEYWORDS else _quote(name, "`")


def _quote(text: str, quote: str) -> str:
    return quote + text.translate(_ESCAPE_TABLE).replace(quote, f"\\{quote}") + quote
