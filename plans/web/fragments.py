"""Fragments that the pages' sockets send: the same templates that the pages include, rendered for all viewers.

A request that is no longer pending is removed from lists at once, before the list itself is rendered again.
"""

from collections.abc import Callable, Hashable, Set
from functools import lru_cache, partial
from math import ceil, log2
from typing import Any

from django.contrib.auth.models import User
from django.template.loader import render_to_string
from django.utils.translation import gettext, ngettext

from approvals.queue.saved_views import HOME, WAITING, Queues, needed_count
from approvals.stops.services import stop_lines_for
from approvals.web.review.inbox import inbox_list
from catalog.access.roles import ADMINISTRATOR, OPERATOR, can_see_all, groups_of, has_role, roles_of
from catalog.calls.privacy import can_see_private
from catalog.text.formats import ReaderFormats, current_reader
from plans.live.approval_changes import CLOSED, Change
from plans.live.feed import Feed
from plans.live.fragment_cache import Fragments, RenderSource
from plans.live.sockets import SocketUser
from plans.models import Plan, Step
from plans.states import StepStatus
from plans.store.selectors import running_plans
from plans.web.graph import UNFOLDED, Box, Fold
from plans.web.home.activity import failed_plans, running_rows
from plans.web.home.agents_today import agents_today
from plans.web.home.first_steps import first_steps_for
from plans.web.home.last_days import last_days
from plans.web.plan.kept_rows import KeptRows
from plans.web.plan.overview import (
    MIN_BAR_WIDTH,
    MemoryRow,
    PlanOverview,
    StepOverview,
    graph_drawing,
    keep_rows,
    load_overview,
)
from plans.web.plan.page import conversation_state
from plans.web.plan.rows import RowContext, step_event, timeline_row
from plans.web.plan.step_detail import default_step
from plans.web.plan.timeline import Timeline
from plans.web.plan_list import first_page_rows


def remove_closed_request(change: Change) -> list[str]:
    return [_render("_gone.html", id=f"q-{change.id}")] if change.type == CLOSED else []


PLAN_RESTS, SHELL_RESTS, VIEWS_REST = 0.1, 0.5, 1.0
"""Minimum seconds between renderings: of a plan, of content on every page, and of one person's own content."""
FIGURES_REST = 15.0
"""Seconds between renderings of the figures of the home page, which count more than a second changes."""
MAX_LOADS = 3
GRAIN = 0.004
"""Part of the axis by which a bar may be off before its row is sent again."""


def plan_source(plan_ref: str, fold: Fold = UNFOLDED) -> RenderSource:
    """Return the source of one plan, shared by everyone who may see it and folds its graph alike."""
    return RenderSource(
        ("plan", plan_ref, fold), PlanRenderer(plan_ref, fold), lambda feed: feed.listen(plan_ref), PLAN_RESTS
    )


def shell_source(user: SocketUser) -> RenderSource:
    """Return the source of content on every page: number of requests for the visitor, and running plans."""
    key = ("shell", _rights_key(user))
    draw = partial(_render_shell, user.user)
    return RenderSource(key, draw, Feed.listen_to_all, SHELL_RESTS, may_wait=True)


def _rights_key(user: SocketUser) -> Hashable:
    """Return a key of the person with their groups and roles.

    A rendering reads them only once: without them in its key, a page that connects again after the loss of a role would
    share the rendering that another window of this person still keeps up with the old ones.
    """
    return user.user.pk, groups_of(user.user), roles_of(user.user)


def plans_source(user: SocketUser) -> RenderSource:
    """Return the source of rows of plans, shared by all administrators and by those who see all and may act on none."""
    roles = roles_of(user.user)
    viewer = _rights_key(user)
    if user.sees_all and ADMINISTRATOR in roles:
        viewer = ADMINISTRATOR
    elif user.sees_all and OPERATOR not in roles:
        viewer = "acts on none"
    return RenderSource(("plans", viewer), partial(_render_rows, user.user), Feed.listen_to_all, SHELL_RESTS)


def inbox_source(user: SocketUser, view: str) -> RenderSource:
    """Return the source of one view of pending requests; users who see private data share the view of all requests."""
    if view == WAITING and can_see_private(user.user):
        return RenderSource(("inbox", None), partial(_render_inbox, view, user.user), Feed.listen_to_all, SHELL_RESTS)
    return _personal_source("inbox", user, view, partial(_render_inbox, view))


def home_source(user: SocketUser) -> RenderSource:
    """Return the source of the home page: requests to answer, plans that run and have failed, first steps."""
    key = ("home", _rights_key(user))
    return RenderSource(key, partial(_render_home, user.user), Feed.listen_to_all, VIEWS_REST)


def figures_source(user: SocketUser) -> RenderSource:
    """Return the source of the home page's figures: agents today, and the last days."""
    key = ("figures", _rights_key(user))
    draw = partial(_render_figures, user.user)
    return RenderSource(key, draw, Feed.listen_to_all, FIGURES_REST, always_rests=True)


def views_source(user: SocketUser, view: str) -> RenderSource:
    return _personal_source("views", user, view, partial(_render_views, view))


def _personal_source(
    name: str, user: SocketUser, view: str, fragments_for: Callable[[User], Fragments]
) -> RenderSource:
    key = (name, _rights_key(user), view)
    return RenderSource(key, partial(fragments_for, user.user), Feed.listen_to_all, VIEWS_REST)


class PlanRenderer:
    """Renders one plan. Of the rows of its timeline, which are many, it renders again those whose mark has changed."""

    def __init__(self, plan_ref: str, fold: Fold = UNFOLDED) -> None:
        self._plans = Plan.objects.select_related("author", "token", "paused_by").filter(public_id=plan_ref)
        self._address = f"/plans/{plan_ref}/"
        self._fold = fold
        self._rows: dict[int, tuple[Hashable, str]] = {}
        self._kept: KeptRows | None = None

    def __call__(self) -> Fragments:
        for _ in range(MAX_LOADS):  # again if the plan changed in the meantime
            plan = self._plans.get()
            self._kept = self._kept or keep_rows(plan)
            overview = load_overview(plan, self._kept)
            rows = self._kept.events.rows
            exact = self._plans.filter(last_seq=overview.seq).exists()
            if exact:
                break
        shared = {"overview": overview, "timeline": overview.timeline, "seq": overview.seq}
        parts = ("standing", "goal", "segments", "count", "axis", "keys", "last")
        fragments = {part: _render(f"plans/_{part}.html", **shared) for part in parts}
        removed, reader = overview.removed, current_reader()
        # Oldest first, because the page inserts each one at the top.
        events = {f"g{row.line.step_id or 0}": row for row in reversed(rows)}
        self._render_rows(overview)
        fragments |= (
            _graph_fragments(overview, self._fold, removed)
            | {f"s{number}": html for number, (_mark, html) in self._rows.items()}
            | {f"s{number}": _render("_gone.html", id=f"s{number}") for number in removed}
            | {f"m{row.pk}": _value(overview.plan.public_id, row, reader) for row in overview.memory}
            | {key: step_event(self._address, row, reader, is_new=True) for key, row in events.items()}
            | _refresh_triggers(overview, removed)
            | ({"forecast": _render("_gone.html", id="forecast")} if overview.plan.started_at else {})
        )
        numbers = {key: row.line.seq for key, row in events.items()}
        says = gettext("Plan: %(status)s") % {"status": overview.words[0].label}
        marks = {f"s{number}": mark for number, (mark, _html) in self._rows.items()}
        return Fragments(fragments, overview.seq, exact, numbers, says, marks)

    def _render_rows(self, overview: PlanOverview) -> None:
        timeline, before, self._rows = overview.timeline, self._rows, {}
        context = RowContext(timeline.now, timeline.length, self._fold)
        for step in overview.steps:
            mark, row = _row_mark(step, timeline), before.get(step.number)
            self._rows[step.number] = row if row and row[0] == mark else (mark, timeline_row(step, context))


def _row_mark(step: StepOverview, timeline: Timeline) -> Hashable:
    """Return a value that changes when a row must be sent again. A longer axis alone does not: the page shrinks bars.

    A bar that goes on, and one of the least width, change only with what is known of their step.
    """
    grain = 2 ** ceil(log2(timeline.length * GRAIN))
    per_percent = timeline.length / (timeline.now or 100.0) / grain
    bars = tuple(
        (
            bar.look,
            bar.is_open,
            round(bar.offset * per_percent),
            round(bar.width * per_percent) if bar.width > MIN_BAR_WIDTH and not bar.is_open else 0,
        )
        for bar in step.timeline_bars
    )
    shown = (step.word, step.label, step.took_ms, step.since, step.step.title, step.step.skipped)
    return (*shown, step.parent, step.before, timeline.now, bars)


def _graph_fragments(overview: PlanOverview, fold: Fold, removed: Set[int]) -> dict[str, str]:
    """Return a fragment for each box, so that a change sends those that it concerns and no others."""
    drawing = graph_drawing(overview, fold)
    if drawing is None:
        return {"graph": _render("plans/_graph.html")}
    folded = {number for box in drawing.boxes for number in box.node.members}
    return (
        {"drawn": _render("plans/_graph_size.html", drawing=drawing)}
        | {f"n{box.step_id}": _box(box, fold) for box in drawing.boxes}
        | {f"n{number}": _no_box(number) for number in (folded | removed) - {box.step_id for box in drawing.boxes}}
    )


@lru_cache(maxsize=8192)
def _box(box: Box, fold: Fold) -> str:
    return _render("plans/_graph_step.html", box=box, fold=fold)


@lru_cache(maxsize=8192)
def _no_box(number: int) -> str:
    return _render("plans/_graph_gone.html", number=number)


@lru_cache(maxsize=1024)
def _value(plan_ref: str, row: MemoryRow, reader: ReaderFormats) -> str:
    return _render("plans/_value.html", item=row, plan_ref=plan_ref)


def _refresh_triggers(overview: PlanOverview, removed: Set[int]) -> dict[str, str]:
    """Return fragments that make a page reload its personal parts whenever those have changed."""
    address, first = f"/plans/{overview.plan.public_id}/", default_step(overview)
    states = {step.number: _state_of(step, overview.changes) for step in overview.steps} | dict.fromkeys(
        removed, "gone"
    )
    looks = {
        f"look-{number}": _refresh_trigger(str(number), "step", address, state) for number, state in states.items()
    }
    looks["look-said"] = _refresh_trigger("said", "said", address, conversation_state(overview))
    looks["look-controls"] = _refresh_trigger(
        "controls", "controls", address, f"{overview.plan.status} {overview.plan.paused_at} {overview.waits.state}"
    )
    looks["look-first"] = _refresh_trigger("first", "step", address, f"{first} {states.get(first)}")
    return looks


def _state_of(step: StepOverview, changes: int) -> str:
    """Return the visible state of a step; an agent's step includes the calls of the agent."""
    family = [f"{each.step_id} {_step_state(each, changes)}" for each in step.under]
    waits = step.wait.state if step.wait else ""
    return "; ".join([_step_state(step.step, changes), waits, *family])


def _step_state(step: Step, changes: int) -> str:
    """Return the visible state of a step; a pending step may have been edited by any change of its plan."""
    came_back = step.call is not None and step.call.came_back_at is not None
    version = f" {changes}" if step.status == StepStatus.PENDING else ""
    return f"{step.status}{version} {step.waiting_for} {step.attempt}" + (" came back" if came_back else "")


@lru_cache(maxsize=4096)
def _refresh_trigger(name: str, target: str, address: str, state: str) -> str:
    return _render("plans/_look.html", name=name, target=target, address=address, state=state)


def request_refresh_trigger(change: Change, path: str) -> str:
    """Return a fragment that makes the page at `path` reload the request, unless it is left within a second."""
    return _render("approvals/_look.html", change=change, path=path)


def model_output_fragment(number: int, text: str) -> str:
    return _render("plans/_agent_text.html", number=number, text=text, may_speak=True)


def _render_shell(viewer: User) -> Fragments:
    waiting = needed_count(viewer)
    shell = {"waiting": waiting, "running_plans": running_plans(viewer), "roles": roles_of(viewer)}
    fragments = {place: _render("_waiting.html", shell=shell, place=place) for place in ("side", "tab", "list")}
    fragments["running"] = _render("_running.html", shell=shell)
    stops = stop_lines_for(viewer)
    fragments["stops"] = _render("_stops.html", shell=shell | {"stops": stops})
    if waiting:
        says = ngettext("%(count)s request needs you", "%(count)s requests need you", waiting) % {"count": waiting}
    else:
        says = gettext("No requests need you")
    if stops:
        says = f"{gettext('Stopped: %(scope)s.') % {'scope': stops[0].words}} {says}"
    return Fragments(fragments, says=says)


def _render_rows(viewer: User) -> Fragments:
    """Return the rows, oldest first, because the page inserts new ones at the top."""
    rows = reversed(first_page_rows(viewer))
    return Fragments({row.plan.public_id: _render("plans/_plan.html", row=row) for row in rows})


def _render_inbox(view: str, viewer: User) -> Fragments:
    return Fragments({"queue": _render("approvals/_queue.html", inbox=inbox_list(viewer, view))})


def _render_home(viewer: User) -> Fragments:
    steps = first_steps_for(viewer)
    return Fragments(
        {
            "queue": _render("approvals/_queue.html", inbox=inbox_list(viewer, HOME)),
            "runs": _render("home/_runs.html", running=running_rows(viewer)),
            "failed": _render("home/_failed.html", failed=failed_plans(viewer)),
            "first-steps": _render(
                "home/_first_steps.html" if steps else "_gone.html", first_steps=steps, id="first-steps"
            ),
        }
    )


def _render_figures(viewer: User) -> Fragments:
    shell = {"roles": roles_of(viewer), "can_plan": has_role(viewer, OPERATOR, ADMINISTRATOR)}
    fragments = {"agents": _render("home/_agents.html", agents=agents_today(viewer), shell=shell)}
    if can_see_all(viewer):
        fragments["days"] = _render("home/_last_days.html", days=last_days())
    return Fragments(fragments)


def _render_views(view: str, viewer: User) -> Fragments:
    inbox = {"status": view, "counts": Queues(viewer).counts}
    return Fragments({"views": _render("approvals/_views.html", inbox=inbox)})


def _render(template: str, **context: Any) -> str:
    return render_to_string(template, context)
