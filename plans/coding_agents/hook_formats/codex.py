"""Hooks of Codex: the events and answers of Claude Code, with fields of its own. Read from version 0.171.0.

A shell command arrives as the tool `Bash`, and a patch as `apply_patch` with the text of the patch as `command`. The
`cwd` of a command is the directory that the model has chosen for it. Toolgate's hook adds the session's own as
`session_directory`; with it the command is asked about as Codex's model calls it, `exec_command` with its `workdir`,
and judged against the session's directory.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from plans.coding_agents.hook_formats.claude_code import PERMISSION, ClaudeCodeFormat
from plans.coding_agents.hook_formats.events import Asked, HookEvent, Inexpressible
from plans.coding_agents.permissions import PermissionAnswer

COMMAND, DIRECTORY = "exec_command", "workdir"


class CodexFormat(ClaudeCodeFormat):
    client: ClassVar[str] = "codex"

    def read_event(self, body: Mapping[str, Any]) -> HookEvent:
        fields = self.fields_of(body)
        session, chosen, given = (
            fields.information("session_directory"),
            fields.information("cwd"),
            body.get("tool_input"),
        )
        if session and chosen and body.get("tool_name") == "Bash" and isinstance(given, dict):
            if DIRECTORY in given:
                raise fields.inner("tool_input").problem(DIRECTORY, "is not known of a command of Codex")
            body = {**body, "tool_name": COMMAND, "tool_input": {**given, DIRECTORY: chosen}, "cwd": session}
        return super().read_event(body)

    def decision(self, asked: Asked, answer: PermissionAnswer) -> dict[str, Any]:
        if answer.decision == "defer":
            return self.refusal(asked.event, answer.message)
        return super().decision(asked, answer)

    def _allowance(self, asked: Asked, approved: Mapping[str, Any], message: str) -> dict[str, Any]:
        if asked.event != PERMISSION:
            return super()._allowance(asked, self._without_directory(asked, approved), message)
        if approved != asked.question.input:
            raise Inexpressible(
                "It was approved with an edited input, which Codex cannot take at a permission request."
            )
        # With `updatedInput`, Codex refuses the call.
        return {"hookSpecificOutput": {"hookEventName": asked.event, "decision": {"behavior": "allow"}}}

    def _without_directory(self, asked: Asked, approved: Mapping[str, Any]) -> dict[str, Any]:
        """Return an approved input without the directory, which Codex takes from its model alone."""
        given = dict(approved)
        if asked.question.tool == COMMAND and given.pop(DIRECTORY, None) != asked.question.input.get(DIRECTORY):
            raise Inexpressible("It was approved in another directory, which Codex cannot change.")
        return given
