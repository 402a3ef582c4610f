"""Groups that something names are not deleted."""

from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from approvals.models import Policy
from approvals.policies.services import change_policy, create_policy
from catalog.access.people import create_group, delete_group
from catalog.access.roles import mark_session_user
from catalog.core import clock
from catalog.errors import Conflict, ParameterError
from tests.racing import at_once

pytestmark = pytest.mark.django_db
NAMING = {"stages": [{"group": "finance", "count": 1}]}


@pytest.fixture
def boss(admin: User) -> User:
    """An administrator who has just signed in."""
    mark_session_user(admin, clock.now().timestamp())
    return admin


def policy(number: int, **terms: Any) -> dict[str, Any]:
    return {"name": f"Policy {number}", "match": {"safety_level": "dangerous"}, "effect": "hold", **terms}


@pytest.mark.django_db(transaction=True)
@pytest.mark.db
@pytest.mark.parametrize("way", ["create", "change"])
def test_group_is_deleted_before_a_policy_names_it_or_not_at_all(boss: User, catalog: None, way: str) -> None:
    for number in range(5):
        group = create_group("finance", by=boss)
        store = partial(create_policy, policy(number, **NAMING), by=boss)
        if way == "change":
            old = create_policy(policy(number, stages=[{"group": "reviewer", "count": 1}]), by=boss)
            store = partial(change_policy, old, NAMING, by=boss)
        stored, deleted = at_once(store, partial(delete_group, group, by=boss))
        assert isinstance(stored, ParameterError) != isinstance(deleted, Conflict), (stored, deleted)
        Policy.objects.filter(ended_at=None, name__startswith="Policy ").update(ended_at=clock.now())
        Group.objects.filter(name="finance").delete()


def test_group_to_which_the_provider_maps_is_not_deleted(boss: User, settings: Any) -> None:
    group = create_group("finance", by=boss)
    settings.TOOLGATE_SSO_GROUPS = {"fin": "finance"}
    with pytest.raises(Conflict):
        delete_group(group, by=boss)
    settings.TOOLGATE_SSO_GROUPS = {}
    delete_group(group, by=boss)
