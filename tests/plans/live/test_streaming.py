"""Streaming of model output: to pages of permitted viewers, shortened and escaped."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis.asyncio
from channels.testing import WebsocketCommunicator
from django.contrib.auth.models import Group, User

from catalog.calls.privacy import can_see_private
from plans.actions.create import start_plan
from plans.live import access_marks
from plans.live import feed as live_feed
from plans.live.feed import current_feed
from plans.live.sockets import SocketUser
from plans.live.streaming import ModelOutputStream
from plans.models import Plan
from plans.store.requesters import Requester
from plans.web import sockets as web_sockets
from tests.builders import make_plan, step
from tests.plans.socket_clients import apart, by_session, opened

PLAN, OTHER = "plan_one", "plan_two"


def path_of(plan: Plan) -> str:
    """Return the path of the socket of a plan's page."""
    return f"/ws/pages/plans/{plan.public_id}/"


async def fragment(caller: WebsocketCommunicator, say: Callable[[], None], mark: str) -> str:
    """Send until a fragment with this mark arrives: a socket may not listen at once."""
    async with asyncio.timeout(30):
        while True:
            say()
            message: dict[str, Any] = await caller.receive_json_from(timeout=60)
            found = [each for each in message["fragments"] if mark in each]
            if found:
                return str(found[0])


async def test_page_shows_streamed_model_output(transactional_db, stage, ada: User) -> None:
    """Escaped, at the agent's step."""
    plan = await apart(make_plan, ada, step(1), start=False)
    async with opened(path_of(plan), await apart(by_session, ada)) as caller:
        shown = await fragment(
            caller, lambda: live_feed.publish_model_text(plan.public_id, 1, "<b>So far</b>"), "So far"
        )
        assert 'id="agent-text-1"' in shown
        assert "&lt;b&gt;So far&lt;/b&gt;" in shown
        gone = await fragment(caller, lambda: live_feed.publish_model_text(plan.public_id, 1, ""), "hidden")
        assert "So far" not in gone


async def test_output_is_sent_only_to_viewers_of_private_values(transactional_db, stage, ada, ben, rosa) -> None:
    """Reviewers get it; other operators and viewers of other plans do not."""
    plan, other = [await apart(make_plan, ada, step(1), start=False) for _ in range(2)]
    async with (
        opened(path_of(plan), await apart(by_session, rosa)) as reviewer,
        opened(path_of(plan), await apart(by_session, ben)) as operator,
        opened(path_of(other), await apart(by_session, ada)) as elsewhere,
    ):
        await fragment(reviewer, lambda: live_feed.publish_model_text(plan.public_id, 1, "So far"), "So far")
        for caller, watched in ((operator, plan), (elsewhere, other)):
            assert "So far" not in await heard_until_it_happens(caller, watched)


async def heard_until_it_happens(caller: WebsocketCommunicator, plan: Plan) -> str:
    """Start the plan; return everything its page's socket sends until then."""
    heard = ""
    await apart(start_plan, plan, by=Requester(plan.author))
    async with asyncio.timeout(60):
        while "plan.started" not in heard:
            heard += str(await caller.receive_json_from(timeout=60))
    return heard


async def test_output_stops_when_access_is_lost(transactional_db, stage, ada, rosa, monkeypatch) -> None:
    """The page of a viewer of the plan stays open; access is checked every few seconds."""
    enter = web_sockets.PlanSocket.enter
    entered: list[SocketUser] = []

    def noted(socket: web_sockets.PlanSocket) -> SocketUser:
        entered.append(enter(socket))
        return entered[-1]

    monkeypatch.setattr(access_marks, "RECHECK_SECONDS", 0.05)
    monkeypatch.setattr(web_sockets.PlanSocket, "enter", noted)
    plan = await apart(make_plan, ada, step(1), start=False)
    async with opened(path_of(plan), await apart(by_session, rosa)) as caller:
        await fragment(caller, lambda: live_feed.publish_model_text(plan.public_id, 1, "So far"), "So far")
        operators = await apart(Group.objects.get, name="operator")
        await apart(rosa.groups.set, [operators])
        async with asyncio.timeout(60):
            while can_see_private(entered[-1].user):
                await asyncio.sleep(0.01)
        live_feed.publish_model_text(plan.public_id, 1, "No more")
        assert "No more" not in await heard_until_it_happens(caller, plan)


async def test_long_text_is_cut_to_its_end(settings) -> None:
    """With a mark before it."""
    settings.REDIS_URL = ""  # over which one hears oneself a second time
    feed = current_feed()
    with feed.model_output.listen(PLAN) as ear:
        for number, text in ((1, "a" * 4_000), (2, "a" + "b" * 4_000)):
            live_feed.publish_model_text(PLAN, number, text)
        assert await ear.news() == {1: "a" * 4_000, 2: live_feed.OMITTED_TEXT_MARK + "b" * 4_000}
    await feed.close()


async def test_slow_subscriber_gets_the_latest_text_of_each_step(settings) -> None:
    """Nothing of other plans, or after unsubscribing."""
    settings.REDIS_URL = ""  # over which one hears oneself a second time
    voices = ModelOutputStream()
    with voices.listen(PLAN) as ear:
        for number, text in ((1, "a"), (1, "ab"), (2, "x"), (1, "abc")):
            voices.publish(PLAN, number, text)
        voices.publish(OTHER, 1, "never heard")
        assert await ear.news() == {1: "abc", 2: "x"}
        await asyncio.to_thread(voices.publish, PLAN, 1, "")
        assert await ear.news() == {1: ""}


@pytest.mark.service
async def test_output_reaches_other_processes() -> None:
    """With two connections to one Redis."""
    listener, speaker = ModelOutputStream(), ModelOutputStream()
    try:
        with listener.listen(PLAN) as ear:
            async with asyncio.timeout(30):
                heard = asyncio.ensure_future(ear.news())
                while not heard.done():
                    speaker.publish(PLAN, 7, "So far")
                    await asyncio.sleep(0.05)
        assert heard.result() == {7: "So far"}
    finally:
        listener.stop()
        speaker.stop()


@pytest.mark.service
async def test_output_is_encrypted_in_redis(settings) -> None:
    speaker, watcher = ModelOutputStream(), redis.asyncio.from_url(settings.REDIS_URL)
    try:
        async with asyncio.timeout(30), watcher.pubsub() as published:
            await published.psubscribe("*")
            while True:
                speaker.publish(PLAN, 7, "A secret plan")
                message = await published.get_message(ignore_subscribe_messages=True, timeout=0.1)
                if message and b"voices" in message["channel"]:
                    break
        assert b"secret plan" not in message["data"] and PLAN.encode() not in message["data"]
    finally:
        speaker.stop()
        await watcher.aclose()
