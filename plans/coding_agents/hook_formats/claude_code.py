"""Hooks of Claude Code: PreToolUse, PermissionRequest, PermissionDenied, PostToolUse and PostToolUseFailure.

Read from version 2.1.332; older versions send fewer fields. An answer without a decision lets Claude Code go on as if
there were no hook, even with `onFailure: "block"`. Shell commands in skills (PreSkillShellCommand) are refused: their
end is never reported.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from plans.coding_agents.hook_formats.events import (
    Asked,
    Fields,
    HookEvent,
    HookFormat,
    NotRun,
    Reported,
    kept_output,
    message_of,
    short,
)
from plans.coding_agents.permissions import PermissionAnswer, PermissionQuestion
from plans.coding_agents.reports import RunReport

BEFORE, PERMISSION = "PreToolUse", "PermissionRequest"
BYPASS = "bypassPermissions"
"""The permission mode in which a deferral was not always honoured."""


class ClaudeCodeFormat(HookFormat):
    client: ClassVar[str] = "claude-code"
    questions: ClassVar[frozenset[str]] = frozenset({BEFORE, PERMISSION})

    def read_event(self, body: Mapping[str, Any]) -> HookEvent:
        fields = self.fields_of(body)
        match fields.event:
            case "PreToolUse" | "PermissionRequest":
                return self._asked(fields)
            case "PostToolUse":
                report = RunReport(
                    succeeded=True,
                    output=kept_output(fields.values.get("tool_response")),
                    duration_ms=fields.duration_ms(),
                )
                return Reported(fields.event, self.run_of(fields), report)
            case "PostToolUseFailure":
                report = RunReport(
                    succeeded=False, message=short(fields.information("error")), duration_ms=fields.duration_ms()
                )
                return Reported(fields.event, self.run_of(fields), report)
            case "PermissionDenied":
                return NotRun(fields.event, self.run_of(fields), short(fields.information("reason")))
        return self.unknown_event(fields)

    def _asked(self, fields: Fields) -> Asked:
        question = PermissionQuestion(
            client=self.client,
            session=fields.text("session_id"),
            tool=fields.text("tool_name"),
            input=fields.object("tool_input"),
            call_id=fields.optional_text("tool_use_id"),
            cwd=fields.optional_text("cwd"),
        )
        # A subagent is not resumed at its question.
        may_end = fields.values.get("permission_mode") != BYPASS and not fields.values.get("agent_id")
        return Asked(fields.event, question, may_end and fields.event == BEFORE and question.call_id != "")

    def decision(self, asked: Asked, answer: PermissionAnswer) -> dict[str, Any]:
        if answer.decision == "allow" and answer.input is not None:
            return self._allowance(asked, answer.input, answer.message)
        if answer.decision == "defer" and asked.event == BEFORE:
            return _before(asked.event, "defer", message_of(answer))
        return self.refusal(asked.event, message_of(answer))

    def _allowance(self, asked: Asked, approved: Mapping[str, Any], message: str) -> dict[str, Any]:
        if asked.event == PERMISSION:
            return _permission(asked.event, {"behavior": "allow", "updatedInput": dict(approved)})
        output = _before(asked.event, "allow", message)
        output["hookSpecificOutput"]["updatedInput"] = dict(approved)
        return output

    def refusal(self, event: str, message: str) -> dict[str, Any]:
        if event == PERMISSION:
            return _permission(event, {"behavior": "deny", "message": message})
        return _before(event or BEFORE, "deny", message)


def _before(event: str, decision: str, reason: str) -> dict[str, Any]:
    output = {"hookEventName": event, "permissionDecision": decision}
    return {"hookSpecificOutput": output | ({"permissionDecisionReason": reason} if reason else {})}


def _permission(event: str, decision: Mapping[str, Any]) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, "decision": dict(decision)}}
