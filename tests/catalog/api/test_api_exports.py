"""Export of tools in providers' formats over REST."""

import json

import pytest

from catalog.models import Tool, ToolVersion
from tests.rest import Rest, wrong_paths

pytestmark = pytest.mark.usefixtures("catalog")


@pytest.fixture
def rest(vera):
    """The client of a viewer."""
    return Rest(vera)


def names(response):
    """Return the names of the tools in OpenAI's form."""
    assert response.status_code == 200, response.content
    return [tool["function"]["name"] for tool in response.json()]


@pytest.mark.parametrize(
    "query",
    [
        {"category": "finance"},
        {"category": ["filesystem", "finance"], "max_level": "safe"},
        {"safety_level": "dangerous"},
        {"q": "write_f"},
        {"source": "catalog.toolsets.text"},
        {"q": "no such thing"},
    ],
)
def test_the_export_matches_the_list(rest, query):
    listed = [tool["name"] for tool in rest.get("tools/", page_size=200, enabled="true", **query).json()["results"]]

    assert names(rest.get("tool-schemas/", provider="openai", **query)) == listed


def test_disabled_tools_are_not_exported(rest):
    Tool.objects.filter(name="read_file").update(enabled=False)

    assert "read_file" not in names(rest.get("tool-schemas/", provider="openai"))


@pytest.mark.parametrize("name", ["agent_turn", "ask_user"])
def test_tools_that_only_plans_may_call_are_not_exported(rest, name):
    assert rest.get(f"tools/{name}/").json()["enabled"]
    assert name not in names(rest.get("tool-schemas/", provider="openai"))


def test_missing_strict_forms_are_noted(rest):
    response = rest.get("tool-schemas/", provider="openai", strict="true")
    strict = {tool["function"]["name"]: tool["function"]["strict"] for tool in response.json()}
    notes = json.loads(response["Toolgate-Notes"])

    assert strict["write_file"] is True
    assert {name for name, is_strict in strict.items() if not is_strict} == {
        note["tool"] for note in notes if note["code"] == "not_strict"
    }


def test_top_level_alternatives_are_flattened_with_a_note(rest):
    response = rest.get("tools/sec_financial_data/schema/", provider="anthropic")
    schema = response.json()["input_schema"]

    assert "financial_facts" in schema["properties"]["query_type"]["enum"]
    assert [note["code"] for note in json.loads(response["Toolgate-Notes"])] == ["flattened"]


@pytest.mark.parametrize("provider", ["anthropic", "mcp", "gram", "json"])
def test_only_openai_has_a_strict_mode(rest, provider):
    assert wrong_paths(rest.get("tool-schemas/", provider=provider, strict="true")) == ["strict"]


@pytest.mark.parametrize("field", ["provider", "strict", "max_level", "safety_level"])
def test_an_unknown_filter_value_is_422(rest, field):
    assert wrong_paths(rest.get("tool-schemas/", **{field: "nonsense"})) == [field]


def test_a_tool_without_a_form_is_422_with_the_reason(rest):
    odd = {"type": "object", "properties": {"a b": {"type": "string"}}, "required": ["a b"]}
    ToolVersion.objects.filter(tool__name="read_file").update(input_schema=odd)
    response = rest.get("tools/read_file/schema/", provider="anthropic")

    assert wrong_paths(response) == ["provider"]
    assert "'a b'" in response.json()["detail"]
    assert "read_file" not in str(rest.get("tool-schemas/", provider="anthropic").json())


def test_nulls_of_strict_mode_are_dropped(rest, ada):
    (parameters,) = [
        tool["function"]["parameters"]
        for tool in rest.get("tool-schemas/", provider="openai", strict="true", q="search_files").json()
        if tool["function"]["name"] == "search_files"
    ]
    sent = dict.fromkeys(parameters["required"]) | {"text": "x"}
    call = Rest(ada).post("calls/", {"tool": "search_files", "arguments": sent, "wait_seconds": 0})

    assert call.status_code == 201, call.content
    assert len(sent) > 1
    assert call.json()["arguments"] == {"text": "x", "path": "."}
    assert call.json()["defaults"] == ["path"]


def test_queries_of_an_export_do_not_grow_with_the_tools(rest, django_assert_num_queries):
    rest.get("tool-schemas/")
    with django_assert_num_queries(2):  # the token with its roles, versions with their tools
        rest.get("tool-schemas/", provider="openai", strict="true")
