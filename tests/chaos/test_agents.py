"""An agent's step whose process is killed at a commit: the conversation ends the same, with each effect once."""

import json
import os
import signal
import traceback
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from django.contrib.auth.models import User
from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from approvals.models import ApprovalRequest
from approvals.states import RequestStatus
from catalog.core import clock
from plans.actions.settle import Settlement, settle_outcome
from plans.agents.definitions import ToolFilter
from plans.engine import recovery
from plans.models import AgentRun, Plan, Step
from plans.states import PLAN_TERMINAL, WaitingFor
from plans.store.requesters import Requester
from tests import counts
from tests.builders import approve, work_off
from tests.plans.agents.scripted import SCRIPT, agent_plan, calls, make_agent, run_of
from tests.plans.conftest import script  # noqa: F401 (a fixture)

ANSWERS = (
    calls(("dangerous", {"value": "one"}), ("dangerous", {"value": "two"}), text="Two at first."),
    calls(("dangerous", {"value": "three"}), text="And one more."),
    "All three are done.",
)
FEW = 6
LIVES = 20


@pytest.fixture
def sink(script: Any, stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: F811
    """The file of effects, outside the database; the scripted model answers by how much it has said before."""
    path = tmp_path / "sink"

    def write(value: str, context: Any) -> str:
        with path.open("a") as file:
            file.write(f"{value}\n")
        return value

    def answer(context: Any) -> dict[str, Any]:
        turn = Step.objects.get(plan__public_id=context.plan_id, step_id=context.step_id)
        answers = AgentRun.objects.get(step=turn.parent_id).messages.count('"by":"model"')
        wanted = ANSWERS[answers]
        return {"text": wanted} if isinstance(wanted, str) else wanted

    stage.acts["dangerous"] = write
    monkeypatch.setattr(SCRIPT, "answer", answer, raising=False)
    return path


def live(plan: Plan, reviewer: User) -> None:
    """Work the plan off and approve its requests until nothing is left to do."""
    while work_off(plan).status not in PLAN_TERMINAL:
        waiting = ApprovalRequest.objects.filter(plan_ref=plan.public_id, status=RequestStatus.PENDING)
        step_id = waiting.values_list("call__step__step_id", flat=True).order_by("call__step__step_id").first()
        if step_id is None:
            return
        approve(plan, reviewer, step_id)


def die_at(moment: str, number: int) -> Callable[[], int]:
    """Kill this process before or after its commit of this number; return a function that counts its commits."""
    backend: Any = type(connections[DEFAULT_DB_ALIAS])  # each has a way to commit of its own
    commit, counter, seen = backend._commit, count(1), [0]

    def commit_or_die(self: BaseDatabaseWrapper) -> None:
        seen[0] = at = next(counter)
        if (moment, at) == ("before", number):
            os.kill(os.getpid(), signal.SIGKILL)
        commit(self)
        if (moment, at) == ("after", number):
            os.kill(os.getpid(), signal.SIGKILL)

    backend._commit = commit_or_die
    # With an execute wrapper the SQLite backend, too, sends each commit on its own.
    connection.execute_wrappers.append(lambda execute, *given: execute(*given))
    return lambda: seen[0]


def in_a_process_of_its_own(act: Callable[[], int]) -> int | None:
    """Run `act` in a forked process; return its result (0 to 254; 255 is an error), or None if it was killed."""
    connection.close()
    if connection.vendor == "postgresql":
        cast("Any", connection).close_pool()  # two processes on one connection would talk at once
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(act())
        except BaseException:  # noqa: BLE001 - nothing of the test may go on in this process
            traceback.print_exc()
            os._exit(255)
    _, status = os.waitpid(pid, 0)
    return None if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status)


def bring_to_its_end(plan: Plan, people: tuple[User, User], sink: Path, dies: tuple[str, int]) -> int:
    """Run the plan in processes, the first of which is killed; return the commits of the last one."""
    ada, rosa = people

    def carry_out() -> int:
        seen = die_at(*dies) if life == 0 else die_at("never", 0)
        live(plan, rosa)
        return seen()

    for life in range(LIVES):
        commits = in_a_process_of_its_own(carry_out)
        assert commits != 255
        assert (commits is None) == (life == 0 and dies[0] != "never")
        plan.refresh_from_db()
        if plan.status in PLAN_TERMINAL:
            return commits or 0
        now = clock.now()
        recovery.expire_all_leases(now)
        recovery.take_back_lost_steps(clock.now())
        for step in plan.steps.filter(waiting_for=WaitingFor.OUTCOME).select_related("call"):
            settle(plan, step, ada, sink)
    raise AssertionError("The plan did not come to its end.")


def settle(plan: Plan, step: Step, by: User, sink: Path) -> None:
    """Settle the outcome of a call whose process was killed, by its line in the file of effects."""
    assert step.call is not None
    value = step.parameters_json["value"]
    was_done = sink.exists() and value in sink.read_text().split()
    verdict = Settlement("happened", value) if was_done else Settlement("request_again")
    settle_outcome(plan, step.step_id, settlement=verdict, by=Requester(by))


def conversation_of(plan: Plan) -> list[tuple[str, Any]]:
    """Return the author, text, calls and results of each message."""
    told = []
    for message in json.loads(run_of(plan).messages):
        results = [(each["id"], each["tool"]) for each in message.get("results", ())]
        told.append((message["by"], (message.get("text"), message.get("calls"), results)))
    return told


@pytest.mark.nightly
@pytest.mark.timeout(counts.seconds(1800))
@pytest.mark.django_db(transaction=True)
def test_an_agent_killed_at_any_commit_says_the_same_and_does_everything_once(sink, ada, rosa, record_property):
    """Three dangerous calls, two of them held side by side; another process continues where the first was killed."""
    seed = counts.seed()
    make_agent(tools=ToolFilter(names=["dangerous"]))
    whole = agent_plan(ada)
    commits = bring_to_its_end(whole, (ada, rosa), sink, ("never", 0))
    assert commits > FEW
    places = [(moment, number) for number in range(1, commits + 1) for moment in ("before", "after")]
    counts.dice(seed).shuffle(places)
    chosen = places if counts.FULL else places[:FEW]
    for place in chosen:
        sink.unlink()
        plan = agent_plan(ada)
        bring_to_its_end(plan, (ada, rosa), sink, place)
        assert (plan.status, place) == ("completed", place)
        assert (sorted(sink.read_text().split()), place) == (["one", "three", "two"], place)
        assert (conversation_of(plan), place) == (conversation_of(whole), place)
    counts.report(record_property, "agent killed", seed=seed, commits=commits, places=len(chosen))
