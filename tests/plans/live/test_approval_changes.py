"""Snapshots of approval requests: all shown changes, and the number of pending requests."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest
from django.db import connection

from approvals.models import ApprovalRequest
from approvals.requests.queries import waiting_count
from approvals.reviews.coordination import claim, comment, delegate, release, snooze
from approvals.reviews.decisions import decide, undo_decision
from catalog.core import clock
from plans.live import approval_changes
from plans.live.approval_changes import QueueSnapshot, take_snapshot
from plans.live.feed import Feed
from tests.approvals.factories import approval, ask, set_rule

pytestmark = pytest.mark.db


class Watcher:
    """Takes snapshots repeatedly and returns the changes in short form."""

    def __init__(self) -> None:
        self.last: QueueSnapshot
        self.last, _ = take_snapshot()

    def news(self) -> tuple[list[str], int]:
        """Return the changes since the last snapshot and the number of pending requests."""
        self.last, found = take_snapshot(self.last)
        return [change.type.removeprefix("approval.") for change in found.changes], found.waiting


@pytest.fixture
def watcher(db) -> Watcher:
    """A watcher that has taken one snapshot."""
    return Watcher()


def test_changes_ofrelated_rows_are_reported(watcher, ada, rosa, tomas, vera):
    """Claims, delegations, comments, escalation; not personal settings."""
    request = ask(ada)
    assert watcher.news() == (["opened"], 1)
    for act in (
        lambda: claim(request, by=rosa),
        lambda: release(request, by=rosa),
        lambda: delegate(request, by=rosa, to=tomas),
        lambda: delegate(request, by=rosa, to=None),
        lambda: comment(request, by=vera, text="Why?"),
        lambda: ApprovalRequest.objects.update(escalated_at=clock.now(), escalated_to="administrator"),
    ):
        act()
        assert watcher.news() == (["changed"], 1)
        assert watcher.news() == ([], 1)
    snooze(request, by=rosa, until=clock.now() + timedelta(hours=1))
    assert watcher.news() == ([], 1)


def test_snapshot_is_consistent(transactional_db, ada, rosa, monkeypatch):
    """A decision during a snapshot is reported by the next one, once."""
    watcher, request, looked_on = Watcher(), ask(ada), approval_changes.related_rows
    watcher.news()

    def laid_over_after_a_decision() -> object:
        apart(lambda: decide(request, by=rosa, decision=approval(request)))
        return looked_on()

    with monkeypatch.context() as patched:
        patched.setattr(approval_changes, "related_rows", laid_over_after_a_decision)
        assert watcher.news() == ([], 1)
    assert watcher.news() == (["closed"], 0)


async def test_first_subscribers_share_one_snapshot(transactional_db, ada, monkeypatch):
    """A second one could hide changes from the first subscriber."""
    looks: list[QueueSnapshot | None] = []

    def noted(before: QueueSnapshot | None = None) -> tuple[QueueSnapshot, approval_changes.ChangeBatch]:
        looks.append(before)
        return take_snapshot(before)

    monkeypatch.setattr(approval_changes, "take_snapshot", noted)
    feed = Feed()
    changes = approval_changes.request_changes(feed)
    async with AsyncExitStack() as followers:
        await asyncio.gather(*(followers.enter_async_context(changes.follow()) for _ in range(2)))
        assert looks.count(None) == 1
    await feed.close()


def apart(act: Callable[[], object]) -> None:
    """Run a function in another thread and wait for it."""

    def do() -> None:
        act()
        connection.close()

    thread = threading.Thread(target=do)
    thread.start()
    thread.join()


def test_review_below_the_quorum_is_a_change(watcher, ada, rosa, tomas):
    """The last review closes the request; an undone one is a change."""
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    request = ask(ada)
    watcher.news()
    decide(request, by=rosa, decision=approval(request))
    assert watcher.news() == (["changed"], 1)
    decide(request, by=tomas, decision=approval(request, channel="page"))
    assert watcher.news() == (["closed"], 0)
    undo_decision(request, by=tomas)
    assert watcher.news() == (["changed"], 1)


def test_early_request_is_reported_when_its_step_is_ready(watcher, ada, rosa):
    """The count is that of the list."""
    request = ask(ada)
    ApprovalRequest.objects.update(is_early=True)
    assert watcher.news() == ([], 0)
    assert waiting_count(rosa) == 0
    ApprovalRequest.objects.update(ready_at=clock.now())
    assert watcher.news() == (["opened"], 1)
    ApprovalRequest.objects.filter(pk=request.pk).update(expires_at=clock.now())
    assert watcher.news()[1] == waiting_count(rosa) == 0
