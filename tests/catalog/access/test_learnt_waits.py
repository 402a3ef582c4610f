"""Learnt waits of MCP clients."""

from datetime import timedelta
from typing import Any

import pytest

from catalog.access import learnt_waits
from catalog.access.tokens import create_token
from catalog.core import clock
from catalog.models import ApiToken, LearntWait


@pytest.fixture
def token(ada: Any) -> ApiToken:
    """An agent's token."""
    return create_token(user=ada, kind="agent", scopes=["calls:create"])[0]


def seconds_of(token: ApiToken, client: str = "codex") -> float | None:
    """Return what was learnt of a client."""
    row = learnt_waits.find(token.pk, client)
    return row.seconds if row is not None else None


def test_two_waits_in_a_row_that_the_client_ended_shorten_the_next(token: ApiToken) -> None:
    learnt_waits.record_cut_off(token.pk, "codex", 12.0)
    assert seconds_of(token) is None
    learnt_waits.record_answered(token.pk, "codex")
    learnt_waits.record_cut_off(token.pk, "codex", 12.0)
    assert seconds_of(token) is None
    learnt_waits.record_cut_off(token.pk, "codex", 10.0)
    assert seconds_of(token) == 8.0
    learnt_waits.record_cut_off(token.pk, "codex", 1.0)
    assert seconds_of(token) == 2.0
    assert seconds_of(token, "another") is None


def test_an_answered_wait_undoes_it_after_a_week(token: ApiToken) -> None:
    for _ in range(2):
        learnt_waits.record_cut_off(token.pk, "codex", 10.0)
    learnt_waits.record_answered(token.pk, "codex")
    assert seconds_of(token) == 8.0
    LearntWait.objects.update(learnt_at=clock.now() - timedelta(days=8))
    learnt_waits.record_answered(token.pk, "codex")
    assert not LearntWait.objects.exists()


def test_a_token_keeps_a_limited_number_of_clients(token: ApiToken) -> None:
    for number in range(learnt_waits.MOST_CLIENTS + 5):
        learnt_waits.record_cut_off(token.pk, f"client {number}", 10.0)
    assert LearntWait.objects.count() == learnt_waits.MOST_CLIENTS
    learnt_waits.forget_waits(token.pk)
    assert not LearntWait.objects.exists()
