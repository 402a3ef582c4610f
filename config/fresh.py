"""Answers that many ask for and the database gives: found once a second at most, in a thread that may hang.

So a storm of probes costs one look, and a database that does not answer keeps neither a probe nor a web thread.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLong
from time import monotonic
from typing import Generic, TypeVar

from django.db import connection

ValueT = TypeVar("ValueT")
KEEP_SECONDS = 1.0
PATIENCE_SECONDS = 1.5


class Fresh(Generic[ValueT]):
    """What `look` finds, at most `keep` seconds old."""

    def __init__(self, look: Callable[[], ValueT], keep: float = KEEP_SECONDS) -> None:
        self._look = look
        self._keep = keep
        self._lock = threading.Lock()
        self._found: Future[ValueT] | None = None
        self._begun = float("-inf")

    def get(self) -> ValueT | None:
        """Return what was found; None when it could not be, or not within `PATIENCE_SECONDS`."""
        try:
            return self._looking().result(PATIENCE_SECONDS)
        except (TooLong, Exception):  # noqa: BLE001 - what cannot be found is what the caller tells
            return None

    def forget(self) -> None:
        """Look anew when next asked."""
        with self._lock:
            self._begun = float("-inf")

    def _looking(self) -> "Future[ValueT]":
        with self._lock:
            if self._found is not None and (not self._found.done() or monotonic() < self._begun + self._keep):
                return self._found
            self._found, self._begun = Future(), monotonic()
            threading.Thread(target=self._find, args=[self._found], name="toolgate-look", daemon=True).start()
            return self._found

    def _find(self, found: "Future[ValueT]") -> None:
        try:
            found.set_result(self._look())
        except BaseException as error:  # noqa: BLE001 - whoever waits is told
            found.set_exception(error)
        finally:
            connection.close()
