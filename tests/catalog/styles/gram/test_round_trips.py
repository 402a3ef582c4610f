"""Round trips through gram text; invalid text raises TypeSignatureError only."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errors import ToolDefinitionError, TypeSignatureError
from catalog.gram import (
    Parameter,
    ToolSpecification,
    TypeSignature,
    parse_type_signature,
    signature_text,
    type_signature_to_json_schema,
)
from catalog.schemas import check_schema, compile_schema
from catalog.styles.gram.signature import type_text, value_text
from tests import counts
from tests.catalog.styles.gram.strategies import ELEMENTS, SIGNATURES, SPECIFICATIONS, TEXTS, listed, not_null, value_of

MANY = settings(max_examples=counts.count(500, 20))
PIECES = [
    *("(", ")", "[", "]", "{", "}", ",", ":", "::", "|", "==>", "-->", "-[", "]->", "Text", "Int", "Maybe", "IO", "a"),
    *(
        "paramName",
        "fields",
        "elementType",
        "default",
        "optional",
        "true",
        "null",
        "1",
        '"',
        "'",
        "`",
        "\\",
        "//",
        "\n",
    ),
    *('"[Text]"', '{name:"a", type:"Int"}', "(::Text)", "ToolSpecification", " ", "\x00", "\ud800", "é", "-", "9" * 30),
]
PARTS = st.sampled_from(PIECES)


@given(SIGNATURES)
@MANY
def test_a_signature_that_is_written_is_read_back_as_itself(signature):
    text = signature_text(signature)

    assert parse_type_signature(text) == signature
    assert signature_text(parse_type_signature(text)) == text


@given(SIGNATURES)
def test_the_schema_of_a_signature_is_one_that_the_catalog_takes(signature):
    schema = signature.to_schema()
    check_schema(schema)

    assert schema["required"] == [each.name for each in signature.parameters if not each.optional]
    for each in signature.parameters:
        assert each.default is None or compile_schema(each.type.to_schema()).accepts(each.default)


@given(st.data())
def test_a_default_is_taken_just_when_the_schema_of_its_type_takes_it(data):
    (wanted, other), optional = data.draw(st.tuples(ELEMENTS, ELEMENTS)), data.draw(st.booleans())
    value = data.draw(value_of(not_null(wanted if optional else other)))
    text = f"(a::{type_text(not_null(wanted))} {{default:{value_text(value)}}})==>(::Text)"
    schema = compile_schema(not_null(wanted).to_schema())
    try:
        parse_type_signature(text)
    except TypeSignatureError:
        assert not closed(schema.schema).accepts(value)
    else:
        assert closed(schema.schema).accepts(value)


def closed(schema: dict[str, Any]) -> Any:
    """Return the validator of a schema whose records take only the fields they name."""
    text = json.dumps(schema).replace('"properties":', '"additionalProperties": false, "properties":')
    return compile_schema(json.loads(text))


@given(listed(ELEMENTS.map(not_null), bare=True), ELEMENTS)
def test_the_older_text_form_says_the_same_as_a_path(found, returns):
    written = (f"{value_text(each.name)}: {'Maybe ' * each.optional}{type_text(each.type)}" for each in found)

    assert parse_type_signature(f"({', '.join(written)}) --> IO {type_text(returns)}") == TypeSignature(found, returns)


@given(SPECIFICATIONS)
@MANY
def test_a_specification_survives_gram(specification):
    again = ToolSpecification.from_gram(specification.to_gram())

    assert again == specification
    assert again.schema == specification.schema


@given(SPECIFICATIONS)
def test_a_specification_survives_json(specification):
    again = ToolSpecification.from_json(json.loads(json.dumps(specification.to_json())))

    assert again == specification
    assert again.schema == specification.to_json()["schema"]


@given(TEXTS, st.lists(st.sampled_from([" ", "\n", "\t", "// a ==> (b)\n", "//\n"]), min_size=20, max_size=20))
def test_space_and_comments_between_the_parts_say_nothing(name, gaps):
    parts = ["(", "::", "Text", "{", "paramName", ":", value_text(name), "}", ")", "==>", "(", "::", "Int", ")"]
    text = "".join(part + gap for part, gap in zip(parts, gaps, strict=False))

    assert parse_type_signature(text) == parse_type_signature("".join(parts))
    assert parse_type_signature(text).parameters[0].name == name
    assert ToolSpecification("a", "d", text).type_signature == text[: -len(gaps[len(parts) - 1])]


def judge(text: str) -> None:
    """Read a text in every way there is; only the contract's error may come out of it."""
    for read in (type_signature_to_json_schema, ToolSpecification.from_gram):
        try:
            read(text)
        except TypeSignatureError as error:
            lines = text.split("\n")
            assert 1 <= error.line <= len(lines)
            assert 1 <= error.column <= len(lines[error.line - 1]) + 1
            assert error.message.endswith(f"(line {error.line}, column {error.column})")


@given(st.text() | st.lists(PARTS, max_size=25).map("".join))
@MANY
def test_no_text_raises_anything_but_the_contracts_error(text):
    judge(text)


@given(st.data())
@MANY
def test_gram_with_one_mistake_raises_nothing_but_the_contracts_error(data):
    whole = data.draw(SPECIFICATIONS).to_gram() if data.draw(st.booleans()) else signature_text(data.draw(SIGNATURES))
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 8)))

    judge(whole[:start] + data.draw(PARTS | st.just("")) + whole[end:])


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda i: st.dictionaries(st.text(), i)))
def test_json_that_is_no_specification_raises_nothing_but_a_definition_error(data):
    keys = ("name", "description", "typeSignature")
    for candidate in (data, dict.fromkeys(keys, data), dict.fromkeys(keys, "a") | {"typeSignature": data}):
        try:
            found = ToolSpecification.from_json(candidate)
        except ToolDefinitionError:
            continue
        assert isinstance(found.signature.parameters, tuple)
        assert all(isinstance(each, Parameter) for each in found.signature.parameters)
