"""The plans in docs/examples/plans, each run to its end by the real command."""

import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection

from catalog.tools.registry import _TOOLS, initialize_tools
from plans.actions.change import change_plan, read_plan_change
from plans.models import Plan, Step
from plans.store.requesters import Requester
from tests.builders import approve, assert_gapless, events_of
from tests.catalogs import fill_catalog
from tests.conftest import forget_what_was_read
from tests.waiting import eventually

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
SAID = {
    "chain": ("sentence", "Apple's revenue changed by +7.8% in fiscal 2022."),
    "diamond": ("comparison", "In fiscal 2022, Apple took 394328 and Microsoft 198270 million dollars."),
    "wide": ("report", "; ".join(f"station {number} is well" for number in range(1, 9)) + "."),
    "retrying": ("said", "Here are figures, fetched at try 2 and notes, fetched at try 2."),
}


@pytest.fixture
def examples(transactional_db: None, workspace: Path, admin: User, monkeypatch: Any, settings: Any) -> Iterator[None]:
    """An installation with the module of example tools and a requester."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    settings.TOOLGATE_TOOLS = ["slow_and_shaky"]
    initialize_tools()
    forget_what_was_read()
    fill_catalog()
    yield
    for name in ("fetch_shakily", "take_time"):
        _TOOLS.pop(name)
    forget_what_was_read()


def run(name: str, out: io.StringIO | None = None) -> str:
    """Run one plan as described in the README; return its output. Raises SystemExit unless it completed."""
    out = out or io.StringIO()
    call_command("run_plan", str(EXAMPLES / "plans" / f"{name}.yaml"), "--wait", stdout=out, stderr=out)
    return out.getvalue()


def run_apart(name: str) -> tuple[threading.Thread, io.StringIO]:
    """Run one plan in another thread; return it and its output so far."""
    output = io.StringIO()

    def work() -> None:
        try:
            run(name, output)
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    return thread, output


def plan_with(**fields: Any) -> Plan:
    """Wait for the plan with this step and return it."""
    plans = Plan.objects.filter(pk__in=Step.objects.filter(**fields).values("plan"))
    eventually(plans.exists, what=str(fields))
    return plans.get()


def value_of(key: str) -> Any:
    """Return the value under a key in the only plan's memory."""
    return Plan.objects.get().memory.get(type="value", key=key).value_json


def history_of(plan: Plan) -> list[tuple[Any, ...]]:
    """Return the history of a plan, for the message of a failed test."""
    return list(plan.events.order_by("seq").values_list("at", "type", "step_id", "data"))


@pytest.mark.usefixtures("examples")
@pytest.mark.parametrize(
    "name", ["chain", *(pytest.param(name, marks=pytest.mark.slow) for name in SAID if name != "chain")]
)
def test_a_plan_completes_and_says_what_it_should(name):
    shown = run(name)
    key, said = SAID[name]
    assert value_of(key) == said
    assert shown.splitlines()[-1].startswith("Done in ")
    retried = {f"{step} step.retrying" for step in (1, 2)}
    assert (retried <= set(events_of(Plan.objects.get()))) == (name == "retrying")
    assert_gapless(Plan.objects.get())


@pytest.mark.slow
@pytest.mark.usefixtures("examples")
def test_waiting_plan_continues_when_approved(rosa, workspace):
    thread, shown = run_apart("waiting")
    eventually(lambda: "Waiting for Rosa" in shown.getvalue(), what="the display")
    approve(plan_with(waiting_for="approval"), rosa, 2)
    thread.join(timeout=60)
    assert (workspace / "examples" / "greeting.txt").read_text() == "Hello, Rosa."
    assert "/approvals/?item=apr_" in shown.getvalue()
    assert "3 done, 1 skipped" in shown.getvalue().splitlines()[-1]


@pytest.mark.slow
@pytest.mark.usefixtures("examples")
def test_edited_plan_runs_as_edited(admin):
    change = read_plan_change(json.loads((EXAMPLES / "plans" / "changed.patch.json").read_text()))
    thread, shown = run_apart("changed")
    plan = plan_with(step_id=1, call__status="running")
    change_plan(plan, change, by=Requester(admin))
    thread.join(timeout=60)
    assert not thread.is_alive(), history_of(plan)
    plan.refresh_from_db()
    assert plan.status == "completed", history_of(plan)
    assert value_of("again") == "Wanted now, after the slow part. Again."
    assert list(plan.steps.values_list("step_id", flat=True)) == [1, 2, 4]
    assert shown.getvalue().splitlines()[-1].endswith(": 3 done.")


def test_the_readme_names_every_plan():
    text = (EXAMPLES / "plans" / "README.md").read_text()
    files = sorted((EXAMPLES / "plans").glob("*.yaml"))
    assert len(files) == 6 and all(f"`{file.name}`" in text for file in files)
