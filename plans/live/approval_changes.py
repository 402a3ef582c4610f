"""What happens to approval requests, found by comparing what is open now with what was open at the last look.

The database is asked, nobody is listened to: it makes no difference in which process a request was decided.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Hashable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from weakref import WeakKeyDictionary

from django.db.models import Count, Q

from approvals.models import ApprovalRequest, Comment, Delegation, Review
from approvals.states import OPEN, RequestStatus
from catalog.core import clock
from catalog.core.transactions import log_unexpected
from plans.live.feed import Feed
from plans.store.database import read_snapshot

log = logging.getLogger("toolgate.requests")
SNAPSHOT_INTERVAL_SECONDS = 0.05
CHANGES_KEPT = 1000
OPENED, CHANGED, CLOSED = "approval.opened", "approval.changed", "approval.closed"


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that happened to one request."""

    type: str
    id: str
    status: str


@dataclass(frozen=True, slots=True)
class RequestState:
    """One open request as a look found it: what of it is told of as a change, and until when it waits."""

    status: str
    state: Hashable
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """What was seen: each open request, and the newest request of all."""

    seen: Mapping[str, RequestState] = field(default_factory=dict)
    newest: int = 0

    def waiting(self, now: datetime) -> int:
        """Return how many requests wait for an answer: the length of everyone's list."""
        return sum(each.status == RequestStatus.PENDING and each.expires_at > now for each in self.seen.values())


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """What happened between two looks, and how many requests wait since."""

    changes: Sequence[Change]
    waiting: int


STATE_COLUMNS = (
    *("pk", "public_id", "status", "expires_at"),
    *("round_number", "claimed_by", "claimed_until", "escalated_at", "superseded_by"),
)
"""What a look reads of a request: who it is, how long it waits, and what is told of as a change."""


def take_snapshot(before: QueueSnapshot | None = None) -> tuple[QueueSnapshot, ChangeBatch]:
    """Look at the requests, all at one moment; return what is seen and what has changed since the look before."""
    with read_snapshot():
        return _take_snapshot(before)


def _take_snapshot(before: QueueSnapshot | None) -> tuple[QueueSnapshot, ChangeBatch]:
    wanted = Q(status__in=OPEN) | Q(public_id__in=before.seen if before else ())
    if before is not None:
        wanted |= Q(pk__gt=before.newest)
    shown = ApprovalRequest.objects.filter(wanted).exclude(_never_announced(before))
    rows = list(shown.values_list(*STATE_COLUMNS))
    newest = max([row[0] for row in rows], default=0)
    if before is None:
        newest = ApprovalRequest.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    laid_over = _related_rows()
    found = {
        row[1]: RequestState(row[2], (row[4:], *(each.get(row[0]) for each in laid_over)), row[3])
        for row in sorted(rows)
    }
    seen = {public_id: each for public_id, each in found.items() if each.status in OPEN}
    now = QueueSnapshot(seen, max(newest, before.newest if before else 0))
    changes = [change for item in found.items() for change in _changes_of(before, *item)] if before else []
    return now, ChangeBatch(changes, now.waiting(clock.now()))


def _related_rows() -> tuple[Mapping[int, object], ...]:
    """Return what has rows of its own: open requests with how much was said and answered, and who may answer them."""
    open_ = {"request__status__in": OPEN}
    said = Comment.objects.filter(**open_).order_by().values_list("request").annotate(count=Count("pk"))
    answered = Review.objects.filter(**open_, undone_at=None).order_by().values_list("request")
    handed = Delegation.objects.filter(**open_).order_by("pk").values_list("request", "by", "to")
    delegates: dict[int, tuple[tuple[int, int], ...]] = {}
    for request, by, to in handed:
        delegates[request] = (*delegates.get(request, ()), (by, to))
    return dict(said), dict(answered.annotate(count=Count("pk"))), delegates


def _never_announced(before: QueueSnapshot | None) -> Q:
    """Say that a request was asked early, and never waited like another: nobody was told of it, so nothing is told."""
    known = Q(public_id__in=before.seen if before else ()) | Q(status=RequestStatus.PENDING, ready_at__isnull=False)
    return Q(is_early=True) & ~known


def _changes_of(before: QueueSnapshot, public_id: str, found: RequestState) -> Iterator[Change]:
    """Yield what must have happened to a request for it to be as it is now."""
    known = before.seen.get(public_id)
    pending = found.status == RequestStatus.PENDING
    if known is None:
        yield Change(OPENED, public_id, RequestStatus.PENDING.value)
        if pending:
            return
    elif (known.status, known.state) == (found.status, found.state):
        return
    closed = not pending and (known is None or known.status == RequestStatus.PENDING)
    yield Change(CLOSED if closed else CHANGED, public_id, found.status)


class RequestChanges:
    """The looks of one event loop, shared by everyone who wants to know."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._queues: set[asyncio.Queue[ChangeBatch]] = set()
        self._last: QueueSnapshot | None = None
        self._task: asyncio.Task[None] | None = None
        self._joining = asyncio.Lock()

    @asynccontextmanager
    async def follow(self) -> "AsyncIterator[asyncio.Queue[ChangeBatch]]":
        """Give a queue of what happens from now on. One that is full gets no more: whoever is that slow starts anew."""
        queue: asyncio.Queue[ChangeBatch] = asyncio.Queue(CHANGES_KEPT)
        async with self._joining:  # of two who come first, one's look would hide from the other what lies between
            if not self._queues:
                self._last, _ = await self._feed.run(take_snapshot)
            self._queues.add(queue)
        if self._task is None:
            self._task = asyncio.ensure_future(self._poll_forever())
        try:
            yield queue
        finally:
            self._queues.discard(queue)
            if not self._queues and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _poll_forever(self) -> None:
        with self._feed.listen_to_all() as bell:
            while True:
                await bell.wait()
                bell.clear()
                try:
                    self._last, found = await self._feed.run(take_snapshot, self._last)
                except Exception as error:  # noqa: BLE001 - logged without its message, which may hold arguments
                    log.warning("the requests could not be looked at; trying again in a second")
                    log_unexpected(error)
                else:
                    self._hand_out(found)
                await asyncio.sleep(SNAPSHOT_INTERVAL_SECONDS)

    def _hand_out(self, found: ChangeBatch) -> None:
        if found.changes:
            for queue in self._queues:
                if not queue.full():
                    queue.put_nowait(found)


_known: WeakKeyDictionary[Feed, RequestChanges] = WeakKeyDictionary()


def request_changes(feed: Feed) -> RequestChanges:
    """Return the looks that this feed's loop shares."""
    return _known.setdefault(feed, RequestChanges(feed))
