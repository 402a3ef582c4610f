"""Examples of a tool as JSON, shown on its page and used to prefill a trial call."""

import json
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from catalog.core.canonical_json import check_json
from catalog.definitions.tool import Tool, ToolExample
from catalog.errors import MalformedJSON


def serialize_examples(tool: Tool[Any, Any]) -> list[dict[str, Any]]:
    return [
        {
            "description": each.description.strip(),
            "arguments": _example_arguments(each, tool),
            "result": _to_storable_json(each.output),
        }
        for each in tool.examples
    ]


def _example_arguments(example: ToolExample[Any, Any], tool: Tool[Any, Any]) -> Any:
    given = example.input
    if given is None:
        return {}
    if isinstance(given, dict):
        return _to_storable_json(given)
    arguments = TypeAdapter(type(given)).dump_python(given, mode="json", by_alias=True, exclude_unset=True)
    models = tool.query_type_models or {}
    query_type = next((name for name, model in models.items() if model is type(given)), None)
    return _to_storable_json(arguments if query_type is None else {"query_type": query_type, "parameters": arguments})


def _to_storable_json(value: object) -> Any:
    try:
        plain = check_json(to_jsonable_python(value, by_alias=True, fallback=lambda odd: type(odd).__name__))
    except (MalformedJSON, ValueError):
        return None
    return None if "\\u0000" in json.dumps(plain) else plain
