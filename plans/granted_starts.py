"""The start of a call by a grant: what would be held starts, and the use is counted in the same transaction.

The preview is computed as for any held call, so that a tool may compare its target's state when it writes. A call
that was started by a grant is from then on like one that was approved: it is not started again when its worker is
lost, and asking for it again takes a person.
"""

from approvals.grants import usage
from approvals.requests import limits
from catalog.core.transactions import move
from catalog.errors import Conflict
from catalog.models import Call, CallRequester
from catalog.results import Preview
from catalog.states import CallStatus
from plans import budgets, starting
from plans.granted import people_of, still_lets_start, wanted
from plans.new_calls import new_call
from plans.room import asking_of
from plans.store import statements
from plans.store.requesters import input_authors_of
from plans.store.transactions import Recording, tell
from plans.work import Hold, Run


def start(batch: Recording, hold: Hold, shown: Preview | None) -> Run | None:
    """Start a held call by a grant that covers it, in this transaction; None where none does (any more).

    A call that one has let start, and that was handed back before its handler began, starts on the same use; where the
    grant does not hold any more, it is for people.

    Raises Conflict when the step was taken over meanwhile, and BudgetExceeded.
    """
    if hold.order.target.grant_limits is None:
        return None
    # Who finds no grant asks people: the lock of their room comes before the audit log's, which a grant's use takes.
    limits.lock_room(asking_of(hold.plan, hold.order))
    budgets.check(batch.cursor, hold.plan)
    if hold.call is not None and hasattr(hold.call, "grant_use"):
        if not still_lets_start(hold, hold.call, now=batch.now):
            return None
        call = _running(batch, hold)
    else:
        people = people_of(hold.plan, hold.order, hold.step.pk)
        barred = people | input_authors_of(hold.step)
        grant = usage.spend(wanted(hold.plan, hold.order, barred), hold.rule, now=batch.now)
        if grant is None:
            return None
        call = _running(batch, hold)
        CallRequester.objects.bulk_create(CallRequester(call=call, user_id=person) for person in people)
        usage.keep(grant, call, now=batch.now)
    tell(batch, "call.started", call, level=hold.order.level, attempt=call.attempt)
    state = (shown.state_token or None) if shown else None
    budget = budgets.spend_call(batch.cursor, hold.plan)
    return Run(hold.step, hold.plan, call, hold.order, target_state=state, budget=budget)


def _running(batch: Recording, hold: Hold) -> Call:
    """Store the call as running, or let the stored one run, under the step's fence."""
    until = starting.lease(hold.step.claimed_by, batch).until
    if not statements.renew_lease(batch.cursor, hold.step, until=until):
        raise Conflict("The step was taken over while its preview was computed.")
    call, stored = hold.call, hold.call is not None
    if call is None:
        call = new_call(hold.plan, hold.step.step_id, hold.order, status=CallStatus.RUNNING)
        call.created_at = batch.now
        starting.keep_secrets(hold.order, hold.plan.ref, hold.step.step_id)
    call.fence, call.attempt, call.started_at = hold.step.attempt, 1, batch.now
    if stored:
        started = statements.start_call(batch.cursor, call.pk, fence=call.fence, now=batch.now)
    else:
        started = statements.give_new_call(batch.cursor, hold.step, call)
    if not started:
        raise Conflict("The call was settled before it could start.")
    return call


def held_call(batch: Recording, hold: Hold) -> Call:
    """Store the call as held, or hold the one that was stored when a grant still covered it."""
    if hold.call is not None:
        move(Call.objects.filter(pk=hold.call.pk), to=CallStatus.HELD)
        return hold.call
    call = new_call(hold.plan, hold.step.step_id, hold.order, status=CallStatus.HELD)
    call.created_at = batch.now
    statements.insert_call(batch.cursor, call)
    starting.keep_secrets(hold.order, hold.plan.ref, hold.step.step_id)
    return call
