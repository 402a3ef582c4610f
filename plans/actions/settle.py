"""Settlement of unknown outcomes: a person says what happened, and the plan continues."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from catalog import signals
from catalog.core.transactions import move, retry_on_deadlock
from catalog.errors import Conflict
from catalog.models import Call, ClientRun
from catalog.results import format_success_response
from catalog.secrets.placeholders import redact_text, redact_value
from catalog.states import CallStatus
from plans import states
from plans.engine import finishing, hints, retries
from plans.engine.refusals import require_plan_within_limits
from plans.models import Plan, Step
from plans.states import WaitingFor
from plans.store import statements
from plans.store.requesters import Requester, add_requester_of_descendants
from plans.store.statements import ClaimedStep
from plans.store.transactions import PlanTransaction, plan_transaction


@dataclass(frozen=True, slots=True)
class Settlement:
    """A person's answer to an unknown outcome: the call took effect (with a result), did not, or is to be repeated."""

    verdict: Literal["happened", "did_not_happen", "request_again"]
    result: Any = None
    comment: str = ""


@retry_on_deadlock
def settle_outcome(plan: Plan, step_id: int, *, settlement: Settlement, by: Requester) -> None:
    """Settle a call of unknown outcome.

    Raises Step.DoesNotExist, OutsideLimits, and Conflict if there is nothing to settle.
    """
    require_plan_within_limits(plan, by.ids)
    redacted = replace(settlement, result=redact_value(settlement.result), comment=redact_text(settlement.comment))
    with plan_transaction(plan.pk, plan.public_id) as tx:
        row = plan.steps.select_related("call", "parent").get(step_id=step_id)
        if row.waiting_for != WaitingFor.OUTCOME or row.call is None:
            raise Conflict("This step has no unknown outcome to settle.")
        step = statements.load_step(tx.cursor, row.pk)
        signals.record_fact(
            "call.settled", call=row.call, by=by.user, verdict=redacted.verdict, reason=redacted.comment
        )
        if row.parent is not None:  # the settlement shapes the agent's further calls
            add_requester_of_descendants(plan, row, by=by)
        VERDICT_HANDLERS[redacted.verdict](SettlementContext(tx, step, row.call, redacted))
        finishing.settle_plan(tx)


@dataclass(frozen=True, slots=True)
class SettlementContext:
    tx: PlanTransaction
    step: ClaimedStep
    call: Call
    settlement: Settlement


def _happened(context: SettlementContext) -> None:
    call, now = context.call, context.tx.now
    result = context.settlement.result
    query_type, parameters = None, call.arguments_json
    if call.query_type:
        query_type, parameters = call.query_type, parameters.get("parameters", {})
    results = [] if result is None else [result]
    response = format_success_response(query_type, parameters, results, tool_name=call.tool_name, settled=True)
    move(
        Call.objects.filter(pk=call.pk), to=CallStatus.COMPLETED, response=json.dumps(response), finished_at=now,
        message="A person confirmed that the call took effect.",
    )  # fmt: skip
    _record_end(context, "call.succeeded")
    hints.hint(context.tx.plan_pk, finishing.complete(context.tx, context.step, response, call=call))


def _did_not_happen(context: SettlementContext) -> None:
    message = f"A person confirmed that the call did not take effect. {context.settlement.comment}".strip()
    _fail_call(context, message)
    finishing.fail(context.tx, context.step, message, call=context.call)


def _request_again(context: SettlementContext) -> None:
    """End the old call; the step is claimed again, and its new call passes the gate like any other.

    A client asks again by itself for a call that it runs, so for such a call this raises Conflict.
    """
    if ClientRun.objects.filter(call=context.call).exists():
        raise Conflict("The client runs this call itself, and asks again if it needs it. Say whether it took effect.")
    if retries.plan_is_over(context.tx):
        raise Conflict("The plan has ended, so the call cannot be requested again. Say whether it took effect.")
    _fail_call(context, "A person requested the call again.")
    Step.objects.filter(pk=context.step.pk).update(ready_at=context.tx.now, waiting_for="", waiting_since=None)
    hints.hint(context.tx.plan_pk)


def _fail_call(context: SettlementContext, message: str) -> None:
    move(
        Call.objects.filter(pk=context.call.pk), to=CallStatus.FAILED, message=message, error_kind=states.SETTLED,
        finished_at=context.tx.now,
    )  # fmt: skip
    _record_end(context, "call.failed", error=states.SETTLED)


def _record_end(context: SettlementContext, kind: str, **more: str) -> None:
    """Record the end of the call in the plan's history; the audit log has the settlement itself."""
    context.tx.record(kind, context.step.step_id, call=context.call.public_id, settled=True, **more)


VERDICT_HANDLERS: dict[str, Callable[[SettlementContext], None]] = {
    "happened": _happened,
    "did_not_happen": _did_not_happen,
    "request_again": _request_again,
}
