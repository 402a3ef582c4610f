"""Bodies of hooks as released clients send them, and the decisions in answers of every format."""

import json
from pathlib import Path
from typing import Any

from plans.coding_agents.hook_formats.claude_code import ClaudeCodeFormat
from plans.coding_agents.hook_formats.codex import CodexFormat
from plans.coding_agents.hook_formats.events import HookFormat
from plans.coding_agents.hook_formats.gemini_cli import GeminiCliFormat
from plans.coding_agents.hook_formats.opencode import OpencodeFormat

CLAUDE, CODEX, GEMINI, OPENCODE = ClaudeCodeFormat(), CodexFormat(), GeminiCliFormat(), OpencodeFormat()
HOOK_FORMATS: dict[str, HookFormat] = {
    hook_format.client: hook_format for hook_format in (CLAUDE, CODEX, GEMINI, OPENCODE)
}
BODIES = Path(__file__).parent / "bodies"


def recorded(name: str) -> dict[str, Any]:
    """Return a body, by the client, the event and the tool."""
    body: dict[str, Any] = json.loads((BODIES / f"{name}.json").read_text())
    return body


def decision_in(hook_format: HookFormat, document: dict[str, Any]) -> tuple[str, Any, str | None]:
    """Return decision, input and message of a client's answer."""
    output = document.get("hookSpecificOutput", {})
    inner = output.get("decision", {})
    decision = document.get("decision") or output.get("permissionDecision") or inner.get("behavior")
    given = document.get("args") or output.get("tool_input") or output.get("updatedInput") or inner.get("updatedInput")
    words = document.get("message") or document.get("reason") or output.get("permissionDecisionReason")
    return decision, given, words or inner.get("message")
