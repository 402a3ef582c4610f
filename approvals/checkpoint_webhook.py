"""Checkpoints to a webhook: in order, from a thread of its own, retried; who writes one never waits for it.

What a process could not send before it ended is not sent again: the next checkpoint covers it, and the file has all.
"""

import logging
import threading
from collections import deque
from time import monotonic

from django.conf import settings

from approvals import webhooks
from approvals.checkpoints import Checkpoint
from catalog.egress import NotSent

log = logging.getLogger("toolgate.audit")
MOST_KEPT = 1000
PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
ALARM_SECONDS = 300.0

_waiting: deque[Checkpoint] = deque(maxlen=MOST_KEPT)
_more = threading.Condition()
_thread: threading.Thread | None = None


def send(checkpoint: Checkpoint) -> None:
    """Hand a checkpoint to the thread that sends them, where TOOLGATE_AUDIT_WEBHOOK names somewhere."""
    global _thread
    if not settings.TOOLGATE_AUDIT_WEBHOOK:
        return
    with _more:
        _waiting.append(checkpoint)
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_live, name="toolgate-checkpoints", daemon=True)
            _thread.start()
        _more.notify()


def _live() -> None:
    """Send what waits, oldest first, each until it arrives."""
    while True:
        with _more:
            while not _waiting:
                _more.wait()
            checkpoint = _waiting[0]
        _deliver(checkpoint)
        with _more:
            if _waiting and _waiting[0] is checkpoint:
                _waiting.popleft()


def _deliver(checkpoint: Checkpoint) -> None:
    began, told = monotonic(), False
    for tried in range(1_000_000):
        try:
            webhooks.post(settings.TOOLGATE_AUDIT_WEBHOOK, "audit.checkpoint", checkpoint.document())
        except NotSent as error:
            if not told and monotonic() - began > ALARM_SECONDS:
                told = True
                log.error("checkpoints do not reach TOOLGATE_AUDIT_WEBHOOK: %s", error)
            threading.Event().wait(PAUSES[min(tried, len(PAUSES) - 1)])
        else:
            return
