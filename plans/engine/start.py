"""The start of a call, in the transaction that decides on it: the one place where a call begins to run.

Admission (`plans.engine.admission`) and holding (`plans.engine.holding`) decide that a call may start. `begin` stores
the start; the handler runs after the commit.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

from approvals.policies.history import History
from approvals.reviews.edits import EditSummary
from catalog.errors import Conflict, ToolError
from catalog.models import Call
from catalog.states import CallStatus
from plans.engine import limits
from plans.engine.calls import new_call, record_trials, store_call_secrets
from plans.engine.refusals import require_within_limits
from plans.engine.stops import require_call_not_stopped
from plans.engine.work import PlanSnapshot, PreparedCall, RunningCall
from plans.store import statements
from plans.store.statements import ClaimedStep
from plans.store.transactions import PlanTransaction, record_call_event


@dataclass(frozen=True, slots=True)
class StartContext:
    tx: PlanTransaction
    plan: PlanSnapshot
    step: ClaimedStep
    just_claimed: bool = False
    """The step was claimed in this transaction."""
    is_fresh: bool = True
    """Nothing that the audit log records was done in this transaction yet, so that it may wait for earlier locks."""


@dataclass(frozen=True, slots=True)
class Permission:
    """Data that the gate, an approval, a grant or an envelope passes to the call that it starts."""

    target_state: str | None = None
    """The state of the target in the preview, which a tool compares when it writes."""
    edited: EditSummary | None = None
    """The edits that reviewers made before they approved."""
    record: Callable[[Call], object] | None = None
    """Called with the stored call: records its use of a grant or envelope, or opens the envelope that it proposed."""
    history: History | None = None
    """The history of the call, judged in this transaction; it is kept with the call."""


NOTHING_PASSED = Permission()


def begin(
    context: StartContext,
    prepared: PreparedCall,
    call: Call | None = None,
    permission: Permission = NOTHING_PASSED,
    *,
    runs_already: bool = False,
) -> RunningCall:
    """Start a call: store its fencing token, attempt, time and event, and count it against the plan's budget.

    `call` is the stored call; None stores a new one. The caller has asked the gate and used the approval, the grant or
    the envelope, in a transaction that has claimed the step or renewed its lease. `runs_already` says that the handler
    of a new call was started before, so that no stop can prevent that.
    Raises Stopped, OutsideLimits, BudgetExceeded, ToolError if the stored call was settled, and Conflict if another
    worker took over the step.
    """
    tx, plan, step = context.tx, context.plan, context.step
    if not runs_already:
        require_call_not_stopped(tx, plan, step.step_id, prepared)
    # The gate asks the same before; a call that is tried again does not pass it.
    require_within_limits(prepared.target, prepared.asker or plan.asker)
    budget = limits.spend_call(tx.cursor, plan)
    is_new = call is None
    if call is None:
        call = new_call(plan, step.step_id, prepared, status=CallStatus.RUNNING)
        call.created_at = tx.now
    else:
        call = copy(call)  # the transaction may be repeated after a deadlock
    call.fence, call.attempt, call.started_at = step.attempt, call.attempt + 1, tx.now
    if is_new:
        if not statements.insert_step_call(tx.cursor, step, call, just_claimed=context.just_claimed):
            raise Conflict("Another worker took over this step before its call could start.")
        store_call_secrets(prepared, plan.ref, step.step_id)
        record_trials(call, prepared, plan, step_pk=step.pk, history=permission.history)
    else:
        if not statements.start_call(tx.cursor, call.pk, fence=step.attempt, now=tx.now):
            raise ToolError("The call was settled before it could start.")
        if prepared.target.implementation_pk != call.implementation_id:  # the stored one is switched off
            Call.objects.filter(pk=call.pk).update(implementation=prepared.target.implementation_pk)
    if permission.record is not None:
        permission.record(call)
    if permission.history is not None:
        permission.history.keep(call, is_started=True)
    record_call_event(tx, "call.started", call, level=prepared.level, attempt=call.attempt)
    return RunningCall(step, plan, call, prepared, permission.target_state, budget, permission.edited)
