"""The list of tools that a caller may call, in pages, and the definitions of the server's own tools."""

import base64
import binascii
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from approvals.policies.gate import can_require_approval
from catalog.exports.providers import mcp_form
from catalog.inventory import snapshot
from catalog.inventory.snapshot import CallableTool
from catalog.tools.registry import PLANNER_CATEGORY
from plans.llm.tools import facts_without_arguments, tools_callable_by
from plans.mcp.callers import Caller
from plans.mcp.results import listed_output_schema
from plans.store.requesters import Requester

PAGE_SIZE = 200
APPROVAL_RESULT = "approval_result"
MOST_SECONDS = 600
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


PERMISSION_PROMPT = "permission_prompt"
PROMPT_TOOL = types.Tool(
    name=PERMISSION_PROMPT,
    title="Permission prompt",
    description=(
        "For clients, not for models: asks whether the client may run a tool of its own, and waits for people's "
        "decision. The answer is JSON with the behavior allow or deny."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "tool_name": {"type": "string", "description": "The client's own name of the tool."},
            "input": {"type": "object", "description": "The input of the tool."},
            "tool_use_id": {"type": "string", "description": "The client's id of the call."},
        },
        "required": ["tool_name", "input"],
    },
    annotations=types.ToolAnnotations(
        read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    ),
)
OWN_TOOLS: Mapping[str, types.Tool] = {APPROVAL_RESULT: RESULT_TOOL, PERMISSION_PROMPT: PROMPT_TOOL}


def list_tools(caller: Caller, cursor: str | None) -> types.ListToolsResult:
    """Return one page of the tools that a caller may call, sorted by name. Raises MCPError for a bad cursor."""
    after = read_cursor(cursor)
    offered = [(name, callable_tool) for name, callable_tool in _offered_tools(caller) if name > after]
    entries, page = _entries_of_snapshot(), offered[:PAGE_SIZE]
    tools = [entries.entry(callable_tool) for _, callable_tool in page]
    next_cursor = cursor_after(page[-1][0]) if len(offered) > PAGE_SIZE else None
    return types.ListToolsResult(tools=tools, next_cursor=next_cursor)


def offered_list_digest(caller: Caller) -> str:
    """Return a digest of all tools that a caller may call. It changes exactly when their list changes."""
    entries, digest = _entries_of_snapshot(), blake2b(digest_size=16)
    for _, callable_tool in _offered_tools(caller):
        digest.update(entries.digest(callable_tool))
    return digest.hexdigest()


def _offered_tools(caller: Caller) -> list[tuple[str, CallableTool | types.Tool]]:
    """Return the tools that a caller may call, sorted by name; the server's own ones in MCP's format."""
    offered: dict[str, CallableTool | types.Tool] = {}
    if caller.may_call:
        offered |= {APPROVAL_RESULT: RESULT_TOOL}
        offered |= tools_callable_by(caller.requester(), without=frozenset({PLANNER_CATEGORY}))
    if caller.may_ask:
        offered[PERMISSION_PROMPT] = PROMPT_TOOL
    return sorted(offered.items())


class _Entries:
    """The tools in MCP's format, converted once for each snapshot of the catalog."""

    def __init__(self, tools: Mapping[str, CallableTool]) -> None:
        self.tools = tools
        self._entries: dict[int, types.Tool] = {}
        self._digests: dict[int, bytes] = {}

    def entry(self, callable_tool: CallableTool | types.Tool) -> types.Tool:
        if isinstance(callable_tool, types.Tool):
            return callable_tool
        known = self._entries.get(callable_tool.tool_pk)
        if known is None:
            tool = callable_tool.tool
            form = mcp_form(tool.name, tool, title=tool.title, hints=tool.hints)
            form.pop("outputSchema", None)
            output = listed_output_schema(tool.output_schema)
            form |= {"outputSchema": output} if output is not None else {}
            known = self._entries[callable_tool.tool_pk] = types.Tool.model_validate(form, by_name=False)
        return known

    def digest(self, callable_tool: CallableTool | types.Tool) -> bytes:
        if isinstance(callable_tool, types.Tool):
            return callable_tool.name.encode()
        known = self._digests.get(callable_tool.tool_pk)
        if known is None:
            text = self.entry(callable_tool).model_dump_json(by_alias=True)
            known = self._digests[callable_tool.tool_pk] = blake2b(text.encode(), digest_size=16).digest()
        return known


_entries = _Entries({})


def _entries_of_snapshot() -> _Entries:
    global _entries  # one reference, replaced whole: readers need no lock
    tools, entries = snapshot.callable_tools(), _entries
    if entries.tools is not tools:
        entries = _entries = _Entries(tools)
    return entries


def may_wait(callable_tool: CallableTool, arguments: Mapping[str, Any], by: Requester) -> bool:
    """Return whether a rule can hold a call with arguments of these names, or with the defaults of others."""
    declared = callable_tool.tool.input_schema.get("properties", {})
    return can_require_approval(facts_without_arguments(callable_tool, by), {*arguments, *declared})


def input_schema_of(name: str) -> Mapping[str, Any] | None:
    """Return the input schema of a tool from the snapshot in memory; None for an unknown tool."""
    if name in OWN_TOOLS:
        return OWN_TOOLS[name].input_schema
    callable_tool = snapshot.last_read(name)
    return callable_tool.tool.input_schema if callable_tool is not None else None


def cursor_after(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def read_cursor(cursor: str | None) -> str:
    """Return the tool name after which a page begins. Raises MCPError for an invalid cursor."""
    try:
        return base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode() if cursor else ""
    except (binascii.Error, UnicodeError):
        raise MCPError(types.INVALID_PARAMS, "Invalid cursor.") from None
