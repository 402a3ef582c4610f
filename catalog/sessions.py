"""The session of a call, in memory: one value of each type, changed by reducers that take in what was sent.

The pipeline treats a session as it does a resource: what a failed call sent is undone.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

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
