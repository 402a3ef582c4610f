"""Plans to race over, checked as a whole when a race is over, and the counts of it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User

from plans.models import Plan
from tests import counts
from tests.builders import act, make_plan, work_off
from tests.invariants import assert_invariants

ROUNDS = counts.count(500, 50)


@pytest.fixture(autouse=True)
def no_bounds(settings: object) -> None:
    """Let one person's plans wait for as many answers as there are rounds."""
    settings.TOOLGATE_MAX_PENDING_PER_REQUESTER = 0  # type: ignore[attr-defined]


@pytest.fixture
def checked() -> Iterator[None]:
    """Check every invariant when the test is over."""
    yield
    assert_invariants()


@pytest.fixture
def plans(request: pytest.FixtureRequest, transactional_db: None, stage: Any, ada: User, checked: None) -> list[Plan]:
    """Plans whose dangerous step waits for people, with a step that depends on it: one a round."""
    rounds: int = getattr(request, "param", ROUNDS)
    steps = act(1, "x", "dangerous"), act(2, "y", dependencies=[1])
    return [work_off(make_plan(ada, *steps)) for _ in range(rounds)]


@pytest.fixture
def reviewers(rosa: User, tomas: User) -> tuple[User, User]:
    """Two who may decide."""
    return rosa, tomas


@pytest.fixture
def report_race(record_property: counts.Report) -> Callable[..., None]:
    """Keep what a race did, for the end of the run."""

    def report(scenario: str, rounds: int, **more: object) -> None:
        counts.report(record_property, scenario, rounds=rounds, **more)

    return report
