"""PostgreSQL connections: none waits forever."""

from collections.abc import Mapping

import psycopg
import pytest
from django.db import connection
from procrastinate.contrib.django import connector_params

from config import environment
from plans.invariants.base import long_read_snapshot

pytestmark = pytest.mark.db

NAMES = ("lock_timeout", "idle_in_transaction_session_timeout")


def told_by(cursor) -> Mapping[str, str]:
    """Return the timeouts of a connection."""
    return {name: cursor.execute(f"SHOW {name}").fetchone()[0] for name in NAMES}


@pytest.mark.service
@pytest.mark.django_db
def test_no_connection_waits_for_ever():
    """Django's and Procrastinate's: for a lock, inside a transaction, or for an unreachable host."""
    expected = {"lock_timeout": "5s", "idle_in_transaction_session_timeout": "15s"}
    with connection.cursor() as cursor:
        assert told_by(cursor.connection) == expected
    with psycopg.connect(**connector_params()) as another:
        assert told_by(another) == expected
        sent = another.info.get_parameters()
        assert {sent["keepalives"], sent["tcp_user_timeout"], sent["connect_timeout"]} == {"1", "20000", "5"}


@pytest.mark.service
@pytest.mark.django_db(transaction=True)
def test_invariant_check_has_longer_timeouts():
    with long_read_snapshot(), connection.cursor() as cursor:
        assert told_by(cursor.connection)["idle_in_transaction_session_timeout"] == "0"


def test_what_the_url_says_stays():
    """A certificate to verify, or an operator's own timeout, which comes last and so counts."""
    options = environment.postgresql_options({"sslmode": "verify-full", "options": "-c lock_timeout=9s"}, connections=7)
    assert (options["sslmode"], options["pool"]["max_size"]) == ("verify-full", 7)
    assert options["options"].startswith("-c lock_timeout=5s")
    assert options["options"].endswith("-c lock_timeout=9s")
