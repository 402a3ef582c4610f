"""Changes of approval requests, found by comparing snapshots of the open requests in the database."""

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
    type: str
    id: str
    status: str


@dataclass(frozen=True, slots=True)
class RequestState:
    """One request in a snapshot. Changes of `status` and `state` are reported, those of `expires_at` are not."""

    status: str
    state: Hashable
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """One snapshot: the open requests by id, and the primary key of the newest request."""

    seen: Mapping[str, RequestState] = field(default_factory=dict)
    newest: int = 0

    def waiting(self, now: datetime) -> int:
        """Return the number of pending requests, whoever may see them."""
        return sum(each.status == RequestStatus.PENDING and each.expires_at > now for each in self.seen.values())


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    changes: Sequence[Change]
    waiting: int


STATE_COLUMNS = (
    *("pk", "public_id", "status", "expires_at"),
    *("round_number", "claimed_by", "claimed_until", "escalated_at", "superseded_by"),
)
"""Columns of a snapshot: identity, expiry, and the state whose change is reported."""


@read_snapshot()
def take_snapshot(last_snapshot: QueueSnapshot | None = None) -> tuple[QueueSnapshot, ChangeBatch]:
    """Return a consistent snapshot of the requests, and the changes since the last snapshot."""
    is_known = Q(public_id__in=last_snapshot.seen if last_snapshot else ())
    condition = Q(status__in=OPEN) | is_known
    if last_snapshot is not None:
        condition |= Q(pk__gt=last_snapshot.newest)
    # Changes of early requests are not reported before they are announced.
    unannounced = Q(is_early=True) & ~(is_known | Q(status=RequestStatus.PENDING, ready_at__isnull=False))
    rows = list(ApprovalRequest.objects.filter(condition).exclude(unannounced).values_list(*STATE_COLUMNS))
    newest = max([row[0] for row in rows], default=0)
    if last_snapshot is None:
        newest = ApprovalRequest.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    related = related_rows()
    states = {
        row[1]: RequestState(row[2], (row[4:], *(each.get(row[0]) for each in related)), row[3]) for row in sorted(rows)
    }
    seen = {public_id: state for public_id, state in states.items() if state.status in OPEN}
    now = QueueSnapshot(seen, max(newest, last_snapshot.newest if last_snapshot else 0))
    changes: list[Change] = []
    if last_snapshot is not None:
        for public_id, state in states.items():
            changes += _changes_of(last_snapshot.seen.get(public_id), public_id, state)
    return now, ChangeBatch(changes, now.waiting(clock.now()))


def related_rows() -> tuple[Mapping[int, object], ...]:
    """Return, for each open request, its number of comments, number of reviews, and delegations."""
    open_ = {"request__status__in": OPEN}
    comments = Comment.objects.filter(**open_).order_by().values_list("request").annotate(count=Count("pk"))
    answered = Review.objects.filter(**open_, undone_at=None).order_by().values_list("request")
    delegates: dict[int, tuple[tuple[int, int], ...]] = {}
    for request, by, to in Delegation.objects.filter(**open_).order_by("pk").values_list("request", "by", "to"):
        delegates[request] = (*delegates.get(request, ()), (by, to))
    return dict(comments), dict(answered.annotate(count=Count("pk"))), delegates


def _changes_of(last_state: RequestState | None, public_id: str, state: RequestState) -> Iterator[Change]:
    """Yield the changes from the last state to this state. Without a last state, the request was opened first."""
    is_pending = state.status == RequestStatus.PENDING
    if last_state is None:
        yield Change(OPENED, public_id, RequestStatus.PENDING.value)
        if is_pending:
            return
    elif (last_state.status, last_state.state) == (state.status, state.state):
        return
    is_closed = not is_pending and (last_state is None or last_state.status == RequestStatus.PENDING)
    yield Change(CLOSED if is_closed else CHANGED, public_id, state.status)


class RequestChanges:
    """Takes snapshots for one event loop and sends the changes to all subscribers."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._queues: set[asyncio.Queue[ChangeBatch]] = set()
        self._last: QueueSnapshot | None = None
        self._task: asyncio.Task[None] | None = None
        self._joining = asyncio.Lock()

    @asynccontextmanager
    async def follow(self) -> "AsyncIterator[asyncio.Queue[ChangeBatch]]":
        """Subscribe to changes from now on. A full queue gets no more: a client that slow must reconnect."""
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
        with self._feed.listen_to_all() as news:
            while True:
                await news.wait()
                news.clear()
                try:
                    self._last, batch = await self._feed.run(take_snapshot, self._last)
                except Exception as error:  # noqa: BLE001 - logged without its message, which may hold arguments
                    log.warning("the approval requests could not be read; trying again in a second")
                    log_unexpected(error)
                else:
                    for queue in self._queues if batch.changes else ():
                        if not queue.full():
                            queue.put_nowait(batch)
                await asyncio.sleep(SNAPSHOT_INTERVAL_SECONDS)


_known: WeakKeyDictionary[Feed, RequestChanges] = WeakKeyDictionary()


def request_changes(feed: Feed) -> RequestChanges:
    return _known.setdefault(feed, RequestChanges(feed))
