"""Session to-do lists stored as plans of kind session, found by the session's owner and name.

The only module that translates between the vocabulary of agents (objective, title, done, active) and that of plans
(goal, description, completed, not ended). A session belongs to an agent's token or a person; a session without a name
is the owner's default session. Its current list is the one that has not been replaced.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from django.db.models import Exists, OuterRef, QuerySet

from catalog.context import Session
from catalog.errors import Conflict, ToolValidationError
from catalog.models import ApiToken, Call
from plans.models import Plan, Step
from plans.planning_tools import todo_list
from plans.planning_tools.todo_list import after
from plans.states import PLAN_TERMINAL, StepStatus

if TYPE_CHECKING:
    from plans.store.requesters import RequesterIds

ValueT = TypeVar("ValueT")
FIXED = "This session's plan cannot be modified."
NEWEST_CALLS = 50
_WORDS: dict[str, todo_list.StepStatus] = {
    StepStatus.COMPLETED.value: "done",
    StepStatus.IN_PROGRESS.value: "in_progress",
}
_REPLACED = Exists(Plan.objects.filter(cloned_from=OuterRef("pk"), kind=Plan.Kind.SESSION))


@dataclass(frozen=True, slots=True)
class SessionKey:
    """Identity of a session: its owner (an agent's token, otherwise a person) and its name, empty for the default."""

    user_id: int
    agent_token_id: int | None
    name: str

    @classmethod
    def of_requester(cls, requester: "RequesterIds") -> "SessionKey":
        token = requester.token_id
        is_agent = token is not None and ApiToken.objects.filter(pk=token, kind=ApiToken.Kind.AGENT).exists()
        return cls(requester.user_id, token if is_agent else None, requester.session)

    @classmethod
    def of_plan(cls, plan: Plan) -> "SessionKey":
        is_agent = plan.token is not None and plan.token.kind == ApiToken.Kind.AGENT
        return cls(plan.author_id, plan.token_id if is_agent else None, plan.session)

    def plans(self) -> "QuerySet[Plan]":
        """Return every plan of the session: lists, direct calls and submitted plans."""
        own = Plan.objects.filter(session=self.name)
        if self.agent_token_id is not None:
            return own.filter(token=self.agent_token_id)
        return own.filter(author=self.user_id).exclude(token__kind=ApiToken.Kind.AGENT)

    def current_list(self) -> Plan | None:
        """Return the session's list; None if none was set up."""
        return current_lists(self.plans()).order_by("-pk").first()


def current_lists(plans: "QuerySet[Plan]") -> "QuerySet[Plan]":
    """Return the current lists among `plans`, without replaced ones."""
    return plans.filter(~_REPLACED, kind=Plan.Kind.SESSION)


def plans_outside_lists(key: SessionKey) -> "QuerySet[Plan]":
    """Return the direct calls and submitted plans of a session, newest first."""
    plans = key.plans().exclude(kind=Plan.Kind.SESSION).order_by("-pk")
    return plans.exclude(session="") if key.name else plans  # lets the database use the partial index of named sessions


def session_calls(key: SessionKey, most: int = NEWEST_CALLS) -> list[Call]:
    """Return the newest calls made in a session, newest first; two queries."""
    plans = plans_outside_lists(key)[:most].values_list("pk", flat=True)
    steps = (
        Step.objects.filter(plan__in=list(plans), call__isnull=False)
        .select_related("call__client_run")
        .order_by("-call_id")
    )
    return [cast("Call", step.call) for step in steps[:most]]


def list_document(plan: Plan) -> todo_list.Plan:
    status: Literal["active", "completed"] = "completed" if plan.status in PLAN_TERMINAL else "active"
    rows = plan.steps.order_by("step_id")
    steps = (todo_list.PlanStep(row.step_id, row.description, _WORDS.get(row.status, "pending")) for row in rows)
    return todo_list.Plan(plan.goal, status, tuple(steps))


class StoredSession(Session):
    """The session of a running call: reads the list from the database and collects commands in `sent`.

    The transaction that finishes the call stores `sent` if the call succeeded (`plans.sessions.commands`). Values of
    other types are not stored and end with the call.
    """

    def __init__(self, requester: "RequesterIds", sent: list[Any]) -> None:
        super().__init__(requester.session)
        self._asker = requester
        self._sent = sent
        self._may_change = True
        self._read: Callable[[], todo_list.Plan | None] = self._stored

    def read_ahead(self) -> None:
        """Load the list now, for a call that must not use the database later."""
        stored = self._stored()
        self._read = lambda: stored

    def _stored(self) -> todo_list.Plan | None:
        row = SessionKey.of_requester(self._asker).current_list()
        self._may_change = row is None or row.can_modify
        return list_document(row) if row else None

    def latest(self, kind: type[ValueT]) -> ValueT | None:
        """Return the list with the sent commands applied, or the value of another type."""
        if kind is not todo_list.Plan:
            return super().latest(kind)
        plan = self._read()
        for command in self._sent:
            plan = after(plan, command)
        return cast("ValueT | None", plan)

    def takes(self, event: type) -> bool:
        """Return whether events of this type change the list or have a reducer."""
        return _changes_list(event) or super().takes(event)

    def send(self, event: object) -> None:
        """Collect a command until the call succeeds. Raises ToolValidationError if the list cannot be modified."""
        if not _changes_list(type(event)):
            super().send(event)
            return
        if not self._may_change:
            raise ToolValidationError(FIXED)
        self._sent.append(event)

    @property
    def changed(self) -> bool:
        return bool(self._sent) or super().changed

    def snapshot(self) -> Any:
        """Return the commands sent so far and the values in memory."""
        return tuple(self._sent), super().snapshot()

    def restore(self, taken: Any) -> None:
        """Discard everything sent since the snapshot `taken`."""
        self._sent[:], values = taken
        super().restore(values)


def _changes_list(event: type) -> bool:
    return issubclass(event, todo_list.SetupPlan | todo_list.AddStep | todo_list.UpdateStep)


def require_no_session_list(plan: Plan) -> None:
    """Raise Conflict if the plan is a session's list, which only the planning tools may change."""
    if plan.kind == Plan.Kind.SESSION:
        raise Conflict(
            "This is a session's to-do list. It can only be changed by the planning tools, called in that session."
        )
