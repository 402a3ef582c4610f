"""BaseTool: tools as classes (contract C). Neither arguments nor the text of an exception is logged or returned."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from catalog.context import Session, ToolContext
from catalog.core.json_paths import JSONPath
from catalog.definitions.binding import CheckedBinding, Handler
from catalog.definitions.levels import Reversibility, SafetyLevel
from catalog.definitions.tool import Tool, ToolExample
from catalog.dispatch import pipeline
from catalog.dispatch.arguments import prepare_arguments
from catalog.errors import ToolDefinitionError, ToolError, naming_tool
from catalog.results import Preview, ToolResult, format_error_response, format_success_response

RESULT_FIELDS = ("success", "data", "error", "user_message")
NEEDS_APPROVAL_MESSAGE = "Dangerous tool requires approval handler, but none configured"

logger = logging.getLogger("toolgate.tools")


class BaseTool(ABC):
    """A tool as a class; `register_tool(MyTool())` adds it to the catalog.

    Without `parameters` (a pydantic model, a dataclass or a JSON Schema of an object) any object of arguments is
    accepted. The other attributes correspond to the options of `@tool`. Tools never write to a chat: they return data,
    from which the agent makes its reply.
    """

    name: str
    description: str
    requires_identifier: bool = False
    identifier: str | None = None
    returns_private_data: bool = False
    rate_limit_key: str | None = None
    rate_limit: str | None = None
    parameters: ClassVar[Any] = None
    safety_level: SafetyLevel | str = SafetyLevel.SAFE
    categories: Iterable[str] = ()
    reversibility: Reversibility | str | None = None
    retry_safe: bool = False
    timeout: float = 30.0
    output_key: str | None = None
    examples: Iterable[ToolExample[Any, Any]] = ()
    accepts_overrides: bool = True
    secret: Iterable[str] = ()

    @abstractmethod
    async def execute(self, args: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
        """Do the work; return `{"success", "data", "error", "user_message"}`, of which only the first is required.

        `context` has trace_id, conversation_id, call_id, plan_id, step_id, attempt, idempotency_key, requested_by and,
        inside the pipeline, `tool_context` with resources and deadline. Other entries passed by a program, such as the
        conference_id of `execute_tools`, are included.
        """

    async def preview(self, args: dict[str, Any], context: dict[str, Any]) -> Preview:
        """Return a preview of the call; only called if a class overrides it."""
        return Preview(f"Run {self.name}", "none")

    async def safe_execute(self, args: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
        """Execute and return the complete result dict; never raises, never logs arguments."""
        try:
            _log_event("tool_execute", self.name, context)
            result = complete_result_dict(await self.execute(args, context))
            _log_event("tool_complete", self.name, context, success=result["success"])
            return result
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever an author raises is this tool's failure
            _log_event("tool_error", self.name, context, error=type(error).__name__)
            return failed_result_dict(self.name)

    def format_success_response(
        self, query_type: str | None, parameters: object, results: object, **fields: object
    ) -> dict[str, Any]:
        """Return the standard response of a successful call; `fields` are the tool's own."""
        return format_success_response(query_type, parameters, results, tool_name=self.name, **fields)

    def format_error_response(
        self, query_type: str | None, parameters: object, message: str, *, error_type: str = "error", **fields: object
    ) -> dict[str, Any]:
        """Return the standard response of a failed call; `error_type="warning"` if nothing was found."""
        return format_error_response(
            query_type, parameters, message, tool_name=self.name, error_type=error_type, **fields
        )

    def as_tool(self) -> "ClassTool":
        """Return the tool that the pipeline runs, always the same object. Raises ToolDefinitionError."""
        return self._tool

    @cached_property
    def _tool(self) -> "ClassTool":
        for attribute in ("name", "description"):
            if not isinstance(getattr(self, attribute, None), str):
                raise ToolDefinitionError(f"{type(self).__name__} is a BaseTool without a {attribute}.")
        with naming_tool(self.name):
            parameters = self.parameters if self.parameters is not None else {"type": "object"}
            bound = DictBinding.of(parameters, self.name)
        made = ClassTool(
            author=self,
            handler=self.execute,
            bound=bound,
            reads=dict_to_result,
            result_type_known=False,
            hides_errors=True,
            **{name: getattr(self, name) for name in _DECLARED_ATTRIBUTES},
        )
        if type(self).preview is not BaseTool.preview:
            made.preview(self.preview)
        return made


_DECLARED_ATTRIBUTES = (
    *("name", "description", "requires_identifier", "identifier", "returns_private_data", "rate_limit_key"),
    *("rate_limit", "safety_level", "categories", "reversibility", "retry_safe", "timeout", "output_key", "examples"),
    *("accepts_overrides", "secret"),
)


@dataclass(eq=False, kw_only=True)
class ClassTool(Tool[Any, Any]):
    """A BaseTool in the catalog; the author's own attributes and methods can be used through it."""

    author: BaseTool = field(repr=False)

    def __getattr__(self, name: str) -> Any:
        """Look up on the author's object any attribute that a Tool does not have."""
        if name.startswith("_") or "author" not in vars(self):
            raise AttributeError(name)
        return getattr(self.author, name)

    async def execute(self, args: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
        """Run the class's `execute` without checks; exceptions are passed on."""
        answer: dict[str, Any] = await self.handler(args, context)
        return answer

    async def safe_execute(self, args: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
        """Check, run and return contract C's result dict; never raises."""
        return await safe_execute(self, args, context)


async def safe_execute(tool: Tool[Any, Any], args: object, context: object) -> dict[str, Any]:
    """Run a tool outside a plan if it needs no approval; return contract C's result dict and never raise.

    `context` is contract C's dict. A dangerous tool is not run: only a plan or a call can wait for approval.
    """
    _log_event("tool_execute", tool.name, context)
    if tool.safety_level is SafetyLevel.DANGEROUS:
        return {
            **failed_result_dict(tool.name),
            "error": NEEDS_APPROVAL_MESSAGE,
            "user_message": NEEDS_APPROVAL_MESSAGE,
        }
    try:
        checked = prepare_arguments(tool, args)
    except ToolError as error:
        _log_event("tool_error", tool.name, context, error=type(error).__name__)
        message = error.user_message()
        return {**failed_result_dict(tool.name), "error": message, "user_message": message}
    given = context if isinstance(context, Mapping) else {}
    named = given.get("conversation_id")
    session = Session("" if named is None else str(named))
    outcome = await asyncio.to_thread(
        pipeline.run_call, tool, checked, CallerContext(given=given, trace_id=given.get("trace_id"), session=session)
    )
    _log_event("tool_complete", tool.name, context, success=outcome.success)
    return outcome_to_dict(outcome)


def outcome_to_dict(outcome: pipeline.CallOutcome) -> dict[str, Any]:
    user_message = outcome.fields.get("user_message")
    if outcome.success:
        return {"success": True, "data": outcome.value, "error": None, "user_message": user_message}
    return {"success": False, "data": None, "error": outcome.message, "user_message": user_message or outcome.error}


def dict_to_result(returned: object) -> ToolResult[Any]:
    """Convert contract C's result dict to a ToolResult. Raises TypeError for anything else."""
    result = complete_result_dict(returned)
    user_message = result["user_message"]
    if result["success"]:
        return ToolResult(message=user_message or "OK", value=result["data"], user_message=user_message)
    message = result["error"] or user_message or "The tool reported an error."
    return ToolResult(message=message, value=None, success=False, user_message=user_message)


def complete_result_dict(result: object) -> dict[str, Any]:
    """Return a result dict with all four fields. Raises TypeError if it is invalid."""
    if not isinstance(result, Mapping) or not isinstance(result.get("success", True), bool):
        raise TypeError("A tool's execute must return a dict whose `success` is true or false.")
    for name in ("error", "user_message"):
        if not isinstance(result.get(name), str | None):
            raise TypeError(f"The {name} of a tool's result must be a string or None.")
    return {**dict.fromkeys(RESULT_FIELDS), "success": True, **result}


def failed_result_dict(name: str) -> dict[str, Any]:
    """Return the result of a failed tool with contract C's texts."""
    return {
        "success": False,
        "data": None,
        "error": pipeline.HIDDEN_ERROR_MESSAGE.format(name=name),
        "user_message": pipeline.HIDDEN_ERROR_USER_MESSAGE,
    }


class DictBinding(CheckedBinding):
    """Passes the handler the arguments as one dict, and the context as contract C's dict."""

    def call(
        self, function: Handler, arguments: dict[str, Any], context: object, defaults: Sequence[JSONPath] = ()
    ) -> Any:
        return function(arguments, _as_dict(context))


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerContext(ToolContext):
    """Context of a call by a program that passes contract C's dict; the handler receives that dict unchanged."""

    given: Mapping[str, Any]


def _as_dict(context: object) -> dict[str, Any]:
    if not isinstance(context, ToolContext):
        return {}
    session = context.session.name if context.session is not None else None
    names = ("call_id", "plan_id", "step_id", "attempt", "idempotency_key", "requested_by")
    return {
        **{name: getattr(context, name) for name in names},
        "trace_id": context.trace_id or context.call_id,
        "conversation_id": session or None,
        **(context.given if isinstance(context, CallerContext) else {}),
        "tool_context": context,
    }


def _log_event(event: str, name: str, context: object, **facts: object) -> None:
    trace = context.get("trace_id") if isinstance(context, Mapping) else None
    details = "".join(f" {key}={value}" for key, value in facts.items())
    logger.info("%s tool=%s trace_id=%.80r%s", event, name, trace, details)
