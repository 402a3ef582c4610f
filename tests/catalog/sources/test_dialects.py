"""Older dialects of JSON Schema: what they mean in 2020-12, and which are refused by name."""

from typing import Any

import pytest

from catalog.errors import SchemaProblem
from catalog.schemas import compile_schema
from catalog.sources.definitions import clean_schema

OLD = {
    "type": "object",
    "properties": {
        "pair": {"type": "array", "items": [{"type": "string"}, {"$ref": "#/definitions/n"}], "additionalItems": False},
        "dependencies": {"type": "array", "items": {"type": "integer"}, "additionalItems": False},
        "a": {},
        "b": {},
    },
    "dependencies": {"a": ["b"], "b": {"required": ["pair"]}},
    "definitions": {"n": {"type": "array", "items": [{"type": "integer"}]}},
}
GOOD = [{"pair": ["x", [1, "free"]]}, {"dependencies": [1, 2]}, {"a": 1, "b": 1, "pair": ["x"]}]
BAD = [{"pair": [1]}, {"pair": ["x", ["y"]]}, {"pair": ["x", [1], 3]}, {"dependencies": ["x"]}, {"a": 1}, {"b": 1}]


@pytest.mark.parametrize(
    "dialect", ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft-06/schema", None]
)
def test_old_forms_are_enforced(dialect: str | None) -> None:
    schema = clean_schema({**OLD, "$schema": dialect} if dialect else OLD)
    validator = compile_schema(schema)
    assert [value for value in GOOD if validator.problems(value)] == []
    assert [value for value in BAD if not validator.problems(value)] == []


def test_reference_of_draft_07_replaces_what_stands_beside_it() -> None:
    name = {"$ref": "#/definitions/name", "maxLength": 1, "description": "A name"}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"name": name},
        "definitions": {"name": {"type": "string"}},
    }
    for dialect, is_limited in (("draft-07", False), ("draft/2019-09", True), ("draft/2020-12", True)):
        read = clean_schema({**schema, "$schema": f"https://json-schema.org/{dialect}/schema"})
        assert bool(compile_schema(read).problems({"name": "long"})) is is_limited
        assert read["properties"]["name"]["description"] == "A name"


@pytest.mark.parametrize("dialect", ["http://json-schema.org/draft-04/schema#", "https://example.org/own"])
def test_unknown_dialect_is_refused_by_name(dialect: str) -> None:
    with pytest.raises(SchemaProblem, match=dialect):
        compile_schema(clean_schema({**OLD, "$schema": dialect}))
    recursive = {"$schema": "https://json-schema.org/draft/2019-09/schema", "items": {"$recursiveRef": "#"}}
    with pytest.raises(SchemaProblem, match="2019-09"):
        compile_schema(clean_schema(recursive))
