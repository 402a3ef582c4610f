"""Starting calls under a grant instead of a new review; the grant's use is counted with the start.

The preview is computed as for any held call, so a tool can compare its target's state when it writes. A call started
by a grant is treated like an approved one: it does not restart when its worker is lost, and repeating it needs a
person.
"""

from collections.abc import Collection
from datetime import datetime

from approvals.grants import coverage
from approvals.grants.coverage import GrantCandidate
from approvals.policies.rulebook import Rule
from approvals.requests import limits
from catalog.core.transactions import move
from catalog.dispatch.arguments import stored_arguments
from catalog.errors import Conflict
from catalog.models import Call, CallRequester
from catalog.results import Preview
from catalog.states import CallStatus
from plans.engine import calls
from plans.engine import limits as engine_limits
from plans.engine.calls import new_call, requesters_of
from plans.engine.limits import request_owner
from plans.engine.situations import CallSituation, classify
from plans.engine.work import HeldCall, PlanSnapshot, PreparedCall, RunningCall
from plans.models import Plan
from plans.store import statements
from plans.store.requesters import input_authors_of
from plans.store.transactions import PlanTransaction, record_call_event


def is_direct_plan(plan_ref: str) -> bool:
    return Plan.objects.filter(public_id=plan_ref, kind=Plan.Kind.CALL).exists()


def is_covered_by_grant(plan: PlanSnapshot, order: PreparedCall, rule: Rule, step_pk: int | None = None) -> bool:
    """Return whether a grant covers a call that the rule would hold; no query if the tool allows no grants."""
    if order.target.grant_limits is None:
        return False
    return coverage.find_covering(grant_query(plan, order, requesters_of(plan, order, step_pk)), rule) is not None


def is_still_covered(hold: HeldCall, call: Call, *, now: datetime) -> bool:
    """Return whether the grant of a call, handed back before its handler began, still allows it to start.

    `now` is the time of the starting transaction. Raises RestoredDatabase and AuditUnavailable.
    """
    people = requesters_of(hold.plan, hold.order, hold.step.pk)
    candidate = grant_query(hold.plan, hold.order, people, input_authors_of(hold.step))
    return coverage.is_still_valid(call, candidate, hold.rule, now=now)


def end_denied_grants(plan: PlanSnapshot, order: PreparedCall) -> None:
    """End the grants that cover a call denied by a policy."""
    coverage.end_denied_grants(grant_query(plan, order, set()))


def grant_query(
    plan: PlanSnapshot, order: PreparedCall, requesters: set[int], input_authors: Collection[int] = ()
) -> GrantCandidate:
    """Return the facts about a call that grants are matched against."""
    asker = order.asker or plan.asker
    arguments = order.arguments
    if order.secrets:
        arguments = stored_arguments(order.target.tool.validator, order.redacted_arguments, order.defaults_text)
    return GrantCandidate(
        target=order.target,
        arguments=arguments,
        plan_ref=plan.ref,
        session=asker.session,
        requested_by=asker.user_id,
        requesters=frozenset(requesters),
        barred=frozenset((*requesters, *input_authors)),
        replaces_call=order.replaces is not None,
    )


def start_granted(tx: PlanTransaction, hold: HeldCall, preview: Preview | None) -> RunningCall | None:
    """Start a held call under a grant that covers it, in this transaction; None if no grant covers it now.

    A call that was handed back before its handler began starts again on the same use of its grant, if that is still
    valid.

    Raises Conflict if the step was taken over in the meantime, and BudgetExceeded.
    """
    if hold.order.target.grant_limits is None:
        return None
    # Without a grant a request is opened; its slot lock comes before the audit log's, which a grant's use takes.
    limits.lock_slots(request_owner(hold.plan, hold.order))
    engine_limits.check_budget(tx.cursor, hold.plan)
    if hold.call is not None and classify(hold.call) is CallSituation.GRANTED:
        if not is_still_covered(hold, hold.call, now=tx.now):
            return None
        call = _store_running(tx, hold)
    else:
        people = requesters_of(hold.plan, hold.order, hold.step.pk)
        candidate = grant_query(hold.plan, hold.order, people, input_authors_of(hold.step))
        grant = coverage.consume_use(candidate, hold.rule, now=tx.now)
        if grant is None:
            return None
        call = _store_running(tx, hold)
        CallRequester.objects.bulk_create(CallRequester(call=call, user_id=person) for person in people)
        coverage.record_grant_use(grant, call, now=tx.now)
    record_call_event(tx, "call.started", call, level=hold.order.level, attempt=call.attempt)
    state = (preview.state_token or None) if preview else None
    budget = engine_limits.spend_call(tx.cursor, hold.plan)
    return RunningCall(hold.step, hold.plan, call, hold.order, target_state=state, budget=budget)


def _store_running(tx: PlanTransaction, hold: HeldCall) -> Call:
    """Store the call as running, or start the stored one, under the step's fencing token."""
    until = calls.new_lease(hold.step.claimed_by, tx).until
    if not statements.renew_lease(tx.cursor, hold.step, until=until):
        raise Conflict("Another worker took over this step while its preview was computed.")
    call, stored = hold.call, hold.call is not None
    if call is None:
        call = new_call(hold.plan, hold.step.step_id, hold.order, status=CallStatus.RUNNING)
        call.created_at = tx.now
        calls.store_call_secrets(hold.order, hold.plan.ref, hold.step.step_id)
    call.fence, call.attempt, call.started_at = hold.step.attempt, 1, tx.now
    if stored:
        started = statements.start_call(tx.cursor, call.pk, fence=call.fence, now=tx.now)
    else:
        started = statements.insert_step_call(tx.cursor, hold.step, call)
    if not started:
        raise Conflict("The call was settled before it could start.")
    return call


def store_as_held(tx: PlanTransaction, hold: HeldCall) -> Call:
    """Store the call as held; a call that was stored while a grant covered it becomes held."""
    if hold.call is not None:
        move(Call.objects.filter(pk=hold.call.pk), to=CallStatus.HELD)
        return hold.call
    call = new_call(hold.plan, hold.step.step_id, hold.order, status=CallStatus.HELD)
    call.created_at = tx.now
    statements.insert_call(tx.cursor, call)
    calls.store_call_secrets(hold.order, hold.plan.ref, hold.step.step_id)
    return call
