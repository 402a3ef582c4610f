"""Pipeline of one call: prepare → gate → run. The caller passes the gate and records the outcome."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_core import to_jsonable_python

from catalog.client_tools.facts import DerivedFacts
from catalog.context import Deadline, ToolContext
from catalog.core.canonical_json import check_json
from catalog.core.content_blocks import Block
from catalog.definitions.levels import SafetyLevel
from catalog.definitions.tool import Tool
from catalog.dispatch.arguments import CallArguments, prepare_arguments
from catalog.dispatch.runner import await_result
from catalog.dispatch.serialization import (
    exception_summary,
    serialize_content,
    serialize_message,
    serialize_rendering,
    serialize_result,
    storable_error_text,
)
from catalog.errors import (
    DataNotFound,
    DeadlineExceededError,
    ParameterError,
    PromptEvaluationError,
    QueryTypeUnsupported,
    ToolError,
    ToolgateError,
    ToolValidationError,
    UpstreamError,
    VisibilityExpansionRequired,
)
from catalog.results import (
    STANDARD_FIELDS,
    Preview,
    ResultWarning,
    UpstreamResult,
    format_error_response,
    format_success_response,
)
from catalog.secrets.placeholders import Secret, find_argument_secrets, placeholders_as_text
from catalog.secrets.scrubber import Scrubber, scrubber_for

PREVIEW_SECONDS = 10.0
"""Maximum seconds of a preview; a shorter timeout of the tool applies instead."""
HIDDEN_ERROR_MESSAGE = "Tool '{name}' encountered an error"
HIDDEN_ERROR_USER_MESSAGE = "I ran into a problem looking that up. Could you try again?"
REDUCER_ERRORS_MESSAGE = "Reducer errors prevented applying tool result: {errors}"
CANCELLED_WHILE_RUNNING, CANCELLED_BEFORE_START = "stopped", "cancelled"
"""Error kinds of calls cancelled while their handler ran, and before it started."""
# Any exception of a handler fails its call, but does not end the thread that runs it.
HANDLER_FAILURES = BaseException

logger = logging.getLogger("toolgate.dispatch")


@dataclass(frozen=True, slots=True)
class Allow:
    """The call may run now; `terms` are those of the rule that allows it, None if no rule decided."""

    terms: Any = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Hold:
    """The call must wait for approval, on these terms."""

    terms: Any


@dataclass(frozen=True, slots=True)
class Deny:
    """The call is refused with this message; `policy` and `rule` name the policy that refused it, if one did.

    `by_limits` is true if the limits of the caller's token leave out the tool. `terms` are those of the rule that
    refused it, None if no rule decided.
    """

    message: str
    policy: str = field(default="", compare=False)
    rule: str = field(default="", compare=False)
    by_limits: bool = field(default=False, compare=False)
    terms: Any = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    """Properties of a call that a gate evaluates; `requested_by` is the key of the person in whose name it is made.

    `limits` are those of the token through which the call is made, if any (`catalog.access.limits`).
    `prepared` has the other forms of the arguments. `find_requesters` returns the keys of all people who shaped the
    arguments. It may read the database, so call it only for a rule that names a requester. `find_derived` returns what
    a call does that its client runs itself; None for calls that run here. `find_history` looks for what came before the
    call, for rules that ask for it; `history` has what was found by the keys of these rules, None if nobody looked.
    `is_asked_again` is true if people have been asked about this call before, or about the one that it replaces.
    """

    tool_name: str
    safety_level: SafetyLevel
    categories: tuple[str, ...]
    arguments: Mapping[str, Any]
    requested_by: int | None = None
    plan_ref: str | None = None
    source: str | None = None
    limits: Mapping[str, Any] | None = None
    prepared: CallArguments | None = field(default=None, compare=False, repr=False)
    find_requesters: Callable[[], Collection[int]] | None = field(default=None, compare=False, repr=False)
    find_derived: Callable[[], DerivedFacts] | None = field(default=None, compare=False, repr=False)
    find_history: Callable[[Sequence[Any]], Mapping[Any, Any]] | None = field(default=None, compare=False, repr=False)
    history: Mapping[Any, Any] | None = field(default=None, compare=False, repr=False)
    is_asked_again: bool = False

    @property
    def runs_in_client(self) -> bool:
        return self.find_derived is not None

    @property
    def argument_forms(self) -> Sequence[Mapping[str, Any]]:
        """The arguments as given and, if that differs, with their defaults filled in."""
        return self.prepared.forms if self.prepared is not None else (self.arguments,)

    @property
    def as_asked(self) -> "CallFacts":
        """The same call without filled-in defaults, and with `requested_by` as its only requester."""
        return replace(self, arguments=self.argument_forms[0], prepared=None, find_requesters=None)

    @property
    def requesters(self) -> frozenset[int]:
        others = self.find_requesters() if self.find_requesters is not None else ()
        return frozenset(others) if self.requested_by is None else frozenset({self.requested_by, *others})


GateDecision = Allow | Hold | Deny
Gate = Callable[[CallFacts], GateDecision]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
    """Outcome of a call; `message` is for the model, `error` for a person, `fields` are added to the response.

    `restored` means that the call's changes were undone; `not_restored` names the resources where undoing failed.
    `retry_after` is the number of seconds to wait before the next attempt.
    `returned` is the handler's return value, `rendering` the text of that value's own `render()`, if it has one.
    `late` is the outcome of a handler that returned after its deadline, kept as evidence. `left_running` means that the
    handler could not be stopped and has not returned. `content` has the result's blocks with their bytes, `warnings`
    the defects of an upstream's answer.
    """

    success: bool
    message: str = "OK"
    value: Any = None
    error: str | None = None
    error_kind: str | None = None
    warning: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict)
    restored: bool = False
    not_restored: tuple[str, ...] = ()
    retryable: bool = False
    retry_after: float = 0.0
    exclude_value_from_context: bool = False
    content: tuple[Block, ...] | None = None
    warnings: tuple[ResultWarning, ...] = ()
    returned: Any = field(default=None, compare=False, repr=False)
    rendering: str | None = None
    cause: BaseException | None = field(default=None, compare=False, repr=False)
    late: "CallOutcome | None" = None
    left_running: bool = False


def dispatch(
    tool: Tool[Any, Any], arguments: object, *, gate: Gate, context: ToolContext, facts: CallFacts
) -> CallOutcome | Hold:
    try:
        checked = prepare_arguments(tool, arguments)
    except ToolError as error:
        return _outcome_from_exception(tool, error)
    verdict = gate(replace(facts, arguments=checked.passed, prepared=checked))
    if isinstance(verdict, Hold):
        return verdict
    if isinstance(verdict, Deny):
        return CallOutcome(success=False, message=verdict.message, error=verdict.message, error_kind="denied")
    return run_call(tool, checked, context, secrets=find_argument_secrets(tool.secret_locations, checked.storable))


def run_call(
    tool: Tool[Any, Any],
    arguments: CallArguments,
    context: ToolContext,
    may_undo: Callable[[], bool] = lambda: True,
    *,
    secrets: Sequence[Secret] = (),
) -> CallOutcome:
    """Run one prepared call and close its resources. Never raises; the changes of a failed call are undone.

    `may_undo` is called right before undoing: by then another process may have run the call, or a person settled it.
    """
    outcome = _run_unscrubbed(tool, arguments, context, may_undo)
    return _scrub_outcome(outcome, Scrubber(secrets)) if secrets else outcome


def _run_unscrubbed(
    tool: Tool[Any, Any], arguments: CallArguments, context: ToolContext, may_undo: Callable[[], bool]
) -> CallOutcome:
    if context.deadline is not None and context.deadline.expired():
        return _finalize(
            cancelled_before_start(tool) if context.deadline.stopped else expired_before_start(tool), context, may_undo
        )
    limit, outer = Deadline.after(tool.longest_seconds), context.deadline
    if outer is not None:
        limit = Deadline(min(limit.expires_at, outer.expires_at), outer.stop)
    context.resources.adopt(context.session)
    try:
        outcome = _outcome_from_return(
            tool, await_result(tool.call(arguments.passed, context, arguments.defaults), limit)
        )
    except HANDLER_FAILURES as error:
        outcome = _outcome_from_exception(tool, error)
    if limit.stopped:
        outcome = replace(
            cancelled_while_running(tool), late=None if isinstance(outcome.cause, DeadlineExceededError) else outcome
        )
    elif not tool.is_async and limit.expired():  # a sync handler cannot be stopped; an async one was cancelled
        outcome = replace(timed_out(tool), late=outcome)
    return _finalize(outcome, context, may_undo)


def _scrub_outcome(outcome: CallOutcome, scrubber: Scrubber) -> CallOutcome:
    value = scrubber.value(outcome.value)
    return replace(
        outcome,
        message=scrubber.text(outcome.message),
        value=value,
        returned=outcome.returned if value == outcome.value else value,
        rendering=outcome.rendering and scrubber.text(outcome.rendering),
        error=outcome.error and scrubber.text(outcome.error),
        fields=scrubber.value(dict(outcome.fields)),
        content=outcome.content and tuple(placeholders_as_text(scrubber.value(each)) for each in outcome.content),
        late=outcome.late and _scrub_outcome(outcome.late, scrubber),
    )


def preview_call(
    tool: Tool[Any, Any], arguments: CallArguments, context: ToolContext, *, secrets: Sequence[Secret] = ()
) -> Preview | None:
    """Return the tool's preview with secrets redacted, or None. Raises ToolError if the call cannot succeed."""
    scrub = scrubber_for(secrets)
    try:
        preview = _preview_from_hook(tool, arguments, context)
        return scrub.preview(preview) if preview and scrub else preview
    except ToolError as error:
        raise (ToolError(scrub.text(error.user_message())) if scrub else error) from None
    except HANDLER_FAILURES as error:  # the call can still be reviewed without a preview
        logger.warning("tool_preview_failed tool=%s error=%s", tool.name, type(error).__name__)
        return Preview(summary=f"Run {tool.name}; its preview failed with {type(error).__name__}", kind="none")
    finally:
        context.resources.close()


def _preview_from_hook(tool: Tool[Any, Any], arguments: CallArguments, context: ToolContext) -> Preview | None:
    """Call the tool's preview hook, if any. Raises as the hook does, and TypeError if the result is no Preview."""
    if not tool.has_preview:
        return None
    returned = tool.preview_for(arguments.passed, context, arguments.defaults)
    preview = await_result(returned, Deadline.after(min(tool.timeout, PREVIEW_SECONDS)))
    if not isinstance(preview, Preview):
        raise TypeError(f"A preview hook must return a Preview, not {type(preview).__name__}.")
    check_json(to_jsonable_python(preview))
    return preview


def timed_out(tool: Tool[Any, Any]) -> CallOutcome:
    """Return the outcome of a handler that exceeded its deadline; its effects are unknown."""
    message = f"Tool '{tool.name}' exceeded the deadline."
    return CallOutcome(success=False, message=message, error=message, error_kind="timeout", retryable=True)


def cancelled_while_running(tool: Tool[Any, Any]) -> CallOutcome:
    """Return the outcome of a handler that was cancelled while it ran; its effects are unknown."""
    message = f"Tool '{tool.name}' was cancelled while running. Its effects are unknown."
    return CallOutcome(success=False, message=message, error=message, error_kind=CANCELLED_WHILE_RUNNING)


def cancelled_before_start(tool: Tool[Any, Any]) -> CallOutcome:
    """Return the outcome of a call that was cancelled before its handler started: it has no effects."""
    message = f"Tool '{tool.name}' was cancelled before it started."
    return CallOutcome(success=False, message=message, error=message, error_kind=CANCELLED_BEFORE_START)


def standard_response(tool: Tool[Any, Any], arguments: Mapping[str, Any], outcome: CallOutcome) -> dict[str, Any]:
    """Return the response for an outcome: query_type, parameters, results, output_key, success, the tool's fields."""
    query_type, parameters = None, arguments
    if tool.query_types is not None:
        query_type, parameters = arguments.get("query_type"), arguments.get("parameters", {})
    if outcome.success:
        results = _standard_results(outcome.value)
        return format_success_response(query_type, parameters, results, tool_name=tool.name, **outcome.fields)
    kind = "warning" if outcome.warning else "error"
    text = outcome.error or outcome.message
    return format_error_response(query_type, parameters, text, tool_name=tool.name, error_type=kind, **outcome.fields)


def answer_response(query_type: str | None, parameters: object, value: object, **fields: Any) -> dict[str, Any]:
    """Return the standard response of a call that a person answers; `fields` includes `tool_name`."""
    return format_success_response(
        query_type, parameters, _standard_results(value), **{**_additional_fields(value), **fields}
    )


def expired_before_start(tool: Tool[Any, Any]) -> CallOutcome:
    """Return the outcome of a call whose deadline passed before its handler started: it has no effects."""
    message = f"Deadline expired before executing tool '{tool.name}'."
    cause = DeadlineExceededError(message)
    return CallOutcome(
        success=False,
        message=message,
        error=message,
        error_kind="deadline_exceeded",
        retryable=True,
        cause=cause,
    )


def _finalize(outcome: CallOutcome, context: ToolContext, may_undo: Callable[[], bool]) -> CallOutcome:
    """Undo the changes of a call that failed or whose session refused events; then close its resources."""
    refused: tuple[str, ...] = getattr(context.session, "reducer_errors", ()) if outcome.success else ()
    if refused:
        outcome = replace(
            outcome, message=storable_error_text(REDUCER_ERRORS_MESSAGE.format(errors="; ".join(refused)))
        )
    if refused or not outcome.success:
        undone = context.resources.restore(may_undo)
        outcome = replace(outcome, restored=undone.all, not_restored=undone.failed)
        if undone.failed:
            notice = f" Its changes could not be undone in {', '.join(undone.failed)}."
            error = (outcome.error or outcome.message) + notice
            outcome = replace(outcome, message=outcome.message + notice, error=error)
    context.resources.close()
    return outcome


def _outcome_from_return(tool: Tool[Any, Any], returned: object) -> CallOutcome:
    result = tool.reads(returned)
    message = serialize_message(tool.name, result.message)
    if isinstance(result, UpstreamResult):
        return _outcome_of_upstream(result, message)
    value = serialize_result(tool.name, result.value)
    content = serialize_content(tool.name, result.content) if result.content is not None else None
    user_message = {"user_message": storable_error_text(result.user_message)} if result.user_message else {}
    if not result.success:
        return CallOutcome(
            success=False,
            message=storable_error_text(message),
            value=value,
            error=storable_error_text(message),
            error_kind="tool_error",
            fields=user_message,
            returned=result.value,
            exclude_value_from_context=result.exclude_value_from_context,
            content=content,
        )
    if isinstance(value, dict) and value.get("success") is False and value.keys() >= STANDARD_FIELDS:
        # Made by `format_error_response`.
        warning = "warning" in value
        text = str(value.get("warning" if warning else "error", "The tool reported an error."))
        message = storable_error_text(text)
        fields = {key: each for key, each in _additional_fields(value).items() if key not in ("error", "warning")}
        kind = "data_not_found" if warning else "tool_error"
        return CallOutcome(
            success=False, message=message, error=message, error_kind=kind, warning=warning, fields=fields
        )
    return CallOutcome(
        success=True,
        message=message,
        value=value,
        fields=_additional_fields(value) | user_message,
        returned=result.value,
        rendering=serialize_rendering(result.value),
        exclude_value_from_context=result.exclude_value_from_context,
        content=content,
    )


def _outcome_of_upstream(result: UpstreamResult[Any], message: str) -> CallOutcome:
    content, warnings = None if result.content is None else tuple(result.content), tuple(result.warnings)
    if not result.success:
        return CallOutcome(
            success=False,
            message=storable_error_text(message),
            value=result.value,
            error=storable_error_text(message),
            error_kind=result.error_kind,
            content=content,
            warnings=warnings,
        )
    value = result.value
    if isinstance(value, dict) and "results" in value:
        is_lossless = isinstance(value["results"], list) and not value.keys() & (
            STANDARD_FIELDS - {"results"} | {"edited"}
        )
        if not is_lossless:  # a standard response could not hold `results` and the other members
            value = [value]
    return CallOutcome(
        success=True,
        message=message,
        value=value,
        returned=result.value,
        fields=_additional_fields(value),
        content=content,
        warnings=warnings,
    )


def _standard_results(value: object) -> list[Any]:
    if isinstance(value, dict) and "results" in value:
        value = value["results"]
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _additional_fields(value: object) -> dict[str, Any]:
    if isinstance(value, dict) and "results" in value:
        return {key: each for key, each in value.items() if key not in STANDARD_FIELDS}
    return {}


def _outcome_from_exception(tool: Tool[Any, Any], error: BaseException) -> CallOutcome:
    kind = error.kind if isinstance(error, ToolgateError) else "unknown_error"
    logger.info("tool_error tool=%s kind=%s error=%s", tool.name, kind, type(error).__name__)
    try:
        if tool.hides_errors and not isinstance(error, ToolgateError):
            message, text = HIDDEN_ERROR_MESSAGE.format(name=tool.name), HIDDEN_ERROR_USER_MESSAGE
        else:
            message = _text_for_model(tool.name, error)
            text = error.user_message() if isinstance(error, ToolError) else message
    except HANDLER_FAILURES:  # the exception's own methods may raise
        message = text = f"Tool '{tool.name}' failed with {type(error).__name__}."
    return CallOutcome(
        success=False,
        message=storable_error_text(message),
        error=storable_error_text(text),
        error_kind=kind,
        warning=isinstance(error, DataNotFound),
        fields=error.details if isinstance(error, UpstreamError) else {},
        retryable=not isinstance(error, ToolError | PromptEvaluationError | VisibilityExpansionRequired),
        retry_after=float(getattr(error, "retry_after", 0.0)) if isinstance(error, ToolgateError) else 0.0,
        cause=error,
    )


def _text_for_model(name: str, error: BaseException) -> str:
    match error:
        case ParameterError() | QueryTypeUnsupported() | ToolValidationError():
            return f"Tool validation failed: {error.user_message()}"
        case ToolError():
            return error.user_message()
        case DeadlineExceededError():
            return error.message or f"Tool '{name}' exceeded the deadline."
        case PromptEvaluationError() | VisibilityExpansionRequired():
            return error.message or f"Tool '{name}' raised {type(error).__name__}."
        case TypeError():
            return f"Tool '{name}' raised TypeError: {exception_summary(error)}"
    return f"Tool '{name}' execution failed: {exception_summary(error)}"
