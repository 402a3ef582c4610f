"""Marks of the access of open sockets: they change with everything that a full check reads."""

import re
from collections.abc import Callable

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.db import connection
from django.test.utils import CaptureQueriesContext

from plans.live.access_marks import FULL_CHECK_SECONDS, AccessMarks, OpenAccess, read_marks
from plans.live.feed import current_feed
from plans.live.sockets import Socket, SocketUser
from plans.models import Plan
from plans.web.sockets import HomeSocket, InboxSocket, PlanSocket, PlansSocket, SessionSocket, ShellSocket
from tests.builders import make_plan, step
from tests.plans.socket_clients import apart, by_session, session_of


def deactivate(user: User) -> None:
    User.objects.filter(pk=user.pk).update(is_active=False)


def lose_role(user: User) -> None:
    user.groups.clear()


def change_password(user: User) -> None:
    user.set_password("another-secret")
    user.save()


def sign_out(user: User) -> None:
    Session.objects.all().delete()


def let_session_expire(user: User) -> None:
    Session.objects.update(expire_date=user.date_joined)


def delete_plans(user: User) -> None:
    user.plans.all().delete()


CHANGES = [deactivate, lose_role, change_password, sign_out, let_session_expire, delete_plans]


@pytest.mark.parametrize("change", CHANGES)
def test_mark_changes_with_what_access_depends_on(
    db: None, catalog: None, ada: User, ben: User, change: Callable[[User], None]
) -> None:
    plan = make_plan(ada, step(1), start=False)
    access = OpenAccess(ada.pk, session_of(ada), plan.public_id)
    before = read_marks([access])
    ben.groups.add(Group.objects.get_or_create(name="reviewer")[0])
    assert read_marks([access]) == before
    change(ada)
    assert read_marks([access]) != before


def tables_read(function: Callable[..., object], *arguments: object) -> set[str]:
    """Return the tables that the queries of a function name."""
    with CaptureQueriesContext(connection) as queries:
        function(*arguments)
    return {table for query in queries for table in re.findall(r'(?:FROM|JOIN) "(\w+)"', query["sql"])}


PAGES: list[type[Socket]] = [ShellSocket, InboxSocket, HomeSocket, PlansSocket, PlanSocket, SessionSocket]


@pytest.mark.parametrize("page", PAGES)
async def test_full_check_reads_no_table_that_marks_leave_out(
    transactional_db: None, catalog: None, ada: User, settings, page: type[Socket]
) -> None:
    """Otherwise a change in that table would go unnoticed for a minute."""
    settings.TOOLGATE_SECOND_FACTOR_ROLES = ("operator",)
    plan: Plan = await apart(make_plan, ada, step(1), start=False)
    headers = await apart(by_session, ada)
    await apart(Authenticator.objects.create, user=ada, type=Authenticator.Type.TOTP, data={})
    scope = {"headers": headers, "query_string": b"", "url_route": {"kwargs": {"plan_ref": plan.public_id}}}

    async def send(message: object) -> None:
        raise AssertionError

    socket = page(scope, send)
    session_key = await apart(session_of, ada)
    compared = await apart(tables_read, read_marks, [OpenAccess(ada.pk, session_key, plan.public_id)])
    seen: list[SocketUser] = []
    read = await apart(tables_read, lambda: seen.append(socket.enter()))
    assert seen
    # Formats of the reader come with the person, and say nothing about access.
    assert read - {"catalog_personalsettings"} <= compared
    await socket.feed.close()


async def test_access_is_due_when_its_mark_changes_and_once_in_a_while() -> None:
    feed = current_feed()
    marks = AccessMarks(feed)
    session, token = OpenAccess(1, "key", ""), OpenAccess(1, "", "")
    told = []
    for mark in ("one", "one", "two", "two"):
        marks.compare([session, token], [mark, mark])
        told.append((session.is_due.is_set(), token.is_due.is_set()))
        session.is_due.clear()
        token.is_due.clear()
    assert told == [(True, True), (False, True), (True, True), (False, True)]
    session.full_check_at -= FULL_CHECK_SECONDS
    marks.compare([session], ["two"])
    assert session.is_due.is_set()
    await feed.close()
