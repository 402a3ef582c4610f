"""Agreement of the validator with JSON Schema's reference implementation for any schema."""

import jsonschema
import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.hostile_corpus import SCHEMAS
from catalog.errors import SchemaProblem
from catalog.exports.flattening import flatten_to_object
from catalog.schemas import compile_schema
from catalog.schemas.acceptance import DIALECT
from tests import counts
from tests.catalog.schema_strategies import anything, documents, with_definitions
from tests.corpus import faults

# Requirements of JSON Schema that Python's regular expressions and binary fractions deny the reference.
KNOWN_DIFFERENCES = [
    ({"pattern": "^a$"}, "a\n", False, "Python's $ also matches before a last line break"),
    ({"pattern": "^\\d$"}, "٣", False, "ECMA-262 knows ten digits, Python those of every script"),
    ({"pattern": "^\\w$"}, "ü", False, "and likewise of letters"),
    ({"multipleOf": 0.01}, 1.13, True, "decimals are divided as they are written"),
]
AGREED = [
    ({"type": "integer"}, True, False),
    ({"type": "number"}, False, False),
    ({"type": "integer"}, 1.0, True),
    ({"type": "integer"}, 1.5, False),
    ({"const": 1}, True, False),
    ({"const": 1}, 1.0, True),
    ({"enum": [[0]]}, [False], False),
    ({"uniqueItems": True}, [1, True], True),
    ({"uniqueItems": True}, [1, 1.0], False),
    ({"maxLength": 1}, "👍", True),
]


@given(with_definitions(), st.lists(documents, min_size=1, max_size=5))
def test_both_engines_agree(schema, values):
    validator, reference = compile_schema(schema), jsonschema.Draft202012Validator(schema)

    for value in values:
        assert validator.accepts(value) == reference.is_valid(value), (schema, value)
        assert (validator.problems(value) == []) == validator.accepts(value)


@given(with_definitions(), documents)
def test_every_problem_lies_where_the_document_has_something_or_lacks_it(schema, value):
    for problem in compile_schema(schema).problems(value):
        assert problem.message.endswith((".", "?"))
        assert problem.code


@given(anything, documents)
def test_whatever_is_given_as_a_schema_is_compiled_or_refused_with_words(schema, value):
    try:
        validator = compile_schema(schema)
    except SchemaProblem as problem:
        assert "schema at" in str(problem)
        return
    assert (validator.problems(value) == []) == validator.accepts(value)
    compile_schema(flatten_to_object(schema))


def test_a_boolean_is_no_number_and_a_whole_number_is_an_integer():
    def check(schema, value, fits):
        assert compile_schema(schema).accepts(value) is fits
        assert jsonschema.Draft202012Validator(schema).is_valid(value) is fits

    assert faults(check, AGREED) == {}


@pytest.mark.parametrize(("schema", "value", "fits", "why"), KNOWN_DIFFERENCES)
def test_where_they_differ_is_known(schema, value, fits, why):
    assert compile_schema(schema).accepts(value) is fits
    assert jsonschema.Draft202012Validator(schema).is_valid(value) is not fits


def test_both_checks_of_schemas_agree_on_hostile_ones():
    def check(schema):
        plain = schema | {"$schema": DIALECT}
        try:
            jsonschema.Draft202012Validator.check_schema(plain, format_checker=jsonschema.FormatChecker(formats=()))
            valid = True
        except jsonschema.SchemaError:
            valid = False

        assert jsonschema_rs.meta.is_valid(plain) == valid

    assert faults(check, [schema for _, schema, _ in (SCHEMAS if counts.FULL else SCHEMAS[::3])]) == {}
