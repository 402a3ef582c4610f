"""A tool whose schema was written elsewhere, as a gram specification: the nearest one, with what it leaves out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from catalog.errors import TypeSignatureError
from catalog.gram import ToolSpecification
from catalog.gram.reduction import Notes, Reduction, Schema
from catalog.gram.types import Parameter, Type, TypeSignature, misfit
from catalog.gram.writing import signature_text, specification_text

LABELS = {
    "string": "Text",
    "integer": "Int",
    "number": "Double",
    "boolean": "Bool",
    "object": "Object",
    "array": "Array",
}
DEEPEST = 6
MOST_TYPES = 400
SURELY_LEGAL = 24_000
MAX_DESCRIPTION = 16_000
LONG_LINE = 100


@dataclass(frozen=True, slots=True)
class Offer:
    """What an export says of a tool."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None


def gram_of(offer: Offer) -> str:
    """Return the tool as a gram specification; comments before it say what gram has no form for."""
    for depth, with_texts in ((DEEPEST, True), (1, False), (0, False)):
        signature, left_out = schema_to_signature(
            offer.input_schema, offer.output_schema, depth=depth, with_texts=with_texts
        )
        description = offer.description.strip()[:MAX_DESCRIPTION] or offer.name
        comments = "".join(f"// Left out, for gram has no form for it: {line}\n" for line in left_out)
        text = comments + specification_text(offer.name, description, _laid_out(signature))
        if len(text.encode()) < SURELY_LEGAL or _is_legal(text):
            break
    return text


def schema_to_signature(
    schema: Mapping[str, Any],
    output_schema: Mapping[str, Any] | None = None,
    *,
    depth: int = DEEPEST,
    with_texts: bool = True,
) -> tuple[TypeSignature, list[str]]:
    """Return the nearest signature and what it leaves out; `depth` is how far records are spelled out."""
    notes = Notes()
    parameters = _Conversion(schema, notes, with_texts=with_texts).parameters(schema, "", depth)
    if output_schema is None:
        notes.leave_out("the return type, which is not declared", "")
        return TypeSignature(parameters, Type("Text")), notes.lines()
    returns = _Conversion(output_schema, notes, with_texts=False).type(output_schema, "the result", depth)
    return TypeSignature(parameters, returns), notes.lines()


def _laid_out(signature: TypeSignature) -> str:
    """Return a signature on one line, or with a line for each parameter where that would be long."""
    text = signature_text(signature)
    return text if len(text) <= LONG_LINE else signature_text(signature, gap="\n  ")


def _is_legal(text: str) -> bool:
    try:
        ToolSpecification.from_gram(text)
    except TypeSignatureError:
        return False
    return True


class _Conversion:
    """Turns the parts of one schema into types, and counts them."""

    def __init__(self, root: Mapping[str, Any], notes: Notes, *, with_texts: bool) -> None:
        self._reduced = Reduction(root, notes).reduced
        self._notes = notes
        self._with_texts = with_texts
        self._count = 0

    def parameters(self, schema: object, path: str, depth: int) -> tuple[Parameter, ...]:
        """Return the members of a record."""
        return tuple(self._members(self._reduced(schema, path), path, depth, in_list=False))

    def type(self, schema: object, path: str, depth: int, *, in_list: bool = False) -> Type:
        """Return the type nearest to a schema."""
        self._count += 1
        return self._typed(self._reduced(schema, path), path, depth, in_list=in_list)

    def _typed(self, found: Schema, path: str, depth: int, *, in_list: bool) -> Type:
        label = LABELS.get(found["type"], "Object")
        inside = "properties" if label == "Object" else "items" if label == "Array" else ""
        if not isinstance(found.get(inside), Mapping):
            return Type(label)
        if depth <= 0 or self._count > MOST_TYPES:
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
            if not name.strip() or self._count > MOST_TYPES or (depth <= 0 and not path):
                self._notes.leave_out("the parameter", inner)
            else:
                member = self._reduced(part, inner)
                kind = self._typed(member, inner, depth, in_list=in_list)
                yield self._parameter((name, inner), kind, member, optional=name not in required, in_list=in_list)

    def _parameter(
        self, named: tuple[str, str], kind: Type, found: Schema, *, optional: bool, in_list: bool
    ) -> Parameter:
        (name, path), description, default = named, str(found.get("description", "")), found.get("default")
        if default is not None and (in_list or not optional or not self._with_texts or misfit(default, kind)):
            self._notes.leave_out("default", path)
            default = None
        if description.strip() and (in_list or not self._with_texts):
            self._notes.leave_out("description", path)
        kept = description if description.strip() and self._with_texts and not in_list else ""
        return Parameter(name, kind, optional, default, kept)
