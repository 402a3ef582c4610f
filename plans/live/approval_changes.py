"""Changes of approval requests, found by comparing consecutive snapshots of the open requests.

Snapshots are read from the database, so it does not matter which process decided a request.
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
from catalog.core.database import read_snapshot
from catalog.core.transactions import log_unexpected
from plans.live.feed import Feed

log = logging.getLogger("toolgate.requests")
SNAPSHOT_INTERVAL_SECONDS = 0.05
CHANGES_KEPT = 1000
OPENED, CHANGED, CLOSED = "approval.opened", "approval.changed", "approval.closed"


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one request."""

    type: str
    id: str
    status: str


@dataclass(frozen=True, slots=True)
class RequestState:
    """One request in a snapshot: its status, the state whose change is reported, and its expiry."""

    status: str
    state: Hashable
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """One snapshot: the open requests, and the key of the newest request."""

    seen: Mapping[str, RequestState] = field(default_factory=dict)
    newest: int = 0

    def waiting(self, now: datetime) -> int:
        """Return the number of pending requests of all viewers."""
        return sum(each.status == RequestStatus.PENDING and each.expires_at > now for each in self.seen.values())


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """The changes between two snapshots, and the number of pending requests."""

    changes: Sequence[Change]
    waiting: int


STATE_COLUMNS = (
    *("pk", "public_id", "status", "expires_at"),
    *("round_number", "claimed_by", "claimed_until", "escalated_at", "superseded_by"),
)
"""Columns of a snapshot: identity, expiry, and the state whose change is reported."""


def take_snapshot(before: QueueSnapshot | None = None) -> tuple[QueueSnapshot, ChangeBatch]:
    """Return a consistent snapshot of the requests, and the changes since the snapshot `before`."""
    with read_snapshot():
        return _take_snapshot(before)


def _take_snapshot(before: QueueSnapshot | None) -> tuple[QueueSnapshot, ChangeBatch]:
    condition = Q(status__in=OPEN) | Q(public_id__in=before.seen if before else ())
    if before is not None:
        condition |= Q(pk__gt=before.newest)
    requests = ApprovalRequest.objects.filter(condition).exclude(_never_announced(before))
    rows = list(requests.values_list(*STATE_COLUMNS))
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
    """Return the state of open requests in related rows: counts of comments and reviews, and delegations."""
    open_ = {"request__status__in": OPEN}
    comments = Comment.objects.filter(**open_).order_by().values_list("request").annotate(count=Count("pk"))
    answered = Review.objects.filter(**open_, undone_at=None).order_by().values_list("request")
    handed = Delegation.objects.filter(**open_).order_by("pk").values_list("request", "by", "to")
    delegates: dict[int, tuple[tuple[int, int], ...]] = {}
    for request, by, to in handed:
        delegates[request] = (*delegates.get(request, ()), (by, to))
    return dict(comments), dict(answered.annotate(count=Count("pk"))), delegates


def _never_announced(before: QueueSnapshot | None) -> Q:
    """Return the condition for early requests that were never announced, whose changes are not reported."""
    known = Q(public_id__in=before.seen if before else ()) | Q(status=RequestStatus.PENDING, ready_at__isnull=False)
    return Q(is_early=True) & ~known


def _changes_of(before: QueueSnapshot, public_id: str, found: RequestState) -> Iterator[Change]:
    """Yield the changes that lead to the request's current state."""
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
    """Polls snapshots for one event loop and shares the changes among its subscribers."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._queues: set[asyncio.Queue[ChangeBatch]] = set()
        self._last: QueueSnapshot | None = None
        self._task: asyncio.Task[None] | None = None
        self._joining = asyncio.Lock()

    @asynccontextmanager
    async def follow(self) -> "AsyncIterator[asyncio.Queue[ChangeBatch]]":
        """Subscribe to changes from now on. A full queue gets no more changes: a client that slow must reconnect."""
        queue: asyncio.Queue[ChangeBatch] = asyncio.Queue(CHANGES_KEPT)
        async with self._joining:  # or the first snapshots of two subscribers could hide changes from each other
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
                    log.warning("the approval requests could not be read; trying again in a second")
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
    """Return the RequestChanges shared by this feed's event loop."""
    return _known.setdefault(feed, RequestChanges(feed))
