"""Tool list and tool page without JavaScript."""

import html
import re
from datetime import timedelta

import pytest

from catalog.core import clock
from catalog.inventory.search import index_changed_tools
from catalog.models import Call, Category, Source, Tool, ToolVersion
from catalog.states import CallStatus
from tests.approvals.factories import make_tool
from tests.conftest import person
from tests.corpus import faults
from tests.pages import Pages, compact

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("long_now")]
NAME = 'class="entry-title mono" href="/tools/'
SHELF = {
    "delete_file": ("dangerous", "filesystem"),
    "write_file": ("dangerous", "filesystem"),
    "eval_form": ("cautious", "execution"),
    "list_files": ("safe", "filesystem"),
    "read_file": ("safe", "filesystem"),
    "sec_financial_data": ("safe", "finance"),
}


@pytest.fixture
def shelf(db):
    """Six tools of every level, in three categories."""
    for name, (level, category) in SHELF.items():
        make_tool(name, level).categories.add(Category.objects.get_or_create(name=category)[0])
    index_changed_tools()


def names(pages: Pages) -> list[str]:
    """Return the tools that are listed, in order."""
    return [part.split("/")[0] for part in pages.html.split(NAME)[1:]]


def listed(user, query: str = "") -> list[str]:
    """Return the tools that a query lists."""
    pages = Pages(user)
    pages.open(f"/tools/{query}")
    return names(pages)


def called(by, status: CallStatus = CallStatus.COMPLETED, name: str = "read_file") -> Call:
    """Store a call that took 40 ms."""
    now = clock.now()
    version = ToolVersion.objects.get(tool__name=name)
    ended = now + timedelta(milliseconds=40)
    fields = {"status": status, "requested_by": by, "created_at": now, "started_at": now, "finished_at": ended}
    return Call.objects.create(tool_name=name, version=version, arguments="{}", **fields)


def test_no_tools_yet(rosa):
    pages = Pages(rosa)
    pages.open("/tools/")
    assert 'data-empty="list"' in pages.html


def test_dangerous_tools_come_first(rosa, shelf):
    assert listed(rosa) == list(SHELF)


def test_the_url_is_the_state(rosa, shelf):
    cases = [
        ("?q=WRITE", "write_file", 6),
        ("?q=writ+no+file", "delete_file", 4),
        ("?safety_level=dangerous", "delete_file", 2),
        ("?safety_level=dangerous&safety_level=cautious", "delete_file", 3),
        ("?category=filesystem&safety_level=safe", "list_files", 2),
        ("?category=filesystem&category=finance", "delete_file", 5),
        ("?source=tests", "delete_file", 6),
        ("?enabled=false", "write_file", 1),
        ("?enabled=true", "delete_file", 5),
        ("?sort=-name", "write_file", 6),
        ("?sort=-calls", "read_file", 6),
    ]
    Tool.objects.filter(name="write_file").update(enabled=False)
    called(rosa)

    def check(query, first, count):
        found = listed(rosa, query)
        assert (found[0], len(found)) == (first, count)

    assert faults(check, cases) == {}


def test_a_search_puts_the_best_match_first(rosa, shelf):
    pages = Pages(rosa)
    pages.open("/tools/?q=write")
    assert names(pages)[0] == "write_file"
    pages.open("/tools/?q=write&sort=name")
    assert names(pages) == sorted(SHELF)


def test_facets_count_beside_each_other(rosa, shelf):
    pages = Pages(rosa)
    page = pages.open("/tools/?safety_level=dangerous&category=filesystem")
    for count in ("Safe 2", "Dangerous 2", "filesystem 2", "finance 0", "tests 2", "Enabled 2", "2 tools"):
        assert count in page
    assert 'href="/tools/?category=filesystem" aria-label="Remove the filter Safety: Dangerous"' in pages.html


def test_a_tool_in_two_categories_counts_once(rosa, shelf):
    Tool.objects.get(name="read_file").categories.add(Category.objects.get(name="finance"))
    page = Pages(rosa).open("/tools/?category=filesystem&category=finance")
    for count in ("Safe 3", "filesystem 4", "finance 2", "Enabled 5", "5 tools"):
        assert count in page


def test_nothing_matches(rosa, shelf):
    pages = Pages(rosa)
    assert "wirte_file" in pages.open("/tools/?q=wirte_file")
    assert 'data-empty="search"' in pages.html
    assert all(f'class="button" href="/tools/{query}"' in pages.html for query in ("?q=write_file", ""))


def test_hidden_matches_are_mentioned(rosa, shelf):
    Tool.objects.filter(name="eval_form").update(enabled=False)
    pages = Pages(rosa)
    pages.open("/tools/?q=eval_form&enabled=true")
    assert 'data-disabled="1"' in pages.html
    assert 'class="button" href="/tools/?q=eval_form"' in pages.html


def test_sources_that_could_not_be_loaded_are_named(rosa, shelf):
    Source.objects.create(name="broken.tools", error="ModuleNotFoundError: No module named '<b>x'")
    pages = Pages(rosa)
    page = pages.open("/tools/")
    assert 'id="broken"' in pages.html
    assert "broken.tools : ModuleNotFoundError: No module named '<b>x'" in page
    assert len(names(pages)) == 6


def test_a_disabled_tool_is_dimmed(rosa, shelf):
    Tool.objects.filter(name="write_file").update(enabled=False)
    pages = Pages(rosa)
    assert "Disabled write_file" in pages.open("/tools/?q=write")
    assert 'class="entry dim"' in pages.html


def test_the_line_of_calls_ends_today(rosa, shelf):
    called(rosa)
    old = called(rosa, name="list_files")
    Call.objects.filter(pk=old.pk).update(created_at=clock.now() - timedelta(days=14))
    pages = Pages(rosa)
    pages.open("/tools/?sort=-calls")
    assert names(pages)[0] == "read_file"
    assert pages.html.count('L72.0 2.0"/>') == 1


def test_long_lists_have_pages(rosa, db, monkeypatch):
    monkeypatch.setattr("catalog.ui.lists.PAGE_SIZE", 2)
    for number in range(5):
        make_tool(f"tool_{number}", "safe" if number == 1 else "dangerous")
    for sort, order in (("-level", "02341"), ("-name", "43210"), ("calls", "01234"), ("level", "10234")):
        pages, seen, path = Pages(rosa), [], f"/tools/?sort={sort}"
        while path:
            pages.open(path)
            seen += names(pages)
            path = html.unescape("".join(re.findall(r'href="([^"]+)" rel="next"', pages.html)))
        assert seen == [f"tool_{number}" for number in order], sort


def test_no_query_breaks_the_list(rosa, shelf):
    def check(query):
        pages = Pages(rosa)
        pages.open(f"/tools/?{query}")
        assert ("data-ignored" in pages.html) == query.startswith(("safety", "category", "sort", "enabled", "cursor"))

    cut = "q=" + "x" * 5000
    queries = ["q=%00", cut, "safety_level=x", "category=%FF", "cursor=x", "sort=;", "enabled=1"]
    assert faults(check, queries) == {}


def test_htmx_gets_results_and_an_address(rosa, shelf):
    pages = Pages(rosa)
    headers = {"HX-Request": "true", "HX-Target": "results"}
    response = pages.client.get("/tools/?q=&safety_level=dangerous&sort=-level", headers=headers)
    assert response["HX-Push-Url"] == "/tools/?safety_level=dangerous"
    sent = compact(response.content.decode())
    assert "<html" not in sent
    assert re.search(r'id="n-safety_level-\w{8}"\s+hx-swap-oob="innerHTML">3</span>', sent)
    typed = pages.client.get("/tools/?q=wri", headers=headers | {"HX-Trigger-Name": "q"})
    assert typed["HX-Replace-Url"] == "/tools/?q=wri"


def test_tool_page_explains_its_level(rosa, catalog):
    page = Pages(rosa).open("/tools/write_file/")
    assert "Every call needs approval. By 1 reviewer other than the requester, within 24 h." in page
    assert "Restorable" in page and "Not called in 14 days" in page
    assert "Runs without approval. The tool only reads" in Pages(rosa).open("/tools/read_file/")
    assert "recorded in the audit log" in Pages(rosa).open("/tools/eval_form/")


def test_parameters_have_type_and_limits(rosa, catalog):
    page = Pages(rosa).open("/tools/write_file/")
    assert "path string required Path of the file, relative to the workspace ≤ 1,024 chars" in page
    page = Pages(rosa).open("/tools/sec_financial_data/")
    assert "metrics list of string required Name of a figure" in page
    assert all(query_type in page for query_type in ("financial_facts", "company_info", "compare"))


@pytest.mark.parametrize(
    ("provider", "mark"), [("openai", "parameters"), ("mcp", "inputSchema"), ("json", "fingerprint")]
)
def test_schemas_are_what_the_api_sends(rosa, catalog, provider, mark):
    pages = Pages(rosa)
    page = pages.open(f"/tools/write_file/?schema={provider}")
    assert f'"{mark}"' in page
    assert f'id="sp-{provider}" role="tabpanel" aria-labelledby="st-{provider}">' in pages.html


def test_the_choice_of_a_query_type_is_labelled(rosa, catalog):
    assert "Arguments required object" in Pages(rosa).open("/tools/sec_financial_data/")


def test_export_warnings_are_displayed(rosa, catalog):
    pages = Pages(rosa)
    pages.open("/tools/sec_financial_data/")
    parts = {part.partition('"')[0]: part for part in pages.html.split('id="sp-')[1:]}
    assert {name: "data-note" in part for name, part in parts.items()} == {
        **dict.fromkeys(("openai", "anthropic"), True),
        **dict.fromkeys(("mcp", "gram", "json"), False),
    }


def test_usage_counts_ended_calls(rosa, catalog):
    for status in (CallStatus.COMPLETED, CallStatus.COMPLETED, CallStatus.COMPLETED, CallStatus.FAILED):
        called(rosa, status)
    page = Pages(rosa).open("/tools/read_file/")
    assert "Calls 4 Success 75.0 % p95 40 ms" in page
    assert page.count("just now · 40 ms") == 3


def test_without_a_role_only_ones_own_calls_are_listed(rosa, catalog):
    """Usage counts are public; the callers are not."""
    called(rosa)
    page = Pages(person("nobody")).open("/tools/read_file/")
    assert "Calls 1" in page and "just now · 40 ms" not in page


def test_hostile_texts_stay_texts(rosa, db):
    make_tool("odd")
    hostile = "<script>alert(1)</script>\u202e"
    schema = {"type": "object", "properties": {hostile: {"enum": [hostile], "description": hostile}}}
    ToolVersion.objects.update(description=hostile, input_schema=schema)
    for path in ("/tools/", "/tools/odd/"):
        pages = Pages(rosa)
        pages.open(path)
        assert "<script>alert" not in pages.html and "&lt;script&gt;alert" in pages.html
        assert "U+202E" in pages.html


def test_odd_schemas_do_not_break_the_page(rosa, db):
    make_tool("odd")
    loop = {"$ref": "#/$defs/node"}
    node = {"type": "object", "properties": {"next": loop, "all": {"type": "array", "items": loop}}}
    parts = {"node": loop, "lost": {"$ref": "#/nowhere"}, "true": True, "either": {"anyOf": [node, {"type": "null"}]}}
    ToolVersion.objects.update(input_schema={"type": "object", "properties": parts, "$defs": {"node": node}})
    assert "either object or null" in Pages(rosa).open("/tools/odd/")


@pytest.mark.parametrize("name", ["nothing", "a" * 300])
def test_unknown_tool_is_404(rosa, name):
    assert "Page not found" in Pages(rosa).open(f"/tools/{name}/", 404)
