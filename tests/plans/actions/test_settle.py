"""Tests of settling unknown outcomes."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from approvals.models import AuditEntry
from catalog.errors import Conflict, EffectUnknown
from catalog.models import Call
from plans.actions.control import cancel_plan
from plans.actions.settle import Settlement, settle_outcome
from plans.models import Plan, Step
from plans.store.requesters import Requester
from plans.store.selectors import memory_of
from plans.web.plan.history import event_line
from tests.builders import act, approve, assert_gapless, call_of, events_of, make_plan, request_of, step_of, work_off
from tests.plans.factories import act_raising
from tests.tools_for_tests import Stage


@pytest.fixture
def unknown(stage: Stage, ada: User) -> Plan:
    """A plan whose first step's cautious call lost its answer, with a step that depends on it."""
    stage.acts["cautious"] = act_raising(EffectUnknown("Lost."))
    document = act(1, "x", "cautious", expected_key="answer", output_path=["results"])
    return work_off(make_plan(ada, document, act(2, "${answer}", dependencies=[1])))


def settle(plan: Plan, verdict: Any, result: Any = None) -> None:
    """Settle the first step as the plan's owner."""
    settle_outcome(plan, 1, settlement=Settlement(verdict, result, "I looked."), by=Requester(plan.author))


def test_happened_completes_call(unknown, stage):
    settle(unknown, "happened", {"id": 7})
    assert work_off(unknown).status == "completed"
    call = call_of(unknown)
    assert (call.status, call.response_json["settled"], call.response_json["query_type"]) == ("completed", True, None)
    assert memory_of(unknown)["values"] == {"answer": [{"id": 7}]}
    assert stage.values("safe") == [[{"id": 7}]]
    assert_gapless(unknown)


def test_happened_without_result(unknown, stage):
    settle(unknown, "happened")
    assert (work_off(unknown).status, stage.values("safe")) == ("completed", [[]])


def test_did_not_happen_fails_step(unknown, stage):
    settle(unknown, "did_not_happen")
    assert work_off(unknown).status == "failed"
    assert step_of(unknown).error.endswith("I looked.")
    assert (call_of(unknown).status, step_of(unknown, 2).status) == ("failed", "pending")
    assert len(stage.played) == 1


def test_dangerous_call_requested_again_is_held(stage, ada, rosa):
    plan = work_off(make_plan(ada, act(1, "x", "dangerous")))
    old = approve(plan, rosa)
    stage.acts["dangerous"] = lambda value, context: lose(plan)
    work_off(plan)
    settle(plan, "request_again")
    work_off(plan)
    new = request_of(plan)
    old.refresh_from_db()
    assert (new.status, old.status, old.superseded_by, new.call.replaces) == ("pending", "consumed", new, old.call)
    assert (Call.objects.get(pk=old.call_id).status, step_of(plan).waiting_for) == ("failed", "approval")
    stage.acts.clear()
    approve(plan, rosa)
    assert (work_off(plan).status, stage.values("dangerous")) == ("completed", ["x", "x"])
    assert_gapless(plan)


def lose(plan: Plan) -> None:
    """Lose the first step's worker while its handler runs."""
    Call.objects.filter(plan_ref=plan.public_id).update(status="outcome_unknown")
    Step.objects.filter(plan=plan).update(waiting_for="outcome", claimed_by="", lease_until=None)


def test_cautious_call_requested_again_runs(unknown, stage):
    stage.acts.clear()
    old = call_of(unknown)
    settle(unknown, "request_again")
    assert (work_off(unknown).status, stage.values("cautious")) == ("completed", ["x", "x"])
    assert call_of(unknown).replaces == old


@pytest.mark.parametrize("first", ["happened", "did_not_happen", "request_again"])
def test_outcome_is_settled_once(unknown, first):
    settle(unknown, first)
    for second in ("happened", "did_not_happen", "request_again"):
        with pytest.raises(Conflict), transaction.atomic():
            settle(unknown, second)
    assert AuditEntry.objects.filter(action="call.settled", plan_ref=unknown.public_id).count() == 1
    assert_gapless(unknown)


def test_only_unknown_outcome_can_be_settled(stage, ada):
    plan = work_off(make_plan(ada, act(1), act(2, tool="dangerous")))
    for step_id in (1, 2):
        with pytest.raises(Conflict), transaction.atomic():
            settle_outcome(plan, step_id, settlement=Settlement("happened"), by=Requester(ada))
    with pytest.raises(Step.DoesNotExist), transaction.atomic():
        settle_outcome(plan, 3, settlement=Settlement("happened"), by=Requester(ada))
    assert "outcome" not in str(events_of(plan))


def test_call_requested_again_ends_with_its_plan(unknown, stage):
    settle(unknown, "request_again")
    cancel_plan(unknown, by=Requester(unknown.author))
    assert (step_of(unknown).status, work_off(unknown).status) == ("cancelled", "cancelled")
    assert len(stage.played) == 1


@pytest.mark.parametrize(
    ("verdict", "kind"),
    [("happened", "call.succeeded"), ("did_not_happen", "call.failed"), ("request_again", "call.failed")],
)
def test_history_shows_settled_call(unknown, verdict, kind):
    settle(unknown, verdict)
    event = unknown.events.filter(type__in=("call.succeeded", "call.failed")).get()
    assert (event.type, event.data_json["settled"], event.data_json["call"]) == (
        kind,
        True,
        Call.objects.earliest("id").public_id,
    )
    assert "a person" in event_line(event).said.text
