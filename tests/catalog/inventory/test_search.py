"""Search by words. The suite runs on SQLite and PostgreSQL, which must return the same results."""

from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.inventory import search
from catalog.inventory.sync import sync_tools
from catalog.models import Tool, ToolText
from tests import counts
from tests.approvals.factories import make_tool
from tests.corpus import faults
from tests.pages import Pages
from tests.rest import Rest

pytestmark = [pytest.mark.db, pytest.mark.django_db]
CORPUS = {
    "read_file": ("Read one UTF-8 text file.", {"path": "Relative to the workspace."}),
    "write_file": ("Replace a file; see read_file.", {"path": "Relative.", "content": "The new text."}),
    "sendEmail": ("Send a café's mail to Zoë.", {"recipient": "Who reads it."}),
    "profile-report": ("Выгрузить отчёт для профиля.", {"id": "Number, such as 10-K."}),
    "unread-count": ("读取未读邮件的数量", {}),
    "x" * 64: ("A tool of C++ & Straße, 100% \"quoted\" with 'marks' \\ and NEAR(it, 2).", {}),
}
HOSTILE = [
    *('"', "'", "*", "-", "+", "^", ":", "(", ")", "{}", "\\", "%", "_", "!!!", "…", " ", "\t\n", "\x00", "🙂"),
    *(
        "NEAR(a b, 2)",
        "a AND",
        "OR b",
        "NOT",
        "name_words:read",
        "name_words : (",
        'read"*',
        "read:*",
        "!read",
        "a <-> b",
    ),
    *("'; DROP TABLE catalog_tool; --", "\ud800", "\U0010ffff", "a\x00b", "‮read", "ﬁle", "ß" * 300),
    *("x" * 10_240, "a " * 5_120, "_" * 10_240, '"' * 10_240, "é\u0301" * 3_000, "读" * 3_000),
]
PIECES = ["re", "fi", "_", "读", "é", "ma", "10", "x", "xx", "'", '"', "*", "ß", "("]


@pytest.fixture
def corpus(db):
    """A few tools that test what is a word."""
    for name, (description, parameters) in CORPUS.items():
        properties = {key: {"type": "string", "description": said} for key, said in parameters.items()}
        say(make_tool(name), description, properties)
    search.index_changed_tools()


def say(tool: Tool, description: str, properties: Mapping[str, object] | None = None) -> None:
    """Change texts of a tool's current version."""
    schema = {"type": "object", "properties": properties or {}}
    tool.versions.update(description=description, input_schema=schema)


def found(text: str) -> set[str]:
    """Return the names of the tools that a text finds."""
    return set(Tool.objects.filter(search.matching_words(text)).values_list("name", flat=True))


def test_words_find_tools(corpus):
    """Each query word is the start of a word or any part of the name, ignoring case, accents and order."""
    cases = [
        ("read", "read_file write_file sendEmail unread-count"),
        ("READ", "read_file write_file sendEmail unread-count"),
        ("file", "read_file write_file profile-report"),
        ("read_f", "read_file write_file"),
        ("ead_fil", "read_file"),
        ("readf", "read_file"),
        ("fi re", "read_file write_file profile-report"),
        ("email", "sendEmail"),
        ("file content", "write_file"),
        ("recip", "sendEmail"),
        ("relative work", "read_file"),
        ("CAFE zoe", "sendEmail"),
        ("café", "sendEmail"),
        ("отч", "profile-report"),
        ("отчет ПРОФ", "profile-report"),
        ("邮件", "unread-count"),
        ("10-K", "profile-report"),
        ("strasse", "x" * 64),
        ("x" * 64, "x" * 64),
        ("x" * 40, "x" * 64),
        ("near(it", "x" * 64),
        ("lative", ""),
        ("file nothing", ""),
    ]

    def check(text, names):
        assert found(text) == set(names.split())

    assert faults(check, cases) == {}


def test_hostile_text_is_no_error(corpus):
    """Operators are ordinary characters; text without words matches nothing."""

    def check(text):
        assert found(text) <= set(CORPUS)
        assert bool(search.search_words(text[:200])) or found(text) == set()

    assert faults(check, HOSTILE) == {}


def test_hostile_text_is_answered_by_page_and_api(corpus, vera):
    page, rest = Pages(vera).client, Rest(vera)
    texts = HOSTILE if counts.FULL else ["'", "%", "\x00", "a\x00b", "\U0010ffff", "‮read", "x" * 10_240, "读" * 3_000]

    def check(text):
        assert page.get("/tools/", {"q": text}).status_code == 200
        assert rest.get("tools/", q=text).status_code in (200, 422)

    assert faults(check, [text for text in texts if "\ud800" not in text]) == {}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(st.text(max_size=30), st.lists(st.sampled_from(PIECES)).map(" ".join)))
def test_databases_find_what_the_words_say(corpus, text):
    asked = search.search_words(text[:200])[:10]
    words = {row.tool.name: f"{row.name_words} {row.other_words}".split() for row in ToolText.objects.all()}
    fitting = {n for n, known in words.items() if all(any(word.startswith(a) for word in known) for a in asked)}
    assert found(text) == (fitting if asked else set())


def test_name_matches_come_first(corpus):
    """Order: equal name, name prefix, part of the name, other text."""
    say(make_tool("read"), "Anything.")
    search.index_changed_tools()
    near = (
        Tool.objects.filter(search.matching_words("read"))
        .annotate(near=search.name_match_rank("read"))
        .order_by("near", "name")
    )
    ranked = [(tool.name, tool.near) for tool in near]
    assert ranked == [("read", 0), ("read_file", 1), ("unread-count", 2), ("sendEmail", 3), ("write_file", 3)]


def test_a_new_version_is_found_by_its_own_words(corpus):
    tool = Tool.objects.get(name="read_file")
    version = tool.versions.get()
    version.pk, version.number, version.fingerprint, version.description = None, 2, "e" * 64, "Peruse it."
    version.save()
    Tool.objects.filter(pk=tool.pk).update(current_version=version)
    search.index_changed_tools()
    assert found("peruse") == {"read_file"}
    assert found("utf") == set()


def test_an_index_that_is_current_is_left_alone(corpus, django_assert_num_queries):
    with django_assert_num_queries(1):
        search.index_changed_tools()


def test_sync_indexes_what_it_writes(catalog):
    assert "read_file" in found("read")
    ToolText.objects.all().delete()
    assert found("read") == set()
    sync_tools()
    assert "read_file" in found("read")


def test_a_text_too_long_to_index_is_found_by_its_beginning(corpus):
    say(Tool.objects.get(name="read_file"), "first " + "é" * 3_000 + " " + " ".join(map(str, range(100_000))) + " last")
    ToolText.objects.all().delete()
    search.index_changed_tools()
    assert (found("first"), found("last")) == ({"read_file"}, set())
