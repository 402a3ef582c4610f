"""Dropped nulls of omitted members, with cached required members."""

import sys
from collections import Counter

import pytest

from benchmarks.hostile_corpus import SCHEMAS
from catalog.schemas import Validator, normalization
from catalog.schemas.normalization import normalize_arguments

CASES = {name: (schema, document) for name, schema, document in SCHEMAS}


def cleaned(schema, document):
    """Return the document without what was left out, and how many steps that took."""
    validator = Validator(schema)
    steps: Counter[str] = Counter()

    def count(frame, event, argument):
        steps[event] += frame.f_code.co_filename == normalization.__file__

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        return normalize_arguments(validator, document).arguments, steps["call"]
    finally:
        sys.setprofile(before)


def test_parts_that_many_ways_lead_to_are_looked_at_once():
    schema, document = CASES["nulls-under-doubling"]
    kept, steps = cleaned(schema, document)

    assert (len(document), kept) == (400, {})
    assert steps < 20_000


def test_nulls_that_a_doubling_schema_judges_are_looked_at_once():
    schema, _ = CASES["nulls-under-doubling"]
    twice = {"$defs": schema["$defs"], "properties": {name: {"$ref": "#/$defs/d3"} for name in "ab"}}
    kept, steps = cleaned(twice, {"a": None, "b": None})

    assert kept == {}
    assert steps < 400


@pytest.mark.parametrize("word", ["anyOf", "oneOf"])
def test_required_is_what_every_alternative_requires(word):
    either = [{"required": ["a", "b"]}, {"$ref": "#/$defs/rest"}]
    schema = {
        "properties": {name: {"type": "string"} for name in "abc"},
        "allOf": [{word: either}],
        "$defs": {"rest": {"allOf": [{"required": ["b", "c"]}]}},
    }
    kept, _ = cleaned(schema, {"a": None, "b": None, "c": None})

    assert kept == {"b": None}
