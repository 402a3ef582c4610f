"""The page of the audit log."""

import html
import re
from dataclasses import replace
from datetime import timedelta

import pytest

from approvals.audit.checkpoints import write_checkpoint
from approvals.audit.log import AuditRecord, append_entry
from approvals.models import AuditEntry
from approvals.reviews.decisions import decide
from approvals.states import ReviewVerdict
from approvals.web import audit
from approvals.web.audit import action_label
from tests.approvals.factories import approval, ask, rejection
from tests.pages import Pages

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script>\u202e"


def tag_of(pages: Pages, name: str) -> str:
    """Return the rest of the start tag of the element with this id."""
    return pages.html.partition(f'id="{name}"')[2].partition(">")[0]


def rows(pages: Pages) -> list[int]:
    """Return the numbers of the entries that are listed."""
    return [int(part.split('"')[0]) for part in pages.html.split('<li class="entry" id="e-')[1:]]


def listed(user, query: str = "") -> list[int]:
    """Return the numbers of the entries that a query lists."""
    pages = Pages(user)
    pages.open(f"/audit/{query}")
    return rows(pages)


@pytest.fixture
def first_seq(ada, rosa):
    """A request and its rejection; the entries' first number."""
    before = AuditEntry.objects.count()
    request = ask(ada)
    decide(request, by=rosa, decision=rejection(request, "Wrong folder"))
    return before + 1


def test_only_administrators_may_read(ada, rosa, vera):
    for person in (ada, rosa, vera):
        Pages(person).open("/audit/", 403)


def test_entries_show_actor_action_and_time(admin, first_seq):
    page = Pages(admin).open("/audit/")
    opened, rejected = action_label("approval.opened").label, action_label("approval.reviewed", "reject").label
    for expected in (opened, rejected, "ada", "rosa", "Wrong folder", "write_note"):
        assert expected in page
    assert f"{AuditEntry.objects.get(seq=first_seq).at:%A, }" in page


def test_decisions_are_labelled_by_verdict(admin, ada, rosa, first_seq):
    """A rejection must never read as if the call might run."""
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request))
    page = Pages(admin).open("/audit/")
    for verdict in ("approve", "reject"):
        assert action_label("approval.decided", verdict).label in page
    for action in ("approval.reviewed", "approval.decided"):
        assert len({action_label(action, verdict) for verdict in ("", *ReviewVerdict.values)}) == 5


def test_row_opens_with_its_hashes(admin, first_seq):
    pages = Pages(admin)
    pages.open(f"/audit/?open={first_seq}")
    assert "hidden" not in tag_of(pages, f"x-{first_seq}") and "hidden" in tag_of(pages, f"x-{first_seq + 1}")
    assert AuditEntry.objects.get(seq=first_seq).hash in pages.html


def test_filters_apply(admin, first_seq):
    today = AuditEntry.objects.get(seq=first_seq).at.date()
    shown = {
        "?q=wrong+folder": True,
        "?q=nowhere": False,
        "?who=rosa": True,
        "?who=ben": False,
        "?action=approval.reviewed": True,
        "?action=call.started": False,
        "?tool=write_note": True,
        "?tool=other": False,
        f"?from={today}&to={today}": True,
        f"?to={today - timedelta(days=1)}": False,
    }
    assert {query: bool(listed(admin, query)) for query in shown} == shown


def test_pages_go_both_ways(admin, db, monkeypatch):
    monkeypatch.setattr("catalog.ui.lists.PAGE_SIZE", 3)
    for _ in range(8):
        append_entry(AuditRecord(action="tool.tested", by=admin, tool_name="x"))
    pages, path, seen = Pages(admin), "/audit/?tool=x", []
    for direction in ("next", "next", "prev", "prev", ""):
        pages.open(path)
        seen.append(rows(pages))
        path = html.unescape("".join(re.findall(rf'href="([^"]+)" rel="{direction}"', pages.html)))
    assert seen == [[8, 7, 6], [5, 4, 3], [2, 1], [5, 4, 3], [8, 7, 6]]


def test_entries_link_to_plan_and_object(admin, db):
    append_entry(AuditRecord(action="tool.tested", object_ref="apr_1", plan_ref="plan_1"))
    append_entry(AuditRecord(action="tool.tested", object_ref="apr_2", plan_ref="plan_1"))
    assert listed(admin, "?plan=plan_1") == [2, 1]
    assert listed(admin, "?object=apr_1") == [1]
    assert listed(admin, "?plan=plan_1&object=apr_2") == [2]


def test_chain_is_verified_on_request(admin, first_seq):
    write_checkpoint()
    pages = Pages(admin)
    pages.open("/audit/")
    pages.send("/audit/")
    found = pages.context["verification"]
    assert (found.intact, found.entries) == (True, AuditEntry.objects.count())
    assert 'data-verified="intact"' in pages.html
    sent = pages.swap("/audit/", "chain").content.decode()
    assert 'data-verified="intact"' in sent and "<html" not in sent


def test_broken_chain_links_to_the_entry(admin, first_seq, settings):
    settings.TOOLGATE_AUDIT_KEY = "another key, so no hash is right any more"
    pages = Pages(admin)
    pages.open("/audit/")
    pages.send("/audit/")
    assert 'data-verified="broken"' in pages.html
    (link,) = re.findall(r'href="(/audit/\?cursor=[^"]+open=1)"', pages.html)
    pages.open(html.unescape(link))
    assert rows(pages) == [1] and "hidden" not in tag_of(pages, "x-1")


def test_hostile_texts_are_escaped(admin, db):
    line = AuditRecord(action="tool.tested", actor_name=HOSTILE, object_ref=HOSTILE, tool_name=HOSTILE)
    append_entry(replace(line, details={"reason": HOSTILE}))
    pages = Pages(admin)
    page = pages.open("/audit/")
    assert "<script>alert" not in pages.html
    assert "\u202e" not in page and "U+202E" in page


def test_invalid_queries_do_not_break_the_page(admin, first_seq):
    pages = Pages(admin)
    queries = [
        "q=%00",
        "cursor=x",
        "plan=%00",
        "from=x",
        "from=2026-99-99",
        "to=9999-12-31",
        "cursor=" + "9" * 40,
        "open=-1",
        "who=%FF",
    ]
    assert {query: pages.client.get(f"/audit/?{query}").status_code for query in queries} == dict.fromkeys(queries, 200)


def test_invalid_filters_are_reported_and_not_applied(admin, first_seq):
    pages = Pages(admin)
    pages.open("/audit/?from=2026-99-99&who=nobody")
    assert "data-ignored" in pages.html and rows(pages) == []
    assert pages.context["listed"].query.url == "/audit/?who=nobody"


def test_invalid_filters_export_nothing(admin, first_seq):
    pages = Pages(admin)
    pages.open("/audit/")
    count = AuditEntry.objects.count()
    for query, form in (("?from=x", "csv"), ("", "xls")):
        pages.send(f"/audit/export/{query}", {"format": form}, 400)
        assert 'id="export-problem"' in pages.html
    assert AuditEntry.objects.count() == count


def test_htmx_gets_entries_and_a_url(admin, first_seq):
    headers = {"HX-Request": "true", "HX-Target": "results"}
    response = Pages(admin).client.get("/audit/?q=&who=rosa&action=", headers=headers)
    assert response["HX-Push-Url"] == "/audit/?who=rosa"
    assert "<html" not in response.content.decode()


def test_filters_offer_values_of_the_newest_entries(admin, first_seq, monkeypatch):
    pages = Pages(admin)
    append_entry(AuditRecord(action="tool.changed", object_ref="newest", tool_name="newest"))
    pages.open("/audit/")
    assert 'value="write_note"' in pages.html
    monkeypatch.setattr(audit, "RECENT_ENTRIES", 1)
    pages.open("/audit/")
    assert 'value="write_note"' not in pages.html and 'value="newest"' in pages.html


def test_entries_show_the_name_that_the_chain_covers(admin, rosa):
    append_entry(AuditRecord(action="tool.changed", by=rosa))
    rosa.username, rosa.first_name = "mallory", "Mallory"
    rosa.save()
    pages = Pages(admin)
    pages.open("/audit/")
    assert [line.who for line in pages.context["listed"].rows if line.entry.actor_id == rosa.pk] == ["rosa"]
