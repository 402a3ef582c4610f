"""Rows of a plan that the renderer of a socket keeps, so that an event makes it read only what has changed.

Without them, each event of a plan of 500 steps and 5,000 events would read all of both again.
"""

from collections import Counter
from collections.abc import Sequence
from heapq import nlargest
from typing import Any

from django.db import connection
from django.db.models import Count, Max, QuerySet

from plans.models import Event, Plan, Step
from plans.web.plan.event_list import LINES_SHOWN, EventRow
from plans.web.plan.history import EventLine, event_line


class KeptSteps:
    """The steps of one plan with what is loaded with them; a step is loaded again if one of its columns has changed."""

    def __init__(self, steps: "QuerySet[Step]", columns: Sequence[str]) -> None:
        self._steps = steps
        # Compiled once; values are compared as the driver of the database returns them, which spares most of the time.
        self._statement = steps.values_list("pk", *columns).query.sql_with_params()
        self._kept: dict[int, tuple[tuple[Any, ...], Step]] = {}

    def load(self) -> list[Step]:
        """Return the steps as they are now, in their order."""
        with connection.cursor() as cursor:
            cursor.execute(*self._statement)
            rows = {row[0]: row for row in cursor.fetchall()}
        kept = {pk: self._kept[pk] for pk, row in rows.items() if pk in self._kept and self._kept[pk][0] == row}
        changed = rows.keys() - kept.keys()
        # A row that changes once more before it is loaded keeps its older columns, and is loaded again next time.
        loaded = {step.pk: (rows[step.pk], step) for step in self._steps.filter(pk__in=changed)} if changed else {}
        found = kept | loaded
        self._kept = {pk: found[pk] for pk in rows if pk in found}
        return [step for _, step in self._kept.values()]


class KeptEvents:
    """The events of one plan that its page shows: the newest of each step, and all of certain types.

    Events never change, and their numbers have no gaps.
    """

    def __init__(self, types: Sequence[str]) -> None:
        self.of_types: list[Event] = []
        self._types = types
        self._seq = 0
        self._counts: Counter[int | None] = Counter()
        self._newest: dict[int | None, EventLine] = {}

    @property
    def rows(self) -> list[EventRow]:
        """The list of events without filters: the newest event of each step, newest first."""
        return [EventRow(line, self._counts[step]) for step, line in reversed(self._newest.items())]

    def read(self, plan: Plan) -> None:
        """Read the events since the last call, at the first call as few as are shown."""
        if not self._seq:
            self._read_first(plan)
            return
        events = list(plan.events.filter(seq__gt=self._seq).order_by("seq"))
        self.of_types += [event for event in events if event.type in self._types]
        for event in events:
            self._seq = event.seq
            self._counts[event.step_id] += 1
            self._newest.pop(event.step_id, None)
            self._newest[event.step_id] = event_line(event)
        for step in list(self._newest)[:-LINES_SHOWN]:
            del self._newest[step]

    def _read_first(self, plan: Plan) -> None:
        steps = plan.events.order_by().values("step_id").annotate(last=Max("seq"), count=Count("seq"))
        rows = list(steps.values_list("step_id", "last", "count"))
        numbers = [last for _, last, _ in rows]
        newest = plan.events.filter(seq__in=nlargest(LINES_SHOWN, numbers)).order_by("seq")
        self._newest = {event.step_id: event_line(event) for event in newest}
        self._counts = Counter({step: count for step, _, count in rows})
        self._seq = max(numbers, default=0)
        self.of_types = list(plan.events.filter(seq__lte=self._seq, type__in=self._types).order_by("seq"))


class KeptRows:
    """Steps and events of one plan."""

    def __init__(self, steps: KeptSteps, events: KeptEvents) -> None:
        self.steps = steps
        self.events = events
