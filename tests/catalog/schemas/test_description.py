"""Order of values as people see them."""

import json

from catalog.schemas.description import in_schema_order


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
