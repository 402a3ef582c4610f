"""Plans, calls, sessions and answers of models for the tests of several packages of plans."""

import json
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.contrib.auth.models import User
from django.db import models

from catalog.core import clock
from catalog.models import ApiToken, Call, CatalogState, Implementation
from plans.actions.call import CallOrder, create_call
from plans.engine import loop, recovery
from plans.engine.loop import TimeSlice
from plans.engine.work import RunningCall, WorkItem
from plans.models import Plan, Step
from plans.sessions.lists import SessionKey
from plans.store.requesters import Requester
from tests.builders import act, approve, make_plan, work_off
from tests.conftest import forget_what_was_read
from tests.pages import Pages
from tests.plans.model_server import Reply


def reply_with_calls(*calls: tuple[str, dict[str, Any]], text: str = "") -> Reply:
    """An answer that wants tools called."""
    return Reply(text, tool_calls=tuple((f"c{n}", name, json.dumps(given)) for n, (name, given) in enumerate(calls, 1)))


def send_request(pages: Pages, status: int = 200, **fields: Any) -> str:
    """Send the form of the page that is open, or of the Ask page."""
    if not pages.html:
        pages.open("/ask/")
    sent = {"request": "Greet Jo", "strategy": "react", "key": pages.field("key")} | fields
    return pages.send("/ask/", sent, status)


RENDER_CALL = {"tool": "render_text", "args": {"template": "Word: ${answer}", "values": {}}, "reason": "Say it"}


ANSWER_WITH_CALL = {"intent": "find_it", "needs_tools": True, "tool_calls": [RENDER_CALL]}


class Origin:
    """A request that a plan is made of."""

    request = "Find the word, please."

    def become(self, plan: Plan) -> None:
        """Keep nothing."""


GREETING_PLAN: dict[str, Any] = {
    "intent": "say_hello",
    "needs_tools": True,
    "tool_calls": [
        {"tool": "render_text", "args": {"template": "hello", "values": {}}, "reason": "The user wants a greeting"}
    ],
}


def say_in_the_catalog(digest: str, tool: str = "dangerous") -> None:
    """Let the catalog say that a tool's code has this digest."""
    Implementation.objects.filter(tool__name=tool).update(digest=digest)
    CatalogState.objects.update(revision=CatalogState.objects.get().revision + 1)
    forget_what_was_read()


def act_raising(error: BaseException) -> Any:
    """Return a handler's act that raises this."""

    def act(value: Any, context: Any) -> Any:
        raise error

    return act


def hurry(plan: Plan) -> None:
    """Let the time pass that a step waits before it is tried again."""
    Step.objects.filter(plan=plan, waiting_for="retry").update(ready_at=clock.now())


PRIVATE_EMAIL = "jo@example.org"


PRIVATE_RESULT = {"email": PRIVATE_EMAIL, "seats": [3]}


PRIVATE_PATH = "results.0.email"


def private_plan(author):
    """Run a plan that looks somebody up, and hands on what it found."""
    look = act(1, PRIVATE_RESULT, "private", expected_key="found", output_path=["results", "0"])
    tell = act(2, {"to": "Dear ${found.email}"}, dependencies=[1], expected_key="told")
    other = act(3, "plain", expected_key="plain")
    return work_off(make_plan(author, look, tell, other))


def claimed_and_lost(plan: Plan) -> WorkItem:
    """Let a worker claim a step and be lost with it."""
    work = loop.claim_work(plan.pk, owner="lost")
    assert work is not None
    expire(plan)
    return work


def expire(plan: Plan) -> None:
    """Let the leases of a plan's steps have expired."""
    Step.objects.filter(plan=plan, lease_until__isnull=False).update(lease_until=clock.now())


def take_back() -> int:
    """Do what the ticker does with lost leases."""
    return recovery.take_back_lost_steps(clock.now())


def started_and_lost(plan: Plan, rosa: User) -> RunningCall:
    """Let a worker start the plan's approved dangerous call and be lost with it."""
    work_off(plan)
    approve(plan, rosa)
    run = loop.advance(claimed_and_lost(plan), TimeSlice("lost"))
    assert isinstance(run, RunningCall)
    expire(plan)
    return run


def rows_with(text: str) -> list[str]:
    """Return the columns of the database that hold a text."""
    found = []
    for model in apps.get_models():
        for field in model._meta.concrete_fields:
            if isinstance(field, models.CharField | models.TextField | models.JSONField):
                values = model._default_manager.values_list(field.attname, flat=True)
                found += [f"{model.__name__}.{field.attname}" for value in values if text in json.dumps(value)]
    return found


@dataclass
class SessionAgent:
    """Someone who calls tools in one session."""

    user: User
    name: str = "night"
    token: ApiToken | None = None

    @property
    def by(self) -> Requester:
        return Requester(self.user, self.token, via="rest", session=self.name)

    def ask(self, tool: str, **arguments: Any) -> Call:
        """Ask for a call, without working it off."""
        return create_call(CallOrder(f"planning_{tool}", arguments), by=self.by)

    def call(self, tool: str, **arguments: Any) -> Call:
        """Call a planning tool; return the call when it has ended."""
        call = self.ask(tool, **arguments)
        work_off(Plan.objects.get(public_id=call.plan_ref))
        call.refresh_from_db()
        return call

    def setup(self, *steps: str, objective: str = "Try it") -> Plan:
        """Set a list up and return its row."""
        self.call("setup_plan", objective=objective, initial_steps=list(steps))
        return self.row

    @property
    def key(self) -> SessionKey:
        is_agent = self.token is not None and self.token.kind == ApiToken.Kind.AGENT
        return SessionKey(self.user.pk, self.token.pk if self.token and is_agent else None, self.name)

    @property
    def row(self) -> Plan:
        found = self.key.current_list()
        assert found is not None
        return found

    @property
    def statuses(self) -> list[str]:
        return list(self.row.steps.order_by("step_id").values_list("status", flat=True))


def started_call(call: Call) -> RunningCall:
    """Start a call, and stop before its handler runs."""
    work = loop.claim_work(Plan.objects.get(public_id=call.plan_ref).pk, owner="tests")
    assert isinstance(work, RunningCall)
    return work
