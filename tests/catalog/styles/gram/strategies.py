"""Hypothesis strategies for gram signatures and specifications."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from catalog.gram import Parameter, ToolSpecification, Type, TypeSignature, signature_text

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(str.strip)
INTEGERS = st.integers(-(2**53) + 1, 2**53 - 1)
NUMBERS = st.floats(-(2.0**53) + 1, 2.0**53 - 1) | INTEGERS
PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "Text": st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    "String": TEXTS,
    "Int": INTEGERS,
    "Integer": INTEGERS,
    "Double": NUMBERS,
    "Number": NUMBERS,
    "Bool": st.booleans(),
    "Boolean": st.booleans(),
    "Object": st.dictionaries(TEXTS, NUMBERS | st.none() | TEXTS, max_size=3),
    "Array": st.lists(NUMBERS | st.none() | TEXTS, max_size=3),
}


def value_of(kind: Type) -> st.SearchStrategy[Any]:
    """Return values that fit a type."""
    if kind.fields is not None:
        needed = {each.name: value_of(each.type) for each in kind.fields if not each.optional}
        more = {each.name: value_of(each.type) for each in kind.fields if each.optional}
        fitting: st.SearchStrategy[Any] = st.fixed_dictionaries(needed, optional=more)
    elif kind.element is not None:
        fitting = st.lists(value_of(kind.element), max_size=3)
    else:
        fitting = PLAIN[kind.label]
    return fitting | st.none() if kind.nullable else fitting


@st.composite
def parameters(draw: Callable[..., Any], types: st.SearchStrategy[Type], *, bare: bool = False) -> Parameter:
    """Make a parameter or field; a bare one, as it stands in a list, has neither default nor description."""
    name, kind, optional = draw(TEXTS), draw(types), draw(st.booleans())
    if bare:
        return Parameter(name, kind, optional)
    default = draw(st.none() | value_of(kind))
    return Parameter(name, kind, optional or default is not None, default, draw(st.just("") | TEXTS))


def listed(types: st.SearchStrategy[Type], *, bare: bool = False) -> st.SearchStrategy[tuple[Parameter, ...]]:
    """Return parameters whose names differ."""
    return st.lists(parameters(types, bare=bare), max_size=3, unique_by=lambda each: each.name).map(tuple)


def not_null(kind: Type) -> Type:
    """Return the type without Maybe: a field says that it is optional itself."""
    return Type(kind.label, kind.fields, kind.element)


SIMPLE = st.builds(Type, st.sampled_from(sorted(PLAIN)))
ELEMENTS = st.recursive(
    st.builds(Type, st.sampled_from(sorted(PLAIN)), nullable=st.booleans()),
    lambda inner: (
        st.builds(Type, st.just("Array"), element=inner, nullable=st.booleans())
        | st.builds(Type, st.just("Object"), fields=listed(inner.map(not_null), bare=True), nullable=st.booleans())
    ),
    max_leaves=4,
)


TYPES = st.recursive(
    SIMPLE | st.builds(Type, st.just("Array"), element=ELEMENTS),
    lambda inner: st.builds(Type, st.just("Object"), fields=listed(inner)),
    max_leaves=4,
)
SIGNATURES = st.builds(TypeSignature, listed(TYPES), TYPES)
TOOL_NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
SPECIFICATIONS = st.builds(ToolSpecification, TOOL_NAMES, TEXTS, SIGNATURES.map(signature_text))
