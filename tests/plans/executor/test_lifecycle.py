"""Shutdown of executing processes: nothing more is claimed, running calls finish, others are released."""

from collections.abc import Iterator
from signal import SIGINT, SIGTERM, Signals

import httpx
import pytest
from django.contrib.auth.models import User

from catalog.inventory import snapshot
from catalog.inventory.sync import sync_tools
from catalog.tools import registry
from catalog.tools.registry import register_tool
from plans.models import Plan
from tests.builders import approve, call_of, events_of, make_plan, step, step_of
from tests.chaos.serving import Serving
from tests.chaos.tools import TOOLS
from tests.conftest import MakeServing
from tests.waiting import eventually

pytestmark = pytest.mark.slow

LEASES = {"TOOLGATE_LEASE_SECONDS": "3"}
"""Over soon after a process was ended, and not while one is only slow."""


@pytest.fixture
def serving(transactional_db: None, catalog: None, make_serving: MakeServing) -> Iterator[Serving]:
    """A process that serves and executes tools that leave marks; killed at the end of the test."""
    for tool in TOOLS:
        register_tool(tool)
    sync_tools()
    process = make_serving(TOOLGATE_EXECUTOR="embedded", **LEASES)
    yield process
    process.kill()
    for tool in TOOLS:
        registry._TOOLS.pop(tool.name)
    snapshot.drop_snapshot()


@pytest.fixture
def shell(serving: Serving, ada: User) -> Iterator[tuple[Serving, Plan]]:
    """`run_plan` in the middle of a cautious step's effect; the next step depends on it."""
    work = step(1, "cautious_work", parameters={"gate": "open"})
    plan = make_plan(ada, work, step(2, "cautious_work", dependencies=[1]))
    process = Serving(serving.effects, ("run_plan", plan.public_id, "--wait"), name="shell", **LEASES)
    process.start()
    eventually(lambda: process.marks().total() and plan.public_id in process.log(), what="the effect, and its words")
    yield process, plan
    process.kill()


@pytest.fixture
def midway(serving: Serving, ada: User, rosa: User) -> Plan:
    """A plan whose approved dangerous step is in the middle of its effect, with a dependent step."""
    work = step(1, "dangerous_work", parameters={"gate": "open"})
    plan = make_plan(ada, work, step(2, "cautious_work", dependencies=[1]))
    serving.start()
    eventually(serving.url, what="its address")
    eventually(lambda: step_of(plan).waiting_for == "approval", what="the request")
    approve(plan, rosa)
    eventually(lambda: serving.marks()[call_of(plan).public_id, "began"], what="the effect")
    return plan


def serves(process: Serving) -> bool:
    """Return whether a process answers requests."""
    try:
        return httpx.get(f"{process.url()}/healthz").status_code == 200
    except httpx.HTTPError:
        return False


def tell_to_stop(process: Serving, number: Signals) -> None:
    """Send a signal and wait until the process has handled it."""
    process.tell(number)
    eventually(lambda: not serves(process), what="the end of serving")


def test_running_call_finishes_and_nothing_more_is_claimed(serving: Serving, midway: Plan) -> None:
    """The dangerous call completes; the next step waits for the next process."""
    tell_to_stop(serving, SIGTERM)
    (serving.effects / "open").touch()
    eventually(lambda: not serving.is_alive(), what="the process's end")
    assert (call_of(midway).status, step_of(midway).status) == ("completed", "completed")
    assert (step_of(midway, 2).status, step_of(midway, 2).ready_at is None) == ("pending", False)
    serving.start()
    eventually(lambda: Plan.objects.get(pk=midway.pk).status == "completed", what="the plan's end")
    assert set(serving.marks().values()) == {1}
    assert "1 step.outcome_unknown" not in events_of(midway)


def test_second_interrupt_ends_the_process_at_once(serving: Serving, midway: Plan) -> None:
    tell_to_stop(serving, SIGINT)
    assert serving.is_alive()
    serving.tell(SIGINT)
    eventually(lambda: not serving.is_alive(), what="the process's end")
    assert call_of(midway).status == "running"
    serving.start()
    eventually(lambda: step_of(midway).waiting_for == "outcome", what="the question to a person")


@pytest.mark.parametrize("number", [SIGTERM, SIGINT])
def test_stopped_command_lets_its_call_finish(shell: tuple[Serving, Plan], number: Signals) -> None:
    """`run_plan` leaves the rest and says how to follow the plan."""
    process, plan = shell
    process.tell(number)
    process.tell(SIGTERM)  # who asks twice does not mean "at once"
    eventually(lambda: "not cancelled" in process.log(), what="its words")
    assert (process.is_alive(), call_of(plan).status) == (True, "running")
    (process.effects / "open").touch()
    eventually(lambda: not process.is_alive(), what="its end")
    assert [step_of(plan, each).status for each in (1, 2)] == ["completed", "pending"]
    assert process.code() == (143 if number == SIGTERM else 130)
