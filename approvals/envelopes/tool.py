"""The tool `propose_envelope`: each call of it is held, and its start opens the envelope that the approvers saw.

Its schema is declared here, and its arguments are checked here, wherever a call comes from: conditions, sums, the end,
and that paths exist in the schemas of the tools that items name.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from approvals.models import Envelope
from approvals.policy_language.bounds import conditions_sentence
from approvals.policy_language.conditions import MAX_CONDITIONS, OPERATORS
from approvals.policy_language.envelopes import (
    MAX_COUNT,
    MAX_ITEMS,
    MAX_MINUTES,
    MAX_PURPOSE,
    PROPOSE_ENVELOPE,
    Item,
    decimal_text,
    read_proposal,
)
from catalog.calls.vault import redact_arguments
from catalog.context import MAX_SESSION, ToolContext
from catalog.core.canonical_json import canonical_text, format_utc
from catalog.definitions.binding import CheckedBinding
from catalog.definitions.levels import SafetyLevel
from catalog.definitions.tool import Tool
from catalog.errors import ToolError
from catalog.inventory import snapshot
from catalog.results import Preview, ToolResult
from catalog.schemas import ArgumentProblem, raise_for_problems
from catalog.schemas.normalization import large_integers_as_digits
from catalog.schemas.resolver import expand_schema, union_variants
from catalog.secrets.placeholders import find_argument_secrets
from catalog.tools.registry import register_tool

DESCRIPTION = """\
Ask people to approve a whole task once, before you begin it, when it needs more than about three calls that would each
wait for approval. List every call you will make: tool, how often, and for each of its arguments a condition that bounds
it. Until the envelope ends, calls inside it run at once; a call outside it waits as usual. The answer is that of any
held call: wait for it with approval_result. Ask for no more than the task needs: people can narrow or refuse it, and
what stands in `purpose` is shown to them as your words."""

CONDITION = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "Dotted path of an argument: to.0.address."},
        "operator": {
            "enum": list(OPERATORS),
            "description": "exists allows any value. Commands can only be bounded with equals and in.",
        },
        "value": {"description": "What the operator compares with; left out for exists and missing."},
    },
    "required": ["path", "operator"],
}
ITEM = {
    "type": "object",
    "properties": {
        "tool": {"type": "string", "maxLength": 128},
        "arguments": {
            "type": "array",
            "maxItems": MAX_CONDITIONS,
            "items": CONDITION,
            "description": "Bounds on each argument. A call with an argument that no condition names is outside.",
        },
        "count": {"type": "integer", "minimum": 1, "maximum": MAX_COUNT, "description": "Calls at most."},
        "sum": {
            "type": "object",
            "properties": {
                "path": {"type": "string", "maxLength": 200, "description": "Dotted path of a number."},
                "at_most": {"type": "number", "description": "The most that all calls of the item may add up to."},
            },
            "required": ["path", "at_most"],
            "additionalProperties": False,
        },
    },
    "required": ["tool", "arguments", "count"],
    "additionalProperties": False,
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "purpose": {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_PURPOSE,
            "description": "What the task is, in words for the people who decide.",
        },
        "items": {"type": "array", "minItems": 1, "maxItems": MAX_ITEMS, "items": ITEM},
        "minutes": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_MINUTES,
            "description": "How long the envelope lasts from now on, the wait for approval included.",
        },
        "expires_at": {
            "type": "string",
            "maxLength": 40,
            "description": "When it ends, with a time zone, in place of minutes: 2026-05-01T18:00:00Z.",
        },
        "for": {
            "type": "object",
            "properties": {
                "token": {"type": "integer", "description": "The number of a token of yours."},
                "plan": {"type": "string", "minLength": 1, "maxLength": 40},
                "session": {"type": "string", "minLength": 1, "maxLength": MAX_SESSION},
            },
            "additionalProperties": False,
            "description": "Whose calls it is for, one of these. Agents leave it out: theirs is for their own token.",
        },
    },
    "required": ["purpose", "items"],
    "additionalProperties": False,
}


class ProposalBinding(CheckedBinding):
    """Binding of a proposal, which also checks what its schema cannot say."""

    def check(self, arguments: dict[str, Any], tool_name: str) -> None:
        super().check(arguments, tool_name)
        raise_for_problems(list(_secrets(arguments)))
        proposal = read_proposal(arguments)
        raise_for_problems(
            [problem for number, item in enumerate(proposal.items) for problem in _problems(item, f"items.{number}")]
        )


def _secrets(arguments: Mapping[str, Any]) -> Iterator[ArgumentProblem]:
    """Yield the places of secrets: bounds are stored in clear, and people read the whole proposal."""
    for secret in find_argument_secrets(None, large_integers_as_digits(arguments)):
        message = "There is a secret in this, which people would read. Leave it out. Use exists to allow any value."
        yield ArgumentProblem(secret.path, "secret", message)


def _problems(item: Item, path: str) -> Iterator[ArgumentProblem]:
    """Yield the names in an item that its tool does not have."""
    target = snapshot.callable_tool(item.tool)
    if target is None:
        yield ArgumentProblem(f"{path}.tool", "unknown", f"There is no tool {item.tool}.")
        return
    schema = target.tool.input_schema
    for number, row in enumerate(item.conditions):
        if not schemas_at(schema, row["path"]):
            message = f"{item.tool} has no argument {row['path']}."
            yield ArgumentProblem(f"{path}.arguments.{number}.path", "unknown", message)
        elif _compares_secret(target.tool, row):
            message = f"{row['path']} of {item.tool} is a secret, which cannot be compared. Use exists to allow any."
            yield ArgumentProblem(f"{path}.arguments.{number}", "secret", message)
    if item.sum is not None:
        found = schemas_at(schema, item.sum.path)
        if not found:
            yield ArgumentProblem(f"{path}.sum.path", "unknown", f"{item.tool} has no argument {item.sum.path}.")
        elif not any(_may_be_number(each) for each in found):
            message = f"The argument {item.sum.path} of {item.tool} is no number, so it cannot be added up."
            yield ArgumentProblem(f"{path}.sum.path", "no_number", message)


def _compares_secret(tool: Tool[Any, Any], row: Mapping[str, Any]) -> bool:
    """Return True if the value of a condition is a secret of the tool's calls, or has one inside."""
    if "value" not in row or tool.secret_locations is None:
        return False
    values = row["value"] if row["operator"] in ("in", "not_in") else [row["value"]]
    places = [_placed(value, row["path"], in_lists=in_lists) for value in values for in_lists in (False, True)]
    return any(redact_arguments(tool, each).secrets for each in places)


def _placed(value: Any, path: str, *, in_lists: bool) -> Any:
    """Return arguments with the value at a dotted path, whose numbers are names, or entries if `in_lists`."""
    for step in reversed(path.split(".")):
        value = [value] if in_lists and step.isdecimal() else {step: value}
    return value


def schemas_at(root: Mapping[str, Any], path: str) -> Sequence[Mapping[str, Any]]:
    """Return the schemas, alternatives apart, of the values at a dotted path; empty if the schema allows none there."""
    found: list[Mapping[str, Any]] = [root]
    for step in path.split("."):
        inner = (each for schema in found for each in _inside(schema, step, root))
        found = list({canonical_text(each): each for each in inner}.values())  # else recursive unions double each time
    return [each for schema in found for each in _alternatives(schema, root)]


def _alternatives(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    plain = expand_schema(schema, root)
    return union_variants(plain, root) or (plain,)


def _inside(schema: Mapping[str, Any], step: str, root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for plain in _alternatives(schema, root):
        members, entries, kind = plain.get("properties", {}), plain.get("items"), plain.get("type")
        if step in members:
            yield members[step] if isinstance(members[step], Mapping) else {}
        elif kind in (None, "object") and plain.get("additionalProperties", True) is not False:
            more = plain.get("additionalProperties")
            yield more if isinstance(more, Mapping) else {}
        elif kind in (None, "array") and step.isdigit():
            yield entries if isinstance(entries, Mapping) else {}


def _may_be_number(schema: Mapping[str, Any]) -> bool:
    kinds = schema.get("type")
    listed = kinds if isinstance(kinds, list) else [kinds]
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if values:
        return any(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return kinds is None or not {"number", "integer"}.isdisjoint(listed)


def propose_envelope(arguments: dict[str, Any], *, context: ToolContext) -> ToolResult[dict[str, Any]]:
    """Return the envelope that the start of this call has opened. Raises ToolError if it is not open."""
    envelope = Envelope.objects.filter(call__public_id=context.call_id or "").first()
    if envelope is None:
        raise ToolError("This call was not approved as an envelope, so none was opened.")
    if envelope.status not in (Envelope.Status.OPEN, Envelope.Status.USED):  # used up by calls of the same moment
        raise ToolError(f"The envelope is not open: {envelope.ended_because or envelope.status}")
    value = {
        "envelope": envelope.public_id,
        "status": envelope.status,
        "expires_at": format_utc(envelope.expires_at),
        "items": [{"number": each.number, **each.terms.as_json()} for each in envelope.items.select_related("tool")],
    }
    message = (
        f"The envelope {envelope.public_id} is open until {value['expires_at']}. Make the calls as usual: those inside "
        "it run at once. Compare its items with yours, since people may have narrowed them."
    )
    return ToolResult(message, value)


TOOL: Tool[Any, Any] = Tool(
    name=PROPOSE_ENVELOPE,
    description=" ".join(DESCRIPTION.split()),
    handler=propose_envelope,
    bound=ProposalBinding.of(SCHEMA, PROPOSE_ENVELOPE),
    safety_level=SafetyLevel.CAUTIOUS,
    categories=("approval",),
    retry_safe=True,
    accepts_overrides=False,
)


@TOOL.preview
def preview_proposal(arguments: dict[str, Any]) -> Preview:
    """Return the items in words, one row for each."""
    proposal = read_proposal(arguments)
    rows = [
        {
            "tool": item.tool,
            "arguments": conditions_sentence(item.bounds),
            "calls": item.count,
            **({"sum": f"{item.sum.path} at most {decimal_text(item.sum.at_most)}"} if item.sum else {}),
        }
        for item in proposal.items
    ]
    total = sum(item.count for item in proposal.items)
    tools = len({item.tool for item in proposal.items})
    summary = (
        f"At most {total:,} call{'' if total == 1 else 's'} of {tools} tool{'' if tools == 1 else 's'} start at once"
    )
    return Preview(summary, "rows", rows=tuple(rows))


register_tool(TOOL)
