"""Fixtures of the races: plans that wait for approval, reviewers, a check of all invariants, a report."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User

from plans.models import Plan
from tests import counts
from tests.builders import act, make_plan, work_off
from tests.invariants import assert_invariants
from tests.races.acts import ROUNDS


@pytest.fixture(autouse=True)
def no_bounds(settings: object) -> None:
    """Lift the limit on pending requests of one requester: there is one a round."""
    settings.TOOLGATE_MAX_PENDING_PER_REQUESTER = 0  # type: ignore[attr-defined]


@pytest.fixture
def checked() -> Iterator[None]:
    """Check every invariant at the end of the test."""
    yield
    assert_invariants()


@pytest.fixture
def plans(request: pytest.FixtureRequest, transactional_db: None, stage: Any, ada: User, checked: None) -> list[Plan]:
    """One plan a round: a dangerous step that waits for approval, and a step that depends on it."""
    rounds: int = getattr(request, "param", ROUNDS)
    steps = act(1, "x", "dangerous"), act(2, "y", dependencies=[1])
    return [work_off(make_plan(ada, *steps)) for _ in range(rounds)]


@pytest.fixture
def reviewers(rosa: User, tomas: User) -> tuple[User, User]:
    """Two people who may decide."""
    return rosa, tomas


@pytest.fixture
def report_race(record_property: counts.Report) -> Callable[..., None]:
    """Return a function that stores a race's counts for the summary at the end of the run."""

    def report(scenario: str, rounds: int, **more: object) -> None:
        counts.report(record_property, scenario, rounds=rounds, **more)

    return report
