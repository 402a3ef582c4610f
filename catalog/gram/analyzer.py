"""What written gram means: types, parameters, signatures. What is grammatical and still wrong is refused here."""

import difflib
from collections.abc import Iterable, Sequence

from catalog.errors import TypeSignatureError
from catalog.gram.parser import (
    MAX_SHOWN,
    Group,
    InIO,
    ListOf,
    Maybe,
    Named,
    Node,
    Place,
    Record,
    Shape,
    Value,
    Word,
    WrittenSignature,
    WrittenType,
    plain,
    read_type,
    shown,
    wrong,
)
from catalog.gram.signature import JSON_TYPES, Parameter, Type, TypeSignature, misfit

MAX_TYPES = 1000
_OF_TYPES = ("fields", "elementType")
_OF_PARAMETERS = ("paramName", "optional", "default", "description", *_OF_TYPES)
_OF_FIELDS = ("name", "type", "optional", "default", "description", *_OF_TYPES)
_NO_RECORD = Record(Place(1, 1), ())


def meaning_of(written: WrittenSignature) -> TypeSignature:
    """Return the signature that is written; raise TypeSignatureError."""
    return _Meaning().signature(written)


class Properties:
    """The record of one parameter or field: each property read once, by its type; others are refused."""

    def __init__(self, record: Record, known: Sequence[str]) -> None:
        self.place = record.place
        self._values = {key.text: value for key, value in record.pairs}
        for key, _ in record.pairs:
            if key.text not in known:
                hint = _meant(key.text, known) or f"; there are {', '.join(known)}."
                raise wrong(key.place, f"There is no property {shown(key.text)} here{hint}", *known)

    def get(self, name: str) -> Value | None:
        """Return the value as it is written, None when it is not."""
        return self._values.get(name)

    def text(self, name: str) -> str:
        """Return a text that is not blank, empty when it is not given."""
        value = self._values.get(name)
        if value is None:
            return ""
        if not isinstance(value.content, str) or not value.content.strip():
            raise wrong(value.place, f"{name} must be a text that is not empty.", "a text in quotes")
        return value.content

    def flag(self, name: str) -> bool | None:
        """Return true or false, None when it is not given."""
        value = self._values.get(name)
        if value is not None and not isinstance(value.content, bool):
            raise wrong(value.place, f"{name} must be true or false.", "true", "false")
        return value.content if value is not None else None  # type: ignore[return-value] # judged above


class _Meaning:
    """Reads one signature, counting its types."""

    def __init__(self) -> None:
        self._count = 0

    def signature(self, written: WrittenSignature) -> TypeSignature:
        if written.result is None:
            *groups, last = written.groups
            if not groups:
                raise _without_return(written.end)
            nodes = [node for group in groups for node in _only_item(group, groups)]
            return TypeSignature(_named_once(self.parameter(node) for node in nodes), self.returned(last))
        items = [item for group in written.groups for item in group.items]
        _judge_text_form(items, written.result)
        returns = self.type(written.result.inner if isinstance(written.result, InIO) else written.result)
        return TypeSignature(_named_once(self.parameter(_as_text_form(item)) for item in items), returns)

    def returned(self, group: Group) -> Type:
        if not group.items:
            raise _without_return(group.place)
        if len(group.items) > 1:
            raise wrong(group.place, "There is one return type; these are several.", "(::Text)")
        node = _as_node(group.items[0])
        return self.labelled(node, Properties(node.record or _NO_RECORD, _OF_TYPES))

    def parameter(self, node: Node) -> tuple[Parameter, Place]:
        properties = Properties(node.record or _NO_RECORD, _OF_PARAMETERS)
        kind = self.labelled(node, properties)
        name = properties.text("paramName") or (node.name.text if node.name else "")
        if node.name is not None and not node.name.text.strip():
            raise wrong(node.name.place, "A parameter's name must not be empty.")
        return _parameter(name, kind, properties), node.place

    def labelled(self, node: Node, properties: Properties) -> Type:
        if not node.labels:
            named = node.name.text if node.name else ""
            hint = f"write (::{named})" if named in JSON_TYPES else "write it with colons, as in (::Text)"
            raise wrong(node.place, f"The type is missing; {hint}.", "a label such as ::Text")
        if len(node.labels) > 1:
            raise wrong(node.labels[1].place, "A parameter has one type; this is a second one.")
        return self.inner(self.type(node.labels[0]), properties)

    def inner(self, kind: Type, properties: Properties) -> Type:
        """Put what the properties say of fields and elements into a type."""
        fields, element = properties.get("fields"), properties.get("elementType")
        if fields is not None:
            _judge_belongs(fields, "fields", kind, "Object", kind.fields)
            kind = Type(kind.label, fields=self.fields(fields), nullable=kind.nullable)
        if element is not None:
            _judge_belongs(element, "elementType", kind, "Array", kind.element)
            kind = Type(kind.label, element=self.type_value(element), nullable=kind.nullable)
        return kind

    def fields(self, value: Value) -> tuple[Parameter, ...]:
        if not isinstance(value.content, list):
            raise wrong(value.place, "fields must be a list of records.", '[{name:"age", type:"Int"}]')
        return _named_once(self.field(each) for each in value.content)

    def field(self, value: Value) -> tuple[Parameter, Place]:
        if not isinstance(value.content, Record):
            raise wrong(value.place, "A field must be a record.", '{name:"age", type:"Int"}')
        properties = Properties(value.content, _OF_FIELDS)
        name, written = properties.text("name"), properties.get("type")
        if not name:
            raise wrong(value.place, "A field needs a name.", 'name:"age"')
        if written is None:
            raise wrong(value.place, f"The field {shown(name)} needs a type.", 'type:"Int"')
        return _parameter(name, self.inner(self.type_value(written), properties), properties), value.place

    def type_value(self, value: Value) -> Type:
        """Return the type that a value names: a text, or a type as it would be written elsewhere."""
        return self.type(_as_type(value))

    def type(self, written: WrittenType) -> Type:
        self._count += 1
        if self._count > MAX_TYPES:
            raise wrong(written.place, f"The signature has more than {MAX_TYPES} types; take fewer.")
        match written:
            case Maybe():
                return self.maybe(written)
            case ListOf():
                return Type("Array", element=self.type(written.inner))
            case Shape():
                return Type("Object", fields=_named_once(self.shape_field(*each) for each in written.fields))
            case InIO():
                raise _haskell(written.place)
            case Named():
                return Type(_label(written))

    def maybe(self, written: Maybe) -> Type:
        inner = self.type(written.inner)
        if inner.nullable:
            raise wrong(written.place, "Maybe of Maybe says no more than Maybe; leave one out.")
        return Type(inner.label, inner.fields, inner.element, nullable=True)

    def shape_field(self, name: Word, written: WrittenType) -> tuple[Parameter, Place]:
        if not name.text.strip():
            raise wrong(name.place, "A field's name must not be empty.")
        return _parameter(name.text, self.type(written), Properties(_NO_RECORD, ())), name.place


def _parameter(name: str, kind: Type, properties: Properties) -> Parameter:
    """Return a parameter; `Maybe` at its type makes it optional, and so does a default."""
    optional, default = properties.flag("optional"), properties.get("default")
    if kind.nullable and optional is False:
        raise wrong(properties.place, "Maybe says that this is optional, optional:false that it is not.")
    bare = Type(kind.label, kind.fields, kind.element)
    given = None if default is None else plain(default)
    if default is not None:
        wrongly = misfit(given, bare)
        if wrongly:
            raise wrong(default.place, f"The default does not fit the type {kind.label}: {shown(wrongly)[1:-1]}.")
    needless = bool(optional) or kind.nullable or default is not None
    return Parameter(name, bare, optional=needless, default=given, description=properties.text("description"))


def _named_once(found: Iterable[tuple[Parameter, Place]]) -> tuple[Parameter, ...]:
    """Return the parameters, each with a name of its own: those without one become arg1, arg2…"""
    listed = list(found)
    taken: set[str] = set()
    for parameter, place in listed:
        if parameter.name in taken:
            raise wrong(place, f"The name {shown(parameter.name)} is given twice; each parameter has its own.")
        taken |= {parameter.name} - {""}
    free = (name for name in (f"arg{number}" for number in range(1, len(listed) * 2 + 1)) if name not in taken)
    return tuple(each if each.name else _renamed(each, next(free)) for each, _ in listed)


def _renamed(parameter: Parameter, name: str) -> Parameter:
    return Parameter(name, parameter.type, parameter.optional, parameter.default, parameter.description)


def _only_item(group: Group, groups: Sequence[Group]) -> list[Node]:
    """Return the one parameter of a group in a path; none for `()` that stands alone before the arrow."""
    if not group.items and len(groups) > 1:
        raise wrong(group.place, "() means no parameters at all, so it stands alone before the arrow.")
    if len(group.items) > 1:
        message = "Before a return type in parentheses each parameter has its own: (…)==>(…)==>(::Text)."
        raise wrong(_place_of(group.items[1]), message, "')'")
    return [_as_node(item) for item in group.items]


def _as_node(item: Node | WrittenType) -> Node:
    if isinstance(item, InIO):
        raise _haskell(item.place)
    if isinstance(item, Node):
        return item
    raise wrong(item.place, "A type in a path is a label: write two colons before it.", "a label such as ::Text")


def _as_text_form(item: Node | WrittenType) -> Node:
    """Return a parameter of the older text form, where a type may stand without a name."""
    if not isinstance(item, Node):
        return Node(item.place, labels=(item,))
    if item.labels:
        return item
    if item.record is not None:
        return Node(item.place, labels=(_as_type(Value(item.place, item.record)),))
    bare = item.name or Word(item.place, "")
    return Node(item.place, labels=(Named(bare.place, bare.text),))


def _judge_text_form(items: Iterable[Node | WrittenType], result: WrittenType) -> None:
    """Refuse a return type without parentheses after parameters that only a path has."""
    for item in items:
        in_path = isinstance(item, Node) and (
            (item.labels and item.name is None) or (item.record is not None and (item.labels or item.name))
        )
        if in_path and isinstance(result, InIO):
            raise _haskell(result.place)
        if in_path:
            raise wrong(result.place, "A path ends with the return type in parentheses.", "(::Text)")


def _as_type(value: Value) -> WrittenType:
    content = value.content
    if isinstance(content, Maybe):
        return content
    if isinstance(content, Record):
        return Shape(value.place, tuple((key, _as_type(inner)) for key, inner in content.pairs))
    if isinstance(content, list) and len(content) == 1:
        return ListOf(value.place, _as_type(content[0]))
    if not isinstance(content, str):
        raise wrong(value.place, "A type is written as a text.", '"Int"', '"[Text]"')
    return Named(value.place, content) if content in JSON_TYPES else _read_inside(content, value.place)


def _read_inside(text: str, place: Place) -> WrittenType:
    """Read a type out of a text; what is wrong inside stands, for people, where the text does."""
    try:
        return _moved(read_type(text), place)
    except TypeSignatureError as error:
        reason = str(error).rpartition(" (line")[0]
        raise wrong(place, f"{shown(text)} is not a type: {reason}", *error.expected) from None


def _moved(written: WrittenType, place: Place) -> WrittenType:
    match written:
        case Named():
            return Named(place, written.name)
        case Shape():
            return Shape(place, tuple((Word(place, name.text), _moved(kind, place)) for name, kind in written.fields))
        case Maybe() | ListOf() | InIO():
            return type(written)(place, _moved(written.inner, place))


def _judge_belongs(value: Value, name: str, kind: Type, label: str, already: object) -> None:
    if kind.label != label:
        raise wrong(value.place, f"{name} belongs to the type {label}, not to {kind.label}.")
    if already is not None:
        raise wrong(value.place, f"The type already says its {name}; leave one of the two out.")


def _label(written: Named) -> str:
    if written.name in JSON_TYPES:
        return written.name
    hint = _meant(written.name, JSON_TYPES) or f"; the types are {', '.join(JSON_TYPES)}."
    raise wrong(written.place, f"There is no type {shown(written.name)}{hint}", *JSON_TYPES)


def _meant(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that asks for the name most likely meant, empty when none is near."""
    words = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), words, n=1) if len(name) <= MAX_SHOWN else []
    return f"; did you mean {words[near[0]]}?" if near else ""


def _place_of(item: Node | WrittenType) -> Place:
    return item.place


def _haskell(place: Place) -> TypeSignatureError:
    return wrong(place, "IO is Haskell's and says nothing in a path; name the type alone.", "a label such as ::Text")


def _without_return(place: Place) -> TypeSignatureError:
    return wrong(
        place, "The return type is missing; a signature ends with an arrow and a type, as in ==>(::Text).", "==>"
    )
