"""Objects that tests are about, in the fewest words."""

from typing import Any

from django.contrib.auth.models import User

from plans.models import Plan
from plans.services import Requester, create_plan
from plans.spec import PlanDocument


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
