"""Events that hooks of coding agents send, in one shape for all clients, and the reading of their fields.

Clients change: unknown fields are left out, and a field that only informs may be missing or have another type. The
fields that name a call are strict.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from catalog.core.canonical_json import json_size
from catalog.core.lenient_json import cut_text
from catalog.results import TRUNCATION_MARK
from plans.coding_agents.permissions import PermissionAnswer, PermissionQuestion
from plans.coding_agents.reports import ReportedRun, RunReport

MAX_OUTPUT = 1024 * 1024 - 4096
"""Size in bytes of an output that is kept as JSON; a larger one is kept as the beginning of its text."""
MAX_MESSAGE = 4_000
"""Characters of an answer's message: clients cut long ones, and models read all of it."""


class UnreadableEvent(Exception):
    """A body that holds no event that the client's format defines.

    `event` is its name, and `asks` says that the client waits for a decision, which must then be a refusal.
    """

    def __init__(self, message: str, event: str = "", *, asks: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.event = event
        self.asks = asks


class Inexpressible(Exception):
    """An allowance that the format cannot express, such as an edited input; the client must not run the call."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The client asks before it runs a tool. `can_defer` says that this event may be deferred, if its mode allows."""

    event: str
    question: PermissionQuestion
    can_defer: bool = False


@dataclass(frozen=True, slots=True)
class Reported:
    """The client has run a tool."""

    event: str
    run: ReportedRun
    report: RunReport


@dataclass(frozen=True, slots=True)
class NotRun:
    """The client refused a call itself, for a `reason` of its own, whatever Toolgate had answered."""

    event: str
    run: ReportedRun
    reason: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """An event about no tool, which needs no answer."""

    event: str


HookEvent = Asked | Reported | NotRun | Ignored


class HookFormat(ABC):
    """The format of one client's hooks."""

    client: ClassVar[str]
    """Name of the client, which is that of its source."""
    questions: ClassVar[frozenset[str]]
    """Events after which the client waits for a decision."""
    own_tools: ClassVar[str] = "mcp__toolgate__"
    """Beginning of the names that the client gives to the tools of Toolgate's MCP server."""
    tool_fields: ClassVar[frozenset[str]] = frozenset({"tool_name", "tool_input"})
    """Fields of events that concern a tool."""

    @abstractmethod
    def read_event(self, body: Mapping[str, Any]) -> HookEvent:
        """Return the event in a hook's body. Raises UnreadableEvent."""

    @abstractmethod
    def decision(self, asked: Asked, answer: PermissionAnswer) -> dict[str, Any]:
        """Return an answer in the client's format: `allow`, `deny` or `defer`.

        Raises Inexpressible for an allowance that the client would misread.
        """

    @abstractmethod
    def refusal(self, event: str, message: str) -> dict[str, Any]:
        """Return a refusal, for an event of which nothing but the name needs to be known."""

    def fields_of(self, body: Mapping[str, Any]) -> "Fields":
        """Return the fields of a body that names its event. Raises UnreadableEvent."""
        name = body.get("hook_event_name")
        if not isinstance(name, str) or not name:
            # It may be a question: without a refusal, the client might run the tool.
            asks = not self.tool_fields.isdisjoint(body)
            raise UnreadableEvent("The field hook_event_name of the hook's body must name the event.", asks=asks)
        return Fields(body, name, name in self.questions)

    def run_of(self, fields: "Fields") -> ReportedRun:
        """Return the run that a report names by the fields of most clients. Raises UnreadableEvent."""
        given = fields.values.get("tool_input")
        return ReportedRun(
            client=self.client,
            session=fields.text("session_id"),
            tool=fields.text("tool_name"),
            call_id=fields.optional_text("tool_use_id"),
            cwd=fields.information("cwd"),
            input=given if isinstance(given, dict) else None,
        )

    def unknown_event(self, fields: "Fields") -> Ignored:
        """Return an event that the format does not list. Raises UnreadableEvent if it concerns a tool.

        Another version of the client may ask by an event of another name, so it is refused like a question.
        """
        if not self.tool_fields.isdisjoint(fields.values):
            message = f"Toolgate does not know the event {fields.event[:64]} of this client, so it allows nothing."
            raise UnreadableEvent(message, fields.event, asks=True)
        return Ignored(fields.event)


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one object of a hook's body. Methods raise UnreadableEvent that names the field."""

    values: Mapping[str, Any]
    event: str
    asks: bool
    path: str = ""

    def text(self, name: str) -> str:
        """Return a text that must be there and not be empty."""
        value = self.values.get(name)
        if not isinstance(value, str) or not value:
            raise self.problem(name, "must be a text that is not empty")
        return value

    def optional_text(self, name: str) -> str:
        """Return a text; empty if it is missing or null."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            raise self.problem(name, "must be a text")
        return value or ""

    def object(self, name: str) -> dict[str, Any]:
        value = self.values.get(name)
        if not isinstance(value, dict):
            raise self.problem(name, "must be an object")
        return value

    def inner(self, name: str) -> "Fields":
        return Fields(self.object(name), self.event, self.asks, f"{self.path}{name}.")

    def information(self, name: str) -> str:
        """Return a text that only informs; empty if it is missing or something else."""
        value = self.values.get(name)
        return value if isinstance(value, str) else ""

    def duration_ms(self) -> int | None:
        value = self.values.get("duration_ms")
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return int(value) if 0 <= value < 2**31 else None

    def problem(self, name: str, what: str) -> UnreadableEvent:
        message = f"The field {self.path}{name} of the hook's body {what}."
        return UnreadableEvent(message, self.event, asks=self.asks)


def kept_output(value: Any) -> Any:
    """Return what a tool answered; what is larger than MAX_OUTPUT is cut, as text that says so."""
    if json_size(value) <= MAX_OUTPUT:
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return cut_text(text, MAX_OUTPUT - len(TRUNCATION_MARK)) + TRUNCATION_MARK


def message_of(answer: PermissionAnswer) -> str:
    """Return the message of an answer for the model, never empty: Codex takes an empty reason for a failed hook."""
    return short(answer.message) or "Refused by Toolgate."


def short(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}{TRUNCATION_MARK}"
