"""Named fail points at the boundaries of commits, loaded into serving processes through TOOLGATE_TOOLS.

The product has no hooks for this: the statements of a transaction show what it wrote, which determines the point of
its commit. With TOOLGATE_TEST_POINTS=1 a process looks for the file `arm` in its folder of effects, which holds
`<point>:<before|after>:<exit|raise|stop|sleep>`; the first process that reaches this point removes the file and acts.
With TOOLGATE_TEST_ANNOUNCE=1 each point is announced to the server in a statement of its own just before COMMIT, which
tells `tests.chaos.proxy` where to cut.
"""

import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

COMMITS: dict[str, frozenset[str]] = {
    "plan-created": frozenset({"plan.created"}),
    "request-opened": frozenset({"approval.opened"}),
    "request-decided": frozenset({"approval.decided"}),
    "approval-consumed": frozenset({"approval.consumed"}),
    "call-started": frozenset({"call.started"}),
    "call-finished": frozenset({"call.succeeded"}),
    "next-step-started": frozenset({"step.completed", "step.started"}),
    "plan-completed": frozenset({"plan.completed"}),
    "key-reserved": frozenset({"key.reserved"}),
}
"""The points at commits: a transaction that wrote all of these kinds commits at this point."""
IN_HANDLERS = ("effect-begins", "effect-done")
"""The points inside a tool's run: at its first and its last line in the sink."""
POINTS = (*COMMITS, *IN_HANDLERS)

WRITES = re.compile(r'INSERT INTO "?(plans_event|approvals_auditentry|catalog_idempotencykey)"?')
KIND = re.compile(r"(plan|step|call|approval)\.[a-z_]+")
SLEEP_SECONDS = 2.0

_written: dict[int, set[str]] = {}


def observe(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
    """Record the kinds of events, audit entries and keys that a connection's transaction writes."""
    if WRITES.search(sql):
        kinds = {"key.reserved"} if "idempotencykey" in sql else set(filter(_is_kind, params or ()))
        _written.setdefault(id(context["connection"]), set()).update(kinds)
    return execute(sql, params, many, context)


def _is_kind(value: object) -> bool:
    return isinstance(value, str) and KIND.fullmatch(value) is not None


def reached(written: set[str]) -> list[str]:
    """Return the points of a commit of these kinds."""
    return [name for name, kinds in COMMITS.items() if kinds <= written]


def commit(self: BaseDatabaseWrapper) -> None:
    """Commit as Django does, with the faults armed before and after it."""
    points = reached(_written.pop(id(self), set()))
    _announce(self, points)
    for point in points:
        reach(point, "before")
    _commit(self)
    for point in points:
        reach(point, "after")


def rollback(self: BaseDatabaseWrapper) -> None:
    """Roll back as Django does, and forget the recorded kinds."""
    _written.pop(id(self), None)
    _rollback(self)


def _announce(wrapper: BaseDatabaseWrapper, points: list[str]) -> None:
    if points and os.environ.get("TOOLGATE_TEST_ANNOUNCE") and wrapper.connection is not None:
        # A prepared statement would be sent without its text.
        wrapper.connection.execute(f"SELECT 1 /* chaos:{','.join(points)}: */", prepare=False)


def reach(point: str, moment: str) -> None:
    """Do the action that is armed for this point and moment, unless another process has done it."""
    if not os.environ.get("TOOLGATE_TEST_POINTS"):
        return
    armed = Path(os.environ["TOOLGATE_TEST_EFFECTS"]) / "arm"
    try:
        armed_point, when, action = armed.read_text().split(":")
        if (armed_point, when) == (point, moment):
            armed.rename(armed.with_name(f"fired-{point}-{moment}-{action}"))
            ACTIONS[action]()
    except (FileNotFoundError, ValueError):
        return


def _raise() -> None:
    raise OperationalError("the connection was lost (a fail point)")


ACTIONS: dict[str, Callable[[], object]] = {
    "exit": lambda: os._exit(137),
    "raise": _raise,
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "sleep": lambda: threading.Event().wait(SLEEP_SECONDS),
}

_commit, _rollback = BaseDatabaseWrapper.commit, BaseDatabaseWrapper.rollback


def _watch(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    if observe not in connection.execute_wrappers:
        connection.execute_wrappers.append(observe)


def install() -> None:
    """Watch every connection of this process from now on."""
    connection_created.connect(_watch, weak=False)
    BaseDatabaseWrapper.commit = commit  # type: ignore[method-assign]
    BaseDatabaseWrapper.rollback = rollback  # type: ignore[method-assign]


if os.environ.get("TOOLGATE_TEST_POINTS") or os.environ.get("TOOLGATE_TEST_ANNOUNCE"):
    install()
