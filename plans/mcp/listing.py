"""The tools that a caller is offered, in pages, and the tool by which agents ask for the outcome of a pending call."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from approvals.policies.gate import can_require_approval
from catalog.exports.providers import mcp_form
from catalog.inventory import snapshot
from catalog.inventory.snapshot import CallableTool
from plans.llm.tools import CATEGORY, facts_without_arguments, tools_callable_by
from plans.mcp.callers import Caller
from plans.mcp.results import listed_output_schema
from plans.store.requesters import Requester

PAGE_SIZE = 200
APPROVAL_RESULT = "approval_result"
MOST_SECONDS = 50
RESULT_TOOL = types.Tool(
    name=APPROVAL_RESULT,
    title="Approval result",
    description=(
        "Get the outcome of a call that waits for a person's approval: the tool's own result once it ran, the reason "
        "if it was rejected, or that it still waits."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "approval_id": {"type": "string", "description": "The approval_id of the pending result."},
            "wait_seconds": {
                "type": "number",
                "minimum": 0,
                "maximum": MOST_SECONDS,
                "default": 0,
                "description": "How long to wait for the outcome; 0 answers at once.",
            },
        },
        "required": ["approval_id"],
        "additionalProperties": False,
    },
    annotations=types.ToolAnnotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    ),
)


def list_tools(caller: Caller, cursor: str | None) -> types.ListToolsResult:
    """Return one page of the tools that a caller may call, sorted by name. Raises MCPError for a bad cursor."""
    after = read_cursor(cursor)
    if not caller.may_call:
        return types.ListToolsResult(tools=[])
    by = caller.requester()
    found: dict[str, CallableTool | None] = {
        APPROVAL_RESULT: None,
        **tools_callable_by(by, without=frozenset({CATEGORY})),
    }
    names = sorted(name for name in found if name > after)
    page = names[:PAGE_SIZE]
    tools = [entry_of(found[name], by) for name in page]
    return types.ListToolsResult(tools=tools, next_cursor=cursor_after(page[-1]) if len(names) > PAGE_SIZE else None)


def entry_of(target: CallableTool | None, by: Requester) -> types.Tool:
    """Return the entry of one tool."""
    if target is None:
        return RESULT_TOOL
    form = mcp_form(target.tool.name, target.tool)
    form.pop("outputSchema", None)
    output = listed_output_schema(target.tool.output_schema, may_wait=may_wait(target, by))
    return types.Tool.model_validate(form | ({"outputSchema": output} if output is not None else {}), by_name=False)


def may_wait(target: CallableTool, by: Requester) -> bool:
    """Say whether a call of the tool may have to wait for a person."""
    return can_require_approval(facts_without_arguments(target, by))


def input_schema_of(name: str) -> Mapping[str, Any] | None:
    """Return the input schema of a tool as this process last read it; None for a tool that it does not know."""
    if name == APPROVAL_RESULT:
        return RESULT_TOOL.input_schema
    target = snapshot.last_read(name)
    return target.tool.input_schema if target is not None else None


def cursor_after(name: str) -> str:
    """Return the cursor of the page after a tool."""
    return base64.urlsafe_b64encode(name.encode()).decode()


def read_cursor(cursor: str | None) -> str:
    """Return the name after which a page begins. Raises MCPError for a text that is no cursor of ours."""
    try:
        return base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode() if cursor else ""
    except (binascii.Error, UnicodeError):
        raise MCPError(types.INVALID_PARAMS, "The cursor is not one that this server gave.") from None
