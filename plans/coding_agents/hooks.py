"""Hooks of coding agents: a client's own body becomes a question or a report, and the answer takes the client's format.

Every question gets an explicit decision. On any doubt that is a refusal, with a reason for the model.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from catalog.core.canonical_json import parse_json
from catalog.core.lenient_json import read_lenient_json
from catalog.errors import MalformedJSON
from catalog.models import ClientRun, Source, Tool
from catalog.tools.registry import PLANNER_CATEGORY
from plans.coding_agents import deferred
from plans.coding_agents.hook_formats.claude_code import PERMISSION, ClaudeCodeFormat
from plans.coding_agents.hook_formats.codex import CodexFormat
from plans.coding_agents.hook_formats.events import (
    Asked,
    HookEvent,
    HookFormat,
    Ignored,
    Inexpressible,
    NotRun,
    Reported,
    UnreadableEvent,
)
from plans.coding_agents.hook_formats.gemini_cli import GeminiCliFormat
from plans.coding_agents.hook_formats.opencode import OpencodeFormat
from plans.coding_agents.permissions import (
    CALL_ID,
    PROMPT_SESSION,
    PermissionAnswer,
    ask,
    check_question,
    check_session_id,
    is_resumable,
    owner_of,
    tell_to_ask_again,
)
from plans.coding_agents.reports import ReportedRun, RunReport, report_call, report_run
from plans.coding_agents.sessions import note_hook_traffic
from plans.llm.tools import tools_callable_by
from plans.store.requesters import Requester

HOOK_FORMATS: Mapping[str, HookFormat] = {
    hook_format.client: hook_format
    for hook_format in (ClaudeCodeFormat(), CodexFormat(), GeminiCliFormat(), OpencodeFormat())
}
MAX_HOOK_BYTES = 8 * 1024 * 1024
"""Size of the largest body: a report holds the whole result of a tool."""
KEPT_DEPTH = 48
"""Levels of nesting that a report keeps; deeper values are kept as text."""
MOST_SECONDS = 570.0
"""Longest wait: `connect` sets the clients' own limits to 600 s, and their wrappers give up after 590 s."""
SECONDS_BEFORE_DEFERRING = 10.0
"""Wait of a client that can end and be resumed: a person who looks at the queue decides within it."""

ASK_AGAIN = (
    "Nobody has decided about this call yet, and it was not run. To get the decision, make the same call again with "
    "exactly the same input."
)
RESULT_TOOL, PROMPT_TOOL = "approval_result", "permission_prompt"
"""Tools that the MCP server has beside those of the catalog."""
SIBLING = (
    "Another call of this turn waits for a person, and this session ends until it is decided. This call was not run: "
    "make it again, as the only call of a turn, when the session goes on."
)


@dataclass(frozen=True, slots=True)
class HookPatience:
    """The client's patience: whether its process can end and be resumed, and the `seconds` that it waits for an answer.

    Without `seconds`, an event is answered after the usual time.
    """

    seconds: float | None = None
    may_defer: bool = False

    def allows_deferral(self, asked: Asked) -> bool:
        """Return whether the client's process can end at this question, and a runner can resume its session."""
        return self.may_defer and asked.can_defer and is_resumable(asked.question)

    def seconds_for(self, asked: Asked) -> float:
        if self.seconds is not None:
            return self.seconds
        return SECONDS_BEFORE_DEFERRING if self.allows_deferral(asked) else MOST_SECONDS


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """The answer in the client's format. With `waits_for`, a call's id, it is to be repeated when that is decided."""

    document: Mapping[str, Any]
    waits_for: str | None = None
    seconds: float = 0.0


def read_hook(hook_format: HookFormat, raw: bytes) -> HookEvent:
    """Return the event in a hook's body. A question must be strict JSON; a report is kept in the closest shape.

    Raises UnreadableEvent, MalformedJSON if the body is no JSON object, and TooLarge.
    """
    try:
        body = parse_json(raw, max_bytes=MAX_HOOK_BYTES)
    except MalformedJSON as fault:
        body = read_lenient_json(raw.decode("utf-8", "replace"), keep_below=KEPT_DEPTH)
        if not isinstance(body, dict):
            raise
        event = hook_format.read_event(body)
        if isinstance(event, Asked):
            message = f"Toolgate cannot read the input of this call: {fault.user_message()}"
            raise UnreadableEvent(message, event.event, asks=True) from None
        return event
    if not isinstance(body, dict):
        raise MalformedJSON("The hook's body must be a JSON object.")
    return hook_format.read_event(body)


def answer_hook(
    hook_format: HookFormat, event: HookEvent, patience: HookPatience, *, by: Requester, waited_for: str | None = None
) -> HookAnswer:
    """Answer an event as of now.

    While a person has not decided, the answer is a refusal that names the call to wait for, until no seconds are left.
    `waited_for` is that call when the event is answered again. Raises ParameterError for names that are none.
    """
    match event:
        case Asked():
            return _answer_question(hook_format, event, patience, by, waited_for)
        case Reported() if _is_known_tool(hook_format, event.run.tool):
            pass
        case Reported():
            report_run(_as_asked(event.run, by), event.report, by=by)
        case NotRun():
            _report_not_run(event, by)
        case Ignored():
            pass
    return HookAnswer({})


def _answer_question(
    hook_format: HookFormat, asked: Asked, patience: HookPatience, by: Requester, waited_for: str | None
) -> HookAnswer:
    question = replace(asked.question, repeats=asked.event == PERMISSION)
    check_question(question)
    if waited_for is None:
        note_hook_traffic(question.client, question.session, by=by, how="hook")
    if _is_listed_tool(hook_format, question.tool, by):
        return HookAnswer(hook_format.decision(asked, PermissionAnswer("allow", None, question.input, "")))
    answer = ask(question, by=by, waited_for=waited_for)
    if answer.decision != "wait" or answer.call is None:
        return HookAnswer(_final(hook_format, asked, answer, by))
    may_defer, seconds = patience.allows_deferral(asked), patience.seconds_for(asked)
    if may_defer and deferred.has_deferred_just_now(question.client, question.session, answer.call, by=by):
        tell_to_ask_again(answer.call, by=by)
        return HookAnswer(hook_format.refusal(asked.event, SIBLING))
    if seconds > 0:
        return HookAnswer(hook_format.refusal(asked.event, _ask_again(answer)), answer.call, seconds)
    if may_defer:
        answer = ask(replace(question, may_defer=True), by=by, waited_for=answer.call)
        if answer.decision == "defer" and answer.call is not None:
            deferred.supersede_earlier(answer.call, by=by)
        if answer.decision != "wait":
            return HookAnswer(_final(hook_format, asked, answer, by))
    if answer.call is not None:
        tell_to_ask_again(answer.call, by=by)
    return HookAnswer(hook_format.refusal(asked.event, _ask_again(answer)))


def _own_name(hook_format: HookFormat, tool: str) -> str:
    """Return the name at Toolgate of a tool of its MCP server; empty for a client's own tool."""
    return tool.removeprefix(hook_format.own_tools) if tool.startswith(hook_format.own_tools) else ""


def _is_listed_tool(hook_format: HookFormat, tool: str, by: Requester) -> bool:
    """Return whether a tool is one that the MCP server lists for `by`: it gates each call, so none is gated twice.

    Any other tool of the same beginning is the client's own, or that of another server with the name toolgate.
    """
    name = _own_name(hook_format, tool)
    if not name or by.token is None or "calls:create" not in by.token.scopes:
        return name == PROMPT_TOOL
    return name in (PROMPT_TOOL, RESULT_TOOL) or name in tools_callable_by(by, without=frozenset({PLANNER_CATEGORY}))


def _is_known_tool(hook_format: HookFormat, tool: str) -> bool:
    """Return whether a reported run was of a tool of the MCP server, which may be listed no longer."""
    name = _own_name(hook_format, tool)
    served = Tool.objects.exclude(source__kind=Source.Kind.CLIENT)
    return name in (PROMPT_TOOL, RESULT_TOOL) or (bool(name) and served.filter(name=name).exists())


def _final(hook_format: HookFormat, asked: Asked, answer: PermissionAnswer, by: Requester) -> Mapping[str, Any]:
    """Return an answer that is not repeated. What the client cannot be told is reported as not run, and refused."""
    try:
        return hook_format.decision(asked, answer)
    except Inexpressible as error:
        message = f"{error} It was not run. To run the approved call, make it with this input: {_text_of(answer)}"
        if answer.call is not None:
            report_call(answer.call, RunReport(succeeded=False, message=f"It was not run. {error}"), by=by)
        return hook_format.refusal(asked.event, message)


def _text_of(answer: PermissionAnswer) -> str:
    return json.dumps(answer.input, ensure_ascii=False)[:2_000]


def _ask_again(answer: PermissionAnswer) -> str:
    return f"{ASK_AGAIN} {answer.url}".strip()


def _as_asked(run: ReportedRun, by: Requester) -> ReportedRun:
    """Return a reported run with the session in which it was asked about: a prompt over MCP names none.

    Raises ParameterError for a session that is none.
    """
    check_session_id(run.session)
    asked = ClientRun.objects.filter(owner=owner_of(by), client=run.client, client_call_id=run.call_id, is_current=True)
    if not run.call_id or not CALL_ID.fullmatch(run.call_id) or asked.filter(session=run.session).exists():
        return run
    return replace(run, session=PROMPT_SESSION) if asked.filter(session=PROMPT_SESSION).exists() else run


def _report_not_run(not_run: NotRun, by: Requester) -> None:
    """End a call that was allowed and that the client refused itself; there is nothing to record about others."""
    run = _as_asked(not_run.run, by)
    allowed = ClientRun.objects.filter(owner=owner_of(by), client=run.client, session=run.session, is_current=True)
    is_known = run.call_id and CALL_ID.fullmatch(run.call_id)
    known = allowed.filter(client_call_id=run.call_id, allowed_at__isnull=False) if is_known else allowed.none()
    call_ref = known.values_list("call__public_id", flat=True).first()
    if call_ref is not None:
        message = f"The client did not run it. {not_run.reason}".strip()
        report_call(call_ref, RunReport(succeeded=False, message=message), by=by)
