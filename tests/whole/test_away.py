"""An unavailable, busy or locked database is a 503 with Retry-After, over REST and on pages."""

import itertools
import sqlite3
from typing import Any

import psycopg
import psycopg_pool
import pytest
from django.db import InterfaceError, OperationalError, ProgrammingError, connection
from procrastinate.contrib.django import connector_params

from catalog.core import transactions
from plans.models import Plan
from tests.builders import make_plan, step
from tests.corpus import faults
from tests.pages import Pages
from tests.rest import Rest

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("catalog")]
CANARY = "canary-7"
AWAY = [OperationalError(CANARY), InterfaceError(CANARY)]


def assert_is_away(response: Any) -> None:
    """Assert that the answer is the problem document of a database that is away."""
    assert (response.status_code, response.headers.get("Retry-After")) == (503, "5")
    assert response["Content-Type"] == "application/problem+json"
    assert response.json()["type"] == "urn:toolgate:database_away"
    assert CANARY not in response.content.decode()


def failing(error: Exception) -> Any:
    """Make every statement fail with this error."""

    def fail(*args: object) -> None:
        raise error

    return connection.execute_wrapper(fail)


@pytest.mark.parametrize("error", AWAY, ids=lambda error: type(error).__name__)
def test_over_rest_it_is_a_problem(ada, error):
    rest, pages = Rest(ada), Pages(ada)
    with failing(error):
        assert_is_away(rest.get("plans/"))
        assert_is_away(rest.post("plans/", {"goal": "Try", "steps": [step(1)]}, key="k"))
        assert_is_away(pages.client.get("/api/v1/plans/"))


def test_a_page_says_so_without_asking_the_database(ada):
    pages = Pages(ada)

    def check(error, path):
        with failing(error):
            response = pages.client.get(path)
        assert (response.status_code, response.headers.get("Retry-After")) == (503, "5")
        assert "The database is unavailable" in response.content.decode()
        assert CANARY not in response.content.decode()

    assert faults(check, itertools.product(AWAY, ["/plans/", "/", "/approvals/", "/sign-in/", "/admin/"])) == {}


def test_other_database_errors_are_500(ada):
    rest, pages = Rest(ada), Pages(ada)
    with failing(ProgrammingError(CANARY)):
        assert rest.get("plans/").status_code == 500
        assert "Something went wrong" in pages.open("/plans/", status=500)


def test_it_is_logged_as_what_it_is(ada, caplog):
    rest = Rest(ada)
    with failing(AWAY[0]):
        rest.get("plans/")
    [line] = [record for record in caplog.records if record.name == transactions.log.name]
    assert (line.levelname, line.getMessage()) == ("WARNING", "The database was away: OperationalError")


@pytest.mark.service
def test_exhausted_pool_is_a_503(ada, monkeypatch):
    def fail(*args: object, **options: object) -> None:
        raise psycopg_pool.PoolTimeout(CANARY)

    rest = Rest(ada)
    connection.close()
    monkeypatch.setattr(psycopg_pool.ConnectionPool, "getconn", fail)
    assert_is_away(rest.get("plans/"))


@pytest.mark.service
def test_locked_plan_is_a_503(ada):
    stuck, other = (make_plan(ada, step(1)) for _ in range(2))
    rest = Rest(ada)
    with psycopg.connect(**connector_params()) as frozen:
        frozen.execute("SELECT 1 FROM plans_plan WHERE id = %s FOR UPDATE", [stuck.pk])
        assert_is_away(rest.post(f"plans/{stuck.public_id}/pause/"))
        assert rest.post(f"plans/{other.public_id}/pause/").status_code == 200
    assert rest.post(f"plans/{stuck.public_id}/pause/").status_code == 200


def test_locked_file_is_a_503(ada):
    if connection.vendor != "sqlite":
        pytest.skip("SQLite alone has one writer.")
    rest = Rest(ada)
    rest.get("plans/")  # that the token is used is written down now and then
    other = sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 50")
    assert_is_away(rest.post("plans/", {"goal": "Try", "steps": [step(1)]}))
    assert (rest.get("plans/").status_code, Plan.objects.count()) == (200, 0)
    other.close()
    connection.close()
