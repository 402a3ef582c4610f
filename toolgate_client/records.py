"""Answers of Toolgate as typed records.

Each is read strictly: a field that is missing or of another type raises MalformedAnswer. `document` is the whole
answer, with the fields that the record does not name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast

from toolgate_client.errors import MalformedAnswer

Decision = Literal["allow", "deny", "wait", "defer"]
DECISIONS = ("allow", "deny", "wait", "defer")
ENDED = frozenset({"completed", "failed", "cancelled"})
T = TypeVar("T")


class Fields:
    """The fields of one JSON object; `what` names the object in errors."""

    def __init__(self, document: Any, what: str) -> None:
        if not isinstance(document, dict):
            raise MalformedAnswer(f"The {what} is not a JSON object.")
        self.document: dict[str, Any] = document
        self.what = what

    def required(self, name: str, kind: type[T]) -> T:
        """Return a field. Raises MalformedAnswer if it is missing or of another type."""
        value = self.optional(name, kind)
        if value is None:
            raise MalformedAnswer(f"The {self.what} has no {name!r}.")
        return value

    def optional(self, name: str, kind: type[T]) -> T | None:
        """Return a field, or None if it is missing or null."""
        value = self.document.get(name)
        if value is None:
            return None
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise MalformedAnswer(f"The field {name!r} of the {self.what} is no {kind.__name__}.")
        return value

    def items(self, name: str) -> Sequence[Any]:
        """Return a list. Raises MalformedAnswer if it is missing."""
        return self.required(name, list)


@dataclass(frozen=True, slots=True)
class ApprovalLink:
    """The approval request that a call waits for, or waited for; `url` is its page."""

    id: str
    url: str
    expires_at: str | None


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool.

    `status` is `running`, `waiting`, `completed`, `failed` or `cancelled`; `waiting_for` says for what a waiting call
    waits. `result` is Toolgate's standard response, `message` its text for people and models.
    """

    id: str
    tool: str
    status: str
    waiting_for: str | None
    message: str
    result: Mapping[str, Any] | None
    plan: str | None
    step_id: int | None
    approval: ApprovalLink | None
    replaced_by: str | None
    document: Mapping[str, Any] = field(repr=False)

    @property
    def has_ended(self) -> bool:
        """True once nothing more happens to the call."""
        return self.status in ENDED

    @property
    def succeeded(self) -> bool:
        """True if the tool ran and succeeded."""
        return self.status == "completed"

    @property
    def results(self) -> Any:
        """The value that the tool returned: the field `results` of the standard response. None before the end."""
        return None if self.result is None else self.result.get("results")

    @classmethod
    def read(cls, document: Any) -> "Call":
        """Read the answer of `calls/`. Raises MalformedAnswer."""
        fields = Fields(document, "call")
        approval = fields.optional("approval", dict)
        return cls(
            fields.required("id", str),
            fields.required("tool", str),
            fields.required("status", str),
            fields.optional("waiting_for", str),
            fields.optional("message", str) or "",
            fields.optional("result", dict),
            fields.optional("plan", str),
            fields.optional("step_id", int),
            None if approval is None else _approval_link(approval),
            fields.optional("replaced_by", str),
            fields.document,
        )


def _approval_link(document: Any) -> ApprovalLink:
    fields = Fields(document, "approval")
    return ApprovalLink(fields.required("id", str), fields.required("url", str), fields.optional("expires_at", str))


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a plan; `call` and `approval` are ids."""

    step_id: int
    description: str
    status: str
    waiting_for: str | None
    error: str | None
    call: str | None
    approval: str | None
    document: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, document: Any) -> "Step":
        """Read one of a plan's `steps`. Raises MalformedAnswer."""
        fields = Fields(document, "step")
        return cls(
            fields.required("step_id", int),
            fields.required("description", str),
            fields.required("status", str),
            fields.optional("waiting_for", str),
            fields.optional("error", str),
            fields.optional("call", str),
            fields.optional("approval", str),
            fields.document,
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan; `status` is `pending`, `in_progress`, `completed`, `failed` or `cancelled`, `last_seq` its last event."""

    id: str
    goal: str
    status: str
    last_seq: int
    steps: Sequence[Step]
    document: Mapping[str, Any] = field(repr=False)

    @property
    def has_ended(self) -> bool:
        """True if no step runs any more, unless a person retries the plan."""
        return self.status in ENDED

    @classmethod
    def read(cls, document: Any) -> "Plan":
        """Read the answer of `plans/{id}/`. Raises MalformedAnswer."""
        fields = Fields(document, "plan")
        return cls(
            fields.required("id", str),
            fields.required("goal", str),
            fields.required("status", str),
            fields.required("last_seq", int),
            tuple(map(Step.read, fields.items("steps"))),
            fields.document,
        )


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a plan. `seq` counts from 1 without gaps; `at` is a time in UTC as ISO 8601."""

    seq: int
    type: str
    at: str
    step_id: int | None
    data: Mapping[str, Any]

    @property
    def ends_plan(self) -> bool:
        """True for the event with which a plan ends."""
        return self.type in ("plan.completed", "plan.failed", "plan.cancelled")

    @classmethod
    def read(cls, document: Any) -> "Event":
        """Read one event of `plans/{id}/events/`. Raises MalformedAnswer."""
        fields = Fields(document, "event")
        return cls(
            fields.required("seq", int),
            fields.required("type", str),
            fields.required("at", str),
            fields.optional("step_id", int),
            fields.required("data", dict),
        )


@dataclass(frozen=True, slots=True)
class Approval:
    """An approval request. `digest` is what a review names as seen; `why_not` says why this token may not decide."""

    id: str
    status: str
    tool: str
    digest: str
    arguments: Mapping[str, Any]
    call: str | None
    plan: str | None
    may_decide: bool
    why_not: str | None
    expires_at: str | None
    document: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, document: Any) -> "Approval":
        """Read an approval request. Raises MalformedAnswer."""
        fields = Fields(document, "approval")
        return cls(
            fields.required("id", str),
            fields.required("status", str),
            fields.required("tool", str),
            fields.required("digest", str),
            fields.required("arguments", dict),
            fields.optional("call", str),
            fields.optional("plan", str),
            fields.optional("may_decide", bool) or False,
            fields.optional("why_not", str),
            fields.optional("expires_at", str),
            fields.document,
        )


@dataclass(frozen=True, slots=True)
class Permission:
    """The answer to a question whether a function of this process may run.

    On `allow`, `input` is what may run, which a reviewer may have edited. `message` is written for the model. `wait`
    and `defer` mean that nobody has decided yet.
    """

    decision: Decision
    call: str | None
    input: Mapping[str, Any] | None = field(repr=False)
    message: str
    approval: str | None
    url: str | None

    @classmethod
    def read(cls, document: Any) -> "Permission":
        """Read the answer of `permissions/`. Raises MalformedAnswer, also for an allowance without call or input."""
        fields = Fields(document, "permission")
        decision = fields.required("decision", str)
        if decision not in DECISIONS:
            raise MalformedAnswer("The permission has a decision that this client does not know.")
        call, arguments = fields.optional("call", str), fields.optional("input", dict)
        if decision == "allow" and (not call or arguments is None):
            raise MalformedAnswer("The permission allows something without saying which call and input.")
        return cls(
            cast(Decision, decision),
            call,
            arguments,
            fields.optional("message", str) or "",
            fields.optional("approval", str),
            fields.optional("url", str) or None,
        )


@dataclass(frozen=True, slots=True)
class RunReport:
    """The end of something that was allowed to run in this process; `output` is JSON, `message` says why it failed."""

    succeeded: bool
    output: Any = field(default=None, repr=False)
    message: str = ""
    duration_ms: int | None = None

    def document(self) -> dict[str, Any]:
        """Return the body of `permissions/{call}/result/`."""
        return {name: getattr(self, name) for name in ("succeeded", "output", "message", "duration_ms")}


@dataclass(frozen=True, slots=True)
class Deferred:
    """A session that ended to wait for a decision, and can be resumed now.

    Session, directory and names are claims of the client that deferred: whoever resumes checks them.
    """

    call: str
    client: str
    session: str
    cwd: str
    decision: str
    attempts: int

    @classmethod
    def read(cls, document: Any) -> "Deferred":
        """Read one entry of `permissions/deferred/`. Raises MalformedAnswer."""
        fields = Fields(document, "deferred session")
        return cls(
            fields.required("call", str),
            fields.required("client", str),
            fields.required("session", str),
            fields.optional("cwd", str) or "",
            fields.required("decision", str),
            fields.optional("attempts", int) or 0,
        )
