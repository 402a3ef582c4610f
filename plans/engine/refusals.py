"""Refused calls: by a policy, or because their tool is outside the limits of the requester's token.

Each refusal leaves an audit entry. The entry belongs to the open transaction, if there is one.
"""

from collections.abc import Collection, Mapping

from django.contrib.auth.models import User
from django.db import transaction

from approvals.audit.log import AuditRecord, append_entry
from approvals.policies.refused_calls import record_refused_call
from approvals.policy_language.envelopes import proposed_tools
from catalog.access.limits import refusal_of
from catalog.core import clock
from catalog.dispatch import pipeline
from catalog.errors import OutsideLimits, PolicyRefusal
from catalog.inventory import snapshot
from catalog.inventory.snapshot import CallableTool
from plans.engine import grants
from plans.engine.calls import ADDS_STEPS, limits_on, record_trials
from plans.engine.work import PlanSnapshot, PreparedCall
from plans.models import AGENT_TURN, Plan
from plans.states import StepStatus
from plans.store.requesters import RequesterIds
from plans.store.statements import ClaimedStep


def record_denial(
    deny: pipeline.Deny, plan: PlanSnapshot, prepared: PreparedCall, step: ClaimedStep | None = None
) -> PolicyRefusal:
    """Write an audit entry for a denied call, end the grants that cover it, and return the error.

    `step` is None for a direct call that is not stored. A call outside the limits of its token ends no grants, since
    they hold for other tokens, too. A call that a policy refuses counts for its stop, and for the rules on trial.
    """
    asker, name, plan_ref = prepared.asker or plan.asker, prepared.target.tool.name, plan.ref if plan.pk else ""
    if deny.by_limits:
        _append_refusal(deny, asker, name, plan_ref, step.step_id if step is not None else None)
        return OutsideLimits(deny.message)
    grants.end_denied_grants(plan, prepared)
    now = clock.now()
    with transaction.atomic(savepoint=False):
        is_stored = step is not None and step.call_pk is not None and prepared.replaces is None
        if not is_stored:  # otherwise recorded when it was stored
            record_trials(None, prepared, plan, step_pk=step.pk if step is not None else None)
        if deny.terms is not None:
            record_refused_call(deny.terms, token_id=asker.token_id, person_id=asker.user_id, now=now)
        _append_refusal(deny, asker, name, plan_ref, step.step_id if step is not None else None)
    return PolicyRefusal(deny.message, policy=deny.policy, rule=deny.rule)


def require_within_limits(callable_tool: CallableTool | None, requester: RequesterIds) -> None:
    """Write an audit entry and raise OutsideLimits if the limits of the requester's token leave out the tool."""
    verdict = _limit_verdict(callable_tool, requester) if callable_tool is not None else None
    if verdict is not None and callable_tool is not None:
        _append_refusal(verdict, requester, callable_tool.tool.name)
        raise OutsideLimits(verdict.message)


def require_tool_within_limits(tool_name: str, requester: RequesterIds) -> None:
    """Raise what `require_within_limits` raises, and UnknownTool or ToolRemoved if there is no such tool.

    The latter name no tool and no source outside the limits of the requester's token.
    """
    callable_tool = snapshot.callable_tool(tool_name)
    if callable_tool is None:
        raise snapshot.missing_tool_error(tool_name, requester.limits)
    require_within_limits(callable_tool, requester)


def require_call_within_limits(tool_name: str, arguments: object, requester: RequesterIds) -> None:
    """Raise what `require_tool_within_limits` raises, also for the tools that an envelope is proposed for.

    It comes before the check of the arguments, whose problems tell of the schemas of all these tools.
    """
    require_tool_within_limits(tool_name, requester)
    if requester.limits is not None:
        for name in proposed_tools(tool_name, arguments):
            require_within_limits(snapshot.callable_tool(name), requester)


def _limit_verdict(callable_tool: CallableTool, requester: RequesterIds) -> pipeline.Deny | None:
    limits = limits_on(callable_tool, requester)
    if limits is None:
        return None
    facts = pipeline.CallFacts(
        tool_name=callable_tool.tool.name,
        safety_level=callable_tool.tool.safety_level,
        categories=callable_tool.tool.categories,
        arguments={},
        source=callable_tool.source,
        limits=limits,
    )
    return refusal_of(facts)


def tools_outside_limits(requester: RequesterIds) -> Mapping[str, str]:
    """Return the message for each callable tool that the limits of the requester's token leave out, by name."""
    if requester.limits is None:
        return {}
    verdicts = ((name, _limit_verdict(target, requester)) for name, target in snapshot.callable_tools().items())
    return {name: verdict.message for name, verdict in verdicts if verdict is not None}


AGENT_OUTSIDE = (
    "The plan was not made through this token, so the limits of this token would not hold for what its agents or its "
    "planner call. Clone the plan, or sign in."
)


def require_plan_within_limits(plan: Plan, requester: RequesterIds, *, replaced: Collection[int] = ()) -> None:
    """Write an audit entry and raise OutsideLimits if a requester may not use the tool of a step yet to be completed.

    Every action that changes steps of a plan or lets them run asks this first, before a transaction that would roll the
    entry back. It asks about the whole plan: a step may take its arguments from any other, or from the plan's memory.
    Steps with a number in `replaced` are left out. The token through which the plan was made binds its steps in any
    case; this is about another one.
    """
    if requester.limits is None:
        return
    rows = plan.steps.filter(parent=None).exclude(status=StepStatus.COMPLETED).values_list("step_id", "tool", "agent")
    left = [(tool, agent) for number, tool, agent in rows if number not in replaced]
    for name in sorted({tool for tool, _ in left if tool}):
        require_within_limits(snapshot.callable_tool(name), requester)
    if lets_agents_exceed_limits(plan, requester) and any(agent or tool in ADDS_STEPS for tool, agent in left):
        _append_refusal(pipeline.Deny(AGENT_OUTSIDE, by_limits=True), requester, AGENT_TURN, plan.public_id)
        raise OutsideLimits(AGENT_OUTSIDE)


def lets_agents_exceed_limits(plan: Plan, requester: RequesterIds) -> bool:
    """Return whether the plan's agents, which act through its own token, pass over the requester's limits."""
    return requester.limits is not None and plan.token_id != requester.token_id


def _append_refusal(
    deny: pipeline.Deny, requester: RequesterIds, tool_name: str, plan_ref: str = "", step_id: int | None = None
) -> None:
    details = {"token": requester.token_id} if deny.by_limits else {"policy": deny.policy}
    where = {"step": step_id} if step_id is not None else {}
    append_entry(
        AuditRecord(
            action="limits.refused" if deny.by_limits else "policy.refused",
            by=User.objects.filter(pk=requester.user_id).first(),
            tool_name=tool_name,
            plan_ref=plan_ref,
            details={**details, "reason": deny.message, "via": requester.via, **where},
        )
    )
