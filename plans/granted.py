"""Calls that a grant may let start in place of a new review: what is asked of grants before a call is held.

The start itself is in `plans.granted_starts`.
"""

from datetime import datetime

from approvals.grants import proposals, usage
from approvals.grants.usage import Wanted
from approvals.policies.rulebook import Rule
from catalog.models import Call
from plans.models import Plan
from plans.store.requesters import askers_of, input_authors_of
from plans.work import Hold, Order, PlanFacts


def _is_direct(plan_ref: str) -> bool:
    return Plan.objects.filter(public_id=plan_ref, kind=Plan.Kind.CALL).exists()


proposals.tell_direct_by(_is_direct)


def may_start(plan: PlanFacts, order: Order, rule: Rule, step_pk: int | None = None) -> bool:
    """Say whether a grant covers a call that the rule would hold, as things are; without a query where none may."""
    if order.target.grant_limits is None:
        return False
    return usage.covering(wanted(plan, order, people_of(plan, order, step_pk)), rule) is not None


def still_lets_start(hold: Hold, call: Call, *, now: datetime) -> bool:
    """Say whether the grant that let a call start lets it start again: it was handed back before its handler began.

    `now` is the time of the transaction that would start it. Raises RestoredDatabase and AuditUnavailable.
    """
    people = people_of(hold.plan, hold.order, hold.step.pk) | input_authors_of(hold.step)
    return usage.still_holds(call, wanted(hold.plan, hold.order, people), hold.rule, now=now)


def end_denied(plan: PlanFacts, order: Order) -> None:
    """End the grants that would cover a call that a policy has just refused."""
    usage.end_denied(wanted(plan, order, set()))


def people_of(plan: PlanFacts, order: Order, step_pk: int | None) -> set[int]:
    """Return who asked for a call, by their keys: nobody of them decides it, or lets it run by a grant of theirs."""
    people = {each.user_id for each in (plan.asker, order.asker) if each} | {plan.author_id}
    return people if step_pk is None else people | askers_of(step_pk)


def wanted(plan: PlanFacts, order: Order, people: set[int]) -> Wanted:
    """Return the call as grants see it."""
    asker = order.asker or plan.asker
    return Wanted(
        target=order.target,
        arguments=order.shown,
        plan_ref=plan.ref,
        session=asker.session,
        requested_by=asker.user_id,
        people=frozenset(people),
        takes_a_place=order.replaces is not None,
    )
