"""Early approval requests: approvals requested before a step is ready, and their use or withdrawal.

When the step becomes ready, it continues with the requested call if the call is unchanged, and opens a new request
otherwise. All functions run inside an open plan transaction.
"""

import json
from collections.abc import Iterable

from django.contrib.auth.models import User
from django.db.models import QuerySet

from approvals.errors import Drift
from approvals.requests import deadlines, held_calls, lifecycle
from approvals.requests.held_calls import SENT_BACK
from approvals.requests.queries import last_review
from approvals.reviews.edits import changed_fields
from approvals.states import FAIL, OPEN, RequestStatus
from catalog.calls import vault
from catalog.core.canonical_json import canonical_text
from catalog.models import Call
from catalog.secrets.placeholders import holds_secret
from catalog.signals import Fact
from catalog.states import CallStatus
from plans.documents.graphs import descendants
from plans.engine.work import PreparedCall
from plans.models import Step, StepDependency
from plans.states import StepStatus, WaitingFor
from plans.store import statements
from plans.store.statements import ClaimedStep, StepWait
from plans.store.transactions import PlanTransaction, handle_fact


def invalidate_if_outdated(tx: PlanTransaction, call: Call, prepared: PreparedCall) -> bool:
    """Invalidate the request if the call that would run now differs from the requested call; return True if so."""
    request = call.approval
    # The first round, because a reviewer may have changed the arguments since.
    requested = request.rounds.values_list("arguments", flat=True).get(number=1)
    # The HMACs of secrets alone may differ, because the key was rotated since.
    is_same = prepared.text == requested or (
        holds_secret(requested)
        and canonical_text(vault.load_available(requested, call.plan_ref))
        == canonical_text(prepared.arguments.storable)
    )
    drift, reason = None, ""
    if not is_same:
        names = ", ".join(changed_fields(json.loads(requested), json.loads(prepared.text)))
        drift = Drift.ARGUMENTS
        reason = f"When its step was ready, the arguments of the call differed from the early request: {names}."
    elif prepared.target.version_pk != call.version_id:
        drift, reason = Drift.DEFINITION, f"The definition of {call.tool_name} changed before the step was ready."
    elif request.status == RequestStatus.APPROVED and request.not_after and request.not_after <= tx.now:
        drift, reason = Drift.OTHER, "The approval expired before the step was ready."
    if drift is not None:
        lifecycle.invalidate(request, reason=reason, drift=drift)
    return drift is not None


def attach(tx: PlanTransaction, step: ClaimedStep, call: Call) -> bool:
    """Continue a claimed step with its early call. Return True if the call is approved; else the step waits.

    A pending request becomes an ordinary request. For an approved call, the time in which it must start begins now.
    """
    request = call.approval
    if request.status == RequestStatus.PENDING:
        lifecycle.activate_pre_approval(request, tx.now)
    else:
        deadlines.start_run_window(request, tx.now)
        if request.applied_at is not None:
            return True
    _wait_for_request(tx, step, call)
    names = {"call": call.public_id, "approval": request.public_id}
    tx.record("step.waiting", step.step_id, waiting_for="approval", **names)
    return False


def _wait_for_request(tx: PlanTransaction, step: ClaimedStep, call: Call) -> None:
    statements.release_step(tx.cursor, step, StepWait(WaitingFor.APPROVAL, call.pk, tx.now))


def apply_early_answer(tx: PlanTransaction, step: ClaimedStep, call: Call) -> None:
    """Apply to a claimed step the decision that was made before the step was ready."""
    _wait_for_request(tx, step, call)
    review = last_review(call.approval)
    by = review.person if review else None
    if call.status == CallStatus.COMPLETED:
        fact = Fact("call.responded", call, by)
    elif call.error_kind == SENT_BACK:
        fact = Fact("call.sent_back", call, by, {"message": call.message})
    else:
        effect = review.effect if review and call.approval.status == RequestStatus.REJECTED else FAIL
        fact = Fact("call.refused", call, by, {"message": call.message, "effect": effect})
    handle_fact(tx, fact)


def withdraw_if_rejected_before(call: Call) -> bool:
    """Withdraw a call's early request if the same call was rejected in this plan before; return whether it was.

    Even an approved request is withdrawn, because its approver may not have seen the rejection. The step then makes a
    new call, which is rejected like the earlier one.
    """
    first = held_calls.find_previous_rejection(
        call.plan_ref, call.tool_name, call.version.input_schema, call.arguments, vault.load_call_secrets(call)
    )
    if first is not None:
        withdraw_early_requests([call], "The same call was rejected in this plan before.")
    return first is not None


def early_calls(steps: QuerySet[Step]) -> list[Call]:
    """Return the calls of these steps with an open early request."""
    early = Call.objects.filter(step__in=steps, approval__is_early=True, approval__ready_at=None)
    return list(early.filter(approval__status__in=OPEN).select_related("approval"))


def withdraw_early_requests(calls: Iterable[Call], reason: str, *, by: "User | None" = None) -> None:
    """Withdraw the open early requests of these calls; their steps request approval again when they are ready."""
    for call in calls:
        if call.approval.status in OPEN:
            lifecycle.withdraw_for_plan(call.approval, by=by, reason=reason, asks_again=True)


def withdraw_early_requests_of_dependents(tx: PlanTransaction, step: ClaimedStep) -> None:
    """Withdraw the early requests of steps that depend on a step skipped by a person."""
    waiting = Step.objects.filter(plan=tx.plan_pk, status=StepStatus.PENDING, call__isnull=False)
    calls = early_calls(waiting.filter(dependencies__needs=step.pk))
    withdraw_early_requests(calls, f"Step {step.step_id}, on which it depends, was skipped.")


def withdraw_early_requests_of_blocked(tx: PlanTransaction, step_id: int) -> None:
    """Withdraw the early requests of steps that cannot become ready because step `step_id` failed."""
    waiting = Step.objects.filter(plan=tx.plan_pk, status=StepStatus.PENDING, call__isnull=False)
    # The cheap check first: nearly always there are none.
    early = early_calls(waiting) if waiting.exists() else []
    if not early:
        return
    arrows = StepDependency.objects.filter(step__plan=tx.plan_pk)
    after = descendants(step_id, arrows.values_list("needs__step_id", "step__step_id"))
    reason = f"Step {step_id}, on which it depends, has failed."
    withdraw_early_requests([call for call in early if int(call.step_ref) in after], reason)
