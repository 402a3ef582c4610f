"""Semantic analysis of gram: syntax trees to types, parameters and signatures."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import replace

from catalog.errors import TypeSignatureError
from catalog.styles.gram.parser import (
    MAX_QUOTED_TEXT,
    GroupSyntax,
    IOType,
    ItemSyntax,
    ListType,
    MaybeType,
    NamedType,
    NameSyntax,
    RecordSyntax,
    RecordType,
    RecordValue,
    SignatureSyntax,
    SourceLocation,
    TypeSyntax,
    parse_type,
    quote_text,
    syntax_error,
    value_to_json,
)
from catalog.styles.gram.signature import JSON_TYPES, Parameter, Type, TypeSignature, type_mismatch

MAX_TYPES = 1000
_TYPE_PROPERTIES = ("fields", "elementType")
_PARAMETER_PROPERTIES = ("paramName", "optional", "default", "description", *_TYPE_PROPERTIES)
_FIELD_PROPERTIES = ("name", "type", "optional", "default", "description", *_TYPE_PROPERTIES)
_EMPTY_RECORD = RecordSyntax(SourceLocation(1, 1), ())


def analyze_signature(syntax: SignatureSyntax) -> TypeSignature:
    """Return the signature of a syntax tree. Raises TypeSignatureError if it is grammatical but invalid."""
    return _Analyzer().signature(syntax)


class RecordProperties:
    """Record of a parameter or field. Each property is read once, by its type; unknown properties are refused."""

    def __init__(self, record: RecordSyntax, known: Sequence[str]) -> None:
        self.place = record.place
        self._values = {key.text: value for key, value in record.pairs}
        for key, _ in record.pairs:
            if key.text not in known:
                hint = _suggestion(key.text, known) or f"; there are {', '.join(known)}."
                raise syntax_error(key.place, f"Unknown property {quote_text(key.text)}{hint}", *known)

    def get(self, name: str) -> RecordValue | None:
        return self._values.get(name)

    def text(self, name: str) -> str:
        """Return the text of a property, which must not be blank; empty if the property is absent."""
        value = self._values.get(name)
        if value is None:
            return ""
        if not isinstance(value.content, str) or not value.content.strip():
            raise syntax_error(value.place, f"{name} must be a non-empty text.", "a text in quotes")
        return value.content

    def flag(self, name: str) -> bool | None:
        value = self._values.get(name)
        if value is not None and not isinstance(value.content, bool):
            raise syntax_error(value.place, f"{name} must be true or false.", "true", "false")
        return value.content if value is not None else None  # type: ignore[return-value] # checked above


class _Analyzer:
    def __init__(self) -> None:
        self._count = 0

    def signature(self, syntax: SignatureSyntax) -> TypeSignature:
        if syntax.result is None:
            *groups, last = syntax.groups
            if not groups:
                raise _missing_return_error(syntax.end)
            nodes = [node for group in groups for node in _only_item(group, groups)]
            return TypeSignature(_with_unique_names(self.parameter(node) for node in nodes), self.returned(last))
        items = [item for group in syntax.groups for item in group.items]
        _check_text_form(items, syntax.result)
        returns = self.type(syntax.result.inner if isinstance(syntax.result, IOType) else syntax.result)
        return TypeSignature(_with_unique_names(self.parameter(_to_text_form_node(item)) for item in items), returns)

    def returned(self, group: GroupSyntax) -> Type:
        if not group.items:
            raise _missing_return_error(group.place)
        if len(group.items) > 1:
            raise syntax_error(group.place, "A signature has only one return type.", "(::Text)")
        node = _to_node(group.items[0])
        return self.labelled(node, RecordProperties(node.record or _EMPTY_RECORD, _TYPE_PROPERTIES))

    def parameter(self, item: ItemSyntax) -> tuple[Parameter, SourceLocation]:
        properties = RecordProperties(item.record or _EMPTY_RECORD, _PARAMETER_PROPERTIES)
        kind = self.labelled(item, properties)
        name = properties.text("paramName") or (item.name.text if item.name else "")
        if item.name is not None and not item.name.text.strip():
            raise syntax_error(item.name.place, "A parameter's name must not be empty.")
        return _parameter(name, kind, properties), item.place

    def labelled(self, item: ItemSyntax, properties: RecordProperties) -> Type:
        if not item.labels:
            named = item.name.text if item.name else ""
            hint = f"write (::{named})" if named in JSON_TYPES else "write it with colons, as in (::Text)"
            raise syntax_error(item.place, f"The type is missing; {hint}.", "a label such as ::Text")
        if len(item.labels) > 1:
            raise syntax_error(item.labels[1].place, "A parameter has only one type.")
        return self.inner(self.type(item.labels[0]), properties)

    def inner(self, type_: Type, properties: RecordProperties) -> Type:
        fields, element = properties.get("fields"), properties.get("elementType")
        if fields is not None:
            _check_property_applies(fields, "fields", type_, "Object", type_.fields)
            type_ = Type(type_.label, fields=self.fields(fields), nullable=type_.nullable)
        if element is not None:
            _check_property_applies(element, "elementType", type_, "Array", type_.element)
            type_ = Type(type_.label, element=self.type_value(element), nullable=type_.nullable)
        return type_

    def fields(self, value: RecordValue) -> tuple[Parameter, ...]:
        if not isinstance(value.content, list):
            raise syntax_error(value.place, "fields must be a list of records.", '[{name:"age", type:"Int"}]')
        return _with_unique_names(self.field(each) for each in value.content)

    def field(self, value: RecordValue) -> tuple[Parameter, SourceLocation]:
        if not isinstance(value.content, RecordSyntax):
            raise syntax_error(value.place, "A field must be a record.", '{name:"age", type:"Int"}')
        properties = RecordProperties(value.content, _FIELD_PROPERTIES)
        name, written = properties.text("name"), properties.get("type")
        if not name:
            raise syntax_error(value.place, "A field needs a name.", 'name:"age"')
        if written is None:
            raise syntax_error(value.place, f"The field {quote_text(name)} needs a type.", 'type:"Int"')
        return _parameter(name, self.inner(self.type_value(written), properties), properties), value.place

    def type_value(self, value: RecordValue) -> Type:
        """Return the type that a value names: a string, or a type expression."""
        return self.type(_value_as_type(value))

    def type(self, written: TypeSyntax) -> Type:
        self._count += 1
        if self._count > MAX_TYPES:
            raise syntax_error(written.place, f"The signature has more than {MAX_TYPES} types.")
        match written:
            case MaybeType():
                return self.maybe(written)
            case ListType():
                return Type("Array", element=self.type(written.inner))
            case RecordType():
                return Type("Object", fields=_with_unique_names(self.shape_field(*each) for each in written.fields))
            case IOType():
                raise _io_error(written.place)
            case NamedType():
                if written.name not in JSON_TYPES:
                    hint = _suggestion(written.name, JSON_TYPES) or f"; the types are {', '.join(JSON_TYPES)}."
                    raise syntax_error(written.place, f"Unknown type {quote_text(written.name)}{hint}", *JSON_TYPES)
                return Type(written.name)

    def maybe(self, maybe: MaybeType) -> Type:
        inner = self.type(maybe.inner)
        if inner.nullable:
            raise syntax_error(maybe.place, "Maybe of Maybe means the same as Maybe. Remove one.")
        return Type(inner.label, inner.fields, inner.element, nullable=True)

    def shape_field(self, name: NameSyntax, written: TypeSyntax) -> tuple[Parameter, SourceLocation]:
        if not name.text.strip():
            raise syntax_error(name.place, "A field's name must not be empty.")
        return _parameter(name.text, self.type(written), RecordProperties(_EMPTY_RECORD, ())), name.place


def _parameter(name: str, type_: Type, properties: RecordProperties) -> Parameter:
    optional, default = properties.flag("optional"), properties.get("default")
    if type_.nullable and optional is False:
        raise syntax_error(properties.place, "Maybe contradicts optional:false.")
    bare = Type(type_.label, type_.fields, type_.element)
    given = None if default is None else value_to_json(default)
    if default is not None:
        wrongly = type_mismatch(given, bare)
        if wrongly:
            raise syntax_error(
                default.place, f"The default does not fit the type {type_.label}: {quote_text(wrongly)[1:-1]}."
            )
    needless = bool(optional) or type_.nullable or default is not None
    return Parameter(name, bare, optional=needless, default=given, description=properties.text("description"))


def _with_unique_names(parameters: Iterable[tuple[Parameter, SourceLocation]]) -> tuple[Parameter, ...]:
    """Return the parameters with unique names; unnamed ones become arg1, arg2…"""
    listed = list(parameters)
    taken: set[str] = set()
    for parameter, place in listed:
        if parameter.name in taken:
            raise syntax_error(
                place, f"The name {quote_text(parameter.name)} is used twice. Parameter names must be unique."
            )
        taken |= {parameter.name} - {""}
    free = (name for name in (f"arg{number}" for number in range(1, len(listed) * 2 + 1)) if name not in taken)
    return tuple(each if each.name else replace(each, name=next(free)) for each, _ in listed)


def _only_item(group: GroupSyntax, groups: Sequence[GroupSyntax]) -> list[ItemSyntax]:
    """Return the parameter of a group in a path, as a list; `()` as the only group has no parameter."""
    if not group.items and len(groups) > 1:
        raise syntax_error(group.place, "() means no parameters, so it must be the only group before the arrow.")
    if len(group.items) > 1:
        message = (
            "Before a return type in parentheses, put each parameter in its own parentheses: (…)==>(…)==>(::Text)."
        )
        raise syntax_error(group.items[1].place, message, "')'")
    return [_to_node(item) for item in group.items]


def _to_node(item: ItemSyntax | TypeSyntax) -> ItemSyntax:
    if isinstance(item, IOType):
        raise _io_error(item.place)
    if isinstance(item, ItemSyntax):
        return item
    raise syntax_error(item.place, "A type in a path needs two colons before it.", "a label such as ::Text")


def _to_text_form_node(item: ItemSyntax | TypeSyntax) -> ItemSyntax:
    """Convert a parameter of the older text form, in which a type may stand without a name."""
    if not isinstance(item, ItemSyntax):
        return ItemSyntax(item.place, labels=(item,))
    if item.labels:
        return item
    if item.record is not None:
        return ItemSyntax(item.place, labels=(_value_as_type(RecordValue(item.place, item.record)),))
    bare = item.name or NameSyntax(item.place, "")
    return ItemSyntax(item.place, labels=(NamedType(bare.place, bare.text),))


def _check_text_form(items: Iterable[ItemSyntax | TypeSyntax], result: TypeSyntax) -> None:
    """Refuse a return type without parentheses if a parameter is written as only a path allows."""
    for item in items:
        in_path = isinstance(item, ItemSyntax) and (
            (item.labels and item.name is None) or (item.record is not None and (item.labels or item.name))
        )
        if in_path and isinstance(result, IOType):
            raise _io_error(result.place)
        if in_path:
            raise syntax_error(result.place, "A path ends with the return type in parentheses.", "(::Text)")


def _value_as_type(value: RecordValue) -> TypeSyntax:
    content = value.content
    if isinstance(content, MaybeType):
        return content
    if isinstance(content, RecordSyntax):
        return RecordType(value.place, tuple((key, _value_as_type(inner)) for key, inner in content.pairs))
    if isinstance(content, list) and len(content) == 1:
        return ListType(value.place, _value_as_type(content[0]))
    if not isinstance(content, str):
        raise syntax_error(value.place, "A type must be a quoted text.", '"Int"', '"[Text]"')
    return NamedType(value.place, content) if content in JSON_TYPES else _parse_nested_type(content, value.place)


def _parse_nested_type(text: str, location: SourceLocation) -> TypeSyntax:
    try:
        return _relocate(parse_type(text), location)
    except TypeSignatureError as error:
        reason = str(error).rpartition(" (line")[0]
        raise syntax_error(location, f"{quote_text(text)} is not a type: {reason}", *error.expected) from None


def _relocate(written: TypeSyntax, location: SourceLocation) -> TypeSyntax:
    match written:
        case NamedType():
            return NamedType(location, written.name)
        case RecordType():
            return RecordType(
                location,
                tuple((NameSyntax(location, name.text), _relocate(kind, location)) for name, kind in written.fields),
            )
        case MaybeType() | ListType() | IOType():
            return type(written)(location, _relocate(written.inner, location))


def _check_property_applies(value: RecordValue, name: str, type_: Type, label: str, already: object) -> None:
    if type_.label != label:
        raise syntax_error(value.place, f"{name} belongs to the type {label}, not to {type_.label}.")
    if already is not None:
        raise syntax_error(value.place, f"The type already has {name}. Remove one of the two.")


def _suggestion(name: str, known: Iterable[str]) -> str:
    words = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), words, n=1) if len(name) <= MAX_QUOTED_TEXT else []
    return f"; did you mean {words[near[0]]}?" if near else ""


def _io_error(location: SourceLocation) -> TypeSignatureError:
    return syntax_error(location, "IO has no meaning in a path. Name the type alone.", "a label such as ::Text")


def _missing_return_error(location: SourceLocation) -> TypeSignatureError:
    return syntax_error(
        location, "The return type is missing. A signature ends with an arrow and a type, as in ==>(::Text).", "==>"
    )
