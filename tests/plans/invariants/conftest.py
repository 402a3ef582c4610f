"""The small world, fresh for each test."""

from pathlib import Path

import pytest
from django.contrib.auth.models import User

from tests.plans.invariants.worlds import People, SmallWorld, small_world
from tests.tools_for_tests import Stage


@pytest.fixture
def small(stage: Stage, workspace: Path, ada: User, rosa: User, admin: User) -> SmallWorld:
    """A world in which everything has happened once."""
    return small_world(People(ada, rosa, admin))
