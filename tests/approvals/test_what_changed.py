"""What is another than it was when people were asked is said and shown, and who did what is said of who did it."""

import re
from datetime import timedelta

import pytest

from approvals.decisions import decide, revoke
from approvals.errors import Drift
from approvals.models import ApprovalRequest, Round
from approvals.requests import invalidate, supersede
from catalog import clock
from catalog.results import Preview
from plans.models import Plan
from tests.approvals.builders import approval, ask, set_rule
from tests.approvals.deciding import edit
from tests.approvals.test_pages import path_of
from tests.builders import act, make_plan, request_of, work_off
from tests.pages import Pages
from tests.rest import Rest

pytestmark = pytest.mark.django_db


def rows(*names: str) -> Preview:
    """Return what a tool shows that would change the rows of these names."""
    return Preview(f"Move {len(names)} people", "rows", rows=tuple({"name": name} for name in names))


@pytest.fixture
def plan(stage, ada) -> Plan:
    """A plan whose dangerous step waits for people."""
    stage.previews["dangerous"] = lambda value, context: Preview(f"Do {value}", "text", after=f"POST {value}")
    return work_off(make_plan(ada, act(1, "asked", "dangerous", expected_key="out")))


@pytest.mark.parametrize(("before", "after", "shown"), [("Ada", "Ben", True), ("Ada", "Ada", False)])
def test_drift_is_said_and_shown(ada, rosa, before, after, shown):
    """With the sentence that ended the earlier request, and the rows before and now where these differ."""
    old = ask(ada, preview=rows(before))
    decide(old, by=rosa, decision=approval(old))
    invalidate(old, reason="The table is another one now.", what=Drift.STATE)
    new = ask(ada, preview=rows(after))
    supersede(old.call, new)
    pages = Pages(rosa)
    page = pages.open(path_of(new))
    assert "What changed since it was approved The table is another one now. So it is asked anew" in page
    drift = pages.html.partition('id="drift"')[2].partition("</section>")[0]
    assert ('class="diff"' in drift) is shown
    assert ("Ben" in drift) is shown


def test_an_effect_is_told_as_of_when_the_tool_said_it(ada, rosa):
    """What it changes may have changed since: the page does not say that it shows what is there now."""
    request = ask(ada, preview=Preview("Write note.txt", "diff", before="old", after="hello"))
    Round.objects.filter(request=request).update(created_at=clock.now() - timedelta(hours=2))
    page = Pages(rosa).open(path_of(request))
    assert "replaced, as the tool saw it 2 h ago" in page
    assert "there now" not in page


def test_what_a_reviewer_changed_is_shown_to_the_next(plan, tomas, rosa):
    """It is theirs, not the agent's; beside it stands what was asked for."""
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    pages = Pages(rosa)
    assert "Arguments, as they were asked for" in pages.open(path_of(request_of(plan)))
    edit(plan, tomas, "edited")
    page = pages.open(path_of(request_of(plan)))
    assert "What Tomas changed" in page and "Arguments, as Tomas changed them" in page
    assert "as they were asked for" not in page
    changed = pages.html.partition('id="revised"')[2].partition("</section>")[0]
    assert "asked" in changed and "edited" in changed


@pytest.mark.parametrize("kind", ["agent", "personal", ""])
def test_what_is_edited_is_named_by_who_asked_for_it(plan, ada, rosa, kind):
    """An agent's arguments are called so; what a person asked for, with a token of theirs or without, is not."""
    request = request_of(plan)
    if kind:
        called = Rest(ada, "calls:create", kind=kind).post("calls/", {"tool": "dangerous", "arguments": {"value": "x"}})
        request = ApprovalRequest.objects.get(call__public_id=called.json()["id"])
    page = Pages(rosa).open(f"{path_of(request)}&view=edit")
    by_agent = bool(re.search("Agent.s → yours", page)), "Asked for → yours" in page
    assert by_agent == (kind == "agent", kind != "agent")


def test_what_a_tool_would_do_of_an_edit_is_shown_beside_what_it_would_have_done(plan, rosa):
    """Also where that is no diff of a text."""
    pages = Pages(rosa)
    request = request_of(plan)
    pages.open(f"{path_of(request)}&view=edit")
    fields = {"mode": "json", "json": '{"value": "edited"}', "seen_digest": request.digest, "do": "check"}
    page = pages.send(path_of(request, "edit"), fields)
    assert "What it would change then" in page
    changed = pages.html.partition("What it would change then")[2].partition("</section>")[0]
    assert "POST" in changed and "<ins>edited</ins>" in changed


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({}, "then it does not run"),
        ({"on_expiry": "skip"}, "then its step is skipped"),
        ({"on_expiry": "cancel_plan"}, "then its plan is cancelled"),
        ({"on_expiry": "escalate", "escalate_to": "administrator"}, "then administrator may answer, too"),
    ],
)
def test_what_becomes_of_it_when_nobody_answers(ada, rosa, terms, said):
    """As the rule that holds it has it."""
    set_rule(**terms)
    assert f"left , {said}" in Pages(rosa).open(path_of(ask(ada)))


def test_who_approved_is_not_said_to_have_revoked(ada, rosa, tomas):
    """Neither in the list nor where later requests tell of it."""
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request))
    revoke(request, by=tomas, comment="Not today")
    pages = Pages(rosa)
    assert "by Rosa" not in pages.open("/approvals/?status=decided").partition("apr_")[0]
    told = pages.open(path_of(ask(ada))).partition("Last time")[2]
    assert "Revoked" in told and "by Rosa" not in told


def test_one_of_two_does_not_read_that_it_runs(ada, rosa, tomas):
    """The button says whose vote it is."""
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    request = ask(ada)
    assert "Approve, 1 of 2" in Pages(rosa).open(path_of(request))
    decide(request, by=rosa, decision=approval(request))
    assert "Approve and run" in Pages(tomas).open(path_of(request))


def test_a_secret_in_what_the_tool_says_is_no_words_of_anybody(ada, rosa):
    """A lock stands before its name; the same words of an agent have none."""
    shown = Preview("Connect", "text", after='user secret token, key {"$secret":"token"}!\u202e')
    pages = Pages(rosa)
    pages.open(path_of(ask(ada, preview=shown)))
    told = pages.html.partition('id="v-d"')[2].partition("</pre>")[0]
    assert told.count("secret token") == 2 and told.count("#i-lock") == 1
    assert "U+202E" in told and "$secret" not in told


def test_an_empty_text_is_said_to_be_one(ada, rosa):
    """In the place of nothing at all."""
    request = ask(ada)
    request.rounds.update(arguments='{"content":"","path":"note.txt"}', preview="")
    assert "content empty text" in Pages(rosa).open(path_of(request))
