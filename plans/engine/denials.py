"""Calls denied by a policy: their audit entry and the error for the requester."""

from django.contrib.auth.models import User

from approvals.audit.log import AuditRecord, append_entry
from catalog.dispatch.pipeline import Deny
from catalog.errors import PolicyRefusal
from plans.engine import grants
from plans.engine.work import PlanSnapshot, PreparedCall

ACTION = "policy.refused"


def record_denial(verdict: Deny, plan: PlanSnapshot, order: PreparedCall, step_id: int | None = None) -> PolicyRefusal:
    """Write an audit entry for a denied call, end the grants that cover it, and return the error.

    The entry belongs to the open transaction, if there is one. `step_id` is None for a direct call that is not stored.
    """
    grants.end_denied_grants(plan, order)
    asker = order.asker or plan.asker
    where = {"step": step_id} if step_id is not None else {}
    append_entry(
        AuditRecord(
            action=ACTION,
            by=User.objects.filter(pk=asker.user_id).first(),
            tool_name=order.target.tool.name,
            plan_ref=plan.ref if plan.pk else "",
            details={"policy": verdict.policy, "reason": verdict.message, "via": asker.via, **where},
        )
    )
    return PolicyRefusal(verdict.message, policy=verdict.policy, rule=verdict.rule)
