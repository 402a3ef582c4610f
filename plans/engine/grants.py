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


def is_covered_by_grant(plan: PlanSnapshot, prepared: PreparedCall, rule: Rule, step_pk: int | None = None) -> bool:
    """Return whether a grant covers a call that the rule would hold; no query if the tool allows no grants."""
    if prepared.target.grant_limits is None:
        return False
    return coverage.find_covering(grant_query(plan, prepared, requesters_of(plan, prepared, step_pk)), rule) is not None


def end_denied_grants(plan: PlanSnapshot, prepared: PreparedCall) -> None:
    """End the grants that cover a call denied by a policy."""
    coverage.end_denied_grants(grant_query(plan, prepared, set()))


def grant_query(
    plan: PlanSnapshot, prepared: PreparedCall, requesters: set[int], input_authors: Collection[int] = ()
) -> GrantCandidate:
    asker = prepared.asker or plan.asker
    arguments = prepared.arguments
    if prepared.secrets:
        arguments = stored_arguments(
            prepared.target.tool.validator, prepared.redacted_arguments, prepared.defaults_text
        )
    return GrantCandidate(
        target=prepared.target,
        arguments=arguments,
        plan_ref=plan.ref,
        session=asker.session,
        requested_by=asker.user_id,
        requesters=frozenset(requesters),
        barred=frozenset((*requesters, *input_authors)),
        replaces_call=prepared.replaces is not None,
    )
