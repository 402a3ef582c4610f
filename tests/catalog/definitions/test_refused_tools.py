"""Errors of refused declarations name the tool, the rule and the value."""

from typing import Any

import pytest

from catalog.errors import ToolDefinitionError
from catalog.testing import clean_registry
from catalog.tools import define_tool, tool
from tests.corpus import faults


@pytest.fixture(autouse=True)
def registry():
    with clean_registry():
        yield


def documented(a: int) -> int:
    """Text."""
    return a


def untyped(a, b=1):
    """Text."""


def variadic(*names: str) -> None:
    """Text."""


def test_definition_error_names_tool_and_value():
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (untyped, {}, "The parameter a needs a type annotation"),
        (variadic, {}, "*names: str"),
        (documented, {"safety_level": "extreme"}, "not 'extreme'"),
        (documented, {"reversibility": "maybe"}, "not 'maybe'"),
        (documented, {"query_types": {}}, "query_types is empty"),
        (documented, {"query_types": {"a": int}}, "<class 'int'> is not a pydantic model"),
        (documented, {"examples": [1]}, "not 1."),
        (documented, {"requires_identifier": "yes"}, "requires_identifier of text must be True or False, not 'yes'"),
        (documented, {"retry_safe": "x"}, "retry_safe of text must be True or False, not 'x'"),
        (documented, {"safety": "safe"}, "@tool has no option 'safety'; did you mean 'safety_level'?"),
        (documented, {"bogus": 1}, "@tool has no option 'bogus'; the options are accepts_overrides, categories"),
    ]

    def check(handler, options, said):
        with pytest.raises(ToolDefinitionError) as caught:
            tool(name="text", **options)(handler)
        assert said in str(caught.value) and str(caught.value) == caught.value.message
        assert str(caught.value).startswith("Tool text: ") or " of text " in str(caught.value)

    assert faults(check, cases) == {}


@pytest.mark.parametrize(
    ("parameter", "options", "said"),
    [
        ({"enum": "a"}, {}, "Tool text: "),
        ({"enum": []}, {}, "The enum of a of text must not be empty."),
        ({}, {"handlr": len}, "Tool text: define_tool has no option 'handlr'; did you mean 'handler'?"),
        ({}, {"handler": None}, "The handler of text must be a function of one dict, not None."),
    ],
)
def test_what_is_wrong_with_a_parameter_list_names_the_tool(parameter, options, said):
    with pytest.raises(ToolDefinitionError) as caught:
        define_tool("text", "Text.", [{"name": "a", "type": "string", **parameter}], **{"handler": dict, **options})
    assert str(caught.value).startswith(said)
