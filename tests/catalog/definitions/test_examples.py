"""Examples as storable JSON, for each way of declaring a tool."""

from dataclasses import dataclass

import pytest
from pydantic import BaseModel, Field

from catalog.definitions.examples import serialize_examples
from catalog.testing import clean_registry
from catalog.tools import ToolExample, tool


class Query(BaseModel):
    """A search: the text to look for."""

    text: str
    limit: int = Field(10, alias="max")


@dataclass
class Found:
    """The answer: the lines found."""

    names: list[str]


@pytest.fixture(autouse=True)
def registry():
    with clean_registry():
        yield


def row(declared):
    """Return the one example of a tool, without its description."""
    [example] = serialize_examples(declared)
    return example["arguments"], example["result"]


def test_a_model_is_written_as_a_caller_writes_it():
    @tool(examples=[ToolExample(" By name ", Query(text="x", max=3), Found(["a"]))])
    def look_up(params: Query) -> Found:
        """Look something up."""
        return Found([])

    assert serialize_examples(look_up) == [
        {"description": "By name", "arguments": {"text": "x", "max": 3}, "result": {"names": ["a"]}}
    ]


def test_what_goes_without_saying_is_left_out():
    @tool(examples=[ToolExample("By name", Query(text="x"), Found([]))])
    def look_up(params: Query) -> Found:
        """Look something up."""
        return Found([])

    assert row(look_up) == ({"text": "x"}, {"names": []})


def test_a_query_type_is_named():
    @tool(query_types={"find": Query}, examples=[ToolExample("By name", Query(text="x"), ["a"])])
    def ask(params: Query, query_type: str) -> list[str]:
        """Ask."""
        return []

    assert row(ask) == ({"query_type": "find", "parameters": {"text": "x"}}, ["a"])


def test_what_no_database_takes_is_left_out():
    @tool(examples=[ToolExample("Odd", {"text": "x"}, {"nul": "a\0b"})])
    def odd(text: str) -> dict[str, str]:
        """Be odd."""
        return {}

    @tool(examples=[ToolExample("None", {"number": 1.0}, float("nan"))])
    def number(number: float) -> float:
        """Be a number."""
        return number

    assert (row(odd), row(number)) == (({"text": "x"}, None), ({"number": 1.0}, None))
