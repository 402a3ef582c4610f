"""Starting a call by a grant in place of a new review: the grant is asked, and its use counted with the start.

The preview is computed as for any held call, so that a tool may compare its target's state when it writes. A call that
was started by a grant is from then on like one that was approved: it is not started again when its worker is lost, and
asking for it again takes a person.
"""

from datetime import datetime

from approvals.grants import usage
from approvals.grants.usage import GrantCandidate
from approvals.policies.rulebook import Rule
from approvals.requests import limits
from catalog.core.transactions import move
from catalog.errors import Conflict
from catalog.models import Call, CallRequester
from catalog.results import Preview
from catalog.states import CallStatus
from plans.engine import calls
from plans.engine import limits as engine_limits
from plans.engine.calls import new_call
from plans.engine.limits import request_owner
from plans.engine.situations import CallSituation, classify
from plans.engine.work import HeldCall, PlanSnapshot, PreparedCall, RunningCall
from plans.models import Plan
from plans.store import statements
from plans.store.requesters import extra_requesters, input_authors_of
from plans.store.transactions import PlanTransaction, record_call_event


def is_direct_plan(plan_ref: str) -> bool:
    return Plan.objects.filter(public_id=plan_ref, kind=Plan.Kind.CALL).exists()


def is_covered_by_grant(plan: PlanSnapshot, order: PreparedCall, rule: Rule, step_pk: int | None = None) -> bool:
    """Say whether a grant covers a call that the rule would hold, as things are; without a query where none may."""
    if order.target.grant_limits is None:
        return False
    return usage.find_covering(grant_query(plan, order, requesters_of(plan, order, step_pk)), rule) is not None


def is_still_covered(hold: HeldCall, call: Call, *, now: datetime) -> bool:
    """Say whether the grant that let a call start lets it start again: it was handed back before its handler began.

    `now` is the time of the transaction that would start it. Raises RestoredDatabase and AuditUnavailable.
    """
    people = requesters_of(hold.plan, hold.order, hold.step.pk) | input_authors_of(hold.step)
    return usage.is_still_valid(call, grant_query(hold.plan, hold.order, people), hold.rule, now=now)


def end_denied_grants(plan: PlanSnapshot, order: PreparedCall) -> None:
    """End the grants that would cover a call that a policy has just refused."""
    usage.end_denied_grants(grant_query(plan, order, set()))


def requesters_of(plan: PlanSnapshot, order: PreparedCall, step_pk: int | None) -> set[int]:
    """Return who asked for a call, by their keys: nobody of them decides it, or lets it run by a grant of theirs."""
    people = {each.user_id for each in (plan.asker, order.asker) if each} | {plan.author_id}
    return people if step_pk is None else people | extra_requesters(step_pk)


def grant_query(plan: PlanSnapshot, order: PreparedCall, people: set[int]) -> GrantCandidate:
    """Return the call as grants see it."""
    asker = order.asker or plan.asker
    return GrantCandidate(
        target=order.target,
        arguments=order.shown,
        plan_ref=plan.ref,
        session=asker.session,
        requested_by=asker.user_id,
        people=frozenset(people),
        replaces_call=order.replaces is not None,
    )


def start_granted(tx: PlanTransaction, hold: HeldCall, shown: Preview | None) -> RunningCall | None:
    """Start a held call by a grant that covers it, in this transaction; None where none does (any more).

    A call that one has let start, and that was handed back before its handler began, starts on the same use; where the
    grant does not hold any more, it is for people.

    Raises Conflict when the step was taken over meanwhile, and BudgetExceeded.
    """
    if hold.order.target.grant_limits is None:
        return None
    # Who finds no grant asks people: the lock of their room comes before the audit log's, which a grant's use takes.
    limits.lock_slots(request_owner(hold.plan, hold.order))
    engine_limits.check_budget(tx.cursor, hold.plan)
    if hold.call is not None and classify(hold.call) is CallSituation.GRANTED:
        if not is_still_covered(hold, hold.call, now=tx.now):
            return None
        call = _store_running(tx, hold)
    else:
        people = requesters_of(hold.plan, hold.order, hold.step.pk)
        barred = people | input_authors_of(hold.step)
        grant = usage.consume_use(grant_query(hold.plan, hold.order, barred), hold.rule, now=tx.now)
        if grant is None:
            return None
        call = _store_running(tx, hold)
        CallRequester.objects.bulk_create(CallRequester(call=call, user_id=person) for person in people)
        usage.record_grant_use(grant, call, now=tx.now)
    record_call_event(tx, "call.started", call, level=hold.order.level, attempt=call.attempt)
    state = (shown.state_token or None) if shown else None
    budget = engine_limits.spend_call(tx.cursor, hold.plan)
    return RunningCall(hold.step, hold.plan, call, hold.order, target_state=state, budget=budget)


def _store_running(tx: PlanTransaction, hold: HeldCall) -> Call:
    """Store the call as running, or let the stored one run, under the step's fence."""
    until = calls.new_lease(hold.step.claimed_by, tx).until
    if not statements.renew_lease(tx.cursor, hold.step, until=until):
        raise Conflict("The step was taken over while its preview was computed.")
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
    """Store the call as held, or hold the one that was stored when a grant still covered it."""
    if hold.call is not None:
        move(Call.objects.filter(pk=hold.call.pk), to=CallStatus.HELD)
        return hold.call
    call = new_call(hold.plan, hold.step.step_id, hold.order, status=CallStatus.HELD)
    call.created_at = tx.now
    statements.insert_call(tx.cursor, call)
    calls.store_call_secrets(hold.order, hold.plan.ref, hold.step.step_id)
    return call
