"""Grants and envelopes that cover a call: queries; `plans.engine.holding` starts the calls that they cover."""

from collections.abc import Collection

from approvals.envelopes import coverage as envelope_coverage
from approvals.grants import coverage
from approvals.grants.coverage import GrantCandidate
from approvals.models import Envelope, Grant
from approvals.policies.rulebook import Rule
from approvals.policy_language.envelopes import PROPOSE_ENVELOPE
from catalog.dispatch.arguments import stored_arguments
from plans.engine.calls import requesters_of
from plans.engine.work import PlanSnapshot, PreparedCall
from plans.models import Plan


def is_direct_plan(plan_ref: str) -> bool:
    return Plan.objects.filter(public_id=plan_ref, kind=Plan.Kind.CALL).exists()


def plan_owner(plan_ref: str) -> int | None:
    """Return the key of the person who makes a plan's calls; None for the plan of a direct call, or no plan."""
    plan = Plan.objects.select_related("token").filter(public_id=plan_ref).exclude(kind=Plan.Kind.CALL).first()
    return None if plan is None else plan.token.user_id if plan.token is not None else plan.author_id


def coverage_of(
    plan: PlanSnapshot, prepared: PreparedCall, rule: Rule, step_pk: int | None = None
) -> Grant | Envelope | None:
    """Return a grant or an envelope that covers a call which the rule would hold, or None."""
    if prepared.target.tool.name == PROPOSE_ENVELOPE:
        return None
    candidate = grant_query(plan, prepared, requesters_of(plan, prepared, step_pk))
    grant = coverage.find_covering(candidate, rule) if prepared.target.grant_limits is not None else None
    return grant or envelope_coverage.find_covering(candidate, rule)


def may_be_covered(plan: PlanSnapshot, prepared: PreparedCall) -> bool:
    """Return whether a grant or an envelope might let the call start, whatever its arguments are."""
    if prepared.target.tool.name == PROPOSE_ENVELOPE:  # people decide on each
        return False
    if prepared.target.grant_limits is not None:
        return True
    return envelope_coverage.may_cover(grant_query(plan, prepared, set()))


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
        token=asker.token_id,
    )
