"""What happens to approval requests, found by comparing what is open now with what was open at the last look.

The database is asked, nobody is listened to: it makes no difference in which process a request was decided.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from django.db.models import Q

from approvals.models import ApprovalRequest
from approvals.states import OPEN, RequestStatus
from catalog.problems import log_unexpected
from plans.feed import Feed

log = logging.getLogger("toolgate.requests")
LOOKS_APART_SECONDS = 0.05
CHANGES_KEPT = 1000


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that happened to one request."""

    type: str
    id: str
    status: str


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen: the state and round of each open request, and the newest request of all."""

    seen: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    newest: int = 0

    @property
    def waiting(self) -> int:
        """How many requests wait for an answer."""
        return sum(status == RequestStatus.PENDING for status, _ in self.seen.values())


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened between two looks, and how many requests wait since."""

    changes: Sequence[Change]
    waiting: int


def look(before: Look | None = None) -> tuple[Look, Changes]:
    """Look at the requests; return what is seen and what has changed since the look before."""
    wanted = Q(status__in=OPEN) | Q(public_id__in=before.seen if before else ())
    if before is not None:
        wanted |= Q(pk__gt=before.newest)
    rows = list(ApprovalRequest.objects.filter(wanted).values_list("pk", "public_id", "status", "round_number"))
    newest = max([row[0] for row in rows], default=0)
    if before is None:
        newest = ApprovalRequest.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    seen = {public_id: (status, number) for _, public_id, status, number in rows if status in OPEN}
    now = Look(seen, max(newest, before.newest if before else 0))
    found = [change for row in sorted(rows) for change in _changes(before, *row[1:])] if before else []
    return now, Changes(found, now.waiting)


def _changes(before: Look, public_id: str, status: str, number: int) -> Iterator[Change]:
    """Yield what must have happened to a request for it to be as it is now."""
    known = before.seen.get(public_id)
    pending = status == RequestStatus.PENDING
    if known is None:
        yield Change("approval.opened", public_id, RequestStatus.PENDING.value)
        known = (RequestStatus.PENDING.value, number)
    if known == (status, number):
        return
    closed = not pending and known[0] == RequestStatus.PENDING
    yield Change("approval.closed" if closed else "approval.changed", public_id, status)


class RequestChanges:
    """The looks of one event loop, shared by everyone who wants to know."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._queues: set[asyncio.Queue[Changes]] = set()
        self._last: Look | None = None
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def follow(self) -> "AsyncIterator[asyncio.Queue[Changes]]":
        """Give a queue of what happens from now on. One that is full gets no more: whoever is that slow starts anew."""
        if not self._queues:
            self._last, _ = await self._feed.run(look)
        queue: asyncio.Queue[Changes] = asyncio.Queue(CHANGES_KEPT)
        self._queues.add(queue)
        if self._task is None:
            self._task = asyncio.ensure_future(self._look_again_and_again())
        try:
            yield queue
        finally:
            self._queues.discard(queue)
            if not self._queues and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _look_again_and_again(self) -> None:
        with self._feed.listen_to_all() as bell:
            while True:
                await bell.wait()
                bell.clear()
                try:
                    self._last, found = await self._feed.run(look, self._last)
                except Exception as error:  # noqa: BLE001 - logged without its message, which may hold arguments
                    log.warning("the requests could not be looked at; trying again in a second")
                    log_unexpected(error)
                else:
                    self._hand_out(found)
                await asyncio.sleep(LOOKS_APART_SECONDS)

    def _hand_out(self, found: Changes) -> None:
        if found.changes:
            for queue in self._queues:
                if not queue.full():
                    queue.put_nowait(found)


_known: WeakKeyDictionary[Feed, RequestChanges] = WeakKeyDictionary()


def request_changes(feed: Feed) -> RequestChanges:
    """Return the looks that this feed's loop shares."""
    return _known.setdefault(feed, RequestChanges(feed))
