"""The row of a call of a plan's step, before it is stored."""

from django.db.models.base import ModelState

from catalog.models import Call, new_call_id
from catalog.states import CallStatus
from plans.work import Order, PlanFacts

_BLANK_CALL = {field.attname: field.get_default() for field in Call._meta.concrete_fields}


def new_call(plan: PlanFacts, step_id: int, order: Order, *, status: CallStatus) -> Call:
    """Return a call of the plan's step, neither stored nor started."""
    target, asker = order.target, order.asker or plan.asker
    values = _BLANK_CALL | {
        "public_id": new_call_id(),
        "tool_name": target.tool.name,
        "version_id": target.version_pk,
        "implementation_id": target.implementation_pk,
        "query_type": str(order.arguments.get("query_type", "")) if target.tool.query_types else "",
        "arguments": order.text,
        "status": status,
        "requested_by_id": asker.user_id,
        "token_id": asker.token_id,
        "via": asker.via,
        "session": asker.session,
        "reason": order.reason or (order.replaces.reason if order.replaces else ""),
        "plan_ref": plan.ref,
        "step_ref": str(step_id),
    }
    # A model's constructor looks every field up and sets one by one: several times the cost, in every step.
    call = Call.__new__(Call)
    call.__dict__.update(values, _state=ModelState())
    if order.replaces:
        call.replaces = order.replaces
    return call
