"""Pages of changed requests: drift, edits and their authors."""

from datetime import timedelta

import pytest

from approvals.errors import Drift
from approvals.models import ApprovalRequest, Round
from approvals.policy_language.sentences import expiry_consequence
from approvals.requests.lifecycle import invalidate, supersede
from approvals.reviews.decisions import decide, revoke
from approvals.web.review.rendering import effect_lines
from catalog.core import clock
from catalog.models import Call
from catalog.results import Preview
from plans.models import Plan
from tests.approvals.factories import approval, ask, edit, page_of_request, set_rule
from tests.builders import act, make_plan, request_of, work_off
from tests.pages import Pages, words
from tests.rest import Rest

pytestmark = pytest.mark.django_db


def rows(*names: str) -> Preview:
    """Return the preview of a tool that would change rows with these names."""
    return Preview(f"Move {len(names)} people", "rows", rows=tuple({"name": name} for name in names))


@pytest.fixture
def plan(stage, ada) -> Plan:
    """A plan whose dangerous step waits for approval."""
    stage.previews["dangerous"] = lambda value, context: Preview(f"Do {value}", "text", after=f"POST {value}")
    return work_off(make_plan(ada, act(1, "asked", "dangerous", expected_key="out")))


def caption_of(pages: Pages) -> str:
    """Return the author named in the table of arguments."""
    return words(pages.html.partition('<table class="args">')[2].partition("</caption>")[0])


@pytest.mark.parametrize(("before", "after", "shown"), [("Ada", "Ben", True), ("Ada", "Ada", False)])
def test_drift_is_shown_with_its_reason(ada, rosa, before, after, shown):
    old = ask(ada, preview=rows(before))
    decide(old, by=rosa, decision=approval(old))
    invalidate(old, reason="The table is another one now.", drift=Drift.STATE)
    new = ask(ada, preview=rows(after))
    Call.objects.filter(pk=new.call_id).update(replaces=old.call)
    supersede(old.call, new)
    pages = Pages(rosa)
    pages.open(page_of_request(new))
    drift = pages.html.partition('id="drift"')[2].partition("</section>")[0]
    assert "The table is another one now." in drift
    assert ('class="diff"' in drift) is shown
    assert ("Ben" in drift) is shown


def test_effect_is_shown_with_the_time_of_its_preview(ada, rosa):
    request = ask(ada, preview=Preview("Write note.txt", "diff", before="old", after="hello"))
    Round.objects.filter(request=request).update(created_at=clock.now() - timedelta(hours=2))
    assert "previewed 2 h ago" in Pages(rosa).open(page_of_request(request))


def test_edits_are_shown_to_the_next_reviewer(plan, tomas, rosa):
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    pages = Pages(rosa)
    pages.open(page_of_request(request_of(plan)))
    assert 'id="revised"' not in pages.html and "Tomas" not in caption_of(pages)
    edit(plan, tomas, "edited")
    pages.open(page_of_request(request_of(plan)))
    assert "Tomas" in caption_of(pages)
    changed = pages.html.partition('id="revised"')[2].partition("</section>")[0]
    assert all(part in changed for part in ("Tomas", "asked", "edited"))


def test_decided_request_shows_its_edits(plan, rosa, vera):
    decided = edit(plan, rosa, "edited")
    body = Rest(vera).get(f"approvals/{decided.public_id}/").json()
    rounds = [(each["number"], each["arguments"], each["editor"]) for each in body["rounds"]]
    assert rounds == [(1, {"value": "asked"}, None), (2, {"value": "edited"}, "rosa")]
    assert [each["digest"] for each in body["rounds"]] == [each.digest for each in decided.rounds.order_by("number")]
    assert body["rounds"][0]["at"] <= body["rounds"][1]["at"]
    pages = Pages(vera)
    pages.open(page_of_request(decided))
    changed = pages.html.partition('id="revised"')[2].partition("</section>")[0]
    assert all(part in changed for part in ("Rosa", "<time", "asked", "edited"))


@pytest.mark.parametrize("kind", ["agent", "personal", ""])
def test_arguments_are_attributed_to_agent_or_person(plan, ada, rosa, kind):
    request = request_of(plan)
    if kind:
        called = Rest(ada, "calls:create", kind=kind).post("calls/", {"tool": "dangerous", "arguments": {"value": "x"}})
        request = ApprovalRequest.objects.get(call__public_id=called.json()["id"])
    pages = Pages(rosa)
    pages.open(f"{page_of_request(request)}&view=edit")
    heading = words(pages.html.partition('id="ch-h">')[2].partition("</h2>")[0])
    assert ("Agent" in heading) == (kind == "agent")


def test_preview_of_an_edit_is_compared_with_the_original(plan, rosa):
    pages = Pages(rosa)
    request = request_of(plan)
    pages.open(f"{page_of_request(request)}&view=edit")
    fields = {"mode": "json", "json": '{"value": "edited"}', "seen_digest": request.digest, "do": "check"}
    pages.send(page_of_request(request, "edit"), fields)
    changed = pages.html.partition('id="edited"')[2].partition("</section>")[0]
    assert "POST" in changed and "<ins>edited</ins>" in changed


@pytest.mark.parametrize(
    ("on_expiry", "said"),
    [
        ("fail", "then it fails"),
        ("skip", "then its step is skipped"),
        ("cancel_plan", "then its plan is cancelled"),
        ("escalate", "then administrator can answer too"),
    ],
)
def test_phrases_for_expiry(on_expiry, said):
    assert expiry_consequence(on_expiry, "administrator") == said


def test_page_shows_the_effect_of_expiry(ada, rosa):
    set_rule(on_expiry="escalate", escalate_to="administrator")
    assert expiry_consequence("escalate", "administrator") in Pages(rosa).open(page_of_request(ask(ada)))


def test_revocation_is_not_attributed_to_the_approver(ada, rosa, tomas):
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request))
    revoke(request, by=tomas, comment="Not today")
    pages = Pages(rosa)
    assert "by Rosa" not in pages.open("/approvals/?status=decided").partition("apr_")[0]
    pages.open(page_of_request(ask(ada)))
    text = pages.html.partition('id="precedent"')[2].partition("</section>")[0]
    assert page_of_request(request) in text and "Revoked" in text and "by Rosa" not in text


def test_first_of_two_approvals_does_not_announce_a_start(ada, rosa, tomas):
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    request = ask(ada)
    labels = []
    for person in (rosa, tomas):
        pages = Pages(person)
        pages.open(page_of_request(request))
        labels.append(
            words(pages.html.partition('value="approve"')[2].partition("data-label>")[2].partition("</span>")[0])
        )
        if person == rosa:
            decide(request, by=rosa, decision=approval(request))
    assert labels == ["Approve, 1 of 2", "Approve and run"]


def test_placeholder_in_a_preview_is_marked(ada, rosa):
    preview = Preview("Connect", "text", after='user secret token, key {"$secret":"token"}!\u202e')
    pages = Pages(rosa)
    pages.open(page_of_request(ask(ada, preview=preview)))
    text = pages.html.partition('id="v-d"')[2].partition("</pre>")[0]
    assert text.count("secret token") == 2 and text.count("#i-lock") == 1
    assert "U+202E" in text and "$secret" not in text


def test_empty_text_is_labelled(ada, rosa):
    request = ask(ada)
    request.rounds.update(arguments='{"content":"","path":"note.txt"}', preview="")
    assert "content empty text" in Pages(rosa).open(page_of_request(request))


def test_rows_are_compared_as_the_preview_shows_them():
    row = {"Part": "rm -r build", "Does": "deletes", "Cannot be told": ""}
    lines = effect_lines({"kind": "rows", "summary": "Run rm", "rows": [row]})
    assert lines == "(summary): Run rm\nPart: rm -r build\n    Does: deletes\n"
