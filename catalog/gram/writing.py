"""Writing gram: a signature, a value, a whole specification. What is written here is read back as the same."""

import json
import re
from collections.abc import Iterable, Iterator

from catalog.gram.types import Parameter, Type, TypeSignature

_SYMBOL = re.compile(r"[A-Za-z_][0-9A-Za-z_.\-@]*")
_KEYWORDS = frozenset({"Maybe", "IO"})
_ESCAPED = str.maketrans({"\\": r"\\", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t"})


def signature_text(signature: TypeSignature, *, gap: str = "") -> str:
    """Return a signature as a path, with `gap` before each arrow."""
    nodes = [_node(each.type, _parameter_entries(each)) for each in signature.parameters]
    return f"{gap}==>".join([*(nodes or ["()"]), _node(signature.returns, _type_entries(signature.returns))])


def specification_text(name: str, description: str, signature: str) -> str:
    """Return a whole specification, its signature as it was written."""
    head = f"[{_word(name)}:ToolSpecification {{\n  description: {value_text(description)}\n}} |"
    return f"{head}\n  {signature}\n]"


def value_text(value: object) -> str:
    """Return a JSON value as gram."""
    if isinstance(value, str):
        return _quoted(value, '"')
    if isinstance(value, dict):
        return _record(f"{_word(key)}:{value_text(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return f"[{', '.join(map(value_text, value))}]"
    return json.dumps(value)


def type_text(kind: Type) -> str:
    """Return a type in the older text form, as it stands inside a list or a record."""
    text = kind.label
    if kind.fields is not None:
        text = _record(f"{_word(each.name)}: {_optional(each)}" for each in kind.fields)
    elif kind.element is not None:
        text = f"[{type_text(kind.element)}]"
    return f"Maybe {text}" if kind.nullable else text


def _optional(field: Parameter) -> str:
    return f"Maybe {type_text(field.type)}" if field.optional else type_text(field.type)


def _node(kind: Type, entries: Iterable[str]) -> str:
    record = _record(entries)
    label = f"Maybe {kind.label}" if kind.nullable else kind.label
    return f"(::{label} {record})" if record != "{}" else f"(::{label})"


def _parameter_entries(parameter: Parameter) -> Iterator[str]:
    yield f"paramName:{value_text(parameter.name)}"
    yield from _common_entries(parameter)


def _field(field: Parameter) -> str:
    name, kind = value_text(field.name), value_text(field.type.label)
    return _record([f"name:{name}", f"type:{kind}", *_common_entries(field)])


def _common_entries(parameter: Parameter) -> Iterator[str]:
    if parameter.default is not None:
        yield f"default:{value_text(parameter.default)}"
    elif parameter.optional:
        yield "optional:true"
    if parameter.description:
        yield f"description:{value_text(parameter.description)}"
    yield from _type_entries(parameter.type)


def _type_entries(kind: Type) -> Iterator[str]:
    if kind.fields is not None:
        yield f"fields:[{', '.join(map(_field, kind.fields))}]"
    if kind.element is not None:
        yield f"elementType:{value_text(type_text(kind.element))}"


def _record(entries: Iterable[str]) -> str:
    return f"{{{', '.join(entries)}}}"


def _word(name: str) -> str:
    return name if _SYMBOL.fullmatch(name) and name not in _KEYWORDS else _quoted(name, "`")


def _quoted(text: str, quote: str) -> str:
    return quote + text.translate(_ESCAPED).replace(quote, f"\\{quote}") + quote
