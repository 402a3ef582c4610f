"""Tests of the fragments that page sockets send."""

import asyncio
import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from channels.testing import WebsocketCommunicator
from django.contrib.auth.models import User
from django.test.signals import template_rendered

from approvals.models import ApprovalRequest
from approvals.requests.queries import request_for
from approvals.reviews.coordination import comment
from catalog.access.roles import remember_groups
from catalog.access.tokens import create_token
from catalog.text.formats import ReaderFormats, current_reader
from plans.actions.call import CallOrder, create_call
from plans.actions.create import start_plan
from plans.actions.skip import skip_step
from plans.executor.pool import ExecutorPool
from plans.live.feed import Feed, current_feed
from plans.live.fragment_cache import CurrentFragments, Fragments, RenderSource, SharedRendering, ViewerState
from plans.live.sockets import SocketUser
from plans.store.requesters import Requester
from plans.web.fragments import PlanRenderer, figures_source, home_source, inbox_source, plans_source, shell_source
from plans.web.sockets import source_for
from tests.approvals.factories import ask
from tests.builders import make_plan, step, write_step
from tests.plans.socket_clients import apart, by_session, by_token, opened, refused

pytestmark = pytest.mark.db


def view_of(drawn: Fragments, after: int | None = None) -> tuple[Callable[[], object], CurrentFragments]:
    """Return what a client is sent, None for nothing, and the fragments that it sees."""
    current = CurrentFragments(drawn)
    view = ViewerState(current, after)
    return lambda: json.loads(view.news() or "null"), current


def test_page_with_current_number_gets_nothing():
    news, current = view_of(Fragments({"a": "1", "b": "2"}, seq=5, says="Running"), after=5)
    assert news() is None
    current.drawn = Fragments({"a": "1", "b": "3", "c": "4"}, seq=7, says="Done")
    assert news() == {"seq": 7, "fragments": ["3", "4"], "announce": "Done"}
    assert news() is None


def test_marked_fragment_is_sent_when_its_mark_changes():
    news, current = view_of(Fragments({"a": "1", "b": "1"}, seq=5, marks={"a": "x"}), after=5)
    assert news() is None
    current.drawn = Fragments({"a": "2", "b": "2"}, seq=6, marks={"a": "x"})
    assert news() == {"seq": 6, "fragments": ["2"]}
    current.drawn = Fragments({"a": "3", "b": "2"}, seq=7, marks={"a": "y"})
    assert news() == {"seq": 7, "fragments": ["3"]}


def test_older_page_gets_only_newer_fragments():
    drawn = Fragments({"a": "1", "e4": "4", "e5": "5"}, seq=5, numbers={"e4": 4, "e5": 5})
    assert view_of(drawn, after=4)[0]() == {"seq": 5, "fragments": ["1", "5"]}


def test_inexact_rendering_is_sent_without_number():
    drawn = Fragments({"a": "1"}, seq=5, exact=False)
    assert view_of(drawn, after=5)[0]() == {"fragments": ["1"]}


def test_slow_client_gets_latest_state():
    news, current = view_of(Fragments({"a": "1"}))
    news()
    for number in range(100):
        current.drawn = Fragments({"a": str(number)})
    assert news() == {"fragments": ["99"]}


def test_message_is_written_once_for_all_clients_that_were_sent_the_same():
    current = CurrentFragments(Fragments({"a": "1"}, seq=5))
    one, other, late = (ViewerState(current, after) for after in (5, 5, 4))
    assert (one.news(), other.news()) == ("", "")
    assert late.news()
    current.drawn = Fragments({"a": "2"}, seq=6)
    assert one.news() is other.news() is late.news()


def socket_user(pk: int, *roles: str) -> SocketUser:
    user = User(pk=pk)
    remember_groups(user, roles)
    return SocketUser(user, None, sees_all=bool(roles))


def test_renderings_are_shared_only_under_the_same_rights():
    assert plans_source(socket_user(1, "operator")).key != plans_source(socket_user(2, "administrator")).key
    assert plans_source(socket_user(1, "viewer")).key == plans_source(socket_user(2, "reviewer")).key
    before, after = socket_user(1, "operator"), socket_user(1)
    for source in (plans_source, home_source, figures_source, shell_source, partial(inbox_source, view="waiting")):
        assert source(before).key != source(after).key


def test_an_event_sends_only_what_it_concerns(catalog: None, ada: User) -> None:
    """A large plan's page gets the parts of the step and the sums of the plan, in a few kilobytes."""
    plan = make_plan(ada, *(step(number) for number in range(1, 101)), start=False)
    current, render = CurrentFragments(), PlanRenderer(plan.public_id)
    current.drawn = render()
    view = ViewerState(current, plan.last_seq)
    view.news()
    skip_step(plan, 50, "Done by hand.", by=Requester(ada))
    current.drawn = render()
    text = view.news()
    sent = set(re.findall(r'id=\\"([^"]+?)\\"', text))
    assert {"s50", "n50", "g50", "look-50", "segments", "finished", "last-event"} <= sent
    assert not {each for each in sent if re.fullmatch(r"(s|n|g|look-)\d+", each) and not each.endswith("50")}
    assert len(text) < 8000


async def heard(caller: WebsocketCommunicator, wanted: str, seconds: float = 60) -> list[dict[str, Any]]:
    """Return the messages up to the first that contains a text."""
    messages: list[dict[str, Any]] = []
    async with asyncio.timeout(seconds):
        while not messages or wanted not in "".join(messages[-1]["fragments"]):
            messages.append(await caller.receive_json_from(timeout=seconds))
    return messages


async def test_plan_changes_are_sent(executor: ExecutorPool, ada: User, rosa: User) -> None:
    plan = await apart(make_plan, ada, step(1, expected_key="note"), write_step(2, dependencies=[1]), start=False)
    path = f"/ws/pages/plans/{plan.public_id}/?after={plan.last_seq}"
    async with opened(path, await apart(by_session, rosa)) as caller:
        await apart(start_plan, plan, by=Requester(ada))
        messages = await heard(caller, "waiting for approval")
    sent = "".join(fragment for message in messages for fragment in message["fragments"])
    for part in (
        'id="s1"',
        'id="segments"',
        'id="n1"',
        'data-into="memory"',
        'id="look-2"',
        'id="standing"',
        '<li id="g2"',
    ):
        assert part in sent
    numbers = [message["seq"] for message in messages if "seq" in message]
    assert numbers == sorted(numbers)
    assert "csrfmiddlewaretoken" not in sent


async def test_plan_is_rendered_once_for_all_viewers(executor: ExecutorPool, ada, rosa, monkeypatch) -> None:
    monkeypatch.setattr("plans.live.feed.POLL_SECONDS", 3600.0)  # its look rings for what happened before it listened
    plan, drawings = await apart(make_plan, ada, step(1), start=False), []

    def count(template: Any, **more: Any) -> None:
        if template.name == "plans/_standing.html":
            drawings.append(template)

    template_rendered.connect(count)
    path = f"/ws/pages/plans/{plan.public_id}/?after=0"
    async with (
        opened(path, await apart(by_session, ada)) as one,
        opened(path, await apart(by_session, rosa)) as other,
    ):
        await heard(one, 'id="s1"')
        await heard(other, 'id="s1"')
        assert len(drawings) == 1
    template_rendered.disconnect(count)


async def test_inbox_and_counts_are_sent(executor: ExecutorPool, ada: User, rosa: User, vera: User) -> None:
    """The badge counts requests that the user can decide."""
    async with (
        opened("/ws/pages/inbox/", await apart(by_session, rosa)) as inbox,
        opened("/ws/pages/shell/", await apart(by_session, rosa)) as shell,
        opened("/ws/pages/inbox/", await apart(by_session, vera)) as onlooker,
        opened("/ws/pages/plans/", await apart(by_session, ada)) as plans,
    ):
        await heard(inbox, "Nothing is waiting")
        plan = await apart(make_plan, ada, write_step(1))
        await heard(inbox, 'class="queue-item"')
        await heard(shell, 'data-waiting="1"')
        looked_on = await heard(onlooker, 'class="queue-item"')
        assert 'data-waiting="1"' not in "".join(part for message in looked_on for part in message["fragments"])
        await heard(plans, f'id="plan-{plan.public_id}"')
        request = await apart(ApprovalRequest.objects.get)
        await apart(ApprovalRequest.objects.filter(pk=request.pk).update, expires_at=plan.created_at)
        gone = f'<i id="q-{request.public_id}" data-gone hidden></i>'
        left = "".join((await heard(inbox, gone))[-1]["fragments"])
        assert f'id="look-{request.public_id}"' in left
        await heard(shell, 'data-waiting="0"')


async def test_inbox_sends_changes_since_page_was_rendered(transactional_db, ada: User, rosa: User) -> None:
    changed, left_alone = await apart(ask, ada), await apart(ask, ada)
    drawn_at = (await apart(request_for, rosa, changed.public_id)).audit_seq  # type: ignore[attr-defined]
    await apart(partial(comment, changed, by=rosa, text="Is this right?"))
    async with opened(f"/ws/pages/inbox/?after={drawn_at}", await apart(by_session, rosa)) as caller:
        messages = await caller.receive_json_from(timeout=60)
        assert f'id="look-{changed.public_id}"' in str(messages)
        assert f'id="look-{left_alone.public_id}"' not in str(messages)


async def test_home_sends_the_first_requests_and_reloads_them_there(transactional_db, ada: User, rosa: User) -> None:
    """A change names the home page, so that the desk's list does not come with it."""
    requests = [await apart(ask, ada) for _ in range(4)]
    drawn_at = (await apart(request_for, rosa, requests[0].public_id)).audit_seq  # type: ignore[attr-defined]
    await apart(partial(comment, requests[0], by=rosa, text="Is this right?"))
    async with opened(f"/ws/pages/home/?after={drawn_at}", await apart(by_session, rosa)) as caller:
        messages = await heard(caller, 'id="queue"')
    sent = "".join(fragment for message in messages for fragment in message["fragments"])
    assert [f'id="q-{each.public_id}"' in sent for each in requests] == [True, True, True, False]
    assert f'hx-get="/?item={requests[0].public_id}"' in sent
    assert 'id="failed"' in sent and "csrfmiddlewaretoken" not in sent


async def test_home_sends_its_figures(executor: ExecutorPool, ada: User, rosa: User) -> None:
    """The last days are everyone's figures, so that someone without a role is sent none."""
    token = await apart(partial(create_token, user=ada, kind="agent", scopes=["calls:create"], name="Laptop"))
    order = CallOrder("planning_read_plan", {})
    await apart(partial(create_call, order, by=Requester(ada, token[0], via="rest")))
    async with opened("/ws/pages/home/", await apart(by_session, rosa)) as caller:
        sent = str(await heard(caller, 'id="agents-today"'))
    assert "Laptop" in sent and 'id="last-days"' in sent
    stranger = await apart(User.objects.create_user, "stranger", password="secret-stranger")
    async with opened("/ws/pages/home/", await apart(by_session, stranger)) as caller:
        sent = str(await heard(caller, 'id="agents-today"'))
    assert "Laptop" not in sent and 'id="last-days"' not in sent


async def test_inbox_omits_requests_of_others(transactional_db, ada: User, rosa: User) -> None:
    stranger = await apart(User.objects.create_user, "stranger", password="secret-stranger")
    request = await apart(ask, ada)
    async with opened("/ws/pages/inbox/?after=0", await apart(by_session, stranger)) as caller:
        assert request.public_id not in str(await caller.receive_json_from(timeout=60))


async def test_rendering_pauses_only_after_changes(transactional_db) -> None:
    drawings = [Fragments({"part": "one"}), Fragments({"part": "two"})]
    board = SharedRendering(
        current_feed(), RenderSource("still", lambda: drawings.pop(0), Feed.listen_to_all, rest_seconds=86_400)
    )
    board.drawn, rung = drawings[0], asyncio.Event()
    board.viewers.add(rung)
    try:
        await asyncio.wait_for(rung.wait(), 60)
        assert board.drawn == Fragments({"part": "two"})
    finally:
        board.task.cancel()


async def test_user_without_role_gets_own_plans(executor: ExecutorPool, ada: User) -> None:
    stranger = await apart(User.objects.create_user, "stranger", password="secret-stranger")
    await apart(make_plan, ada, write_step(1), goal="A secret goal")
    for path in ("/ws/pages/inbox/", "/ws/pages/shell/", "/ws/pages/plans/"):
        async with opened(path, await apart(by_session, stranger)) as caller:
            assert "A secret goal" not in str([await caller.receive_json_from(timeout=60)])


@pytest.mark.parametrize("path", ["shell/", "inbox/", "plans/", "plans/plan_none/"])
async def test_sockets_need_signed_in_user(transactional_db, catalog, ada: User, path: str) -> None:
    assert await refused(f"/ws/pages/{path}", await apart(by_token, ada, "plans:read", "approvals:read")) == 4403
    assert await refused(f"/ws/pages/{path}", []) == 4401
    assert await refused(f"/ws/pages/{path}?after=x", await apart(by_session, ada)) == 4400


def test_rendering_is_shared_by_readers_with_the_same_formats() -> None:
    source = RenderSource(("x",), lambda: Fragments({"now": current_reader().time_zone}), Feed.listen_to_all, 0)
    tokyo, again, berlin = (
        source_for(ReaderFormats(zone), source) for zone in ("Asia/Tokyo", "Asia/Tokyo", "Europe/Berlin")
    )
    assert tokyo.key == again.key != berlin.key
    assert (tokyo.draw().fragments["now"], berlin.draw().fragments["now"]) == ("Asia/Tokyo", "Europe/Berlin")
    assert source.draw().fragments["now"] == "UTC"
