"""What a handler is given beside its arguments: what the call is, how long it has, scoped resources.

A session is treated as a resource is: what a failed call sent to it is undone. A call that is told to stop finds its
deadline passed.
"""

import logging
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

from django.conf import settings

from catalog.core import clock
from catalog.core.filesystem import Filesystem

CancelListener = Callable[[], object]


class CancelToken:
    """Whether a call is to stop. Told once, by any thread; it is never taken back."""

    __slots__ = ("_listeners", "_lock", "_told")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told = False
        self._listeners: list[CancelListener] = []

    @property
    def told(self) -> bool:
        """Whether the call has been told."""
        return self._told

    def tell(self) -> None:
        """Tell the call, and whoever listens; again is no more than once."""
        with self._lock:
            if self._told:
                return
            self._told = True
        for listener in self._listeners:
            listener()

    def listen(self, listener: CancelListener) -> None:
        """Call `listener` when the call is told, in the thread that tells; at once when it was told already."""
        with self._lock:
            if not self._told:
                self._listeners.append(listener)
                return
        listener()


ValueT = TypeVar("ValueT")
EventT = TypeVar("EventT")
Reducer = Callable[[ValueT | None, EventT], ValueT]


class Slice(Generic[ValueT]):
    """What a session keeps of one type."""

    def __init__(self, session: "Session", kind: type[ValueT]) -> None:
        self._session = session
        self._kind = kind

    def latest(self) -> ValueT | None:
        """Return the value as it is now; None where there is none yet."""
        return self._session.latest(self._kind)

    def register(self, event: type[EventT], reducer: "Reducer[ValueT, EventT]") -> None:
        """Let a reducer make the next value whenever an event of this type is sent."""
        self._session.register(self._kind, event, reducer)


class Session:
    """What one agent session knows, as immutable values by their type: `session[Plan].latest()`."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.reducer_errors: tuple[str, ...] = ()
        self._values: dict[type, object] = {}
        self._reducers: dict[type, dict[type, Reducer[Any, Any]]] = {}
        self._before: dict[type, object] = {}

    def __getitem__(self, kind: type[ValueT]) -> Slice[ValueT]:
        return Slice(self, kind)

    def latest(self, kind: type[ValueT]) -> ValueT | None:
        """Return the value of this type; None where there is none yet."""
        return cast("ValueT | None", self._values.get(kind))

    def register(self, kind: type[ValueT], event: type[EventT], reducer: "Reducer[ValueT, EventT]") -> None:
        """Let a reducer make the next value of `kind` whenever an `event` is sent, in place of one it had for that."""
        self._reducers.setdefault(event, {})[kind] = reducer

    def takes(self, event: type) -> bool:
        """Say whether some reducer takes in events of this type."""
        return event in self._reducers

    def send(self, event: object) -> None:
        """Let the reducers take an event in. What one of them raises stands in `reducer_errors`."""
        for kind, reducer in self._reducers.get(type(event), {}).items():
            try:
                self._values[kind] = reducer(self._values.get(kind), event)
            except Exception as error:  # noqa: BLE001 - an author's reducer may raise anything; the pipeline tells of it
                self.reducer_errors = (*self.reducer_errors, f"{type(error).__name__}: {error}"[:200])

    @property
    def changed(self) -> bool:
        """Whether anything differs from the last snapshot."""
        return self._values != self._before

    def snapshot(self) -> Any:
        """Return what there is, to be restored when a call fails."""
        self.reducer_errors = ()
        self._before = self._values.copy()
        return self._before

    def restore(self, taken: Any) -> None:
        """Put back what a snapshot has."""
        self.reducer_errors = ()
        self._values = taken.copy()


__all__ = ["Budget", "Deadline", "Filesystem", "Resources", "ToolContext", "provide_resource"]

ResourceT = TypeVar("ResourceT")
logger = logging.getLogger("toolgate.context")


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment (UTC) after which a call may not go on; for a call that is told to `stop` it has passed."""

    expires_at: datetime
    stop: CancelToken | None = field(default=None, compare=False, repr=False)

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """Make the deadline that lies this many seconds ahead."""
        return cls(clock.now() + timedelta(seconds=seconds))

    @property
    def stopped(self) -> bool:
        """Whether the call was told to stop, whatever time it had left."""
        return self.stop is not None and self.stop.told

    def remaining(self) -> float:
        """Return the seconds left, 0 when it has passed or the call was told to stop."""
        return 0.0 if self.stopped else max(0.0, (self.expires_at - clock.now()).total_seconds())

    def expired(self) -> bool:
        """Say whether it has passed, or the call was told to stop."""
        return self.stopped or clock.now() >= self.expires_at


@dataclass(frozen=True, slots=True)
class Budget:
    """What a call may spend; None is no limit. `calls` are those its plan may still start after this one.

    `tokens` and `cost` are for agents.
    """

    seconds: float | None = None
    calls: int | None = None
    tokens: int | None = None
    cost: float | None = None


def _open_workspace() -> Filesystem:
    return Filesystem(settings.TOOLGATE_WORKSPACE)


_RESOURCE_FACTORIES: dict[type, Callable[[], object]] = {Filesystem: _open_workspace}


def provide_resource(kind: type[ResourceT], maker: Callable[[], ResourceT | Generator[ResourceT]]) -> None:
    """Let every call have a resource of this type, replacing what made it before.

    `maker` is called when a call first asks. It returns the resource, whose own `close()` ends it, or is a generator
    that yields it: what stands before the yield sets it up, what stands after ends it.

    A failed call's changes are undone in resources that can: `restore(taken)` is given what `snapshot()` returned when
    the call got the resource; one without `snapshot()` keeps its own record, and `restore()` says whether all of it was
    undone. An attribute `changed` that is false says that there is nothing to undo.
    """
    _RESOURCE_FACTORIES[kind] = maker


@dataclass(frozen=True, slots=True)
class UndoResult:
    """What came of undoing a failed call's changes: whether there were any, and in which resources they still are."""

    some: bool = False
    failed: tuple[str, ...] = ()

    @property
    def all(self) -> bool:
        """Whether there was something to undo, and all of it was undone."""
        return self.some and not self.failed


class Resources:
    """Things a call uses, looked up by type, made when first asked for, closed in reverse when the call ends.

    A sync handler that is past its time still uses them: they are closed when it comes back.
    """

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
            self._closers.append(getattr(made, "close", _do_nothing))
        take = getattr(self._opened[kind], "snapshot", None)
        if callable(take):
            self._taken[kind] = take()

    def adopt(self, thing: object) -> None:
        """Take in something that a call changes beside its resources, so that it is undone as they are."""
        if hasattr(thing, "snapshot") and type(thing) not in self._opened:
            self._keep(type(thing), thing)

    def get(self, kind: type[ResourceT]) -> ResourceT:
        """Return the resource of this type; raise LookupError when the call has none."""
        found = self.get_optional(kind)
        if found is None:
            raise LookupError(f"This call has no {kind.__name__}.")
        return found

    def get_optional(self, kind: type[ResourceT]) -> ResourceT | None:
        """Return the resource of this type, or None."""
        if kind not in self._opened and kind in self._makers:
            self._keep(kind, self._makers[kind]())
        exact = self._opened.get(kind)
        if exact is None:
            exact = next((each for each in self._opened.values() if isinstance(each, kind)), None)
        return cast("ResourceT | None", exact)

    def restore(self, may_undo: Callable[[], bool] = lambda: True) -> UndoResult:
        """Undo what the opened resources changed, the last one first; one that fails does not stop the others.

        What `may_undo` says no to stays as it is, and is named as what failed.
        """
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
        except BaseException as error:  # noqa: BLE001 - whatever an author's code raises, the others are to be undone
            logger.warning("resource_restore_failed resource=%s error=%s", kind.__name__, type(error).__name__)
            return False

    def close(self) -> None:
        """Close everything that was opened and can be closed; one that fails does not stop the others."""
        while self._closers:
            with suppress(Exception):
                self._closers.pop()()
        self._opened.clear()
        self._taken.clear()


def _do_nothing() -> None:
    """Stand in for the close() of a resource that has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """One call as its handler sees it; the last three are None outside an agent.

    `session` is that of the call's owner: `session[Plan].latest()` is the to-do list of the planning tools.
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

    def __post_init__(self) -> None:
        if isinstance(self.memory, dict):  # anything else is a read-only mapping already, perhaps one that reads late
            object.__setattr__(self, "memory", MappingProxyType(self.memory.copy()))

    @property
    def filesystem(self) -> Filesystem | None:
        """Return the workspace: short for `resources.get_optional(Filesystem)`."""
        return self.resources.get_optional(Filesystem)
