"""Previews of direct calls that do not come in time: the request is held and says so."""

import threading
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest
from django.contrib.auth.models import User

from catalog import definitions
from catalog.errors import ToolError
from catalog.models import Call
from plans import previews
from plans.calls import CallOrder, create_call
from plans.models import Plan
from plans.rehearsing import rehearse
from plans.services import Requester
from tests.builders import approve, request_of, work_off
from tests.waiting import eventually


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """What hanging previews wait for; nobody waits long for them."""
    monkeypatch.setattr(definitions, "PREVIEW_SECONDS", 0.2)
    monkeypatch.setattr(previews, "PLACE_SECONDS", 0.05)
    event = threading.Event()
    yield event
    event.set()
    eventually(lambda: not any(each.name == "toolgate-preview" for each in threading.enumerate()))


def held(ada: User) -> Call:
    """Ask for a dangerous call; check that it waits for people."""
    call = create_call(CallOrder("dangerous", {"value": "x"}), by=Requester(ada))
    assert call.status == "held"
    return call


def shown(call: Call) -> dict[str, Any]:
    """Return the preview that people are shown."""
    preview = call.approval.rounds.get().preview_json
    assert preview is not None
    return preview


def test_a_preview_that_hangs_does_not_hold_up_who_asks(stage, ada, gate):
    """People are told that there is none."""
    stage.previews["dangerous"] = lambda value, context: gate.wait(60)
    began = monotonic()
    call = held(ada)
    assert monotonic() - began < 30
    assert (shown(call)["summary"], shown(call)["kind"]) == (previews.LATE, "none")


def test_what_nobody_could_see_is_asked_about_again(stage, ada, rosa, gate):
    """An approval without the preview does not let the call run once there is one."""
    stage.previews["dangerous"] = lambda value, context: gate.wait(60)
    plan = Plan.objects.get(public_id=held(ada).plan_ref)
    stage.previews.clear()
    approve(plan, rosa)
    work_off(plan)
    assert (stage.values("dangerous"), request_of(plan).status) == ([], "pending")
    assert shown(request_of(plan).call)["summary"] == "Do x"


def test_only_so_many_hang(stage, ada, gate, monkeypatch):
    """Further ones are not begun, and say so; a place that is given back is used again."""
    stage.previews["dangerous"] = lambda value, context: gate.wait(60)
    for _ in range(previews.PREVIEWS_AT_ONCE):
        assert shown(held(ada))["summary"] == previews.LATE
    assert shown(held(ada))["summary"] == previews.CROWDED
    gate.set()
    stage.previews.clear()
    monkeypatch.setattr(definitions, "PREVIEW_SECONDS", 60.0)
    eventually(lambda: previews._places._value == previews.PREVIEWS_AT_ONCE, what="the places")
    assert shown(held(ada))["summary"] == "Do x"


def test_trying_a_tool_is_not_held_up_either(stage, ada, gate):
    """Its page says the same."""
    stage.previews["dangerous"] = lambda value, context: gate.wait(60)
    shown_there = rehearse("dangerous", {"value": "x"}, by=Requester(ada)).shown
    assert shown_there is not None
    assert shown_there.summary == previews.LATE


def test_what_the_tool_already_refuses_is_refused(stage, ada):
    """As it was when the preview was computed in the request's own thread."""

    def refuse(value: Any, context: Any) -> None:
        raise ToolError("There is nothing to do.")

    stage.previews["dangerous"] = refuse
    with pytest.raises(ToolError, match="nothing to do"):
        held(ada)
    assert not Plan.objects.exists()
