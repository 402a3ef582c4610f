"""I13 and people: the log gives everyone the roles that they have, and nobody has others."""

import pytest
from django.contrib.auth.models import Group, User

from plans.invariants.base import check_invariants
from tests.invariants import world
from tests.plans.invariants.worlds import corrupt

pytestmark = [pytest.mark.db, pytest.mark.django_db]


def strangers() -> list[str]:
    """Return whose roles the log does not tell of as they are."""
    [result] = [each for each in check_invariants(world()).results if each.invariant.id == "I13"]
    return result.ids


@pytest.fixture
def zoe() -> User:
    """A reviewer who was given that role, and lost another."""
    user = User.objects.create_user("zoe")
    user.groups.set(Group.objects.filter(name__in=["reviewer", "viewer"]))
    user.groups.remove(Group.objects.get(name="viewer"))
    return user


def test_roles_given_and_taken_are_told(zoe):
    """So are those of accounts and groups that are gone, and of superusers."""
    User.objects.create_superuser("root")
    extra = Group.objects.create(name="guests")
    extra.user_set.add(zoe)
    extra.delete()
    gone = User.objects.create_user("gone")
    gone.groups.set(Group.objects.filter(name="reviewer"))
    gone.delete()
    assert strangers() == []


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE auth_user_groups SET group_id = (SELECT id FROM auth_group WHERE name = 'viewer') WHERE user_id = %s",
        "DELETE FROM auth_user_groups WHERE user_id = %s",
        "UPDATE auth_user SET is_superuser = (1 = 1) WHERE id = %s",
    ],
)
def test_a_role_that_nobody_gave_is_found(zoe, sql):
    """Nor is one taken silently."""
    corrupt(sql, zoe.pk)
    assert set(strangers()) == {f"user_{zoe.pk}"}
