"""Context of a call: metadata, deadline, cancellation and resources. The deadline of a cancelled call has passed."""

import logging
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

from django.conf import settings

from catalog.core import clock
from catalog.core.workspace_files import Filesystem

MAX_SESSION = 128
"""Characters of the name of a session."""
CancelListener = Callable[[], object]
ProgressListener = Callable[[float, float | None], object]
"""Called with the progress so far, and with the total if it is known."""
progress_listener: ContextVar[ProgressListener | None] = ContextVar("progress_listener", default=None)
"""Listener to the progress of the running handler; an asynchronous handler has that of its call, too."""


class CancelToken:
    """Cancellation of a call. Any thread may set it, once; it cannot be undone."""

    __slots__ = ("_is_set", "_listeners", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._listeners: list[CancelListener] = []

    @property
    def is_set(self) -> bool:
        """True if the call is cancelled."""
        return self._is_set

    def set(self) -> None:
        """Cancel the call and notify its listeners; setting the token again has no effect."""
        with self._lock:
            if self._is_set:
                return
            self._is_set = True
        for listener in self._listeners:
            listener()

    def listen(self, listener: CancelListener) -> None:
        """Call `listener` on cancellation, in the cancelling thread; immediately if already cancelled."""
        with self._lock:
            if not self._is_set:
                self._listeners.append(listener)
                return
        listener()


ValueT = TypeVar("ValueT")
EventT = TypeVar("EventT")
Reducer = Callable[[ValueT | None, EventT], ValueT]


class Slice(Generic[ValueT]):
    """The values of one type in a session."""

    def __init__(self, session: "Session", kind: type[ValueT]) -> None:
        self._session = session
        self._kind = kind

    def latest(self) -> ValueT | None:
        return self._session.latest(self._kind)

    def register(self, event: type[EventT], reducer: "Reducer[ValueT, EventT]") -> None:
        """Register a reducer that computes the next value from an event of this type."""
        self._session.register(self._kind, event, reducer)


class Session:
    """State of one agent session: immutable values by type, as in `session[Plan].latest()`."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.reducer_errors: tuple[str, ...] = ()
        self._values: dict[type, object] = {}
        self._reducers: dict[type, dict[type, Reducer[Any, Any]]] = {}
        self._before: dict[type, object] = {}

    def __getitem__(self, kind: type[ValueT]) -> Slice[ValueT]:
        return Slice(self, kind)

    def latest(self, kind: type[ValueT]) -> ValueT | None:
        return cast("ValueT | None", self._values.get(kind))

    def register(self, kind: type[ValueT], event: type[EventT], reducer: "Reducer[ValueT, EventT]") -> None:
        """Register the reducer that computes the next value of `kind` from an `event`, replacing an earlier reducer."""
        self._reducers.setdefault(event, {})[kind] = reducer

    def takes(self, event: type) -> bool:
        """Return whether a reducer handles events of this type."""
        return event in self._reducers

    def send(self, event: object) -> None:
        """Pass an event to the reducers. Exceptions they raise are collected in `reducer_errors`."""
        for kind, reducer in self._reducers.get(type(event), {}).items():
            try:
                self._values[kind] = reducer(self._values.get(kind), event)
            except Exception as error:  # noqa: BLE001 - an author's reducer may raise anything; the pipeline reports it
                self.reducer_errors = (*self.reducer_errors, f"{type(error).__name__}: {error}"[:200])

    @property
    def changed(self) -> bool:
        """True if any value is not the same as in the last snapshot."""
        return self._values != self._before

    def snapshot(self) -> Any:
        """Return the current state, which `restore` accepts if the call fails."""
        self.reducer_errors = ()
        self._before = self._values.copy()
        return self._before

    def restore(self, taken: Any) -> None:
        """Restore the state of a snapshot."""
        self.reducer_errors = ()
        self._values = taken.copy()


__all__ = ["Budget", "Deadline", "Filesystem", "Resources", "ToolContext", "provide_resource"]

ResourceT = TypeVar("ResourceT")
logger = logging.getLogger("toolgate.context")


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment (UTC) after which a call may not continue. It counts as passed once `stop` is cancelled."""

    expires_at: datetime
    stop: CancelToken | None = field(default=None, compare=False, repr=False)

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """Return the deadline this many seconds from now."""
        return cls(clock.now() + timedelta(seconds=seconds))

    @property
    def stopped(self) -> bool:
        """True if the call was cancelled, however much time it had left."""
        return self.stop is not None and self.stop.is_set

    def remaining(self) -> float:
        """Return the seconds left; 0 when the deadline has passed or the call was cancelled."""
        return 0.0 if self.stopped else max(0.0, (self.expires_at - clock.now()).total_seconds())

    def expired(self) -> bool:
        """Return whether the deadline has passed or the call was cancelled."""
        return self.stopped or clock.now() >= self.expires_at


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a call; None means no limit. `calls` is how many more calls its plan may start after this one.

    `tokens` and `cost` are for agents.
    """

    seconds: float | None = None
    calls: int | None = None
    tokens: int | None = None
    cost: float | None = None


_RESOURCE_FACTORIES: dict[type, Callable[[], object]] = {Filesystem: lambda: Filesystem(settings.TOOLGATE_WORKSPACE)}


def provide_resource(kind: type[ResourceT], maker: Callable[[], ResourceT | Generator[ResourceT]]) -> None:
    """Provide a resource of this type to every call, replacing an earlier provider.

    `maker` is called on first use. It returns the resource, whose `close()` is called in the end, or it is a generator
    that yields the resource between set-up and clean-up.

    A resource is restored after a failed call if it has methods for that. `restore(taken)` receives what `snapshot()`
    returned when the call got the resource. A resource without `snapshot()` keeps its own record, and its `restore()`
    returns whether everything was undone. A false attribute `changed` means there is nothing to undo.
    """
    _RESOURCE_FACTORIES[kind] = maker


@dataclass(frozen=True, slots=True)
class UndoResult:
    """Result of undoing a failed call: whether there were changes, and the resources whose changes remain."""

    some: bool = False
    failed: tuple[str, ...] = ()

    @property
    def all(self) -> bool:
        """True if there were changes, and all of them were undone."""
        return self.some and not self.failed


class Resources:
    """Resources of a call by type, created on first use and closed in reverse order after the handler has returned."""

    __slots__ = ("_closers", "_makers", "_opened", "_taken")

    def __init__(
        self, opened: Iterable[object] = (), makers: Mapping[type, Callable[[], object]] | None = None
    ) -> None:
        self._opened: dict[type, object] = {}
        self._taken: dict[type, object] = {}
        self._closers: list[Callable[[], object]] = []
        self._makers = _RESOURCE_FACTORIES if makers is None else makers
        for resource in opened:
            self._keep(type(resource), resource)

    def _keep(self, kind: type, made: object) -> None:
        if isinstance(made, Generator):
            self._opened[kind] = next(made)
            self._closers.append(partial(next, made, None))
        else:
            self._opened[kind] = made
            if hasattr(made, "close"):
                self._closers.append(made.close)
        take = getattr(self._opened[kind], "snapshot", None)
        if callable(take):
            self._taken[kind] = take()

    def adopt(self, thing: object) -> None:
        """Register an object that the call changes, so that it is restored like a resource."""
        if hasattr(thing, "snapshot") and type(thing) not in self._opened:
            self._keep(type(thing), thing)

    def get(self, kind: type[ResourceT]) -> ResourceT:
        """Return the resource of this type. Raises LookupError if there is none."""
        found = self.get_optional(kind)
        if found is None:
            raise LookupError(f"This call has no {kind.__name__}.")
        return found

    def get_optional(self, kind: type[ResourceT]) -> ResourceT | None:
        if kind not in self._opened and kind in self._makers:
            self._keep(kind, self._makers[kind]())
        exact = self._opened.get(kind)
        if exact is None:
            exact = next((each for each in self._opened.values() if isinstance(each, kind)), None)
        return cast("ResourceT | None", exact)

    def restore(self, may_undo: Callable[[], bool] = lambda: True) -> UndoResult:
        """Undo the changes of opened resources, last first; those for which `may_undo` is false count as failed."""
        changed = [kind for kind, each in self._opened.items() if getattr(each, "changed", kind in self._taken)]
        failed = [kind.__name__ for kind in reversed(changed) if not self._is_restored(kind, may_undo)]
        return UndoResult(bool(changed), tuple(failed))

    def _is_restored(self, kind: type, may_undo: Callable[[], bool]) -> bool:
        resource = cast("Any", self._opened[kind])
        try:
            if isinstance(resource, Filesystem):
                return resource.restore(may_undo)
            if not may_undo():
                return False
            if kind in self._taken:
                resource.restore(self._taken[kind])
                return True
            return bool(resource.restore())
        except BaseException as error:  # noqa: BLE001 - an author's code may raise anything; the others must be restored
            logger.warning("resource_restore_failed resource=%s error=%s", kind.__name__, type(error).__name__)
            return False

    def close(self) -> None:
        """Close every opened resource that can be closed; a failure does not stop the others."""
        while self._closers:
            with suppress(Exception):
                self._closers.pop()()
        self._opened.clear()
        self._taken.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """One call as seen by its handler; the last three fields are None outside an agent.

    `session` is that of the call's owner: `session[Plan].latest()` is the to-do list of the planning tools.
    `cwd` is the working directory that a client claims for a call that it runs itself; it is empty for all others.
    """

    call_id: str = ""
    plan_id: str | None = None
    step_id: int | None = None
    attempt: int = 1
    idempotency_key: str | None = None
    requested_by: int | None = None
    session: Session | None = None
    memory: Mapping[str, Any] = field(default_factory=dict)
    deadline: Deadline | None = None
    budget: Budget | None = None
    resources: Resources = field(default_factory=Resources)
    target_state: str | None = None
    trace_id: str | None = None
    prompt: Any = None
    rendered_prompt: Any = None
    adapter: Any = None
    cwd: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.memory, dict):  # any other mapping is read-only already, and may load lazily
            object.__setattr__(self, "memory", MappingProxyType(self.memory.copy()))

    @property
    def filesystem(self) -> Filesystem | None:
        """The workspace: short for `resources.get_optional(Filesystem)`."""
        return self.resources.get_optional(Filesystem)
