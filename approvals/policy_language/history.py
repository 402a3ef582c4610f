"""Terms about what came before a call: `recent` counts like calls in a window, `seen` asks for calls of another kind.

Both are stored as documents, null if a policy does not use them. Nothing here reads the database: calls are counted and
looked up by `approvals.policies.history`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from approvals.policy_language.conditions import MAX_PATH, path_problems
from catalog.core.json_paths import value_at
from catalog.schemas import ArgumentProblem
from catalog.ui.labels import format_timespan

MAX_RECENT_COUNT = 10_000
MAX_RECENT_SECONDS = 30 * 86_400
MAX_SEEN_SECONDS = 86_400
MAX_SEEN_NAME = 128
ARGUMENT = "argument:"
"""Prefix of a `by` that names an argument, by its dotted path."""
MAX_BY = len(ARGUMENT) + MAX_PATH
COUNTED_BY = {
    "requester": "by the same person",
    "token": "through the same token",
    "tool": "of the same tool",
    "plan": "in the same plan",
}
"""The values of `by` that name no argument, in words."""
SEEN_KINDS = {"category": "in the category {}", "tool": "of {}", "source": "from the source {}"}
"""The things by which earlier calls are found, in words."""


@dataclass(frozen=True, slots=True)
class Recent:
    """Fits the `count`-th call and all later ones within `seconds`, counted separately for each value of `by`.

    Calls without a value at the path of an argument are counted together.
    """

    count: int
    seconds: int
    by: str

    @property
    def path(self) -> str:
        """The dotted path of the argument by which calls are counted; empty if they are counted by something else."""
        return self.by.removeprefix(ARGUMENT) if self.by.startswith(ARGUMENT) else ""

    def value_in(self, *forms: Mapping[str, Any]) -> str | float | bool | None:
        """Return the text, number or truth value at the path in the first of these forms of arguments that has one.

        None if there is nothing, or something else.
        """
        values = (value_at(form, self.path.split(".")) for form in forms)
        return next((value for value in values if isinstance(value, str | int | float)), None)

    @property
    def by_words(self) -> str:
        return COUNTED_BY.get(self.by) or f"with the same {self.path}"


@dataclass(frozen=True, slots=True)
class Seen:
    """Fits if a call of this category, tool or source (`kind`) ended within the last `within` seconds."""

    kind: str
    name: str
    within: int

    @property
    def words(self) -> str:
        return SEEN_KINDS[self.kind].format(self.name)


def read_recent(document: Mapping[str, Any] | None) -> Recent | None:
    """Return the term of a stored document, if any. Raises LookupError, TypeError or ValueError for an invalid one."""
    if document is None:
        return None
    if next(recent_problems(document), None):
        raise ValueError("The count of recent calls is invalid.")
    return Recent(document["count"], document["seconds"], document["by"])


def read_seen(document: Mapping[str, Any] | None) -> Seen | None:
    """Return the term of a stored document, if any. Raises LookupError, TypeError or ValueError for an invalid one."""
    if document is None:
        return None
    if next(seen_problems(document), None):
        raise ValueError("The term about earlier calls is invalid.")
    kind = next(kind for kind in SEEN_KINDS if kind in document)
    return Seen(kind, document[kind], document["within"])


def recent_problems(document: object, path: str = "match.recent") -> Iterator[ArgumentProblem]:
    """Yield the problems of a submitted `recent`."""
    keys = ("count", "seconds", "by")
    if not isinstance(document, Mapping):
        yield ArgumentProblem(path, "type", f"This must be an object with {', '.join(keys)}, or null.")
        return
    yield from _unknown_keys(document, keys, path)
    yield from _number_problems(document, "count", MAX_RECENT_COUNT, path)
    yield from _number_problems(document, "seconds", MAX_RECENT_SECONDS, path, is_time=True)
    by = document.get("by")
    if isinstance(by, str) and by.startswith(ARGUMENT):
        yield from path_problems(by.removeprefix(ARGUMENT), f"{path}.by")
    elif not isinstance(by, str) or by not in COUNTED_BY:
        message = f"This must be one of {', '.join(COUNTED_BY)}, or argument: followed by the path of an argument."
        yield ArgumentProblem(f"{path}.by", "invalid", message)


def seen_problems(document: object, path: str = "match.seen") -> Iterator[ArgumentProblem]:
    """Yield the problems of a submitted `seen`. The source or tool that it names need not exist."""
    if not isinstance(document, Mapping):
        message = "This must be an object with category, tool or source, and within; or null."
        yield ArgumentProblem(path, "type", message)
        return
    yield from _unknown_keys(document, (*SEEN_KINDS, "within"), path)
    named = [kind for kind in SEEN_KINDS if document.get(kind) is not None]
    if len(named) != 1 or len(named) != len(document.keys() & SEEN_KINDS.keys()):
        yield ArgumentProblem(path, "invalid", "Name exactly one of category, tool and source.")
    for kind in named:
        name = document[kind]
        if not isinstance(name, str) or not name.strip() or name != name.strip() or not name.isprintable():
            message = "Enter a name of visible characters, without spaces around it."
            yield ArgumentProblem(f"{path}.{kind}", "invalid", message)
        elif len(name) > MAX_SEEN_NAME:
            yield ArgumentProblem(f"{path}.{kind}", "too_long", f"This can have at most {MAX_SEEN_NAME} characters.")
    yield from _number_problems(document, "within", MAX_SEEN_SECONDS, path, is_time=True)


def _unknown_keys(document: Mapping[str, Any], known: tuple[str, ...], path: str) -> Iterator[ArgumentProblem]:
    for key in sorted(str(key) for key in document if key not in known):
        yield ArgumentProblem(f"{path}.{key}", "unknown", f"There can only be {', '.join(known)} here.")


def _number_problems(
    document: Mapping[str, Any], key: str, most: int, path: str, *, is_time: bool = False
) -> Iterator[ArgumentProblem]:
    value = document.get(key)
    if type(value) is not int or not 1 <= value <= most:
        # A form may ask for another unit than seconds.
        wanted = span_in_words(1, most) if is_time else f"a whole number from 1 to {most:,}"
        yield ArgumentProblem(f"{path}.{key}", "invalid", f"This must be {wanted}.")


def span_in_words(least: int, most: int) -> str:
    """Return the lengths of time between two numbers of seconds in words that fit a field of any unit."""
    return f"{format_timespan(least)} to {format_timespan(most)}, in whole seconds"


def recent_in_words(recent: Recent) -> str:
    """Return the term as a part of a policy's sentence."""
    return f"from number {recent.count:,} on {recent.by_words} within {format_timespan(recent.seconds)}"


def seen_in_words(seen: Seen) -> str:
    """Return the term as a part of a policy's sentence."""
    return f"within {format_timespan(seen.within)} after a call {seen.words}"
