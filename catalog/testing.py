"""Test support for tool authors: run a tool through the pipeline without a database. Not used by the product."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypedDict, Unpack

from catalog import context as contexts
from catalog.context import Deadline, Resources, Session, ToolContext
from catalog.core.canonical_json import parse_json
from catalog.definitions.tool import Tool
from catalog.dispatch.pipeline import Allow, CallFacts, Gate, Hold, dispatch
from catalog.errors import DeadlineExceededError, MalformedJSON, PromptEvaluationError, VisibilityExpansionRequired
from catalog.results import ToolResult
from catalog.styles.class_tools import BaseTool
from catalog.tools import registry


class InvokeOptions(TypedDict, total=False):
    session: Session | None
    deadline: Deadline | None
    gate: Gate
    resources: Iterable[object]


def allow_all(call: CallFacts) -> Allow:
    return Allow()


def invoke(
    tool: Tool[Any, Any] | BaseTool | str, arguments: Mapping[str, Any] | str, **circumstances: Unpack[InvokeOptions]
) -> ToolResult[Any]:
    """Run a tool and return its result, which holds the value that its handler returned.

    `arguments` may be the JSON text of a tool call.

    Raises PromptEvaluationError for an unknown tool, one without a handler, arguments that are not a JSON object, and a
    call that exceeds its deadline. If the handler raises PromptEvaluationError or VisibilityExpansionRequired, so does
    this function.
    """
    found, arguments = _find_tool(tool), _decode_arguments(arguments)
    context = make_context(
        session=circumstances.get("session") or Session(),
        deadline=circumstances.get("deadline"),
        resources=Resources(circumstances.get("resources", ())),
    )
    facts = CallFacts(
        tool_name=found.name,
        safety_level=found.safety_level,
        categories=found.categories,
        arguments=arguments,
    )
    outcome = dispatch(found, dict(arguments), gate=circumstances.get("gate", allow_all), context=context, facts=facts)
    if isinstance(outcome, Hold):
        return ToolResult.error(f"Tool '{found.name}' waits for approval.")
    if isinstance(outcome.cause, DeadlineExceededError):
        raise PromptEvaluationError(outcome.message) from outcome.cause
    if isinstance(outcome.cause, PromptEvaluationError | VisibilityExpansionRequired):
        raise outcome.cause
    user_message = outcome.fields.get("user_message")
    return ToolResult(
        outcome.message, outcome.returned, outcome.success, outcome.exclude_value_from_context, user_message
    )


def make_context(**fields: Any) -> ToolContext:
    """Return a context with these fields. Others are as for a call outside plans, with a new session of its own."""
    return ToolContext(**{"call_id": "call_test", "session": Session(), **fields})


@contextmanager
def clean_registry() -> Iterator[None]:
    """Start with an empty registry, and restore it afterwards."""
    kept: list[tuple[dict[Any, Any], dict[Any, Any]]] = [
        (held, held.copy()) for held in (registry._TOOLS, registry._IMPLEMENTATIONS, contexts._RESOURCE_FACTORIES)
    ]
    registry._TOOLS.clear()
    registry._IMPLEMENTATIONS.clear()
    try:
        yield
    finally:
        for held, before in kept:
            held.clear()
            held.update(before)


def _find_tool(tool: Tool[Any, Any] | BaseTool | str) -> Tool[Any, Any]:
    if isinstance(tool, BaseTool):
        return tool.as_tool()
    found = registry.get_tool(tool) if isinstance(tool, str) else tool
    if found is None:
        raise PromptEvaluationError(f"Unknown tool '{tool}' requested by provider.")
    found.judge_types()
    if found.handler is None:
        raise PromptEvaluationError(f"Tool '{found.name}' does not have a registered handler.")
    return found


def _decode_arguments(arguments: object) -> dict[str, Any]:
    if isinstance(arguments, str):
        try:
            arguments = parse_json(arguments) if arguments.strip() else {}
        except MalformedJSON:
            raise PromptEvaluationError("Failed to decode tool call arguments.") from None
    if not isinstance(arguments, Mapping):
        raise PromptEvaluationError("Tool call arguments must be a JSON object.")
    return dict(arguments)
