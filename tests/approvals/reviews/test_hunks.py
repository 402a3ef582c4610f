"""Accepting a proposed change hunk by hunk."""

import contextlib
import json
import re
from pathlib import Path

import pytest
from django.db import connection

from approvals.audit.verification import verify
from approvals.models import ApprovalRequest, AuditEntry, Review, Round
from approvals.policies import gate
from approvals.reviews.decisions import Decision, decide, undo_decision
from approvals.states import ReviewVerdict
from catalog.access.roles import NotAllowed
from catalog.errors import Conflict, ParameterError
from catalog.models import Call
from catalog.text.diff import TextComparison
from plans.models import Plan
from tests.approvals.factories import refusal_at, set_rule
from tests.builders import call_of, events_of, make_plan, request_of, step, step_of, work_off
from tests.pages import Pages
from tests.rest import Rest

pytestmark = pytest.mark.django_db
ORIGINAL = "".join(f"line {number}\n" for number in range(40))
FIRST, SECOND = ORIGINAL.replace("line 3\n", "LINE 3\n"), ORIGINAL.replace("line 30\n", "LINE 30\nmore\n")
BOTH = FIRST.replace("line 30\n", "LINE 30\nmore\n")


@pytest.fixture
def note(settings, tmp_path) -> Path:
    settings.TOOLGATE_WORKSPACE = tmp_path
    path: Path = tmp_path / "note.txt"
    path.write_text(ORIGINAL)
    return path


@pytest.fixture
def plan(note, ada, catalog) -> Plan:
    """A plan whose only step proposes two hunks and waits for approval."""
    proposal = {"path": "note.txt", "original": ORIGINAL, "modified": BOTH, "description": "Say it louder"}
    return work_off(make_plan(ada, step(1, "propose_file_edit", parameters=proposal)))


def accept(
    plan: Plan, by, *hunks: int, verdict: ReviewVerdict = ReviewVerdict.APPROVE, channel="rest"
) -> ApprovalRequest:
    request = request_of(plan)
    return decide(request, by=by, decision=Decision(verdict, request.digest, channel=channel, hunks=hunks))


@pytest.mark.parametrize(("hunks", "text"), [((0,), FIRST), ((1,), SECOND), ((1, 0), BOTH), ((0, 1, 1), BOTH)])
def test_only_accepted_hunks_are_applied(plan, note, rosa, hunks, text):
    accept(plan, rosa, *hunks)
    work_off(plan)
    assert note.read_text() == text
    assert call_of(plan).status == "completed"


def test_accepted_hunks_of_a_default_are_applied(plan, note, rosa):
    """As if the text were the parameter's default: its accepted part must not be filled up again."""
    for rows in (Call.objects, Round.objects):
        rows.update(defaults='[["modified"]]')
    accept(plan, rosa, 0)
    work_off(plan)
    assert note.read_text() == FIRST


def test_partial_approval_opens_a_new_round(plan, rosa):
    before = request_of(plan)
    after = accept(plan, rosa, 1)
    assert (after.round_number, after.digest != before.digest, after.public_id) == (2, True, before.public_id)
    first, second = after.rounds.order_by("number")
    assert (first.digest, first.editor, second.digest, second.editor) == (before.digest, None, after.digest, rosa)
    assert json.loads(first.arguments)["modified"] == BOTH and json.loads(second.arguments)["modified"] == SECOND
    assert second.preview_json is not None and len(second.preview_json["rows"]) == 1
    assert [(each.round, each.seen_digest) for each in Review.objects.all()] == [(second, after.digest)]
    assert json.loads(call_of(plan).arguments)["modified"] == SECOND


@pytest.mark.parametrize(("hunks", "times"), [((0,), 2), ((0, 1), 1), ((2,), 1)])
def test_texts_are_compared_once_before_locking(plan, rosa, monkeypatch, hunks, times):
    depths, compare = [], TextComparison.__init__

    def counted(self: TextComparison, before: str | None, after: str | None) -> None:
        depths.append(len(connection.savepoint_ids))
        compare(self, before, after)

    monkeypatch.setattr(TextComparison, "__init__", counted)
    with contextlib.suppress(ParameterError):
        accept(plan, rosa, *hunks)
    assert depths == [len(connection.savepoint_ids)] * times


def test_nothing_is_compared_for_ineligible_users(plan, vera, monkeypatch):
    monkeypatch.delattr(TextComparison, "__init__")
    with pytest.raises(NotAllowed):
        accept(plan, vera, 0)


def test_call_that_is_not_held_cannot_be_edited(plan, rosa):
    Call.objects.update(status="cancelled")
    with pytest.raises(Conflict):
        accept(plan, rosa, 1)
    assert json.loads(call_of(plan).arguments)["modified"] == BOTH
    assert (request_of(plan).round_number, Review.objects.count()) == (1, 0)


def test_all_hunks_are_a_plain_approval(plan, rosa):
    assert accept(plan, rosa, 0, 1).round_number == 1


def test_accepting_no_hunk_is_a_rejection(plan, note, rosa):
    assert accept(plan, rosa).status == "rejected"
    assert note.read_text() == ORIGINAL
    assert call_of(plan).error_kind == "rejected"
    assert "note.txt" in step_of(plan).error  # the tool's own words, not only those of a rejection


@pytest.mark.parametrize(
    ("hunks", "verdict", "code"),
    [
        ((2,), ReviewVerdict.APPROVE, "unknown_hunk"),
        ((0, 10**9), ReviewVerdict.APPROVE, "unknown_hunk"),
        ((0,), ReviewVerdict.REJECT, "invalid"),
    ],
)
def test_invalid_hunks_are_refused(plan, rosa, hunks, verdict, code):
    with refusal_at("hunks", code):
        accept(plan, rosa, *hunks, verdict=verdict)
    assert (request_of(plan).round_number, Review.objects.count()) == (1, 0)


def test_indivisible_change_takes_no_hunks(note, ada, rosa, catalog):
    write = step(1, "write_file", parameters={"path": "note.txt", "content": BOTH})
    with refusal_at("hunks", "not_divisible"):
        accept(work_off(make_plan(ada, write)), rosa, 0)


def test_audit_log_and_history_name_the_hunks(plan, rosa):
    accept(plan, rosa, 1)
    entry = AuditEntry.objects.get(action="approval.edited")
    assert (entry.actor, entry.details_json["hunks"], entry.details_json["of"]) == (rosa, [1], 2)
    assert "line" not in entry.details
    assert verify().first_bad is None
    events = [event for event in events_of(plan) if event.startswith("1 approval.")]
    assert events == [f"1 approval.{word}" for word in ("opened", "edited", "reviewed", "decided")]


def test_decision_on_an_earlier_round_is_refused(plan, rosa, tomas):
    seen = request_of(plan).digest
    accept(plan, rosa, 1)
    with pytest.raises(Conflict):
        decide(request_of(plan), by=tomas, decision=Decision(ReviewVerdict.APPROVE, seen))


def test_editor_does_not_count_in_a_quorum_of_two(note, plan, rosa, tomas, monkeypatch):
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    monkeypatch.setattr(gate, "_view", gate._View())  # else the rule of a second ago is trusted
    request = accept(plan, rosa, 1)
    assert (request.status, request.rounds.get(number=2).quorum, Review.objects.count()) == ("pending", 2, 0)
    with pytest.raises(NotAllowed):
        decide(request, by=rosa, decision=Decision(ReviewVerdict.APPROVE, request.digest))
    decide(request, by=tomas, decision=Decision(ReviewVerdict.APPROVE, request.digest))
    assert request_of(plan).status == "pending"


def test_undo_restores_the_requested_change(settings, plan, note, rosa):
    settings.TOOLGATE_UNDO_SECONDS = 60
    request = request_of(plan)
    accept(plan, rosa, 1, channel="page")
    again = undo_decision(request_of(plan), by=rosa)
    assert (again.status, again.round_number, again.digest) == ("pending", 3, request.digest)
    assert json.loads(call_of(plan).arguments)["modified"] == BOTH
    accept(plan, rosa, 0)
    work_off(plan)
    assert note.read_text() == FIRST


def test_page_applies_checked_hunks(settings, plan, note, rosa):
    settings.TOOLGATE_UNDO_SECONDS = 0
    pages = Pages(rosa)
    pages.open(f"/approvals/?item={request_of(plan).public_id}")
    assert re.findall(r'name="hunks" value="(\d+)"', pages.html) == ["0", "1"]
    form = {"verdict": "approve", "seen_digest": pages.field("seen_digest"), "choosing": "1", "hunks": "1"}
    pages.send(f"/approvals/{request_of(plan).public_id}/decision/", form)
    assert work_off(plan).status == "completed" and note.read_text() == SECOND
    page = pages.open(f"/approvals/?item={request_of(plan).public_id}")
    assert "Progress: 1/2 applied, 1 rejected, 0 pending" in page and 'name="hunks"' not in pages.html


def test_page_without_checked_hunks_is_refused(plan, note, rosa):
    """An approval is never recorded as a rejection."""
    pages = Pages(rosa)
    pages.open(f"/approvals/?item={request_of(plan).public_id}")
    form = {"verdict": "approve", "seen_digest": pages.field("seen_digest"), "choosing": "1"}
    pages.send(f"/approvals/{request_of(plan).public_id}/decision/", form, status=422)
    assert request_of(plan).status == "pending" and 'data-setback="hunks"' in pages.html


@pytest.mark.parametrize(("hunks", "status"), [([1], 201), ([], 201), ([2], 422)])
def test_rest_takes_hunk_numbers(plan, rosa, hunks, status):
    request = request_of(plan)
    body = {"verdict": "approve", "seen_digest": request.digest, "hunks": hunks}
    answer = Rest(rosa).post(f"approvals/{request.public_id}/reviews/", body)
    assert answer.status_code == status
    assert request_of(plan).status == ("pending" if status == 422 else "approved" if hunks else "rejected")


def test_changed_file_is_not_edited(plan, note, rosa):
    note.write_text("something else\n")
    accept(plan, rosa, 1)
    work_off(plan)
    assert note.read_text() == "something else\n"
    assert step_of(plan).status == "failed"
