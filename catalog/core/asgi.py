"""Types of ASGI applications, and the scope key under which an application stores the kind of a request for metrics."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MEASURE_KEY = "toolgate.measure_as"
"""The key in a scope that holds a function of the layer that measures requests."""


def measure_as(scope: Scope, kind: str) -> None:
    """Name the kind of a request for metrics and the log, so that waits and streams are not measured as quick calls."""
    measure = scope.get(MEASURE_KEY)
    if measure is not None:
        measure(kind)
