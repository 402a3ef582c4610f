"""I13 and roles: people have exactly the roles in the audit log."""

import pytest
from django.contrib.auth.models import Group, User

from plans.invariants.base import check_invariants
from tests.invariants import world
from tests.plans.invariants.worlds import corrupt

pytestmark = [pytest.mark.db, pytest.mark.django_db]


def strangers() -> list[str]:
    """Return the people whose roles differ from the audit log."""
    [result] = [each for each in check_invariants(world()).results if each.invariant.id == "I13"]
    return result.ids


@pytest.fixture
def zoe() -> User:
    """A reviewer who was given that role and lost another."""
    user = User.objects.create_user("zoe")
    user.groups.set(Group.objects.filter(name__in=["reviewer", "viewer"]))
    user.groups.remove(Group.objects.get(name="viewer"))
    return user


def test_changes_of_roles_are_in_the_audit_log(zoe):
    """Also those of deleted accounts and groups, and of superusers."""
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
def test_role_changed_without_an_audit_entry_is_found(zoe, sql):
    """Given or taken."""
    corrupt(sql, zoe.pk)
    assert set(strangers()) == {f"user_{zoe.pk}"}
