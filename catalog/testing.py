"""For tests of tools: run one through the pipeline without a database. Never imported by the product."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypedDict, Unpack

from catalog import registry
from catalog.context import Deadline, Resources, ToolContext
from catalog.definitions import Tool
from catalog.dispatch import Allow, CallFacts, Gate, Hold, dispatch
from catalog.errors import DeadlineExceededError, PromptEvaluationError, VisibilityExpansionRequired
from catalog.results import ToolResult


class Circumstances(TypedDict, total=False):
    """What `invoke` may be given beside the tool and its arguments."""

    session: Any
    deadline: Deadline | None
    gate: Gate
    resources: Iterable[object]


def allow_all(call: CallFacts) -> Allow:
    """Let every call run."""
    return Allow()


def invoke(
    tool: Tool[Any, Any] | str, arguments: Mapping[str, Any], **circumstances: Unpack[Circumstances]
) -> ToolResult[Any]:
    """Run a tool and return its result; raise PromptEvaluationError for an unknown tool or a late call.

    What ends an evaluation (PromptEvaluationError, VisibilityExpansionRequired) goes through as raised.
    """
    found = _found(tool)
    context = make_context(
        session=circumstances.get("session"),
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
    _raise_again(outcome.cause, outcome.message)
    return ToolResult(outcome.message, outcome.value, outcome.success, outcome.exclude_value_from_context)


def make_context(**fields: Any) -> ToolContext:
    """Make a context of these fields; what is left out has the value of a call outside plans."""
    return ToolContext(**{"call_id": "call_test", **fields})


@contextmanager
def clean_registry() -> Iterator[None]:
    """Start with an empty registry, and put back afterwards what was registered before."""
    before = registry.get_all_tools()
    registry._TOOLS.clear()
    try:
        yield
    finally:
        registry._TOOLS.clear()
        registry._TOOLS.update(before)


def _found(tool: Tool[Any, Any] | str) -> Tool[Any, Any]:
    found = registry.get_tool(tool) if isinstance(tool, str) else tool
    if found is None:
        raise PromptEvaluationError(f"Unknown tool '{tool}' requested by provider.")
    return found


def _raise_again(cause: BaseException | None, message: str) -> None:
    if isinstance(cause, DeadlineExceededError):
        raise PromptEvaluationError(message) from cause
    if isinstance(cause, PromptEvaluationError | VisibilityExpansionRequired):
        raise cause
