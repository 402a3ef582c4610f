"""I22: what is found when the rows of calls that clients run contradict each other."""

import pytest

from catalog.core import clock
from catalog.models import Call, ClientRun
from tests.invariants import broken
from tests.plans.coding_agents.conftest import CodingAgent, answer_request


def start_without_handing_out(run: ClientRun) -> None:
    ClientRun.objects.update(allowed_at=None, allowed_until=None)


def hand_out_without_start(run: ClientRun) -> None:
    Call.objects.filter(pk=run.pk).update(attempt=0, started_at=None)


def forget_the_end(run: ClientRun) -> None:
    ClientRun.objects.update(allowed_until=None)


def report_without_handing_out(run: ClientRun) -> None:
    ClientRun.objects.update(allowed_at=None, reported_at=clock.now())


@pytest.mark.parametrize(
    "tamper", [start_without_handing_out, hand_out_without_start, forget_the_end, report_without_handing_out]
)
def test_tampered_run_is_found(agent: CodingAgent, rosa, tamper):
    answer = agent.ask()
    answer_request(answer, rosa)
    agent.ask()
    assert "I22" not in broken()
    tamper(ClientRun.objects.get())
    assert broken()["I22"] == [answer.call]
