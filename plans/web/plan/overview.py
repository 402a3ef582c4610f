"""Overview of a plan, shared by everyone who may see it: steps, graph, timeline, memory and history, in few queries."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from django.db.models import Case, F, QuerySet, TextField, Value, When
from django.db.models.functions import Left, Length, StrIndex, Substr
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from catalog.core import clock
from catalog.secrets.placeholders import without_macs
from catalog.ui.json_values import kind_in_words
from catalog.ui.labels import Badge, status_badge
from catalog.ui.results import value_of, value_text
from plans.engine.limits import budget_text
from plans.models import AGENT_TURN, Event, MemoryItem, Plan, Step, StepDependency
from plans.states import PLAN_TERMINAL, PlanStatus, StepStatus, WaitingFor
from plans.store.privacy import MEETS_PRIVATE, PrivatePlanParts, private_parts_from
from plans.store.selectors import failure_reason
from plans.web.graph import (
    STRIP_WIDTH,
    TOOL_ROOM,
    UNFOLDED,
    BoxStep,
    Drawing,
    Fold,
    Stroke,
    arrows_to,
    box_of,
    drawing_from,
    fit_text,
    lay_out,
)
from plans.web.plan.kept_rows import KeptEvents, KeptRows, KeptSteps
from plans.web.plan.timeline import (
    INTERVAL_TYPES,
    PlacedInterval,
    Timeline,
    draw_timeline,
    interval_events_among,
    step_intervals,
    working_seconds,
)
from plans.web.plan.value_uses import readers_by_key
from plans.web.plan.waits import PlanWaits, StepWait, WaitKind, load_waits

FOR_PEOPLE = (WaitingFor.OUTCOME, WaitingFor.INPUT, WaitingFor.APPROVAL)
UNSETTLED = (StepStatus.PENDING, StepStatus.IN_PROGRESS)


@dataclass(slots=True)
class StepTree:
    steps: Sequence[Step]
    _children: Mapping[int, list[Step]] = field(init=False)
    _numbers: Mapping[int, int] = field(init=False)
    _next: Mapping[int, int] = field(init=False)

    def __post_init__(self) -> None:
        children: dict[int, list[Step]] = defaultdict(list)
        for step in self.steps:
            if step.parent_id is not None:
                children[step.parent_id].append(step)
        self._children, self._numbers = children, {step.pk: step.step_id for step in self.steps}
        written = [step for step in self.steps if step.parent_id is None]
        self._next = {step.pk: after.step_id for step, after in pairwise(written)}

    def in_order(self) -> Iterator[Step]:
        """Yield each submitted step, followed by the turns and calls of its agent."""
        for step in self.steps:
            if step.parent_id is None:
                yield step
                yield from self.under(step)

    def under(self, step: Step) -> Sequence[Step]:
        return self._children.get(step.pk, ())

    def parent(self, step: Step) -> int | None:
        return self._numbers.get(step.parent_id) if step.parent_id is not None else None

    def before(self, step: Step) -> int | None:
        """Return the id of the submitted step before which an agent's call is shown; None for the end."""
        return self._next.get(step.parent_id) if step.parent_id is not None else None


def _calls_waiting_for_people(step: Step, child_steps: Sequence[Step]) -> Sequence[Step]:
    waits = step.status == StepStatus.IN_PROGRESS and step.waiting_for == WaitingFor.CALLS
    return [each for each in child_steps if each.status in UNSETTLED] if waits else []


def awaited_word(step: Step, child_steps: Sequence[Step]) -> Badge | None:
    """Return the badge of an agent's step if one of its calls waits for people, else None."""
    people = [
        each.waiting_for
        for each in _calls_waiting_for_people(step, child_steps)
        if each.waiting_for and each.ready_at is None
    ]
    return next((status_badge(step.status, each.value) for each in FOR_PEOPLE if each in people), None)


def awaited_label(step: Step, child_steps: Sequence[Step]) -> str:
    """Return what an agent's step waits for: its model or a number of calls; empty for any other step."""
    waited_for = _calls_waiting_for_people(step, child_steps)
    if not waited_for:
        return ""
    if any(each.tool == AGENT_TURN for each in waited_for):
        return _("Waiting for its model")
    count = len(waited_for)
    return ngettext("Waiting for %(count)s call", "Waiting for %(count)s calls", count) % {"count": count}


VALUE_SHOWN, VALUE_READ = 2048, 20_000
"""Maximum characters of a value on the page, and of one that is read whole."""
RESULT_BEGINS = '{"query_type": '
"""Beginning of a stored standard response."""
RESULTS_KEY = '"results": '
MIN_BAR_WIDTH = 0.8
BAR_CLASSES: Mapping[str, str] = {
    "waiting": "human",
    "retry": "retry",
    "agent": "idle",
    "preparing": "idle",
    "put_off": "put-off",
}
"""CSS class of a timeline bar by kind. A bar of work gets its step's hue instead: only finished work is green."""
STEP_FIELDS = (
    *("plan", "parent", "step_id", "description", "tool", "agent", "after_answer", "expected_key"),
    *("status", "skipped", "error"),
    *("started_at", "completed_at", "waiting_for", "waiting_since", "ready_at", "attempt", "lease_until"),
    *(f"call__{name}" for name in ("plan_ref", "error_kind", "attempt", "started_at", "left_running_at")),
    *("call__came_back_at", "call__approval__public_id", "call__approval__opened_at"),
)
"""Fields loaded for a step, its call and its approval request."""


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """A bar on a step's lane, in percent with a minimum width; `look` is its class, `is_open` while it lasts."""

    offset: float
    width: float
    look: str
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class StepOverview:
    """One step as shown in graph, segments and timeline.

    For an agent's turn or call, `parent` is the agent's step and `before` the step before which its row is inserted;
    `under` has the turns and calls of an agent's step.
    """

    step: Step
    word: Badge
    label: str
    needs: tuple[int, ...]
    timeline_bars: Sequence[TimelineBar]
    took_ms: float | None
    since: datetime | None
    parent: int | None = None
    before: int | None = None
    under: Sequence[Step] = ()
    wait: StepWait | None = None

    @property
    def number(self) -> int:
        return self.step.step_id

    @property
    def started(self) -> bool:
        return self.step.status != StepStatus.PENDING

    @property
    def calls(self) -> int:
        return sum(each.tool != AGENT_TURN for each in self.under)


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """A value in memory: the beginning of its JSON text and the full size, both omitted if the value is private.

    `kind` is its kind in words; `used_by` are the steps that read it, `later` those that will.
    """

    pk: int
    key: str
    head: str
    size: int
    step_id: int | None
    is_private: bool = False
    kind: str = ""
    used_by: tuple[int, ...] = ()
    later: tuple[int, ...] = ()

    @property
    def is_cut(self) -> bool:
        return self.size > len(self.head)


@dataclass(frozen=True, slots=True)
class PlanOverview:
    """Everything shown of a plan but its events, up to event number `seq`. An agent's turns and calls follow its step.

    `changes` is how often the plan was changed, `removed` the numbers of removed steps.
    """

    plan: Plan
    seq: int
    word: Badge
    steps: Sequence[StepOverview]
    timeline: Timeline
    working_ms: float
    drawn_at: datetime
    memory: Sequence[MemoryRow]
    changes: int
    private: PrivatePlanParts
    because: str
    waits: PlanWaits
    removed: Set[int]

    @property
    def by_number(self) -> Mapping[int, StepOverview]:
        return {step.number: step for step in self.steps}

    @property
    def written(self) -> Sequence[StepOverview]:
        """The steps without those created by agents; progress counts only these."""
        return [step for step in self.steps if step.parent is None]

    @property
    def words(self) -> Sequence[Badge]:
        return plan_word_list(
            self.plan, self.word, waits=any(step.step.waiting_for == "outcome" for step in self.steps)
        )

    @property
    def has_agents(self) -> bool:
        return any(step.step.agent for step in self.steps)

    @property
    def spent(self) -> str:
        return budget_text(self.plan)

    @property
    def over(self) -> bool:
        return self.plan.status in PLAN_TERMINAL

    @property
    def elapsed_ms(self) -> float | None:
        """Milliseconds from start to end; None if it has not started or ended."""
        if self.plan.started_at is None or self.plan.completed_at is None:
            return None
        return 1000 * (self.plan.completed_at - self.plan.started_at).total_seconds()

    @property
    def working_since(self) -> datetime | None:
        """Now minus the plan's working time, for a running clock; None while the plan does not work."""
        return self.drawn_at - timedelta(milliseconds=self.working_ms) if self.timeline.moves else None

    @property
    def finished(self) -> int:
        """Number of done or skipped steps."""
        return sum(step.step.status == StepStatus.COMPLETED for step in self.written)

    @property
    def tally(self) -> str:
        """Number of steps by status: 4 done, 1 skipped, 1 not started."""
        counts = Counter(step.word for step in self.written)
        return ", ".join(f"{count} {badge.label.lower()}" for badge, count in counts.items())


def plan_word_list(plan: Plan, badge: Badge, *, waits: bool) -> Sequence[Badge]:
    """Return the badges for a plan's status, including paused and waiting for people."""
    if waits and plan.status in PLAN_TERMINAL:
        return (badge, status_badge("outcome_unknown"))
    if plan.paused_at is None or plan.status != PlanStatus.IN_PROGRESS:
        return (badge,)
    return (status_badge("paused"), badge) if badge.hue == "human" else (status_badge("paused"),)


CHANGED = "plan.changed"


def keep_rows(plan: Plan) -> KeptRows:
    """Return rows with which the overview of a plan is loaded several times."""
    columns = [*STEP_FIELDS, "call__pk", "meets_private"]
    return KeptRows(KeptSteps(_steps_of(plan), columns), KeptEvents((*INTERVAL_TYPES, CHANGED)))


def _steps_of(plan: Plan) -> "QuerySet[Step]":
    return plan.steps.select_related("call__approval").only(*STEP_FIELDS).annotate(meets_private=MEETS_PRIVATE)


def load_overview(plan: Plan, kept: KeptRows | None = None) -> PlanOverview:
    """Load the overview of a plan: six queries, one more if it failed, and those of `load_waits`."""
    now = clock.now()
    if kept is None:
        steps = list(_steps_of(plan))
        told = list(plan.events.filter(type__in=(*INTERVAL_TYPES, CHANGED)).order_by("seq"))
    else:
        steps = kept.steps.load()
        kept.events.read(plan)
        told = kept.events.of_types
    sources = [step.step_id for step in steps if step.meets_private]  # type: ignore[attr-defined] # annotated
    private = private_parts_from(plan, sources)
    needs: dict[int, list[int]] = {step.step_id: [] for step in steps}
    arrows = StepDependency.objects.filter(step__plan=plan).order_by("needs__step_id")
    for number, needed in arrows.values_list("step__step_id", "needs__step_id"):
        needs[number].append(needed)
    changes = [event for event in told if event.type == CHANGED]
    events_by_step: dict[int, list[Event]] = defaultdict(list)
    for event in [*interval_events_among(told), *changes]:
        events_by_step[event.step_id or 0].append(event)
    intervals = step_intervals(steps, events_by_step)
    until = plan.completed_at or now
    timeline = draw_timeline(
        intervals, start=plan.started_at or plan.created_at, until=until, running=plan.status == PlanStatus.IN_PROGRESS
    )
    values = plan.memory.filter(type=MemoryItem.Type.VALUE).order_by("pk")
    # Of a result that is too long to be read whole, the text after the arguments, which it repeats first.
    results = Substr("value", F("results_at") + len(RESULTS_KEY), VALUE_SHOWN)
    sized = values.annotate(size=Length("value"), results_at=StrIndex("value", Value(RESULTS_KEY)))
    shown = sized.annotate(
        head=Case(
            When(size__lte=VALUE_READ, then=F("value")),
            When(results_at__gt=0, value__startswith=RESULT_BEGINS, then=results),
            default=Left("value", VALUE_SHOWN),
            output_field=TextField(),
        )
    )
    rows = shown.values_list("pk", "key", "head", "size", "step_id")
    # All viewers get the same rows, so those of private values are masked.
    memory = [
        MemoryRow(pk, key, "", 0, step_id, is_private=True)
        if key in private.keys
        else _memory_row(pk, key, head, size, step_id)
        for pk, key, head, size, step_id in rows
    ]
    readers, pending = readers_by_key(plan), {step.step_id for step in steps if step.status == StepStatus.PENDING}
    memory = [
        replace(row, used_by=tuple(sorted(found - pending)), later=tuple(sorted(found & pending)))
        if (found := readers.get(row.key))
        else row
        for row in memory
    ]
    waiting: set[Any] = {step.waiting_for for step in steps if step.ready_at is None}
    waits = load_waits(plan, steps, needs, events_by_step, now)
    return PlanOverview(
        plan=plan,
        seq=plan.last_seq,
        word=status_badge(
            plan.status, next((str(each) for each in (*FOR_PEOPLE, WaitingFor.STOP) if each in waiting), None)
        ),
        steps=list(_step_overviews(steps, needs, timeline, waits)),
        timeline=timeline,
        working_ms=1000 * working_seconds(intervals, until),
        drawn_at=now,
        memory=memory,
        changes=len(changes),
        private=private,
        because=failure_reason(plan),
        waits=waits,
        removed={number for change in changes for number in change.data_json.get("removed", ())},
    )


def _kind_of_large(head: str) -> str:
    """Return the kind of a value that is too long to be read, by the beginning of its JSON."""
    kinds = {"[": _("large list"), "{": _("large object"), '"': _("large text")}
    return kinds.get(head[:1], _("large value"))


def _memory_row(pk: int, key: str, head: str, size: int, step_id: int | None) -> MemoryRow:
    """Return the row of a value. For a tool's response, show only its result, without the arguments that it repeats.

    `head` is the beginning of the value's JSON. A response too long to be read whole is shown by its size only.
    """
    shown = without_macs(head)
    if not shown.startswith(RESULT_BEGINS):
        kind = kind_in_words(json.loads(shown)) if size <= VALUE_READ else _kind_of_large(shown)
        return MemoryRow(pk, key, shown[:VALUE_SHOWN], size - len(head) + len(shown), step_id, kind=kind)
    if size > VALUE_READ:
        return MemoryRow(pk, key, "", size, step_id, kind=_("large result"))
    response = json.loads(shown)
    text = value_text(response)
    return MemoryRow(pk, key, text[:VALUE_SHOWN], len(text), step_id, kind=kind_in_words(value_of(response)))


def _step_overviews(
    steps: Sequence[Step], needs: Mapping[int, Sequence[int]], timeline: Timeline, waits: PlanWaits
) -> Iterable[StepOverview]:
    plan = waits.plan
    bars: dict[int, list[PlacedInterval]] = defaultdict(list)
    for bar in timeline.bars:
        bars[bar.step_id].append(bar)
    family = StepTree(steps)
    for step in family.in_order():
        under, wait = family.under(step), waits.by_number.get(step.step_id)
        word = awaited_word(step, under) or _word_of(plan, step)
        since = step.waiting_since if step.waiting_for else step.started_at
        took_ms = None
        if not step.skipped and step.started_at is not None and step.completed_at is not None:
            took_ms = 1000 * (step.completed_at - step.started_at).total_seconds()
        yield StepOverview(
            step=step,
            word=word,
            label=awaited_label(step, under) or _label(step, word, wait),
            needs=tuple(needs[step.step_id]),
            timeline_bars=[_timeline_bar(bar, word) for bar in bars[step.step_id]],
            took_ms=took_ms,
            since=None if plan.status in PLAN_TERMINAL or step.completed_at else since,
            parent=family.parent(step),
            before=family.before(step),
            under=under,
            wait=wait,
        )


def _timeline_bar(interval: PlacedInterval, badge: Badge) -> TimelineBar:
    look = BAR_CLASSES.get(interval.kind) or (badge.hue if badge.hue in ("ok", "run", "danger") else "idle")
    return TimelineBar(interval.offset, max(interval.width, MIN_BAR_WIDTH), look, interval.is_open)


def _label(step: Step, badge: Badge, wait: StepWait | None) -> str:
    if wait is not None and wait.kind == WaitKind.BLOCKED:
        return _("Blocked by step %(number)s") % {"number": wait.behind[0]}
    call, label = step.call, (wait.label if wait else "") or badge.label
    if call is not None and call.attempt > 1:
        label = _("%(status)s, attempt %(attempt)s") % {"status": label, "attempt": call.attempt}
    if call is not None and call.left_running_at and not call.came_back_at:
        sentence = (
            _("%(status)s, an earlier attempt is still running")
            if call.left_earlier
            else _("%(status)s, its tool is still running")
        )
        label = sentence % {"status": label}
    return label


def _word_of(plan: Plan, step: Step) -> Badge:
    """Return the badge for a step's status; a step that could continue is shown as paused if its plan is paused."""
    if plan.paused_at is not None and step.status == StepStatus.IN_PROGRESS and step.ready_at is not None:
        return status_badge("paused")
    return status_badge("skipped" if step.skipped else step.status, step.waiting_for)


WAITS = ("human", "retry", "put-off")
"""Looks of bars that the strip of a box shows beside work."""


def graph_drawing(overview: PlanOverview, fold: Fold = UNFOLDED) -> Drawing | None:
    """Return the graph of a plan, or None if it is too large."""
    written = {step.number: step for step in overview.written}
    tools = {number: step.step.agent or step.step.tool or "" for number, step in written.items()}
    graph = lay_out({number: step.needs for number, step in written.items()}, fold, tools)
    if graph is None:
        return None
    done = {number for number, step in written.items() if step.step.status == StepStatus.COMPLETED}
    started = {number for number, step in written.items() if step.started}
    members = {node.step_id: node.members for node in graph.nodes}
    arrows, boxes = arrows_to(graph), []
    for node in graph.nodes:
        # Dashed until the target starts, green if all that it needs is done.
        if started.isdisjoint(node.members):
            look = "next"
        else:
            look = "done" if all(done.issuperset(members[edge.source]) for edge in arrows[node.step_id]) else ""
        steps = tuple(_box_step(written[number]) for number in node.members)
        boxes.append(box_of(node, steps, arrows[node.step_id], look))
    return drawing_from(graph, boxes, fold)


def _box_step(step: StepOverview) -> BoxStep:
    """Return the text of a step's box; for an agent's step, the agent and its number of calls replace the tool."""
    tool = step.step.tool or ""
    if step.step.agent:
        calls = ", " + ngettext("%(count)s call", "%(count)s calls", step.calls) % {"count": step.calls}
        calls = calls if step.calls else ""
        tool = fit_text(step.step.agent, TOOL_ROOM - len(calls)) + calls
    return BoxStep(step.number, step.step.title, tool, step.word, step.label, _strip(step.timeline_bars))


def _strip(bars: Sequence[TimelineBar]) -> tuple[Stroke, ...]:
    """Return the bars of a step that waited or was tried again, on a scale of their own."""
    if all(bar.look not in WAITS for bar in bars):
        return ()
    begin = bars[0].offset
    scale = STRIP_WIDTH / (max(bar.offset + bar.width for bar in bars) - begin)
    return tuple(
        Stroke(round((bar.offset - begin) * scale), max(2, round(bar.width * scale)), bar.look) for bar in bars
    )
