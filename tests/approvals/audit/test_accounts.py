"""Roles and accounts in the audit log: whose, which, and by whom where that is known."""

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from approvals.audit.verification import verify
from approvals.models import AuditEntry, Instance

pytestmark = pytest.mark.django_db


def kept() -> list[tuple[str, str, str, Any]]:
    """Return what the log says of roles and accounts: what, whose, by whom, which roles."""
    entries = AuditEntry.objects.exclude(action__startswith="sign_in").order_by("seq")
    return [
        (e.action, e.details_json.get("person", e.object_ref), e.actor_name, e.details_json.get("roles"))
        for e in entries
    ]


def test_roles_are_given_and_taken(ada, ben):
    """From either side; what changes nothing is not kept."""
    reviewer, operator = Group.objects.get(name="reviewer"), Group.objects.get(name="operator")
    ada.groups.add(reviewer, operator)
    ada.groups.remove(operator)
    reviewer.user_set.set([ben])
    ben.groups.clear()
    assert kept() == [
        ("role.given", "ada", "Toolgate", ["reviewer"]),
        ("role.taken", "ada", "Toolgate", ["operator"]),
        ("role.taken", "ada", "Toolgate", ["reviewer"]),
        ("role.given", "ben", "Toolgate", ["reviewer"]),
        ("role.taken", "ben", "Toolgate", ["operator", "reviewer"]),
    ]
    assert verify().intact


def test_no_role_is_given_where_the_log_cannot_be_written(ada, transactional_db):
    """Both happen, or neither."""
    Instance.objects.all().delete()
    with pytest.raises(Instance.DoesNotExist):
        ada.groups.add(Group.objects.get(name="administrator"))
    assert not ada.groups.filter(name="administrator").exists()


def test_accounts_are_switched_off_and_on(ada):
    """Signing in saves the account too, and is no such change."""
    Client().force_login(ada)
    ada.is_active = False
    ada.save()
    ada.first_name, ada.is_active = "Ada", True
    ada.save(update_fields=["first_name", "is_active"])
    ada.save()
    told = ("account.switched_off", "account.switched_on")
    assert kept() == [(action, "ada", "Toolgate", None) for action in told]


def test_who_may_do_everything_is_kept(db):
    """A superuser acts as an administrator without being in the group."""
    root = User.objects.create_superuser("root", password="secret-root")
    root.is_superuser = False
    root.save()
    assert kept() == [
        ("role.given", "root", "Toolgate", ["superuser"]),
        ("role.taken", "root", "Toolgate", ["superuser"]),
    ]


def test_the_admin_pages_name_who_did_it(ada):
    """For the roles, and for the account."""
    root = User.objects.create_superuser("root", password="secret-root")
    client = Client()
    client.force_login(root)
    form = {
        "username": "ada",
        "groups": [Group.objects.get(name="reviewer").pk],
        "date_joined_0": "2026-01-01",
        "date_joined_1": "00:00:00",
    }
    response = client.post(f"/admin/auth/user/{ada.pk}/change/", form)
    assert response.status_code == 302
    assert sorted(kept()[1:]) == [
        ("account.switched_off", "ada", "root", None),
        ("role.given", "ada", "root", ["reviewer"]),
        ("role.taken", "ada", "root", ["operator"]),
    ]


def test_deleting_a_group_takes_its_role_from_everyone(ada, ben):
    """Nobody leaves it one by one, and yet all of them lose what it let them do."""
    operator = Group.objects.get(name="operator")
    ref = f"group_{operator.pk}"
    Group.objects.filter(name="operator").delete()
    assert sorted(kept()) == [
        ("role.deleted", ref, "Toolgate", ["operator"]),
        ("role.taken", "ada", "Toolgate", ["operator"]),
        ("role.taken", "ben", "Toolgate", ["operator"]),
    ]
    assert verify().intact


@pytest.mark.parametrize(
    ("address", "form"),
    [
        ("/admin/auth/user/{pk}/delete/", {"post": "yes"}),
        ("/admin/auth/user/", {"action": "delete_selected", "_selected_action": "{pk}", "post": "yes"}),
    ],
)
def test_who_deleted_an_account_is_named(ada, address, form):
    """From its own page, and from the list."""
    client = Client()
    client.force_login(User.objects.create_superuser("root", password="secret-root"))
    sent = {name: value.format(pk=ada.pk) for name, value in form.items()}
    assert client.post(address.format(pk=ada.pk), sent).status_code == 302
    assert not User.objects.filter(username="ada").exists()
    assert kept()[1:] == [("account.deleted", "ada", "root", ["operator"])]


def test_groups_are_shown_and_never_changed_in_the_admin_pages(ada):
    """Policies and roles go by their names."""
    client, group = Client(), Group.objects.get(name="reviewer")
    client.force_login(User.objects.create_superuser("root", password="secret-root"))
    page = f"/admin/auth/group/{group.pk}"
    assert client.get(f"{page}/change/").status_code == 200
    assert client.post(f"{page}/change/", {"name": "readers"}).status_code == 403
    assert client.post(f"{page}/delete/", {"post": "yes"}).status_code == 403
    assert Group.objects.get(pk=group.pk).name == "reviewer"
