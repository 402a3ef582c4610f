"""Hooks of Codex: the events and answers of Claude Code, with fields of its own. Read from version 0.171.0.

A shell command arrives as the tool `Bash`, and a patch as `apply_patch` with the text of the patch as `command`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from plans.coding_agents.hook_formats.claude_code import PERMISSION, ClaudeCodeFormat
from plans.coding_agents.hook_formats.events import Asked, Inexpressible
from plans.coding_agents.permissions import PermissionAnswer


class CodexFormat(ClaudeCodeFormat):
    client: ClassVar[str] = "codex"

    def decision(self, asked: Asked, answer: PermissionAnswer) -> dict[str, Any]:
        if answer.decision == "defer":
            return self.refusal(asked.event, answer.message)
        return super().decision(asked, answer)

    def _allowance(self, asked: Asked, approved: Mapping[str, Any], message: str) -> dict[str, Any]:
        if asked.event != PERMISSION:
            return super()._allowance(asked, approved, message)
        if approved != asked.question.input:
            raise Inexpressible(
                "It was approved with an edited input, which Codex cannot take at a permission request."
            )
        # With `updatedInput`, Codex refuses the call.
        return {"hookSpecificOutput": {"hookEventName": asked.event, "decision": {"behavior": "allow"}}}
