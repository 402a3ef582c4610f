"""What would become of a direct call: checked, judged by the gate and previewed, but neither stored nor counted."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from approvals.policies.gate import gate
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch.pipeline import Verdict
from catalog.results import Preview
from plans.engine import calls
from plans.engine.previews import preview_in_time
from plans.engine.work import facts_of
from plans.models import Plan
from plans.services import new_plan
from plans.store.requesters import Asker, Requester


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What the gate would say to a call, and what its tool says it would do (None when it does not say)."""

    level: SafetyLevel
    verdict: Verdict
    shown: Preview | None


def rehearse(tool: str, arguments: Mapping[str, Any], *, by: Requester) -> Rehearsal:
    """Say what would become of a call. Raises what `create_call` raises before it stores anything, and ToolError."""
    asker = Asker(by.user.pk, by.token.pk if by.token else None, by.via, by.session)
    order = replace(calls.order_for(tool, dict(arguments)), asker=asker)
    plan = facts_of(new_plan(f"Call {tool}", by, Plan.Kind.CALL))
    verdict = gate(calls.facts_for(order, plan))
    return Rehearsal(order.target.tool.safety_level, verdict, preview_in_time(plan, 1, order))
