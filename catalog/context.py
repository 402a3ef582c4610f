"""What a handler is given beside its arguments: what the call is, how long it has, scoped resources."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, TypeVar, cast

from django.conf import settings

from catalog.filesystem import Filesystem

__all__ = ["Budget", "Deadline", "Filesystem", "Resources", "ToolContext"]

ResourceT = TypeVar("ResourceT")


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment (UTC) after which a call may not go on."""

    expires_at: datetime

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """Make the deadline that lies this many seconds ahead."""
        return cls(datetime.now(UTC) + timedelta(seconds=seconds))

    def remaining(self) -> float:
        """Return the seconds left, 0 when it has passed."""
        return max(0.0, (self.expires_at - datetime.now(UTC)).total_seconds())

    def expired(self) -> bool:
        """Say whether it has passed."""
        return datetime.now(UTC) >= self.expires_at


@dataclass(frozen=True, slots=True)
class Budget:
    """What a call may spend, in seconds; None is no limit."""

    seconds: float | None = None


def _open_workspace() -> Filesystem:
    return Filesystem(settings.TOOLGATE_WORKSPACE)


class Resources:
    """Things a call uses, looked up by type, made when first asked for, closed when the call ends."""

    __slots__ = ("_makers", "_opened")

    def __init__(
        self, opened: Iterable[object] = (), makers: Mapping[type, Callable[[], object]] | None = None
    ) -> None:
        self._opened: dict[type, object] = {type(resource): resource for resource in opened}
        self._makers = _DEFAULT_MAKERS if makers is None else makers

    def get(self, kind: type[ResourceT]) -> ResourceT:
        """Return the resource of this type; raise LookupError when the call has none."""
        found = self.get_optional(kind)
        if found is None:
            raise LookupError(f"This call has no {kind.__name__}.")
        return found

    def get_optional(self, kind: type[ResourceT]) -> ResourceT | None:
        """Return the resource of this type, or None."""
        if kind not in self._opened and kind in self._makers:
            self._opened[kind] = self._makers[kind]()
        exact = self._opened.get(kind)
        if exact is None:
            exact = next((each for each in self._opened.values() if isinstance(each, kind)), None)
        return cast("ResourceT | None", exact)

    def restore(self) -> bool:
        """Undo what the opened resources changed; say whether there was something and all is undone."""
        changed = [each for each in self._opened.values() if getattr(each, "changed", False)]
        undone = [cast("Any", each).restore() for each in changed]
        return bool(undone) and all(undone)

    def close(self) -> None:
        """Close everything that was opened and can be closed; one that fails does not stop the others."""
        for resource in reversed(self._opened.values()):
            with suppress(Exception):
                getattr(resource, "close", _do_nothing)()
        self._opened.clear()


def _do_nothing() -> None:
    """Stand in for the close() of a resource that has none."""


_DEFAULT_MAKERS: Mapping[type, Callable[[], object]] = MappingProxyType({Filesystem: _open_workspace})


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """One call as its handler sees it; the last three are None outside an agent."""

    call_id: str = ""
    plan_id: str | None = None
    step_id: int | None = None
    attempt: int = 1
    idempotency_key: str | None = None
    requested_by: int | None = None
    session: Any = None
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
