"""Type signatures: accepted forms, and errors with their location."""

from typing import Any

import pytest

from catalog.errors import ToolDefinitionError, TypeSignatureError
from catalog.gram import (
    Parameter,
    ToolSpecification,
    Type,
    parse_type_signature,
    type_signature_to_json_schema,
)
from tests.catalog.styles.gram.hostile import HOSTILE
from tests.corpus import faults

TEXT, INT = Type("Text"), Type("Int")


def parameters(text: str) -> tuple[Parameter, ...]:
    """Return what a signature takes."""
    return parse_type_signature(text).parameters


def test_a_path_names_its_parameters_in_order():
    cases = [
        ("(::Text)==>(::String)", (Parameter("arg1", TEXT),)),
        ("(:Text)==>(:String)", (Parameter("arg1", TEXT),)),
        ("(name:Text)==>(::String)", (Parameter("name", TEXT),)),
        ("(name::Text {})==>(out::String)", (Parameter("name", TEXT),)),
        ('(x::Text {paramName:"name"})==>(::String)', (Parameter("name", TEXT),)),
        ("(`my name`:Text)==>(::String)", (Parameter("my name", TEXT),)),
        ('("my name":`Text`)==>(::String)', (Parameter("my name", TEXT),)),
        ("(::Text {paramName:name})==>(::String)", (Parameter("name", TEXT),)),
        ("(::Text {paramName:'a\\'b\\\\\\n'})==>(::String)", (Parameter("a'b\\\n", TEXT),)),
        ("(::Text {paramName:`a\\`b`})==>(::String)", (Parameter("a`b", TEXT),)),
        ('(::Text {"paramName"::"a==>b//c"})==>(::String)', (Parameter("a==>b//c", TEXT),)),
        ("(::Text)==>(::Int)==>(::String)", (Parameter("arg1", TEXT), Parameter("arg2", INT))),
        ("(::Text)==>(arg1:Int)==>(::String)", (Parameter("arg2", TEXT), Parameter("arg1", INT))),
        ("(::Int {optional:false})==>(::String)", (Parameter("arg1", INT),)),
        ("(::Int {default:-7})==>(::String)", (Parameter("arg1", INT, optional=True, default=-7),)),
        ("(::Maybe Int)==>(::String)", (Parameter("arg1", INT, optional=True),)),
        ('(::Int {description:"how many"})==>(::String)', (Parameter("arg1", INT, description="how many"),)),
        ("(::Text) // one\n ==> // two\n(::String) // three", (Parameter("arg1", TEXT),)),
        ("\t(\n::\nText\r\n)\n==>\n(::String)\n", (Parameter("arg1", TEXT),)),
        ("()-->(::String)", ()),
    ]

    def check(text, found):
        assert parameters(text) == found

    assert faults(check, cases) == {}


def test_the_older_text_form_is_read_too():
    cases = [
        ("() --> IO Text", ()),
        ("(Text) --> IO Text", (Parameter("arg1", TEXT),)),
        ("(Text, Maybe Int) --> Text", (Parameter("arg1", TEXT), Parameter("arg2", INT, optional=True))),
        ("(name: Text, age: Maybe Int) --> IO Text", (Parameter("name", TEXT), Parameter("age", INT, optional=True))),
        ("(name: Text) --> (age: Int) --> IO Text", (Parameter("name", TEXT), Parameter("age", INT))),
        ("(tags: [Text]) --> IO {count: Int}", (Parameter("tags", Type("Array", element=TEXT)),)),
        ("([Text]) --> [Int]", (Parameter("arg1", Type("Array", element=TEXT)),)),
        ("({a: Text}) --> Maybe Text", (Parameter("arg1", Type("Object", fields=(Parameter("a", TEXT),))),)),
        ("(IO: Text, Maybe: Int) --> IO (Maybe Text)", (Parameter("IO", TEXT), Parameter("Maybe", INT))),
        ("(a: (Maybe (Int))) --> IO Text", (Parameter("a", INT, optional=True),)),
    ]

    def check(text, found):
        assert parameters(text) == found

    assert faults(check, cases) == {}


@pytest.mark.parametrize(
    "arrow",
    ["==>", "-->", "~~>", "-[x]->", "=[]=>", "~[:Calls]~>", '-[a::B {c:[1, {d:"]->"}]}]->', "-[{}]->"],
)
def test_every_arrow_will_do_and_what_decorates_it_says_nothing(arrow):
    plain = parse_type_signature("(::Text)==>(::Int)==>(::String)")

    assert parse_type_signature(f"(::Text){arrow}(::Int) {arrow} (::String)") == plain


@pytest.mark.parametrize(
    "written",
    [
        '"[Maybe {a: Int}]"',
        "[Maybe {a: Int}]",
        "'[ Maybe { a : Int } ]'",
    ],
)
def test_a_type_may_be_written_as_text_or_as_it_is_wherever_one_stands(written):
    inner = Type("Object", fields=(Parameter("a", INT),), nullable=True)
    found = (Parameter("x", Type("Array", element=inner)),)

    assert parameters(f"(::Object {{fields:[{{name:x, type:{written}}}]}})==>(::Text)")[0].type.fields == found
    assert parameters(f"(x::Array {{elementType:{written}}})==>(::Text)")[0].type.element == found[0].type
    assert parameters("(x::[Maybe {a: Int}])==>(::Text)") == found


def test_records_nest_with_what_each_field_says():
    text = """(::Object {paramName:"user", fields:[
      {name:"name", type:"Text", description:"as spoken"},
      {name:"home", type:"Object", fields:[{name:"zip", type:"Int", default:0}]},
      {name:"tags", type:"Array", elementType:"Text", optional:true}
    ]})==>(::Array {elementType:"{a: Maybe Int}"})"""

    assert type_signature_to_json_schema(text)["properties"]["user"] == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "as spoken"},
            "home": {
                "type": "object",
                "properties": {"zip": {"type": "integer", "default": 0}},
                "required": [],
            },
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["name", "home"],
    }


def test_an_element_that_may_be_missing_may_be_null():
    schema = type_signature_to_json_schema("(a: [Maybe Int]) --> Text")

    assert schema["properties"]["a"]["items"] == {"type": ["integer", "null"]}


def test_each_label_is_a_type_also_of_the_result():
    def check(label):
        assert parse_type_signature(f"(::{label})==>(::{label})").returns == Type(label)

    labels = ["Text", "String", "Int", "Integer", "Double", "Number", "Bool", "Boolean", "Object", "Array"]
    assert faults(check, labels) == {}


WRONG: list[tuple[str, int, int, str]] = [
    ("", 1, 1, "Expected '(', the text ends here"),
    ("// nothing", 1, 11, "Expected '(', the text ends here"),
    ("Text --> Text", 1, 1, "Expected '(', found 'Text'"),
    ("(::Text", 1, 8, "Expected ')', ',', '::' or '{', the text ends here"),
    ("(::Text)", 1, 9, "The return type is missing"),
    ("(::Text)==>", 1, 12, "Expected a type such as Text or '(', the text ends here"),
    ("(::Text)==>()", 1, 12, "The return type is missing"),
    ("(::Text)=>(::Text)", 1, 9, "an arrow such as '==>' or the end, found '='"),
    ("(::Text)<--(::Text)", 1, 9, "found '<'"),
    ("(::Text)-[x]=>(::Text)", 1, 12, "Expected ']->'"),
    ("(::Text)(::Text)", 1, 9, "an arrow such as '==>' or the end, found '('"),
    ("(::Text)\n==>(::Txt)", 2, 7, "Unknown type 'Txt'; did you mean Text?"),
    ("(::Quaternion)==>(::Text)", 1, 4, "Unknown type 'Quaternion'; the types are Text"),
    ("(::text)==>(::Text)", 1, 4, "did you mean Text?"),
    ("(a: Texd) --> IO Text", 1, 5, "Unknown type 'Texd'; did you mean Text?"),
    ('(::Object {fields:[{name:"a", type:"Foo"}]})==>(::Text)', 1, 36, "Unknown type 'Foo'"),
    ('(::Array {elementType:"Foo"})==>(::Text)', 1, 23, "Unknown type 'Foo'"),
    ('(::Array {elementType:"[Foo]"})==>(::Text)', 1, 23, "Unknown type 'Foo'"),
    ('(::Array {elementType:"[Text"})==>(::Text)', 1, 23, "'[Text' is not a type: Expected ']'"),
    ("(::Array {elementType:5})==>(::Text)", 1, 23, "A type must be a quoted text"),
    ("(::Text {elementType:Text})==>(::Text)", 1, 22, "elementType belongs to the type Array, not to Text"),
    ("(::Array {fields:[]})==>(::Text)", 1, 18, "fields belongs to the type Object, not to Array"),
    ("(::[Text] {elementType:Text})==>(::Text)", 1, 24, "already has elementType"),
    ("(::Object {fields:{}})==>(::Text)", 1, 19, "fields must be a list of records"),
    ("(::Object {fields:[Text]})==>(::Text)", 1, 20, "A field must be a record"),
    ("(::Object {fields:[{type:Text}]})==>(::Text)", 1, 20, "A field needs a name"),
    ('(::Object {fields:[{name:"a"}]})==>(::Text)', 1, 20, "The field 'a' needs a type"),
    ("(::Object {fields:[{name:a, type:Int}, {name:a, type:Int}]})==>(::Text)", 1, 40, "'a' is used twice"),
    ("(a: {b: Int, b: Int}) --> Text", 1, 14, "'b' is used twice"),
    ("(a:Text)==>(a:Int)==>(::Text)", 1, 13, "'a' is used twice"),
    ('(a:Text)==>(::Int {paramName:"a"})==>(::Text)', 1, 13, "'a' is used twice"),
    ("(a: Text, a: Int) --> Text", 1, 11, "'a' is used twice"),
    ("(::Text {optional:true, optional:true})==>(::Text)", 1, 25, "The key 'optional' appears twice"),
    ("(::Text {optinal:true})==>(::Text)", 1, 10, "Unknown property 'optinal'; did you mean optional?"),
    ("(::Text)==>(::Text {paramName:a})", 1, 21, "Unknown property 'paramName'"),
    ("(::Text {optional:yes})==>(::Text)", 1, 19, "optional must be true or false"),
    ('(::Text {paramName:""})==>(::Text)', 1, 20, "paramName must be a non-empty text"),
    ("(::Text {paramName:5})==>(::Text)", 1, 20, "paramName must be a non-empty text"),
    ("(``:Text)==>(::Text)", 1, 2, "name must not be empty"),
    ("(a: {``: Text}) --> Text", 1, 6, "name must not be empty"),
    ("(::Maybe Int {optional:false})==>(::Text)", 1, 14, "Maybe contradicts optional:false"),
    ("(a: Maybe (Maybe Int)) --> Text", 1, 5, "Maybe of Maybe"),
    ("(::Int:Text)==>(::Text)", 1, 8, "A parameter has only one type"),
    ("(Text)==>(::Text)", 1, 2, "The type is missing; write (::Text)"),
    ("(name)==>(::Text)", 1, 2, "The type is missing"),
    ("(::Text)==>(Text)", 1, 13, "The type is missing; write (::Text)"),
    ("([Text])==>(::Text)", 1, 2, "A type in a path needs two colons"),
    ("(a:Text, b:Text)==>(::Text)", 1, 10, "each parameter in its own parentheses"),
    ("(::Text)==>(::Text, ::Int)", 1, 12, "only one return type"),
    ("()==>(::Text)==>(::Text)", 1, 1, "() means no parameters"),
    ("(::Text)-->Text", 1, 12, "A path ends with the return type in parentheses"),
    ("(::Text)-->IO Text", 1, 12, "IO has no meaning in a path"),
    ("(::IO Text)==>(::Text)", 1, 4, "IO has no meaning in a path"),
    ("(::Text)==>(::IO Text)", 1, 15, "IO has no meaning in a path"),
    ("(::Text)==>(IO Text)", 1, 13, "IO has no meaning in a path"),
    ("(::IO)==>(::Text)", 1, 6, "Expected a type such as Text"),
    ("(a: IO Text) --> Text", 1, 5, "IO has no meaning in a path"),
    ('(::Text {paramName:"a",})==>(::Text)', 1, 24, "Expected a name, found '}'"),
    ("(::Text {paramName})==>(::Text)", 1, 19, "Expected '::', found '}'"),
    ("(::Text {paramName:})==>(::Text)", 1, 20, "Expected a value, found '}'"),
    ('(::Text {default:"a\nb"})==>(::Text)', 1, 18, "a text that does not end on its line: '\"a'"),
    ('(::Text {default:"a\\qb"})==>(::Text)', 1, 20, "Unknown escape"),
    ("(::Int {default:007})==>(::Text)", 1, 18, "found '0"),
    ("(::Int {default:9007199254740993})==>(::Text)", 1, 17, "is too large"),
    ("(::Double {default:1e999})==>(::Text)", 1, 20, "is too large"),
    ("(::Double {default:-1e20})==>(::Text)", 1, 20, "is too large"),
    ("(::Text @)==>(::Text)", 1, 9, "found '@'"),
    ("(::Text\x00)==>(::Text)", 1, 8, "found '\\x00'"),
    ("(::Text \ud800)==>(::Text)", 1, 9, "a lone surrogate"),
    (f"{'(' * 40}", 1, 33, "nested deeper than 32 levels"),
    (" " * 70_000, 1, 1, "70,000 bytes. At most 65,536"),
]


def test_syntax_error_names_line_column_and_expectation():
    def check(text, line, column, message):
        with pytest.raises(TypeSignatureError) as caught:
            parse_type_signature(text)

        assert message in caught.value.message
        assert (caught.value.line, caught.value.column) == (line, column)
        assert caught.value.message.endswith(f"(line {line}, column {column})")

    assert faults(check, WRONG) == {}


def test_a_default_must_fit_its_type():
    cases = [
        *(("Text", '"a"', True), ("Text", "5", False), ("Text", "null", False)),
        *(
            ("Int", "5", True),
            ("Int", "5.0", True),
            ("Int", "5.5", False),
            ("Int", "true", False),
            ("Int", '"5"', False),
        ),
        *(("Double", "5", True), ("Double", "-5.5e3", True), ("Double", "false", False)),
        *(("Bool", "false", True), ("Bool", "0", False)),
        *(("Object", "{a:[1]}", True), ("Object", "[]", False), ("Array", "[1, a]", True), ("Array", "{}", False)),
        *(("[Text]", "[a, b]", True), ("[Text]", "[a, 1]", False), ("[Maybe Int]", "[1, null]", True)),
        *(("{a: Int}", "{a:1}", True), ("{a: Int}", "{}", False), ("{a: Int}", "{a:1, b:2}", False)),
        *(("{a: Maybe Int}", "{}", True), ("{a: [Int]}", "{a:[x]}", False), ("Text", "Maybe Int", False)),
    ]

    def check(kind, default, fits):
        text = f"(a::{kind} {{default:{default}}})==>(::Text)"
        if fits:
            assert "a" not in type_signature_to_json_schema(text)["required"]
            return
        with pytest.raises(TypeSignatureError, match="default does not fit") as caught:
            parse_type_signature(text)
        assert caught.value.column == len(f"(a::{kind} {{default:") + 1

    assert faults(check, cases) == {}


def test_a_default_inside_a_record_names_where_it_does_not_fit():
    with pytest.raises(TypeSignatureError, match=r"tags\.1 is not a Text"):
        parse_type_signature("(a::{tags: [Text]} {default:{tags:[x, 1]}})==>(::Text)")


def test_types_that_nest_deeper_than_a_schema_may_have_no_schema():
    text = f"(a: {'{a: ' * 20}Int{'}' * 20}) --> Text"

    assert len(parameters(text)) == 1
    with pytest.raises(TypeSignatureError, match="over 32 levels"):
        type_signature_to_json_schema(text)
    with pytest.raises(TypeSignatureError, match="over 32 levels"):
        ToolSpecification("a", "d", text)


@pytest.mark.parametrize("text", [None, 5, b"(::Text)==>(::Text)", ["(::Text)==>(::Text)"]])
def test_what_is_no_text_is_refused_as_such(text: Any):
    with pytest.raises(TypeSignatureError, match="gram is text"):
        parse_type_signature(text)


def test_hostile_texts_are_answered():
    def check(number):
        parse_type_signature("()==>(::Text)")
        try:
            type_signature_to_json_schema(HOSTILE[number])
        except ToolDefinitionError as error:
            assert isinstance(error, TypeSignatureError)
            assert len(error.message) < 500

    assert faults(check, range(len(HOSTILE))) == {}
