"""Hooks of opencode, as Toolgate's plugin sends them: before and after a tool, and the error of one that failed.

opencode has hooks for plugins only. The plugin sends the two objects that opencode gives to a hook, and throws unless
it is allowed. Read from version 1.18.33.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from plans.coding_agents.hook_formats.events import (
    Asked,
    Fields,
    HookEvent,
    HookFormat,
    Reported,
    kept_output,
    message_of,
    short,
)
from plans.coding_agents.permissions import PermissionAnswer, PermissionQuestion
from plans.coding_agents.reports import ReportedRun, RunReport

BEFORE = "tool.execute.before"


class OpencodeFormat(HookFormat):
    client: ClassVar[str] = "opencode"
    own_tools: ClassVar[str] = "toolgate_"
    questions: ClassVar[frozenset[str]] = frozenset({BEFORE})
    tool_fields: ClassVar[frozenset[str]] = frozenset({"input", "output"})

    def read_event(self, body: Mapping[str, Any]) -> HookEvent:
        fields = self.fields_of(body)
        match fields.event:
            case "tool.execute.before":
                call = fields.inner("input")
                question = PermissionQuestion(
                    client=self.client,
                    session=call.text("sessionID"),
                    tool=call.text("tool"),
                    input=fields.inner("output").object("args"),
                    call_id=call.optional_text("callID"),
                    cwd=fields.optional_text("directory"),
                )
                return Asked(fields.event, question)
            case "tool.execute.after":
                return Reported(fields.event, self.run_of(fields), _report_of(fields.values.get("output")))
            case "tool.execute.error":
                report = RunReport(succeeded=False, message=short(fields.information("error")))
                return Reported(fields.event, self.run_of(fields), report)
        return self.unknown_event(fields)

    def run_of(self, fields: Fields) -> ReportedRun:
        call = fields.inner("input")
        given = call.values.get("args")
        return ReportedRun(
            client=self.client,
            session=call.text("sessionID"),
            tool=call.text("tool"),
            call_id=call.optional_text("callID"),
            cwd=fields.information("directory"),
            input=given if isinstance(given, dict) else None,
        )

    def decision(self, asked: Asked, answer: PermissionAnswer) -> dict[str, Any]:
        if answer.decision == "allow" and answer.input is not None:
            return {"decision": "allow", "args": dict(answer.input)}
        return self.refusal(asked.event, message_of(answer))

    def refusal(self, event: str, message: str) -> dict[str, Any]:
        return {"decision": "deny", "message": message}


def _report_of(output: Any) -> RunReport:
    """Return the report in the output of a hook: a shell command failed if its exit code is not 0."""
    metadata = output.get("metadata") if isinstance(output, dict) else None
    code = metadata.get("exit") if isinstance(metadata, dict) else None
    failed = isinstance(code, int) and not isinstance(code, bool) and code != 0
    message = f"Exit code {code}" if failed else ""
    return RunReport(succeeded=not failed, output=kept_output(output), message=message)
