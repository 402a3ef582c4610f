"""The database's time in a process with a wrong clock."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from catalog.core import clock

HOUR = timedelta(hours=1)
LONG_AGO = datetime(2020, 2, 3, 4, 5, tzinfo=UTC)
pytestmark = [pytest.mark.db, pytest.mark.django_db]


def database_time() -> Any:
    """Return the database's time."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cursor.fetchone()[0]


@pytest.mark.service
@pytest.mark.parametrize("wrong", [HOUR, -HOUR])
def test_a_wrong_clock_changes_nothing(set_clock, wrong):
    set_clock(wrong)
    for measured in (False, True):
        if measured:
            clock.refresh()
        before, now, after = database_time(), clock.now(), database_time()
        assert before - timedelta(seconds=5) < now <= after
        assert clock.offset_seconds() == pytest.approx(-wrong.total_seconds(), abs=60)


@pytest.mark.service
def test_measured_time_is_never_ahead():
    clock.refresh()
    assert all(clock.now() <= database_time() for _ in range(200))


@pytest.mark.service
def test_slow_measurement_is_discarded(monkeypatch):
    """A slow measurement is discarded and the previous one kept."""
    monkeypatch.setattr(clock, "_last_measurement", None)  # without one before it, any answer is taken
    clock.refresh()
    kept = clock._last_measurement
    assert not clock.is_stale()
    counted = clock._monotonic_seconds()
    seconds = iter([counted + 100, counted + 100 + clock.SLOW_SECONDS])
    with monkeypatch.context() as patch:
        patch.setattr(clock, "_monotonic_seconds", lambda: next(seconds))
        clock.refresh()
    assert clock._last_measurement is kept
    monkeypatch.setattr(clock, "_monotonic_seconds", lambda: counted + clock.REFRESH_SECONDS + 1)
    assert clock.is_stale()


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL has a clock of its own")
def test_on_sqlite_there_is_one_clock(set_clock):
    clock.refresh()
    assert (clock.offset_seconds(), clock.is_stale()) == (0.0, False)
    set_clock(HOUR)
    assert clock.now() - timezone.now() < timedelta(seconds=60)


def test_clock_is_set_only_where_that_is_allowed():
    with pytest.raises(RuntimeError, match="demo and tests"), clock.at(LONG_AGO):
        pass
    with clock.settable():
        with clock.at(LONG_AGO), clock.at(LONG_AGO + HOUR):
            assert clock.now() == LONG_AGO + HOUR
        assert not clock.is_set()
    assert clock.now() > LONG_AGO + HOUR
    with pytest.raises(RuntimeError), clock.at(LONG_AGO):
        pass
