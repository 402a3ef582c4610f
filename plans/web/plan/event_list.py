"""Events of a plan as its page lists them: one line a step, or the lines of one step; newest first, keyset-paged.

The URL holds the filters; values that are not valid are ignored. A page costs one query for lines, one more for their
texts if there is a line for each step, and one more for the attempts of a chosen step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.db.models import Count, Max, Q, QuerySet
from django.utils.translation import gettext_lazy

from catalog.ui.requests import parse_number
from plans.models import Plan
from plans.web.plan.history import EventLine, event_line

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

LINES_SHOWN = 50
MOST_DIGITS = 15
EVENT_KINDS: Mapping[str, tuple["StrOrPromise", tuple[str, ...]]] = {
    "plan": (gettext_lazy("Plan"), ("plan.",)),
    "step": (gettext_lazy("Steps"), ("step.",)),
    "call": (gettext_lazy("Calls"), ("call.", "tool.")),
    "person": (gettext_lazy("Approvals and answers"), ("approval.", "grant.", "input.")),
    "memory": (gettext_lazy("Results"), ("memory.",)),
}
"""Groups of event types with their labels and the beginnings of their types."""
NAMES = ("event", "of", "attempt", "before", "after")
"""Names of the parameters in the URL."""


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Filters and page of the list. `step` is 0 for events of the plan itself, `attempt` is of that step.

    A page has the lines before or after an event number.
    """

    kind: str = ""
    step: int | None = None
    attempt: int | None = None
    before: int | None = None
    after: int | None = None

    @classmethod
    def of_query(cls, query: Mapping[str, str]) -> "EventFilter":
        kind = query.get("event", "")
        step, attempt, before, after = (
            parse_number(query.get(name, ""), most_digits=MOST_DIGITS) for name in NAMES[1:]
        )
        kind = kind if kind in EVENT_KINDS else ""
        return cls(kind, step, attempt if step else None, before, None if before else after)

    @property
    def query(self) -> str:
        """The parameters of the URL, without the page."""
        values = zip(NAMES, (self.kind, self.step, self.attempt), strict=False)
        return urlencode([(name, value) for name, value in values if value not in ("", None)])

    @property
    def address_query(self) -> str:
        """The parameters of the URL, with the page."""
        page = [(name, value) for name, value in (("before", self.before), ("after", self.after)) if value]
        return "&".join(filter(None, [self.query, urlencode(page)]))

    @property
    def is_set(self) -> bool:
        return bool(self.query)

    @property
    def is_first_page(self) -> bool:
        return not (self.before or self.after)


NO_FILTER = EventFilter()


@dataclass(frozen=True, slots=True)
class EventRow:
    """A line of the list: the newest event of a step and the number of those that the filters leave, or one event."""

    line: EventLine
    count: int = 1


@dataclass(frozen=True, slots=True)
class EventList:
    """One page of the list; `older` and `newer` are the event numbers from which the pages beside it begin, or 0."""

    filter: EventFilter
    rows: Sequence[EventRow]
    attempts: Sequence[int] = ()
    older: int = 0
    newer: int = 0
    kinds = tuple((kind, label) for kind, (label, _) in EVENT_KINDS.items())

    @property
    def is_of_one_step(self) -> bool:
        return self.filter.step is not None


def load_events(plan: Plan, event_filter: EventFilter) -> EventList:
    """Load one page of a plan's events."""
    events = plan.events.filter(_kind_condition(event_filter.kind)).order_by()
    if event_filter.step is None:
        steps = events.values("step_id").annotate(last=Max("seq"), count=Count("seq"))
        page = _page(steps.values_list("last", "count"), "last", event_filter)
        counts = dict(page.lines)
        newest = plan.events.filter(seq__in=counts).order_by("-seq")
        rows = [EventRow(event_line(event), counts[event.seq]) for event in newest]
        return EventList(event_filter, rows, (), *page.neighbours(list(counts)))
    begins = _attempts(plan, event_filter.step) if event_filter.step else {}
    if event_filter.attempt is not None and event_filter.attempt in begins:
        events = events.filter(_attempt_condition(begins, event_filter.attempt))
    page = _page(events.filter(step_id=event_filter.step or None), "seq", event_filter)
    rows = [EventRow(event_line(event)) for event in page.lines]
    return EventList(event_filter, rows, tuple(begins), *page.neighbours([event.seq for event in page.lines]))


def _kind_condition(kind: str) -> Q:
    beginnings = EVENT_KINDS[kind][1] if kind else ()
    return Q(*(Q(type__startswith=beginning) for beginning in beginnings), _connector=Q.OR)


def _attempts(plan: Plan, step: int) -> Mapping[int, int]:
    """Return the event numbers with which the attempts of a step begin, by attempt."""
    started = plan.events.filter(step_id=step, type="step.started").order_by("seq")
    begins = {int(event.data_json.get("attempt", 1)): event.seq for event in started}
    return dict(sorted(begins.items()))


def _attempt_condition(begins: Mapping[int, int], attempt: int) -> Q:
    """Return the condition for the events of an attempt, until the next begins; the first has what was before it."""
    following = [begin for number, begin in begins.items() if number > attempt]
    begin = Q(seq__gte=begins[attempt]) if attempt > min(begins) else Q()
    return begin & (Q(seq__lt=min(following)) if following else Q())


@dataclass(frozen=True, slots=True)
class _Page:
    """Lines of a page, newest first, and whether there are older and newer ones."""

    lines: Sequence[Any]
    has_older: bool
    has_newer: bool

    def neighbours(self, numbers: Sequence[int]) -> tuple[int, int]:
        """Return the event numbers before and after which the pages beside this one begin, given those of its lines."""
        if not numbers:
            return 0, 0
        return min(numbers) if self.has_older else 0, max(numbers) if self.has_newer else 0


def _page(lines: "QuerySet[Any, Any]", column: str, event_filter: EventFilter) -> _Page:
    if event_filter.after:
        found = list(lines.filter(**{f"{column}__gt": event_filter.after}).order_by(column)[: LINES_SHOWN + 1])
        return _Page(found[:LINES_SHOWN][::-1], has_older=True, has_newer=len(found) > LINES_SHOWN)
    if event_filter.before:
        lines = lines.filter(**{f"{column}__lt": event_filter.before})
    found = list(lines.order_by(f"-{column}")[: LINES_SHOWN + 1])
    return _Page(found[:LINES_SHOWN], has_older=len(found) > LINES_SHOWN, has_newer=bool(event_filter.before))
