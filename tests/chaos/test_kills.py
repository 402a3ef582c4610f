"""`kill -9` of a serving process: no dangerous call runs twice, safe ones complete, nothing is stuck or torn."""

import os
import random
import secrets
from collections import Counter
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q

from approvals.decisions import Decision, decide
from approvals.models import ApprovalRequest
from approvals.states import RequestStatus, Verdict
from approvals.verification import verify
from catalog.models import Call
from catalog.states import CallStatus
from plans.models import Plan, Step
from plans.services import Requester
from plans.settling import Settlement, settle_outcome
from plans.states import PlanStatus, StepStatus, WaitingFor
from tests.builders import assert_gapless, call_of, make_plan, step, step_of
from tests.chaos.serving import Serving
from tests.waiting import eventually

KILLS = 10
SAFE_STEPS = 60
CHAINS = 4
SECONDS = 0.02


def safe(step_id: int, **fields: Any) -> dict[str, Any]:
    """Return the document of a step that may run again."""
    return step(step_id, "safe_work", **{"parameters": {"seconds": SECONDS}, **fields})


def dangerous(step_id: int, **fields: Any) -> dict[str, Any]:
    """Return the document of a step that must not run twice."""
    return step(step_id, "dangerous_work", **{"parameters": {"seconds": SECONDS}, **fields})


def approve_what_waits(by: User) -> None:
    """Approve every open request."""
    for request in ApprovalRequest.objects.filter(status=RequestStatus.PENDING):
        decide(request, by=by, decision=Decision(Verdict.APPROVE, request.digest))


def unknown(plan: Plan) -> list[Step]:
    """Return the steps whose outcome a person must settle."""
    return list(plan.steps.filter(waiting_for=WaitingFor.OUTCOME).select_related("call"))


def assert_nothing_is_torn(plan: Plan, serving: Serving) -> None:
    """Check that marks, calls, steps, events and the audit log tell the same story."""
    marks = serving.marks()
    for call in Call.objects.filter(plan_ref=plan.public_id):
        began, ended = marks[call.public_id, "began"], marks[call.public_id, "ended"]
        assert began <= (1 if call.tool_name == "dangerous_work" else call.attempt)
        settled = "settled" in (call.response_json or {})
        assert call.status != CallStatus.COMPLETED or settled or ended >= 1
    assert not Step.objects.exclude(lease_until=None, claimed_by="", ready_at=None).exists()
    assert_gapless(plan)
    assert verify().intact


def test_killed_in_the_middle_of_both_kinds_of_call(serving, ada, rosa):
    """The dangerous one waits for a person and does not run again; the safe one completes, and what follows it."""
    parameters = {"parameters": {"gate": "open"}}
    plan = make_plan(ada, dangerous(1, **parameters), safe(2, **parameters), safe(3, dependencies=[2]))
    serving.start()
    eventually(lambda: step_of(plan).waiting_for == WaitingFor.APPROVAL, what="the request")
    approve_what_waits(rosa)
    began = [(call_of(plan, step_id).public_id, "began") for step_id in (1, 2)]
    eventually(lambda: all(serving.marks()[each] for each in began), what="the middle of both calls")
    serving.kill()
    (serving.effects / "open").touch()
    serving.start()
    eventually(lambda: step_of(plan, 3).completed_at and unknown(plan), what="recovery")
    assert [step_of(plan, step_id).status for step_id in (1, 2, 3)] == ["in_progress", "completed", "completed"]
    assert (call_of(plan, 1).status, call_of(plan, 2).attempt) == ("outcome_unknown", 2)
    dangerous_marks = {word: serving.marks()[call_of(plan, 1).public_id, word] for word in ("began", "ended")}
    assert dangerous_marks == {"began": 1, "ended": 0}
    assert_nothing_is_torn(plan, serving)


def chains() -> list[dict[str, Any]]:
    """Return the documents of safe steps in chains, with a dangerous step after every tenth."""
    steps = [safe(each, dependencies=[each - CHAINS] if each > CHAINS else []) for each in range(1, SAFE_STEPS + 1)]
    return steps + [dangerous(SAFE_STEPS + each, dependencies=[each]) for each in range(10, SAFE_STEPS + 1, 10)]


def test_killed_again_and_again(serving, ada, rosa):
    """Whenever it happens."""
    seed = int(os.environ.get("TOOLGATE_CHAOS_SEED", "0")) or secrets.randbelow(10**6)
    print(f"TOOLGATE_CHAOS_SEED={seed}")  # noqa: T201 (shown when the test fails: it makes the run repeatable)
    dice, plan = random.Random(seed), make_plan(ada, *chains())  # noqa: S311 (no secret)
    for _ in range(KILLS):
        target = serving.marks().total() + dice.randrange(1, 16)
        serving.start()
        eventually(partial(has_come_to, plan, serving, target, rosa), what="some progress")
        serving.kill()
    serving.start()
    eventually(partial(has_come_to, plan, serving, 10**6, rosa), what="the end of all that can go on")
    assert_nothing_is_torn(plan, serving)
    assert {each.tool for each in unknown(plan) if each.call and each.call.attempt < 3} <= {"dangerous_work"}
    eventually(partial(has_ended, plan, rosa), what="the plan's end")
    assert Counter(plan.steps.values_list("status", flat=True)) == {"completed": SAFE_STEPS + SAFE_STEPS // 10}
    assert_nothing_is_torn(plan, serving)


def has_come_to(plan: Plan, serving: Serving, marks: int, reviewer: User) -> bool:
    """Approve what waits; say whether so much was done, or nothing goes on without a person."""
    approve_what_waits(reviewer)
    under_way = Q(status=StepStatus.IN_PROGRESS) & ~Q(waiting_for=WaitingFor.OUTCOME)
    return serving.marks().total() >= marks or not plan.steps.filter(under_way | Q(ready_at__isnull=False)).exists()


def has_ended(plan: Plan, reviewer: User) -> bool:
    """Approve what waits and say of every unknown outcome that it happened; say whether the plan is completed."""
    approve_what_waits(reviewer)
    for each in unknown(plan):
        settle_outcome(plan, each.step_id, settlement=Settlement("happened"), by=Requester(plan.author))
    return Plan.objects.get(pk=plan.pk).status == PlanStatus.COMPLETED
