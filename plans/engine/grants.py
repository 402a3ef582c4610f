"""Grants that cover a call: queries about them; `plans.engine.holding` starts calls under a grant."""

from collections.abc import Collection

from approvals.grants import coverage
from approvals.grants.coverage import GrantCandidate
from approvals.policies.rulebook import Rule
from catalog.dispatch.arguments import stored_arguments
from plans.engine.calls import requesters_of
from plans.engine.work import PlanSnapshot, PreparedCall
from plans.models import Plan


def is_direct_plan(plan_ref: str) -> bool:
    return Plan.objects.filter(public_id=plan_ref, kind=Plan.Kind.CALL).exists()


def is_covered_by_grant(plan: PlanSnapshot, order: PreparedCall, rule: Rule, step_pk: int | None = None) -> bool:
    """Return whether a grant covers a call that the rule would hold; no query if the tool allows no grants."""
    if order.target.grant_limits is None:
        return False
    return coverage.find_covering(grant_query(plan, order, requesters_of(plan, order, step_pk)), rule) is not None


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
