"""Order of values as people see them."""

import json

from catalog.schemas.description import accepts_text, in_schema_order, skeleton


def test_values_follow_the_order_of_the_schema():
    address = {"type": "object", "properties": {"street": {}, "city": {}}}
    schema = {
        "$defs": {"address": address},
        "properties": {
            "to": {"$ref": "#/$defs/address"},
            "copies": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/address"}, {"type": "null"}]}},
            "amount": {"type": "number"},
        },
    }
    written = {"city": "B", "street": "S"}
    value = {"amount": 1, "copies": [written, None], "also": {"b": 1, "a": 2}, "to": {"x": 1, **written}}
    shown = in_schema_order(value, schema)
    assert shown == value
    assert json.dumps(shown) == json.dumps(
        {
            "to": {"street": "S", "city": "B", "x": 1},
            "copies": [{"street": "S", "city": "B"}, None],
            "amount": 1,
            "also": {"b": 1, "a": 2},
        }
    )


def test_skeleton_has_the_shape_of_the_schema():
    schema = {
        "$defs": {"row": {"type": "object", "properties": {"id": {"type": "integer"}, "note": {}}, "required": ["id"]}},
        "type": "object",
        "properties": {
            "results": {"type": "array"},
            "row": {"$ref": "#/$defs/row"},
            "level": {"enum": ["low", "high"]},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
    }
    assert skeleton(schema) == {"results": [], "row": {"id": 0}, "level": "low", "note": ""}
    assert skeleton({}) is None


def test_schemas_that_accept_text():
    texts = [{}, {"type": ["string", "null"]}, {"anyOf": [{"type": "integer"}, {"type": "string"}]}]
    others = [{"type": "object"}, {"anyOf": [{"type": "array"}, {"type": "null"}]}, {"const": 5}]
    assert [accepts_text(each) for each in texts + others] == [True] * 3 + [False] * 3
