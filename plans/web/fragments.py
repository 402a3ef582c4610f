"""The fragments that the pages' sockets send: the same that the pages include, drawn for everyone who may see them.

A request that no longer waits is removed from lists at once, before a list is drawn without it.
"""

from collections.abc import Callable, Set
from functools import lru_cache, partial
from typing import Any

from django.contrib.auth.models import User
from django.template.loader import render_to_string

from approvals.queue.saved_views import WAITING, Queues, needed_count
from approvals.web.review.inbox import queue_of
from catalog.calls.privacy import sees_private
from plans.live.approval_changes import CLOSED, Change
from plans.live.feed import Feed
from plans.live.fragment_cache import Drawn, Subject
from plans.live.sockets import Visitor
from plans.models import Plan, Step
from plans.states import StepStatus
from plans.store.plan_documents import removed_from
from plans.store.selectors import running_plans
from plans.web.plan.history import EventLine
from plans.web.plan.overview import MemoryRow, Picture, StepPicture, draw, drawing_of
from plans.web.plan.page import state_of
from plans.web.plan.step_detail import default_step
from plans.web.plan_list import live_rows


def gone_from_lists(change: Change) -> list[str]:
    """Return what takes a closed request out of the lists of what waits."""
    return [render_to_string("approvals/_left.html", {"change": change})] if change.type == CLOSED else []


PLAN_RESTS, SHELL_RESTS, VIEWS_REST = 0.1, 0.5, 1.0
"""Seconds: a plan is drawn at most ten times a second, what is on every page twice, what is one person's own once."""
TRIES = 3


def plan_subject(plan_ref: str) -> Subject:
    """One plan, the same for everyone who may see it."""
    return Subject(("plan", plan_ref), partial(_draw_plan, plan_ref), lambda feed: feed.listen(plan_ref), PLAN_RESTS)


def shell_subject(visitor: Visitor) -> Subject:
    """What is on every page: how many requests the visitor can answer, which plans run."""
    key = ("shell", visitor.user.pk)
    return Subject(key, partial(_draw_shell, visitor.user), Feed.listen_to_all, SHELL_RESTS)


def plans_subject(visitor: Visitor) -> Subject:
    """The newest rows of the list of plans."""
    return _for_viewer("plans", visitor, _draw_rows)


def inbox_subject(visitor: Visitor, view: str) -> Subject:
    """The requests in one view of what waits; all that waits is the same for everyone who sees private data."""
    if view == WAITING and sees_private(visitor.user):
        return Subject(("inbox", None), partial(_draw_inbox, view, visitor.user), Feed.listen_to_all, SHELL_RESTS)
    return _for_one("inbox", visitor, view, partial(_draw_inbox, view))


def views_subject(visitor: Visitor, view: str) -> Subject:
    """How many requests stand in each view of what waits, for this person."""
    return _for_one("views", visitor, view, partial(_draw_views, view))


def _for_one(name: str, visitor: Visitor, view: str, draw_for: Callable[[User], Drawn]) -> Subject:
    key = (name, visitor.user.pk, view)
    return Subject(key, partial(draw_for, visitor.user), Feed.listen_to_all, VIEWS_REST)


def _for_viewer(name: str, visitor: Visitor, draw_for: Callable[[User], Drawn]) -> Subject:
    """Whoever sees everyone's things looks at the same board; the others each at their own."""
    key = (name, None if visitor.sees_all else visitor.user.pk)
    return Subject(key, partial(draw_for, visitor.user), Feed.listen_to_all, SHELL_RESTS)


def _draw_plan(plan_ref: str) -> Drawn:
    picture, exact = _picture(plan_ref)
    shared = {"picture": picture, "timeline": picture.timeline, "drawing": drawing_of(picture)}
    parts = ("standing", "goal", "segments", "count", "graph", "axis", "keys", "last")
    fragments = {part: _render(f"plans/_{part}.html", **shared) for part in parts}
    removed = removed_from(picture.plan)
    fragments |= _rows(picture) | _gone(removed) | _values(picture) | _events(picture) | _looks(picture, removed)
    numbers = {f"e{line.seq}": line.seq for line in picture.events}
    return Drawn(fragments, picture.seq, exact, numbers, f"Plan: {picture.words[0].label}")


def _picture(plan_ref: str) -> tuple[Picture, bool]:
    """Draw a plan, again when something happened meanwhile; say whether nothing newer is in the picture."""
    plans = Plan.objects.select_related("author", "token", "paused_by").filter(public_id=plan_ref)
    for _ in range(TRIES):
        picture = draw(plans.get())
        if plans.filter(last_seq=picture.seq).exists():
            return picture, True
    return picture, False


def _rows(picture: Picture) -> dict[str, str]:
    now = picture.timeline.now
    return {f"s{step.number}": _render("plans/_rows.html", steps=[step], now=now) for step in picture.steps}


def _gone(removed: Set[int]) -> dict[str, str]:
    """Return what takes the rows of steps away that are not in the plan any more."""
    return {f"s{number}": _render("plans/_gone.html", number=number) for number in removed}


def _values(picture: Picture) -> dict[str, str]:
    return {f"m{row.pk}": _value(picture.plan.public_id, row) for row in picture.memory}


def _events(picture: Picture) -> dict[str, str]:
    """Return the newest events, oldest first: each is put before the others."""
    return {f"e{line.seq}": _event(line) for line in reversed(picture.events)}


@lru_cache(maxsize=1024)
def _value(plan_ref: str, row: MemoryRow) -> str:
    return _render("plans/_value.html", item=row, plan_ref=plan_ref)


@lru_cache(maxsize=4096)
def _event(line: EventLine) -> str:
    return _render("plans/_events.html", lines=[line], fresh=True)


def _looks(picture: Picture, removed: Set[int]) -> dict[str, str]:
    """Return what makes a page ask again for what it shows to one person alone, whenever that has changed."""
    address, first = f"/plans/{picture.plan.public_id}/", default_step(picture)
    changes = sum(line.type == "plan.changed" for line in picture.events)
    states = {step.number: _state_of(step, changes) for step in picture.steps} | dict.fromkeys(removed, "gone")
    looks = {f"look-{number}": _look(str(number), "step", address, state) for number, state in states.items()}
    looks["look-said"] = _look("said", "said", address, state_of(picture))
    looks["look-controls"] = _look("controls", "controls", address, _control_state(picture.plan))
    looks["look-first"] = _look("first", "step", address, f"{first} {states.get(first)}")
    return looks


def _state_of(step: StepPicture, changes: int) -> str:
    """Say what is to be seen of a step; the page of an agent's shows what the agent has called."""
    family = [f"{each.step_id} {_step_state(each, changes)}" for each in step.under]
    return "; ".join([_step_state(step.step, changes), *family])


def _step_state(step: Step, changes: int) -> str:
    """Say what is to be seen of a step; a pending one may have become another with every change of the plan."""
    came_back = step.call is not None and step.call.came_back_at is not None
    version = f" {changes}" if step.status == StepStatus.PENDING else ""
    return f"{step.status}{version} {step.waiting_for} {step.attempt}" + (" came back" if came_back else "")


def _control_state(plan: Plan) -> str:
    return f"{plan.status} {plan.paused_at}"


@lru_cache(maxsize=4096)
def _look(name: str, target: str, address: str, state: str) -> str:
    return _render("plans/_look.html", name=name, target=target, address=address, state=state)


def look_at_request(change: Change) -> str:
    """Return what makes the page that shows a request ask for it again, unless it has moved on within a second."""
    return _render("approvals/_look.html", change=change)


def agent_text(number: int, text: str) -> str:
    """Return what the model of an agent's step has said so far, for the page that shows the step."""
    return _render("plans/_agent_text.html", number=number, text=text, may_speak=True)


def _draw_shell(viewer: User) -> Drawn:
    waiting = needed_count(viewer)
    shell = {"waiting": waiting, "running_plans": running_plans(viewer)}
    fragments = {place: _render("_waiting.html", shell=shell, place=place) for place in ("side", "tab", "list")}
    fragments["running"] = _render("_running.html", shell=shell)
    says = "1 request needs you" if waiting == 1 else f"{waiting or 'No'} requests need you"
    return Drawn(fragments, says=says)


def _draw_rows(viewer: User) -> Drawn:
    """Return the rows, oldest first: a new one is put before the others."""
    rows = reversed(live_rows(viewer))
    return Drawn({row.plan.public_id: _render("plans/_plan.html", row=row) for row in rows})


def _draw_inbox(view: str, viewer: User) -> Drawn:
    return Drawn({"queue": _render("approvals/_queue.html", inbox=queue_of(viewer, view))})


def _draw_views(view: str, viewer: User) -> Drawn:
    inbox = {"status": view, "counts": Queues(viewer).counts}
    return Drawn({"views": _render("approvals/_views.html", inbox=inbox)})


def _render(template: str, **context: Any) -> str:
    return render_to_string(template, context)
