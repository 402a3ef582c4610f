"""Hooks of Gemini CLI: BeforeTool and AfterTool. Read from version 0.61.0; calls have no ids.

Gemini CLI merges the input of an answer over the input of its model, so an answer cannot take a field away.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from plans.coding_agents.hook_formats.events import (
    Asked,
    HookEvent,
    HookFormat,
    Inexpressible,
    Reported,
    kept_output,
    message_of,
    short,
)
from plans.coding_agents.permissions import PermissionAnswer, PermissionQuestion
from plans.coding_agents.reports import RunReport

BEFORE = "BeforeTool"


class GeminiCliFormat(HookFormat):
    client: ClassVar[str] = "gemini-cli"
    own_tools: ClassVar[str] = "mcp_toolgate_"
    questions: ClassVar[frozenset[str]] = frozenset({BEFORE})

    def read_event(self, body: Mapping[str, Any]) -> HookEvent:
        fields = self.fields_of(body)
        match fields.event:
            case "BeforeTool":
                question = PermissionQuestion(
                    client=self.client,
                    session=fields.text("session_id"),
                    tool=fields.text("tool_name"),
                    input=fields.object("tool_input"),
                    cwd=fields.optional_text("cwd"),
                )
                return Asked(fields.event, question)
            case "AfterTool":
                return Reported(fields.event, self.run_of(fields), _report_of(fields.values.get("tool_response")))
        return self.unknown_event(fields)

    def decision(self, asked: Asked, answer: PermissionAnswer) -> dict[str, Any]:
        if answer.decision != "allow" or answer.input is None:
            return self.refusal(asked.event, message_of(answer))
        removed = _removed_paths(asked.question.input, answer.input)
        if removed:
            raise Inexpressible(f"It was approved without {', '.join(removed)}, which Gemini CLI cannot leave out.")
        output = {"hookEventName": asked.event, "tool_input": dict(answer.input)}
        return {"decision": "allow", "hookSpecificOutput": output}

    def refusal(self, event: str, message: str) -> dict[str, Any]:
        return {"decision": "deny", "reason": message}


def _report_of(response: Any) -> RunReport:
    """Return the report in a response: it failed if the response has an error."""
    error = response.get("error") if isinstance(response, dict) else None
    if not error:
        return RunReport(succeeded=True, output=kept_output(response))
    message = error.get("message") if isinstance(error, dict) else error
    return RunReport(
        succeeded=False, output=kept_output(response), message=short(message) if isinstance(message, str) else ""
    )


def _removed_paths(given: Mapping[str, Any], approved: Mapping[str, Any], path: str = "") -> list[str]:
    """Return the paths of fields that the approved input lacks: the client's merge would keep their old values."""
    removed = []
    for name, value in given.items():
        if name not in approved:
            removed.append(path + name)
        elif isinstance(value, dict) and isinstance(approved[name], dict):
            removed += _removed_paths(value, approved[name], f"{path}{name}.")
    return removed
