"""Objects that tests are about, in the fewest words."""

import json
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import F

from approvals.models import ApprovalRequest
from approvals.reviews.decisions import Decision, decide
from approvals.states import ReviewVerdict
from catalog.inventory.http_tools import create_http_tool
from catalog.models import Call, Tool, ToolVersion
from plans import states
from plans.actions.create import create_plan
from plans.engine import loop
from plans.engine.loop import TimeSlice
from plans.models import ModelUse, Plan, Step
from plans.spec import PlanDocument
from plans.store.requesters import Requester


def step(step_id: int, tool: str | None = "render_text", **fields: Any) -> dict[str, Any]:
    """Return a step's document; a `render_text` one says "hello" unless told otherwise."""
    parameters = {"template": "hello", "values": {}} if tool == "render_text" else {}
    return {"step_id": step_id, "description": f"Step {step_id}", "tool": tool, "parameters": parameters, **fields}


def write_step(step_id: int, path: str = "note.txt", content: str = "hello", **fields: Any) -> dict[str, Any]:
    """Return the document of a dangerous step."""
    return step(step_id, "write_file", parameters={"path": path, "content": content}, **fields)


def make_plan(author: User, *steps: dict[str, Any], **fields: Any) -> Plan:
    """Store a plan of these steps, started unless told otherwise."""
    document = {"goal": "Try it", "steps": list(steps), **fields}
    return create_plan(PlanDocument.model_validate(document), by=Requester(author))


def make_http_tool(admin: User, url: str = "https://shop.invalid/orders/{id}") -> Tool:
    """Store an HTTP tool defined by hand, with a header."""
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    specification = {"name": "read_order", "description": "Read an order.", "schema": schema}
    http = {"method": "GET", "url": url, "headers": {"Authorization": "Bearer s3cret-value"}}
    return create_http_tool(specification, http, safety_level="safe", by=admin)


def make_draft(author: User, started: Plan | None = None, *steps: dict[str, Any]) -> Call:
    """Store a draft as the planner leaves it, its model asked twice; `started` is the plan that came of it."""
    own, document = make_plan(author, step(1)), {"goal": "Try it", "steps": list(steps or [step(1)])}
    answer = {"output": {"intent": "Try it"}, "plan": document, "model": "scripted"}
    call = Call.objects.create(
        tool_name=states.DRAFT_TOOL,
        version=ToolVersion.objects.get(tool__name="render_text", tool__current_version=F("pk")),
        arguments=json.dumps({"request": "Try it"}),
        status="completed",
        response=json.dumps({"results": [answer]}),
        requested_by=author,
        plan_ref=own.public_id,
        step_ref="1",
        created_at=own.created_at,
    )
    said = {"model": "scripted", "prompt": json.dumps([{"by": "user", "text": "Try it"}]), "latency_ms": 1}
    for purpose in ("draft", "repair"):
        ModelUse.objects.create(plan=started or own, call=call, purpose=purpose, at=own.created_at, **said)
    return call


def act(step_id: int, value: Any = None, tool: str = "safe", **fields: Any) -> dict[str, Any]:
    """Return the document of a step that calls one of the stage's tools with a value."""
    return step(step_id, tool, **{"parameters": {"value": value}, **fields})


def work_off(plan: Plan) -> Plan:
    """Do on this thread all that is ready in a plan; return the plan as it is then."""
    # This machine's time, which is the database's: the product's may lie behind what has become ready just now.
    while plan.steps.filter(ready_at__lte=datetime.now(UTC)).exists():
        work = loop.claim_work(plan.pk, owner="tests")
        while work is not None:
            work = loop.advance(work, TimeSlice("tests", until=float("inf"), steps_left=1000))
    plan.refresh_from_db()
    return plan


def step_of(plan: Plan, step_id: int = 1) -> Step:
    """Return one step of a plan as it is now, with its call."""
    return plan.steps.select_related("call").get(step_id=step_id)


def call_of(plan: Plan, step_id: int = 1) -> Call:
    """Return the call that a step has now; fail when it has none."""
    return Call.objects.get(step__plan=plan, step__step_id=step_id)


def request_of(plan: Plan, step_id: int = 1) -> ApprovalRequest:
    """Return the approval request of the call that a step has now."""
    return ApprovalRequest.objects.select_related("call").get(call__step__plan=plan, call__step__step_id=step_id)


def approve(plan: Plan, by: User, step_id: int = 1) -> ApprovalRequest:
    """Let someone approve what a step waits for, over REST, so that it takes effect at once."""
    request = request_of(plan, step_id)
    return decide(request, by=by, decision=Decision(ReviewVerdict.APPROVE, request.digest))


def reject(plan: Plan, by: User, step_id: int = 1) -> ApprovalRequest:
    """Let someone reject what a step waits for, over REST, so that it takes effect at once."""
    request = request_of(plan, step_id)
    return decide(request, by=by, decision=Decision(ReviewVerdict.REJECT, request.digest, comment="No."))


def events_of(plan: Plan) -> list[str]:
    """Return the types of a plan's events in order, each led by its step's number where it has one."""
    rows = plan.events.order_by("seq").values_list("step_id", "type")
    return [f"{step_id} {kind}" if step_id else kind for step_id, kind in rows]


def assert_gapless(plan: Plan) -> None:
    """Check that the plan's events are numbered 1, 2, 3… and that the plan knows how many there are."""
    plan.refresh_from_db()
    numbers = list(plan.events.order_by("seq").values_list("seq", flat=True))
    assert numbers == list(range(1, len(numbers) + 1))
    assert plan.last_seq == len(numbers)
