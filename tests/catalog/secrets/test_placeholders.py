"""Redaction of secret locations at any depth and through all combinations of schemas."""

import json

import pytest

from catalog.definitions.binding import Binding
from catalog.errors import ParameterError
from catalog.secrets.placeholders import (
    PLACEHOLDER_KEY,
    find_macs,
    placeholders_as_text,
    redact_secrets,
    reject_placeholders,
    restore_secrets,
    without_macs,
)
from catalog.testing import clean_registry, invoke
from catalog.tools import Tool, tool
from tests.corpus import faults

SECRET = {"type": "string", "writeOnly": True}
OTHER = {"type": "string"}
SCHEMAS = {
    "writeOnly": (SECRET, "s3cr"),
    "password": ({"type": "string", "format": "password"}, "s3cr"),
    "x-secret": ({"type": "string", "x-secret": True}, "s3cr"),
    "a number": ({"type": "integer", "x-secret": True}, 123456),
    "an object": ({"type": "object", "x-secret": True}, {"a": ["s3cr"]}),
    "items": ({"type": "array", "items": SECRET}, ["s3cr"]),
    "prefixItems": ({"type": "array", "prefixItems": [OTHER, SECRET]}, ["open", "s3cr"]),
    "anyOf": ({"anyOf": [{"type": "null"}, SECRET]}, "s3cr"),
    "oneOf": ({"oneOf": [{"type": "integer"}, SECRET]}, "s3cr"),
    "allOf": ({"allOf": [OTHER, SECRET]}, "s3cr"),
    "then": ({"if": OTHER, "then": SECRET}, "s3cr"),
    "additionalProperties": ({"type": "object", "additionalProperties": SECRET}, {"any": "s3cr"}),
    "patternProperties": ({"type": "object", "patternProperties": {"^x": SECRET}}, {"x1": "s3cr"}),
    "$ref": ({"$ref": "#/$defs/key"}, "s3cr"),
    "deep": (
        {"type": "array", "items": {"type": "object", "properties": {"k": {"$ref": "#/$defs/key"}}}},
        [{"k": "s3cr"}],
    ),
    "a tree": ({"$ref": "#/$defs/tree"}, {"key": "s3cr", "more": [{"key": "s3cr2", "more": []}]}),
}  # fmt: skip
DEFS = {
    "key": SECRET,
    "tree": {
        "type": "object",
        "properties": {"key": SECRET, "more": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    },
}


def tool_with(schema):
    """Return a tool that takes one value of this schema."""
    whole = {"type": "object", "properties": {"value": schema, "open": OTHER}, "$defs": DEFS}
    return Tool(name="taker", description="Take it.", bound=Binding(whole))


def mac(path, value):
    """Stand in for the keyed one."""
    return f"{abs(hash((path, json.dumps(value)))):064x}"[:64]


def test_secret_of_a_schema_is_cut_out_and_restored():
    def check(name):
        schema, value = SCHEMAS[name]
        arguments = {"value": value, "open": "open"}
        sealed = redact_secrets(tool_with(schema).secret_locations, arguments, mac)
        assert "s3cr" not in sealed.text
        assert "123456" not in json.dumps(json.loads(without_macs(sealed.text)))
        assert json.loads(sealed.text)["open"] == "open"
        values = {secret.mac: secret.value for secret in sealed.secrets}
        assert find_macs(sealed.text) == values.keys()
        assert restore_secrets(json.loads(sealed.text), lambda name, mac, path: values[mac]) == arguments

    assert faults(check, SCHEMAS) == {}


def test_placeholder_is_displayed_by_name():
    schema, value = SCHEMAS["deep"]
    shown = json.loads(without_macs(redact_secrets(tool_with(schema).secret_locations, {"value": value}, mac).text))
    assert shown == {"value": [{"k": {PLACEHOLDER_KEY: "value.0.k"}}]}


def test_null_and_nothing_are_no_secrets():
    assert (
        redact_secrets(tool_with({"anyOf": [{"type": "null"}, SECRET]}).secret_locations, {"value": None}, mac).secrets
        == ()
    )
    assert redact_secrets(tool_with(SECRET).secret_locations, {"value": ""}, mac).secrets == ()


def test_a_parameter_that_its_tool_names_is_secret_at_any_depth():
    with clean_registry():

        @tool(secret=["pin"])
        def opener(boxes: list[dict[str, str]], pin: str = "") -> dict[str, object]:
            """Open boxes."""
            return {"pins": [box["pin"] for box in boxes], "own": pin}

        sealed = redact_secrets(opener.secret_locations, {"boxes": [{"pin": "4711"}], "pin": "0815"}, mac)
        assert [secret.value for secret in sealed.secrets] == ["4711", "0815"]
        result = invoke(opener, {"boxes": [{"pin": "4711"}], "pin": "0815"})
        assert result.value == {"pins": [{PLACEHOLDER_KEY: "boxes.0.pin"}], "own": {PLACEHOLDER_KEY: "pin"}}


def test_a_reference_in_a_plan_is_no_secret():
    """The referenced value is redacted when the step is called."""
    tool = tool_with(SECRET)
    assert redact_secrets(tool.secret_locations, {"value": "${key.path}"}, mac, is_plan=True).secrets == ()
    assert redact_secrets(tool.secret_locations, {"value": "x${key}"}, mac, is_plan=True).secrets
    assert redact_secrets(tool.secret_locations, {"value": "${key.path}"}, mac).secrets


@pytest.mark.parametrize(
    "value",
    [
        {PLACEHOLDER_KEY: "x"},
        [{PLACEHOLDER_KEY: {"a": 1}}],
        'in {"$secret":"x"} a text',
        {"a": {PLACEHOLDER_KEY: "x", "b": 1}},
    ],
)
def test_placeholder_in_arguments_is_refused(value):
    """Otherwise a client could plant a placeholder that is taken for a stored secret."""
    with pytest.raises(ParameterError) as refusal:
        reject_placeholders({"value": value})
    assert refusal.value.details["errors"][0]["code"] == "secret_missing"


def test_a_form_holds_a_placeholder_as_a_text():
    assert placeholders_as_text({"a": [{PLACEHOLDER_KEY: "x"}], "b": 1}) == {"a": ['{"$secret":"x"}'], "b": 1}
    assert restore_secrets('{"$secret":"x"}', lambda name, mac, path: f"<{name}>") == "<x>"
    assert restore_secrets('{"$secret":"x"}', lambda name, mac, path: 4711) == 4711


def test_a_secret_in_a_key_is_in_no_name_and_no_path():
    key = "AKIA" + "Q7" * 8
    tool = tool_with({"type": "object", "additionalProperties": SECRET})
    sealed = redact_secrets(tool.secret_locations, {"value": {key: "s3cr"}}, mac)
    assert key not in sealed.text
    assert [secret.path for secret in sealed.secrets] == ["value", 'value.{"$secret":"aws_access_key"}']
    values = {secret.mac: secret.value for secret in sealed.secrets}
    assert restore_secrets(json.loads(sealed.text), lambda name, mac, path: values[mac]) == {"value": {key: "s3cr"}}
    with pytest.raises(ParameterError):
        reject_placeholders({"value": {'use {"$secret":"x"}': 1}})
