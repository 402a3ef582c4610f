"""Setting and lifting stops, and asking what runs under one to cancel.

The lock of stops is taken before the audit head: a caller with a transaction of its own writes its entries afterwards.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.translation import gettext

from approvals.models import Stop
from catalog.access.roles import ADMINISTRATOR, REVIEWER, NotAllowed, agent_token_of, can_see_all, has_role
from catalog.core import clock
from catalog.core.locks import LockSpace, lock_until_commit
from catalog.core.transactions import retry_on_lock
from catalog.errors import Conflict, field_error
from catalog.models import ApiToken, Category, Source, Tool
from catalog.rest.idempotency import record_done
from catalog.secrets.placeholders import redact_text
from catalog.signals import record_fact

MAX_REASON = 500
MAX_KEY = 150
CANCELLED = ":cancelled"
"""Ending of the reference of a request that used a standing stop to cancel what runs."""
Kind = Stop.Kind


class AlreadyStopped(Conflict):
    """A stop of the same scope stands; `stop` is that one."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(f"This is stopped already, by {stop.set_by_name}: {stop.reason}")
        self.stop = stop


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of a stop: `key` is the object's name, or a token's or person's key as text; `name` is for people."""

    kind: Stop.Kind
    key: str = ""
    name: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the scope as in the API."""
        return scope_document(self.kind, self.key, self.name)


def scope_document(kind: str, key: str, name: str) -> dict[str, Any]:
    """Return a scope as in the API: `{"tool": NAME}`, and a token by its number, a person by username."""
    if kind == Kind.EVERYTHING:
        return {"everything": True}
    return {kind: int(key) if kind == Kind.TOKEN else name if kind == Kind.REQUESTER else key}


def scope_in_words(stop: Stop) -> str:
    """Return what a stop stops, as the beginning of a sentence."""
    words: Mapping[str, str] = {
        Kind.EVERYTHING: gettext("Everything"),
        Kind.TOOL: gettext("The tool %(name)s"),
        Kind.CATEGORY: gettext("All tools of the category %(name)s"),
        Kind.SOURCE: gettext("All tools of the source %(name)s"),
        Kind.AGENT: gettext("The agent %(name)s"),
        Kind.TOKEN: gettext("All that the token %(name)s does"),
        Kind.REQUESTER: gettext("All that is done for %(name)s"),
    }
    return words[stop.kind] % {"name": stop.name}


def scope_of_token(token: ApiToken) -> Scope:
    return Scope(Kind.TOKEN, str(token.pk), str(token)[:200])


def scope_of_person(user: User) -> Scope:
    return Scope(Kind.REQUESTER, str(user.pk), user.get_username())


_agents: list[Callable[[], QuerySet[Any]]] = []


def register_agents(find: Callable[[], QuerySet[Any]]) -> None:
    """Register the function that returns the agents, rows with a `name`, replacing an earlier one."""
    _agents[:] = [find]


def agent_names() -> QuerySet[Any, str]:
    """Return the names of all agents in their order."""
    return _agents[0]().order_by("name").values_list("name", flat=True)


def parse_scope(document: Mapping[str, Any]) -> Scope:
    """Return the scope that a document of the API names. Raises ParameterError if it names nothing that exists."""
    given = {name: each for name, each in document.items() if each is not None}
    if len(given) != 1 or (kind := next(iter(given))) not in Kind.values:
        raise field_error("scope", "invalid", f"A scope has exactly one of these: {', '.join(Kind.values)}.")
    found = _find(Kind(kind), given[kind])
    if found is None:
        noun = Kind(kind).label
        raise field_error(f"scope.{kind}", "unknown", f"There is no such {noun}. Nothing was stopped.")
    return found


def _find(kind: Stop.Kind, value: object) -> Scope | None:
    if kind is Kind.EVERYTHING:
        if value is not True:
            raise field_error("scope.everything", "invalid", "`everything` can only be true.")
        return Scope(kind)
    if kind is Kind.TOKEN:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
            raise field_error("scope.token", "invalid", "A token is named by its number.")
        token = ApiToken.objects.filter(pk=value).first()
        return scope_of_token(token) if token is not None else None
    if not isinstance(value, str):
        raise field_error(f"scope.{kind.value}", "invalid", "The name must be text.")
    if "\0" in value or len(value) > MAX_KEY:
        return None
    if kind is Kind.REQUESTER:
        person = User.objects.filter(username=value).first()
        return scope_of_person(person) if person is not None else None
    rows: dict[Stop.Kind, Callable[[], bool]] = {
        Kind.TOOL: Tool.objects.filter(name=value).exists,
        Kind.CATEGORY: Category.objects.filter(name=value).exists,
        Kind.SOURCE: Source.objects.filter(name=value).exists,
        Kind.AGENT: lambda: agent_names().filter(name=value).exists(),
    }
    return Scope(kind, value, value) if rows[kind]() else None


def check_reason(text: object) -> str:
    """Return a reason without secrets. Raises ParameterError unless it is a text of 1 to 500 characters."""
    reason = text.strip() if isinstance(text, str) else ""
    if not reason or len(reason) > MAX_REASON or "\0" in reason:
        raise field_error("reason", "required", f"A reason is 1 to {MAX_REASON} characters.")
    return redact_text(reason)


def may_set_stops(user: User) -> bool:
    return has_role(user, REVIEWER, ADMINISTRATOR) and agent_token_of(user) is None


def may_lift_stops(user: User) -> bool:
    return has_role(user, ADMINISTRATOR) and agent_token_of(user) is None


def require_may_set(user: User) -> None:
    """Raise NotAllowed if the user may not set stops."""
    if not may_set_stops(user):
        raise NotAllowed("Only reviewers and administrators may stop things, and no agent's token may.")


def require_may_lift(user: User) -> None:
    """Raise NotAllowed if the user may not lift stops."""
    if not may_lift_stops(user):
        raise NotAllowed("Only administrators may lift a stop, and no agent's token may.")


def stops_for(viewer: User) -> QuerySet[Stop]:
    """Return all stops, the latest first. Users without a role and agents' tokens get none."""
    seen = Stop.objects.all() if can_see_all(viewer) else Stop.objects.none()
    return seen.select_related("set_by", "lifted_by").order_by("-pk")


@dataclass(frozen=True, slots=True)
class StopLine:
    """A stop and its scope in words, as pages show it."""

    stop: Stop

    @property
    def words(self) -> str:
        return scope_in_words(self.stop)


def stop_lines_for(viewer: User) -> list[StopLine]:
    """Return the standing stops that a person is shown.

    People with a role are shown all; others only those of everything and those of themselves.
    """
    seen = Stop.objects.filter(lifted_at=None).select_related("set_by").order_by("pk")
    if not can_see_all(viewer):
        seen = seen.filter(Q(kind=Kind.EVERYTHING) | Q(kind=Kind.REQUESTER, key=str(viewer.pk)))
    return [StopLine(stop) for stop in seen]


@contextmanager
def _changing_stops() -> Iterator[None]:
    """Open a transaction in which no call starts; it waits for the transactions that start one."""
    with transaction.atomic():
        lock_until_commit(LockSpace.STOPS, "")
        yield


@retry_on_lock
def set_stop(scope: Scope, reason: str, *, by: User | None, through: str = "", cancel_running: bool = False) -> Stop:
    """Stop everything in a scope: nothing in it starts after the commit.

    `through` names the command or policy that sets the stop where no person does. The caller has checked that `by` may
    set it. Inside a transaction, call this before anything that writes an audit entry, and never in that of a plan: it
    shares the lock of stops, and two of them would wait for each other. Raises ParameterError for a missing reason, and
    AlreadyStopped.
    """
    reason = check_reason(reason)
    with _changing_stops():
        standing = Stop.objects.select_related("set_by").filter(kind=scope.kind, key=scope.key, lifted_at=None).first()
        if standing is not None:
            raise AlreadyStopped(standing)
        stop = Stop.objects.create(
            kind=scope.kind,
            key=scope.key,
            name=scope.name,
            reason=reason,
            cancel_running=cancel_running,
            since=clock.now(),
            set_by=by,
            set_through=through,
        )
        _record("stop.set", stop, by, reason, through, cancel_running=cancel_running)
    return stop


@retry_on_lock
def cancel_under(stop: Stop, reason: str, *, by: User | None, through: str = "") -> Stop:
    """Ask what runs in the scope of a standing stop to cancel. Raises ParameterError, and Conflict if it was lifted."""
    reason = check_reason(reason)
    with _changing_stops():
        if not Stop.objects.filter(pk=stop.pk, lifted_at=None).update(cancel_running=True):
            raise Conflict("This stop was lifted at this moment.")
        stop.cancel_running = True
        _record("stop.cancelled_running", stop, by, reason, through)
    return stop


def set_or_cancel(
    scope: Scope, reason: str, *, by: User | None, through: str = "", cancel_running: bool = False
) -> tuple[Stop, bool]:
    """Set a stop, or with `cancel_running` use the one of this scope that stands; return it, and True if it is new.

    Raises what `set_stop` raises; AlreadyStopped only without `cancel_running`.
    """
    while True:
        try:
            return set_stop(scope, reason, by=by, through=through, cancel_running=cancel_running), True
        except AlreadyStopped as standing:
            if not cancel_running:
                raise
            with suppress(Conflict):  # lifted since: it is set anew
                return cancel_under(standing.stop, reason, by=by, through=through), False


@retry_on_lock
def lift_stop(stop: Stop, reason: str, *, by: User | None, through: str = "") -> Stop:
    """Lift a stop, as the caller has checked that `by` may. Raises ParameterError, and Conflict if it is lifted."""
    reason = check_reason(reason)
    with _changing_stops():
        ended = {"lifted_at": clock.now(), "lifted_by": by, "lifted_through": through, "lift_reason": reason}
        if not Stop.objects.filter(pk=stop.pk, lifted_at=None).update(**ended):
            raise Conflict("This stop was lifted already.")
        for name, value in ended.items():
            setattr(stop, name, value)
        _record("stop.lifted", stop, by, reason, through)
    return stop


def _record(kind: str, stop: Stop, by: User | None, reason: str, through: str, **data: Any) -> None:
    """Record a change of a stop, with which a person's request with an Idempotency-Key is done."""
    if through:
        data["through"] = through
    scope = scope_document(stop.kind, stop.key, stop.name)
    record_fact(kind, by=by, stop=stop.public_id, scope=scope, reason=reason, **data)
    if by is not None:
        record_done(f"{stop.public_id}{CANCELLED}" if kind == "stop.cancelled_running" else stop.public_id)
