"""Telling one running call to stop: its deadline reads as passed, and what listens is told at once."""

import threading
from collections.abc import Callable

Listener = Callable[[], object]


class Stop:
    """Whether a call is to stop. Told once, by any thread; it is never taken back."""

    __slots__ = ("_listeners", "_lock", "_told")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told = False
        self._listeners: list[Listener] = []

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

    def listen(self, listener: Listener) -> None:
        """Call `listener` when the call is told, in the thread that tells; at once when it was told already."""
        with self._lock:
            if not self._told:
                self._listeners.append(listener)
                return
        listener()
