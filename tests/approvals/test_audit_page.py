"""The page of the audit log: who reads it, what it shows, how it is searched and checked."""

from dataclasses import replace
from datetime import timedelta

import pytest

from approvals import audit_page
from approvals.audit import Line, append
from approvals.audit_words import action_word
from approvals.decisions import decide
from approvals.models import AuditEntry
from approvals.states import Verdict
from tests.approvals.builders import approval, ask, rejection
from tests.pages import Pages, words

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script>\u202e"


def rows(pages: Pages) -> list[int]:
    """Return the numbers of the entries that are listed."""
    return [int(part.split('"')[0]) for part in pages.html.split('<tr id="e-')[1:]]


def listed(user, query: str = "") -> list[int]:
    """Return the numbers of the entries that a query lists."""
    pages = Pages(user)
    pages.open(f"/audit/{query}")
    return rows(pages)


@pytest.fixture
def told(ada, rosa):
    """A request and its rejection; the entries' first number."""
    before = AuditEntry.objects.count()
    request = ask(ada)
    decide(request, by=rosa, decision=rejection(request, "Wrong folder"))
    return before + 1


@pytest.mark.parametrize("name", ["ada", "rosa", "vera"])
def test_only_administrators_read_it(name, request):
    """Others are told so."""
    page = Pages(request.getfixturevalue(name)).open("/audit/", 403)
    assert "Only administrators read the audit log." in page


def test_entries_are_said_in_words(admin, told):
    """Who, what, on what, when to the second."""
    page = Pages(admin).open("/audit/")
    for said in ("Ada Asked for approval", "Rosa Rejected", "Wrong folder", "write_note", "times in UTC"):
        assert said in page
    assert f"{AuditEntry.objects.get(seq=told).at:%A, }" in page


def test_what_was_decided_is_said(admin, ada, rosa, told):
    """A rejection is never told as if the call might run, and every verdict has words of its own."""
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request))
    page = Pages(admin).open("/audit/")
    assert "Rosa Decided: it does not run" in page and "Rosa Decided: it may run" in page
    assert "Answered a request" in page and "Decided a request" in page and "Approval: reviewed" not in page
    for action in ("approval.reviewed", "approval.decided"):
        assert len({action_word(action, verdict) for verdict in ("", *Verdict.values)}) == 5


def test_a_row_opens_to_its_place_in_the_chain(admin, told):
    """Without JavaScript, by a link."""
    pages = Pages(admin)
    pages.open(f"/audit/?open={told}")
    assert f'<tr class="exp" id="x-{told}">' in pages.html
    assert AuditEntry.objects.get(seq=told).hash in pages.html


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("?q=wrong+folder", True),
        ("?q=nowhere", False),
        ("?who=rosa", True),
        ("?who=ben", False),
        ("?action=approval.reviewed", True),
        ("?action=call.started", False),
        ("?tool=write_note", True),
        ("?tool=other", False),
        ("?from={today}&to={today}", True),
        ("?to={yesterday}", False),
    ],
)
def test_filters_narrow(admin, told, query, shown):
    """Each alone."""
    today = AuditEntry.objects.get(seq=told).at.date()
    query = query.format(today=today, yesterday=today - timedelta(days=1))
    assert bool(listed(admin, query)) is shown
    if not shown:
        assert "No entry matches" in Pages(admin).open(f"/audit/{query}")


def test_long_logs_go_on(admin, db):
    """By the number of the last entry; the filters stay."""
    for _ in range(101):
        append(Line(action="tool.tested", by=admin, tool_name="x"))
    pages = Pages(admin)
    pages.open("/audit/?tool=x")
    shown = rows(pages)
    assert len(shown) == 100 and shown == sorted(shown, reverse=True)
    assert f'href="/audit/?tool=x&amp;before={shown[-1]}"' in pages.html
    page = pages.open(f"/audit/?tool=x&before={shown[-1]}")
    assert rows(pages) == [shown[-1] - 1] and "The log begins here" in page


def test_pages_go_both_ways(admin, db, monkeypatch):
    """Newer ones too, by the number of the first entry, with the filters."""
    monkeypatch.setattr("approvals.audit_page.PAGE_SIZE", 3)
    for _ in range(8):
        append(Line(action="tool.tested", by=admin, tool_name="x"))
    newest, middle, oldest = (listed(admin, f"?tool=x{place}") for place in ("", "&before=6", "&before=3"))
    assert (newest, middle, oldest) == ([8, 7, 6], [5, 4, 3], [2, 1])
    assert listed(admin, "?tool=x&after=2") == [5, 4, 3] and listed(admin, "?tool=x&after=5") == newest
    pages = Pages(admin)
    pages.open("/audit/?tool=x&before=6")
    assert 'href="/audit/?tool=x&amp;after=5">Newer' in pages.html and "before=3" in pages.html
    pages.open("/audit/?tool=x&after=5")
    assert "Newer" not in pages.html and "before=6" in pages.html


def test_a_plan_and_an_object_are_followed(admin, db):
    """All that was kept about it."""
    append(Line(action="tool.tested", object_ref="apr_1", plan_ref="plan_1"))
    append(Line(action="tool.tested", object_ref="apr_2", plan_ref="plan_1"))
    assert listed(admin, "?plan=plan_1") == [2, 1]
    assert listed(admin, "?object=apr_1") == [1]
    assert listed(admin, "?plan=plan_1&object=apr_2") == [2]


def test_the_chain_is_checked_on_request(admin, told):
    """Intact, with the number of entries."""
    pages = Pages(admin)
    pages.open("/audit/")
    assert f"Chain intact, {AuditEntry.objects.count()} entries" in pages.send("/audit/")
    sent = pages.swap("/audit/", "chain").content.decode()
    assert "Chain intact" in sent and "<html" not in sent


def test_a_broken_chain_leads_to_the_entry(admin, told, settings):
    """Red, with a link."""
    settings.TOOLGATE_AUDIT_KEY = "another key, so no hash is right any more"
    pages = Pages(admin)
    pages.open("/audit/")
    assert "Chain broken at entry 1" in pages.send("/audit/")
    assert 'href="/audit/?before=2&amp;open=1"' in pages.html


def test_hostile_texts_stay_texts(admin, db):
    """In every field that somebody else wrote."""
    line = Line(action="tool.tested", actor_name=HOSTILE, object_ref=HOSTILE, tool_name=HOSTILE)
    append(replace(line, details={"reason": HOSTILE}))
    pages = Pages(admin)
    page = pages.open("/audit/")
    assert "<script>alert" not in pages.html
    assert "\u202e" not in page and "U+202E" in page


@pytest.mark.parametrize(
    "query",
    [
        "q=%00",
        "after=x",
        "after=99&before=1",
        "plan=%00",
        "from=x",
        "from=2026-99-99",
        "to=9999-12-31",
        "before=x",
        "before=" + "9" * 40,
        "open=-1",
        "who=%FF",
    ],
)
def test_no_query_breaks_the_page(admin, told, query):
    """What means nothing is left out."""
    Pages(admin).open(f"/audit/?{query}")


def test_htmx_gets_entries_and_an_address(admin, told):
    """Without what goes without saying."""
    headers = {"HX-Request": "true", "HX-Target": "log"}
    response = Pages(admin).client.get("/audit/?q=&who=rosa&action=", headers=headers)
    assert response["HX-Push-Url"] == "/audit/?who=rosa"
    assert "<html" not in response.content.decode()


def test_entries_are_counted_up_to_a_bound(admin, told, monkeypatch):
    """Who looks at a long log does not wait for all of it to be counted."""
    for number in range(6):
        append(Line(action="tool.changed", object_ref=f"tool_{number}", tool_name=f"tool_{number}"))
    monkeypatch.setattr(audit_page, "PAGE_SIZE", 2)
    monkeypatch.setattr(audit_page, "MOST_COUNTED", 5)
    assert "more than 5 entries" in words(Pages(admin).open("/audit/?action=tool.changed"))
    monkeypatch.setattr(audit_page, "MOST_COUNTED", 6)
    assert "6 entries" in words(Pages(admin).open("/audit/?action=tool.changed"))
    assert "more than" not in words(Pages(admin).open("/audit/?q=tool_3"))


def test_filters_offer_what_the_newest_entries_name(admin, told, monkeypatch):
    """However long the log is."""
    pages = Pages(admin)
    append(Line(action="tool.changed", object_ref="newest", tool_name="newest"))
    pages.open("/audit/")
    assert '<option value="write_note">' in pages.html
    monkeypatch.setattr(audit_page, "RECENT", 1)
    pages.open("/audit/")
    assert '<option value="write_note">' not in pages.html and '<option value="newest">' in pages.html
