"""Timeline of the demo: stories are carried out by the product's own services, each event with the clock set to it.

A story creates a plan or a call and then answers its requests and questions in turn, as its people did. One thread does
all the work, in the order of time, so no executor may run meanwhile.
"""

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from random import Random
from typing import Any, Literal

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Min

from approvals.models import ApprovalRequest
from approvals.requests.deadlines import expire_due
from approvals.requests.lifecycle import withdraw
from approvals.reviews import coordination, effects
from approvals.reviews.decisions import Decision, decide
from approvals.states import RequestStatus, ReviewVerdict
from catalog.access.tokens import authenticate_token
from catalog.core import clock
from catalog.errors import ToolError
from plans.actions.call import CallOrder, create_call
from plans.actions.control import cancel_plan
from plans.actions.create import create_plan
from plans.actions.give_input import give_input
from plans.engine import loop
from plans.engine.work import RunningCall, WorkItem
from plans.models import Plan, Step
from plans.spec import PlanDocument
from plans.states import PlanStatus
from plans.store.requesters import Requester

OWNER = "demo"
"""Name of the executor that holds the leases."""
SHORTEST_WORK, LONGEST_WORK = 0.3, 9.0
"""Seconds that the steps of the history take: less than a lease."""

Act = Literal[
    "approve", "reject", "respond", "request_changes", "comment", "claim", "withdraw", "expire", "input", "cancel"
]
Arguments = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """One person's action on a story that waits, `minutes` after it began to wait.

    `arguments` are changed values of an approval or of input, `value` is the answer instead of the tool.
    """

    act: Act
    by: str
    minutes: float
    text: str = ""
    arguments: Arguments = field(default_factory=dict)
    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A plan, or a direct call if `tool` is given, of a person or their agent, with its answers in turn.

    Arguments that depend on files are computed when the story begins.
    """

    begins: datetime
    by: str
    agent: str = ""
    document: PlanDocument | None = None
    tool: str = ""
    arguments: Arguments | Callable[[], Arguments] = field(default_factory=dict)
    reason: str = ""
    session: str = ""
    answers: Sequence[Answer] = ()


@dataclass(slots=True)
class _Telling:
    """A story that has begun, and the answers that are left."""

    story: Story
    plan: Plan
    by: Requester
    answers: deque[Answer]


class Timeline:
    """Stories up to the moment `ends`; `tokens` are the texts of agents' tokens by name."""

    def __init__(self, ends: datetime, tokens: Mapping[str, str], random: Random) -> None:
        self._ends = ends
        self._tokens = tokens
        self._random = random
        self._numbers = count()
        self._queue: list[tuple[datetime, int, Callable[[], None]]] = []

    def add(self, story: Story) -> None:
        self.at(story.begins, partial(self._begin, story))

    def tell(self) -> None:
        """Carry out every event in the order of time. Events after the end are left out."""
        while self._queue:
            moment, _, act = heapq.heappop(self._queue)
            if moment > self._ends:
                return
            with clock.at(moment):
                act()

    def at(self, moment: datetime, act: Callable[[], None]) -> None:
        """Carry out an event at a moment."""
        heapq.heappush(self._queue, (moment, next(self._numbers), act))

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self.at(clock.now() + timedelta(seconds=seconds), act)

    def _begin(self, story: Story) -> None:
        """Create the story's plan. A story that is refused is left out, such as one with tools of a disabled set."""
        token = authenticate_token(self._tokens[story.agent]) if story.agent else None
        via = "page" if token is None else "mcp"
        by = Requester(User.objects.get(username=story.by), token, via=via, session=story.session)
        with suppress(ToolError):
            if story.document is not None:
                plan = create_plan(story.document, by=by)
            else:
                arguments = story.arguments() if callable(story.arguments) else story.arguments
                call = create_call(CallOrder(story.tool, arguments, reason=story.reason), by=by)
                plan = Plan.objects.get(public_id=call.plan_ref)
            self._claim(_Telling(story, plan, by, deque(story.answers)))

    def _claim(self, telling: _Telling) -> None:
        self._go_on(telling, loop.claim_work(telling.plan.pk, owner=OWNER))

    def _advance(self, telling: _Telling, work: WorkItem) -> None:
        time_slice = loop.TimeSlice(OWNER, until=float("inf"), steps_left=1000)
        self._go_on(telling, loop.advance(work, time_slice))

    def _go_on(self, telling: _Telling, work: WorkItem | None) -> None:
        """Do the work after the time that it takes; without work, wait for the next answer."""
        if work is not None:
            is_running = isinstance(work, RunningCall)
            seconds = self._random.uniform(SHORTEST_WORK, LONGEST_WORK) if is_running else SHORTEST_WORK
            self._after(seconds, partial(self._advance, telling, work))
            return
        telling.plan.refresh_from_db(fields=["status"])
        if telling.plan.status != PlanStatus.IN_PROGRESS:
            return
        ready = Step.objects.filter(plan=telling.plan).aggregate(first=Min("ready_at"))["first"]
        if ready is not None and ready > clock.now():
            self.at(ready, partial(self._claim, telling))
        elif telling.answers:
            answer = telling.answers.popleft()
            self._after(answer.minutes * 60 + self._random.uniform(1, 50), partial(self._answer, telling, answer))

    def _answer(self, telling: _Telling, answer: Answer) -> None:
        by = User.objects.get(username=answer.by)
        if answer.act == "cancel":
            cancel_plan(telling.plan, by=Requester(by))
        elif answer.act == "expire":
            expire_due(clock.now())
        elif answer.act == "input":
            give_input(telling.plan, None, answer.arguments or None, text=answer.text, by=Requester(by))
        else:
            self._review(telling, answer, by)
        self._after(settings.TOOLGATE_UNDO_SECONDS + 1, partial(self._take_effect, telling))

    def _review(self, telling: _Telling, answer: Answer, by: User) -> None:
        pending = ApprovalRequest.objects.filter(status=RequestStatus.PENDING, call__plan_ref=telling.plan.public_id)
        request = pending.select_related("call", "policy_revision__policy", "tool_version").get()
        if answer.act == "comment":
            coordination.comment(request, by=by, text=answer.text)
        elif answer.act == "claim":
            coordination.claim(request, by=by)
        elif answer.act == "withdraw":
            withdraw(request, by=by, reason=answer.text)
        else:
            more: dict[str, Any] = {"response": answer.value} if answer.act == "respond" else {}
            if answer.arguments:
                more["arguments"] = request.call.arguments_json | answer.arguments
            verdict = ReviewVerdict(answer.act)
            decide(
                request, by=by, decision=Decision(verdict, request.digest, comment=answer.text, channel="page", **more)
            )

    def _take_effect(self, telling: _Telling) -> None:
        effects.apply_due(clock.now())
        self._claim(telling)
