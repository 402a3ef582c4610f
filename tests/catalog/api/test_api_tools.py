"""REST endpoints of tools."""

import base64
import itertools

import pytest

from catalog.inventory import snapshot
from catalog.models import Tool
from tests.corpus import faults
from tests.rest import Rest, wrong_paths

pytestmark = pytest.mark.usefixtures("catalog")
FILES = ["delete_file", "list_files", "propose_file_edit", "read_file", "search_files", "write_file"]


@pytest.fixture
def rest(vera):
    """The client of a viewer."""
    return Rest(vera)


def names(response):
    """Return the names in a list."""
    assert response.status_code == 200, response.json()
    return [tool["name"] for tool in response.json()["results"]]


def test_the_list_is_filtered_and_sorted(rest):
    cases = [
        ({"category": "filesystem"}, FILES),
        ({"category": ["filesystem", "finance"]}, sorted([*FILES, "sec_financial_data"])),
        ({"category": "filesystem", "safety_level": "dangerous"}, ["delete_file", "propose_file_edit", "write_file"]),
        ({"category": "filesystem", "max_level": "cautious"}, ["list_files", "read_file", "search_files"]),
        ({"safety_level": "cautious"}, ["eval_form", "match_statements", "propose_envelope"]),
        ({"q": "WRITE_f"}, ["write_file"]),
        ({"q": "10-K"}, ["sec_financial_data"]),
        ({"source": "catalog.toolsets.text"}, ["render_text"]),
        ({"source": "nowhere"}, []),
        ({"enabled": "false"}, ["eval_form"]),
        ({"category": "filesystem", "sort": "-name"}, FILES[::-1]),
        ({"category": "filesystem", "sort": "-level", "page_size": 2}, ["propose_file_edit", "delete_file"]),
    ]

    def check(query, found):
        Tool.objects.filter(name="eval_form").update(enabled="enabled" not in query)

        assert names(rest.get("tools/", **query)) == found

    assert faults(check, cases) == {}


@pytest.mark.parametrize("field", ["safety_level", "max_level", "sort", "enabled", "page_size", "cursor"])
def test_an_unknown_filter_value_is_422(rest, field):
    assert wrong_paths(rest.get("tools/", **{field: "nonsense"})) == [field]


@pytest.mark.parametrize("sort", ["name", "-name", "level", "-calls"])
def test_pages_are_linked_in_both_directions(rest, sort):
    whole = names(rest.get("tools/", sort=sort))
    url, pages = f"tools/?sort={sort}&page_size=4", []
    while url:
        page = rest.get(url.removeprefix("http://testserver/api/v1/"))
        pages.append(names(page))
        url, back = page.json()["next"], page.json()["previous"]

    assert [name for page in pages for name in page] == whole
    before = rest.get(back.removeprefix("http://testserver/api/v1/"))
    assert names(before) == pages[-2]


def test_queries_of_a_list_do_not_grow_with_its_length(rest, django_assert_num_queries):
    rest.get("tools/")
    with django_assert_num_queries(4):  # the token with its roles, which tools, all about them, their categories
        rest.get("tools/", page_size=3)
    with django_assert_num_queries(4):
        rest.get("tools/")


def test_one_tool_in_full(rest):
    tool = rest.get("tools/write_file/").json()

    assert (tool["safety_level"], tool["reversibility"], tool["version"]) == ("dangerous", "restorable", 1)
    assert set(tool["input_schema"]["properties"]) == {"path", "content"}
    assert len(tool["fingerprint"]) == 64
    assert tool["usage"] == {"calls": 0, "completed": 0, "failed": 0, "last_call_at": None}
    assert [code["reference"] for code in tool["implementations"]] == ["catalog.toolsets.workspace:write_file"]
    assert tool["drifted"] is False


def test_the_versions_of_a_tool(rest):
    (version,) = rest.get("tools/write_file/versions/").json()["results"]

    assert (version["number"], version["is_current"]) == (1, True)
    assert version["created_at"].endswith("Z")


@pytest.mark.parametrize(
    ("provider", "keys"),
    [
        ("openai", {"type", "function"}),
        ("anthropic", {"name", "description", "input_schema"}),
        ("mcp", {"name", "description", "inputSchema", "annotations"}),
        ("json", {"name", "version", "fingerprint", "input_schema", "safety_level", "timeout"}),
    ],
)
def test_each_provider_gets_its_format(rest, provider, keys):
    one = rest.get("tools/read_file/schema/", provider=provider).json()
    every = rest.get("tool-schemas/", provider=provider).json()

    assert keys <= set(one)
    assert one in every


def test_an_unknown_provider_is_422_with_the_known_ones(rest):
    response = rest.get("tools/read_file/schema/", provider="cobol")

    assert wrong_paths(response) == ["provider"]
    assert "anthropic, gram, json, mcp, openai" in response.json()["detail"]


def test_schemas_omit_disabled_tools(rest):
    Tool.objects.filter(name="read_file").update(enabled=False)

    assert "read_file" not in str(rest.get("tool-schemas/").json())


def test_arguments_are_validated_without_a_call(rest):
    assert rest.post("tools/read_file/validate/", {"arguments": {"path": "a"}}).json() == {"valid": True}
    refused = rest.post("tools/write_file/validate/", {"arguments": {"path": 1, "mode": "w"}})

    assert sorted(wrong_paths(refused)) == ["content", "mode", "path"]


def test_arguments_are_validated_by_their_query_type(rest):
    path = "tools/sec_financial_data/validate/"
    refused = rest.post(path, {"arguments": {"query_type": "horoscope", "parameters": {}}})

    assert wrong_paths(refused) == ["query_type"]
    assert "financial_facts" in refused.json()["detail"]


def test_arguments_over_256_kib_are_422(rest):
    response = rest.post("tools/write_file/validate/", {"arguments": {"path": "a", "content": "x" * 262_145}})

    assert response.status_code == 422
    assert response.json()["errors"][0]["code"] == "too_large"


def test_changed_code_is_shown_as_drifted(rest):
    Tool.objects.get(name="read_file").versions.update(fingerprint="f" * 64)
    snapshot.drop_snapshot()

    assert rest.get("tools/read_file/").json()["drifted"] is True


def test_forged_cursor_is_422_or_a_page(rest):
    def check(path, value):
        cursor = base64.urlsafe_b64encode(f"[false,{value},1]".encode()).decode()
        assert rest.get(path, cursor=cursor).status_code in (200, 422)

    paths = ["tools/", "plans/", "tools/read_file/versions/"]
    values = ['"a"', '"\\u0000"', "1", "[]", "null", "9007199254740991", "-1"]
    assert faults(check, itertools.product(paths, values)) == {}
