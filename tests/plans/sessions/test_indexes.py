"""Lists and calls of a session are found by indexes, whatever else their owner has done."""

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import QuerySet

from plans.models import Plan
from plans.sessions.lists import SessionKey, current_lists, plans_outside_lists, session_calls
from tests.plans.factories import SessionAgent


def key_of(ada: User, *, is_agent: bool, name: str) -> SessionKey:
    """Return the key of a person's session, or of their agent's."""
    return SessionKey(ada.pk, 7 if is_agent else None, name)


def way_of(query: QuerySet[Plan]) -> str:
    """Return SQLite's plan of a query."""
    if connection.vendor != "sqlite":
        pytest.skip("Says how SQLite reads; PostgreSQL chooses by how much there is.")
    return str(query.explain())


@pytest.mark.parametrize("name", ["", "night"])
@pytest.mark.parametrize(("is_agent", "index"), [(False, "plan_list_of_person"), (True, "plan_list_of_token")])
def test_the_list_of_a_session_is_found_by_its_index(ada, is_agent, index, name):
    key = key_of(ada, is_agent=is_agent, name=name)
    way = way_of(current_lists(key.plans()).order_by("-pk"))
    assert f"INDEX {index} (" in way and "TEMP B-TREE" not in way


@pytest.mark.parametrize(("is_agent", "index"), [(False, "plan_in_session"), (True, "plan_in_session_of_token")])
def test_the_calls_of_a_named_session_are_found_by_its_index(ada, is_agent, index):
    key = key_of(ada, is_agent=is_agent, name="night")
    way = way_of(plans_outside_lists(key)[:50])
    assert f"INDEX {index} (" in way and "TEMP B-TREE" not in way


@pytest.mark.db
@pytest.mark.usefixtures("catalog")
def test_calls_of_other_sessions_are_not_shown(ada):
    SessionAgent(ada, "day").call("read_plan")
    call = SessionAgent(ada, "night").call("read_plan")
    assert session_calls(SessionAgent(ada, "night").key) == [call]
