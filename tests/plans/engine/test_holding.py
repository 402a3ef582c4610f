"""Previews of direct calls that time out: the request is held with a notice."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections

from catalog.dispatch import pipeline
from catalog.errors import ToolError
from catalog.models import Call
from plans.actions.call import CallOrder, create_call, rehearse
from plans.engine import holding
from plans.models import Plan
from plans.store.requesters import Requester
from tests.builders import approve, request_of, work_off
from tests.waiting import eventually


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """An event for which hanging previews wait, with short timeouts."""
    monkeypatch.setattr(pipeline, "PREVIEW_SECONDS", 0.1)
    monkeypatch.setattr(holding, "SLOT_WAIT_SECONDS", 0.05)
    event = threading.Event()
    yield event
    event.set()
    eventually(lambda: not hanging())


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Give previews unlimited time from now on."""
    return lambda: monkeypatch.setattr(pipeline, "PREVIEW_SECONDS", 60.0)


def hanging() -> list[threading.Thread]:
    """Return the threads that compute previews."""
    return [each for each in threading.enumerate() if each.name == "toolgate-preview"]


def held(ada: User) -> Call:
    """Make a dangerous call; check that it is held."""
    call = create_call(CallOrder("dangerous", {"value": "x"}), by=Requester(ada))
    assert call.status == "held"
    return call


def shown(call: Call) -> dict[str, Any]:
    """Return the preview shown to reviewers."""
    preview = call.approval.rounds.get().preview_json
    assert preview is not None
    return preview


def test_hanging_preview_does_not_block_the_request(stage, ada, gate):
    """The request is stored while its preview still runs, with a notice."""
    stage.previews["dangerous"] = lambda value, context: gate.wait(60)
    call = held(ada)
    assert hanging()
    assert (shown(call)["summary"], shown(call)["kind"]) == (holding.PREVIEW_TIMED_OUT, "none")


def test_approval_without_preview_is_asked_again(stage, ada, rosa, gate, patient):
    """An approval without a preview does not start the call once there is one."""
    stage.previews["dangerous"] = lambda value, context: gate.wait(60)
    plan = Plan.objects.get(public_id=held(ada).plan_ref)
    stage.previews.clear()
    patient()
    approve(plan, rosa)
    work_off(plan)
    assert (stage.values("dangerous"), request_of(plan).status) == ([], "pending")
    assert shown(request_of(plan).call)["summary"] == "Do x"


def test_number_of_hanging_previews_is_limited(stage, ada, gate, patient):
    """Further previews are not started; a freed slot is used again."""
    stage.previews["dangerous"] = lambda value, context: gate.wait(60)
    for _ in range(holding.PREVIEWS_AT_ONCE):
        assert shown(held(ada))["summary"] == holding.PREVIEW_TIMED_OUT
    assert shown(held(ada))["summary"] == holding.TOO_MANY_PREVIEWS
    gate.set()
    stage.previews.clear()
    patient()
    eventually(lambda: holding._preview_slots._value == holding.PREVIEWS_AT_ONCE, what="the places")
    assert shown(held(ada))["summary"] == "Do x"


def test_hanging_preview_does_not_block_a_rehearsal(stage, ada, gate):
    stage.previews["dangerous"] = lambda value, context: gate.wait(60)
    shown_there = rehearse("dangerous", {"value": "x"}, by=Requester(ada)).preview
    assert shown_there is not None
    assert shown_there.summary == holding.PREVIEW_TIMED_OUT


def test_refusal_by_a_preview_refuses_the_call(stage, ada):
    """The error crosses from the preview's thread to the request's."""

    def refuse(value: Any, context: Any) -> None:
        raise refusal

    refusal = ToolError("There is nothing to do.")
    stage.previews["dangerous"] = refuse
    with pytest.raises(ToolError) as refused:
        held(ada)
    assert refused.value is refusal
    assert not Plan.objects.exists()


@pytest.mark.usefixtures("transactional_db")
def test_one_requester_waits_for_few_previews_at_once(stage, ada, rosa, gate, patient):
    """Further calls of the same person are refused and leave the places to others."""
    patient()
    stage.previews["dangerous"] = lambda value, context: None if value == "quick" else gate.wait(60)
    slow = CallOrder("dangerous", {"value": "slow"})
    with ThreadPoolExecutor() as pool:
        mine = [pool.submit(create_call, slow, by=Requester(ada)) for _ in range(holding.PREVIEWS_PER_REQUESTER)]
        eventually(lambda: len(hanging()) == holding.PREVIEWS_PER_REQUESTER)
        with pytest.raises(holding.CallBusy) as refused:
            create_call(slow, by=Requester(ada))
        assert (refused.value.code, refused.value.retry_after) == ("call_busy", holding.BUSY_RETRY_SECONDS)
        assert create_call(CallOrder("dangerous", {"value": "quick"}), by=Requester(rosa)).status == "held"
        gate.set()
        assert {each.result().status for each in mine} == {"held"}
        pool.submit(connections.close_all).result()
    assert holding._waiting == {}
