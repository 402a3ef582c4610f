"""Envelopes as data: the arguments of the tool that proposes one, the calls inside an item, and narrowing. No database.

An item bounds every argument of its calls by the conditions of grants, or by its sum: the sum names a number, of which
all calls of the item together may spend at most so much. Numbers are added as decimals, exactly as JSON writes them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Context, Decimal
from enum import StrEnum
from functools import reduce
from typing import Any

from django.utils.dateparse import parse_datetime
from django.utils.timezone import is_naive

from approvals.policy_language.bounds import check_bounds, conditions_cover, is_named, leaf_paths, named_paths
from approvals.policy_language.conditions import WITHOUT_VALUE, Condition, compile_conditions, path_problems
from approvals.policy_language.containment import implies
from approvals.policy_language.derived import is_command
from catalog.core.canonical_json import MAX_SAFE_INTEGER
from catalog.core.json_paths import dotted, value_at
from catalog.dispatch.arguments import CallArguments
from catalog.errors import field_error
from catalog.schemas import ArgumentProblem, raise_for_problems

PROPOSE_ENVELOPE = "propose_envelope"
"""Name of the tool whose approved call opens an envelope."""
MAX_PURPOSE = 2000
MAX_ITEMS = 500
MAX_COUNT = 10_000
MAX_MINUTES = 24 * 60
MAX_ROWS = 2000
"""Conditions of all items together."""
MAX_PATTERNS = 100
"""Conditions `matches` of all items together: each is compiled before it is accepted."""
MAX_SUM = 10**15
DECIMAL_PLACES = 18
"""An amount with more decimal places falls outside."""
CLOCK_SKEW = timedelta(minutes=1)
SCOPES = ("token", "plan", "session")
_EXACT = Context(prec=60)


class Promise(StrEnum):
    """Promises that a call can break, beside `argument:PATH`."""

    TOOL = "tool"
    COUNT = "count"
    SUM = "sum"
    EXPIRED = "expired"
    ENDED = "ended"
    """Before its time."""
    RULE = "rule"
    """Its policy or the approvers do not let it run."""


@dataclass(frozen=True, slots=True)
class SumLimit:
    """The most that the numbers at a dotted path may add up to."""

    path: str
    at_most: Decimal

    def as_json(self) -> dict[str, Any]:
        return {"path": self.path, "at_most": number_of(self.at_most)}


@dataclass(frozen=True, slots=True)
class Item:
    """Calls of one tool that an envelope lets start: at most `count`, with arguments that fit the conditions."""

    tool: str
    conditions: Sequence[dict[str, Any]]
    count: int
    sum: SumLimit | None = None

    @property
    def rows(self) -> Sequence[Condition]:
        """The conditions as they are compared."""
        return compile_conditions(self.conditions).rows

    @property
    def bounds(self) -> list[dict[str, Any]]:
        """The conditions, with a row that names the argument that the sum limits."""
        rows = list(self.conditions)
        return rows if self.sum is None else [*rows, {"path": self.sum.path, "operator": "exists"}]

    def as_json(self) -> dict[str, Any]:
        limit = {} if self.sum is None else {"sum": self.sum.as_json()}
        return {"tool": self.tool, "arguments": list(self.conditions), "count": self.count, **limit}


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed envelope; `scope` is what `for` names, None if it was left out."""

    purpose: str
    items: Sequence[Item]
    scope: tuple[str, str] | None
    minutes: int | None
    expires_at: datetime | None

    def end(self, proposed_at: datetime) -> datetime:
        """Return the time at which the envelope ends."""
        return self.expires_at or proposed_at + timedelta(minutes=self.minutes or 0)


def read_proposal(arguments: Mapping[str, Any]) -> Proposal:
    """Return the proposal in arguments that fit the tool's schema. Raises ParameterError with paths, as items.0.sum."""
    rows = [row for item in arguments["items"] for row in item["arguments"]]
    if len(rows) > MAX_ROWS:
        message = f"The items have {len(rows):,} conditions; at most {MAX_ROWS:,} are accepted. Propose two envelopes."
        raise field_error("items", "too_many", message)
    if sum(isinstance(row, dict) and row.get("operator") == "matches" for row in rows) > MAX_PATTERNS:
        raise field_error("items", "too_many", f"At most {MAX_PATTERNS} conditions can be patterns (matches).")
    if not arguments["purpose"].strip():
        raise field_error("purpose", "required", "Say in words what the envelope is for.")
    scope = arguments.get("for")
    texts = {"purpose": arguments["purpose"]} | {f"for.{kind}": ref for kind, ref in (scope or {}).items()}
    if name := next((name for name, text in texts.items() if "\0" in str(text)), None):
        raise field_error(name, "invalid", "This contains a null character, which cannot be stored.")
    if scope is not None and len(scope) != 1:
        raise field_error("for", "invalid", f"Name exactly one of {', '.join(SCOPES)}.")
    minutes, end = arguments.get("minutes"), arguments.get("expires_at")
    if (minutes is None) == (end is None):
        raise field_error("minutes", "required", "Give minutes or expires_at, and not both.")
    return Proposal(
        purpose=arguments["purpose"].strip(),
        items=[_item(item, f"items.{number}") for number, item in enumerate(arguments["items"])],
        scope=next(((kind, str(ref)) for kind, ref in scope.items()), None) if scope else None,
        minutes=minutes,
        expires_at=None if end is None else _end(end),
    )


def proposed_tools(tool: str, arguments: object) -> list[str]:
    """Return the names of the tools that a call proposes to cover, whatever shape its arguments have."""
    items = arguments.get("items") if tool == PROPOSE_ENVELOPE and isinstance(arguments, Mapping) else None
    names = [item.get("tool") for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))


def check_end(proposal: Proposal, proposed_at: datetime, now: datetime) -> None:
    """Raise ParameterError if the envelope would end in the past, or more than a day from now."""
    end, field = proposal.end(proposed_at), "minutes" if proposal.expires_at is None else "expires_at"
    if end <= now:
        raise field_error(field, "past", "The end has passed. Choose one within the next 24 hours.")
    if end > now + timedelta(minutes=MAX_MINUTES) + CLOCK_SKEW:
        raise field_error(field, "too_late", "An envelope can last at most 24 hours. Choose an earlier end.")


def _end(text: str) -> datetime:
    try:
        end = parse_datetime(text)
    except ValueError:
        end = None
    if end is None or is_naive(end):
        raise field_error("expires_at", "invalid", "This must be a time with its zone, such as 2026-05-01T18:00:00Z.")
    return end


def _item(item: Mapping[str, Any], path: str) -> Item:
    rows = check_bounds(item["arguments"], f"{path}.arguments")
    limit = item.get("sum")
    if limit is None:
        return Item(item["tool"], rows, item["count"])
    raise_for_problems(list(path_problems(limit["path"], f"{path}.sum.path")))
    if is_command(limit["path"]):
        raise field_error(f"{path}.sum.path", "invalid", "This must be the dotted path of a number in the arguments.")
    most = exact_number(limit["at_most"])
    if most is None or not 0 < most <= MAX_SUM:
        message = f"This must be above 0 and at most {MAX_SUM:,}, with at most {DECIMAL_PLACES} decimal places."
        raise field_error(f"{path}.sum.at_most", "invalid", message)
    return Item(item["tool"], rows, item["count"], SumLimit(limit["path"], most))


def exact_number(value: object) -> Decimal | None:
    """Return a number of JSON as the decimal that its text denotes; None if it is no number, or too long a one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > MAX_SUM:
        return None
    number = Decimal(value) if isinstance(value, int) else Decimal(repr(value))
    exponent = number.as_tuple().exponent
    is_short = isinstance(exponent, int) and exponent >= -DECIMAL_PLACES  # not infinite, nor NaN
    return number if is_short else None


def number_of(number: Decimal) -> int | float | str:
    """Return a decimal as a number of JSON; as a text of its digits if programs that read JSON would round it.

    Such a text is the form of large integers in arguments too. An amount that was read from JSON is always a number.
    """
    if number == number.to_integral_value():
        return int(number) if abs(number) <= MAX_SAFE_INTEGER else decimal_text(number)
    rounded = float(number)
    return rounded if Decimal(repr(rounded)) == number else decimal_text(number)


def decimal_text(number: Decimal) -> str:
    """Return a decimal without exponent and without zeros at its end, in which form sums are stored."""
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def exact_sum(numbers: Iterable[Decimal]) -> Decimal:
    return reduce(_EXACT.add, numbers, Decimal(0))


def amount_of(item: Item, arguments: CallArguments) -> Decimal | None:
    """Return the number that a call adds to the item's sum, 0 without a sum.

    None if the call falls outside: the number is missing, negative, no number, or more than the whole sum.
    """
    if item.sum is None:
        return Decimal(0)
    number = exact_number(value_at(arguments.passed, item.sum.path.split(".")))
    return number if number is not None and 0 <= number <= item.sum.at_most else None


def broken_argument(item: Item, arguments: CallArguments) -> str | None:
    """Return the dotted path of the first argument that falls outside an item's bounds; None if all are inside."""
    rows = item.bounds
    if conditions_cover(rows, arguments):
        return None
    predicate = compile_conditions(rows)
    for form in arguments.forms:
        row = predicate.uncovered(form)
        if row is not None:
            return row.path
    named, exact = named_paths(rows)
    leaves = leaf_paths(arguments.given)
    return next(dotted(leaf) for leaf in leaves if not is_named(leaf, exact if is_command(leaf) else named))


def require_narrower(proposal: Proposal, edited_proposal: Proposal, proposed_at: datetime) -> None:
    """Raise ParameterError unless every call inside `edited_proposal` is provably inside `proposal`.

    Each item must be one of the items before, in their order, with the same or narrower terms.
    """
    for field, same in (
        ("purpose", proposal.purpose == edited_proposal.purpose),
        ("for", proposal.scope == edited_proposal.scope),
    ):
        if not same:
            raise field_error(field, "widened", f"An edit can only narrow an envelope. Leave {field} unchanged.")
    if edited_proposal.end(proposed_at) > proposal.end(proposed_at):
        name = "minutes" if edited_proposal.expires_at is None else "expires_at"
        raise field_error(name, "widened", "An edit can only narrow an envelope: the end may only be earlier.")
    left = list(proposal.items)
    for number, item in enumerate(edited_proposal.items):
        problems: list[ArgumentProblem] = []
        while left:
            found = list(_widenings(left[0], item, f"items.{number}"))
            earlier, left = left[0], left[1:]
            if not found:
                break
            if earlier.tool == item.tool and not problems:
                problems = found
        else:
            new = ArgumentProblem(f"items.{number}", "widened", "No item of the proposal, in its order, contains this.")
            raise_for_problems(problems or [new])


def _widenings(item: Item, edited_item: Item, path: str) -> Iterator[ArgumentProblem]:
    """Yield the reasons why not every call inside `edited_item` is provably inside `item`."""
    if item.tool != edited_item.tool:
        yield ArgumentProblem(f"{path}.tool", "widened", f"The proposal has {item.tool} here. Drop the item.")
        return
    if edited_item.count > item.count:
        yield ArgumentProblem(f"{path}.count", "widened", f"The count may only be lowered, from {item.count:,}.")
    if item.sum is not None:
        limit = item.sum
        if edited_item.sum is None or edited_item.sum.path != limit.path:
            yield ArgumentProblem(f"{path}.sum", "widened", f"The sum over {limit.path} must stay.")
        elif edited_item.sum.at_most > limit.at_most:
            most = decimal_text(limit.at_most)
            yield ArgumentProblem(f"{path}.sum.at_most", "widened", f"The sum may only be lowered, from {most}.")
    for promised in item.rows:
        if not any(implies(each, promised) for each in edited_item.rows):
            place = next((n for n, each in enumerate(edited_item.rows) if each.path == promised.path), None)
            where = f"{path}.arguments" if place is None else f"{path}.arguments.{place}"
            shown = "" if promised.operator in WITHOUT_VALUE else promised.text
            message = (
                f"It is not certain that this is narrower than “{promised.path} {promised.operator} {shown[:80]}”. "
                "Keep that condition and add others."
            )
            yield ArgumentProblem(where, "widened", message)
    named, exact = named_paths(item.bounds)
    for number, row in enumerate(edited_item.bounds):
        steps = tuple(row["path"].split("."))
        if row["operator"] != "missing" and not is_named(steps, exact if is_command(steps) else named):
            where = f"{path}.arguments.{number}.path" if number < len(edited_item.conditions) else f"{path}.sum.path"
            message = f"The proposal lets no call have the argument {row['path']}. Leave it out."
            yield ArgumentProblem(where, "widened", message)
