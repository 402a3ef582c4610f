"""Bodies of hooks as released clients send them, and the decisions in answers of every form."""

import json
from pathlib import Path
from typing import Any

from plans.coding_agents.forms.claude_code import ClaudeCodeForm
from plans.coding_agents.forms.codex import CodexForm
from plans.coding_agents.forms.events import HookForm
from plans.coding_agents.forms.gemini_cli import GeminiCliForm
from plans.coding_agents.forms.opencode import OpencodeForm

CLAUDE, CODEX, GEMINI, OPENCODE = ClaudeCodeForm(), CodexForm(), GeminiCliForm(), OpencodeForm()
FORMS: dict[str, HookForm] = {form.client: form for form in (CLAUDE, CODEX, GEMINI, OPENCODE)}
BODIES = Path(__file__).parent / "bodies"


def recorded(name: str) -> dict[str, Any]:
    """Return a body, by the client, the event and the tool."""
    body: dict[str, Any] = json.loads((BODIES / f"{name}.json").read_text())
    return body


def decision_in(form: HookForm, document: dict[str, Any]) -> tuple[str, Any, str | None]:
    """Return decision, input and message of a client's answer."""
    output = document.get("hookSpecificOutput", {})
    inner = output.get("decision", {})
    decision = document.get("decision") or output.get("permissionDecision") or inner.get("behavior")
    given = document.get("args") or output.get("tool_input") or output.get("updatedInput") or inner.get("updatedInput")
    words = document.get("message") or document.get("reason") or output.get("permissionDecisionReason")
    return decision, given, words or inner.get("message")
