"""Examples are checked against the types of their tool when it is declared."""

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from catalog.errors import ToolDefinitionError
from catalog.testing import clean_registry
from catalog.tools import ToolExample, ToolResult, tool


@pytest.fixture(autouse=True)
def registry():
    with clean_registry():
        yield


@dataclass(frozen=True)
class Lookup:
    entity_id: str


@dataclass(frozen=True)
class Found:
    entity_id: str


@pytest.mark.parametrize(
    ("example", "accepted"),
    [
        (ToolExample("Basic lookup", Lookup("a"), Found("a")), True),
        (ToolExample("Wrong input", {"entity_id": "a"}, Found("a")), False),
        (ToolExample("Wrong output", Lookup("a"), Lookup("a")), False),
        (ToolExample(" ", Lookup("a"), Found("a")), False),
        (ToolExample("x" * 201, Lookup("a"), Found("a")), False),
    ],
)
def test_examples_are_checked_against_the_types(example, accepted):
    def look_up(params: Lookup) -> ToolResult[Found]:
        """Look up."""
        return ToolResult.ok(Found(params.entity_id))

    if accepted:
        assert tool(examples=[example])(look_up).examples == (example,)
    else:
        with pytest.raises(ToolDefinitionError):
            tool(examples=[example])(look_up)


@pytest.mark.parametrize(
    ("example", "accepted"),
    [
        (ToolExample("A pair", {"a": 1}, [Found("a"), Found("b")]), True),
        (ToolExample("None found", {"a": 1}, []), True),
        (ToolExample("Unknown key", {"b": 1}, []), False),
        (ToolExample("Not a list", {"a": 1}, Found("a")), False),
        (ToolExample("Wrong items", {"a": 1}, ["a"]), False),
    ],
)
def test_examples_of_keywords_and_lists_are_checked_too(example, accepted):
    def find(a: int) -> list[Found]:
        """Find."""
        return []

    if accepted:
        assert tool(examples=[example])(find).examples == (example,)
    else:
        with pytest.raises(ToolDefinitionError):
            tool(examples=[example])(find)


class Facts(BaseModel):
    ticker: str


def test_an_example_of_a_query_type_takes_one_of_its_models():
    def answer(params: Facts) -> dict[str, Any]:
        """Answer."""
        return {}

    assert tool(query_types={"f": Facts}, examples=[ToolExample("By ticker", Facts(ticker="A"), {})])(answer).examples
    with pytest.raises(ToolDefinitionError):
        tool(query_types={"f": Facts}, examples=[ToolExample("Wrong", Lookup("a"), {})])(answer)
