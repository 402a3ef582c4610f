"""Rows that the renderer of a plan keeps: whatever happens in between, they are those that would be read anew."""

from collections.abc import Callable
from functools import partial

import pytest
from django.contrib.auth.models import User

from catalog.core import clock
from catalog.models import Tool
from plans.actions.change import change_plan, read_plan_change
from plans.actions.control import pause_plan
from plans.actions.retry import retry_plan
from plans.actions.skip import skip_step
from plans.models import Plan
from plans.store.requesters import Requester
from plans.store.transactions import plan_transaction
from plans.web.plan.event_list import LINES_SHOWN, NO_FILTER, load_events
from plans.web.plan.overview import PlanOverview, graph_drawing, keep_rows, load_overview
from plans.web.plan.rows import RowContext, timeline_row
from tests.builders import approve, make_plan, reject, step, work_off, write_step

pytestmark = pytest.mark.db


def shown(overview: PlanOverview) -> list[object]:
    """Return what the page shows of an overview."""
    context = RowContext(overview.timeline.now, overview.timeline.length)
    rows = [timeline_row(each, context) for each in overview.steps]
    parts = (overview.words, overview.tally, overview.memory, overview.private, overview.because)
    waits = {number: (wait, wait.state) for number, wait in overview.waits.by_number.items()}
    return [*rows, *parts, waits, graph_drawing(overview), overview.changes, overview.removed, overview.working_ms]


def test_kept_rows_are_those_read_anew(catalog: None, ada: User, rosa: User) -> None:
    plan = make_plan(
        ada,
        step(1, expected_key="greeting"),
        write_step(2, dependencies=[1]),
        write_step(3, content="bye", dependencies=[1]),
        step(4, dependencies=[2]),
        step(5, dependencies=[3]),
        step(6, dependencies=[5]),
    )
    by = Requester(ada)
    work = partial(work_off, plan)
    happens: list[Callable[[], object]] = [
        lambda: None,
        work,
        partial(approve, plan, rosa, 2),
        work,
        partial(change_plan, plan, read_plan_change({"remove": [6], "add": [step(7)]}), by=by),
        work,
        partial(skip_step, plan, 5, "Not needed.", by=by),
        partial(reject, plan, rosa, 3),
        work,
        partial(Tool.objects.filter(name="render_text").update, returns_private_data=True),
        partial(retry_plan, plan, by=by),
        partial(pause_plan, plan, by=by),
    ]
    kept = keep_rows(plan)
    changes = 0
    for happening in happens:
        before = Plan.objects.get(pk=plan.pk).last_seq
        happening()
        plan = Plan.objects.get(pk=plan.pk)
        changes += plan.last_seq != before
        with clock.settable(), clock.at(clock.now()):
            assert shown(load_overview(plan, kept)) == shown(load_overview(plan))
        assert kept.events.rows == list(load_events(plan, NO_FILTER).rows)
    assert changes >= 8


def test_kept_events_are_the_newest_of_each_step(catalog: None, ada: User) -> None:
    """Also where more steps have events than the list shows."""
    plan = make_plan(ada, *(step(number) for number in range(1, LINES_SHOWN + 20)), start=False)
    kept = keep_rows(plan)
    for numbers in (range(1, LINES_SHOWN + 20), (3, 3, 9), range(40, LINES_SHOWN + 20), (1,)):
        with plan_transaction(plan.pk, plan.public_id) as tx:
            for number in numbers:
                tx.record("memory.written", number, key=f"key_{number}")
        kept.events.read(plan)
        assert kept.events.rows == list(load_events(plan, NO_FILTER).rows)


def test_unchanged_steps_are_not_loaded_again(catalog: None, ada: User) -> None:
    plan = make_plan(ada, step(1), step(2), start=False)
    kept = keep_rows(plan)
    first, second = kept.steps.load()
    skip_step(plan, 2, "Not needed.", by=Requester(ada))
    first_again, second_again = kept.steps.load()
    assert first_again is first
    assert second_again is not second
    assert second_again.skipped
