"""Audit entries about roles and accounts."""

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from approvals.audit.verification import verify
from approvals.models import AuditEntry, Instance

pytestmark = pytest.mark.django_db


def kept() -> list[tuple[str, str, str, Any]]:
    """Return action, account, actor and roles of the entries about roles and accounts."""
    entries = AuditEntry.objects.exclude(action__startswith="sign_in").order_by("seq")
    return [
        (e.action, e.details_json.get("person", e.object_ref), e.actor_name, e.details_json.get("roles"))
        for e in entries
    ]


def test_role_changes_are_audited(ada, ben):
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


def test_role_change_fails_if_the_log_cannot_be_written(ada, transactional_db):
    Instance.objects.all().delete()
    with pytest.raises(Instance.DoesNotExist):
        ada.groups.add(Group.objects.get(name="administrator"))
    assert not ada.groups.filter(name="administrator").exists()


def test_enabling_and_disabling_accounts_is_audited(ada):
    """Signing in saves the account too, but is no such change."""
    Client().force_login(ada)
    ada.is_active = False
    ada.save()
    ada.first_name, ada.is_active = "Ada", True
    ada.save(update_fields=["first_name", "is_active"])
    ada.save()
    told = ("account.switched_off", "account.switched_on")
    assert kept() == [(action, "ada", "Toolgate", None) for action in told]


def test_superuser_changes_are_audited(db):
    root = User.objects.create_superuser("root", password="secret-root")
    root.is_superuser = False
    root.save()
    assert kept() == [
        ("account.created", "root", "Toolgate", None),
        ("role.given", "root", "Toolgate", ["superuser"]),
        ("role.taken", "root", "Toolgate", ["superuser"]),
    ]


def test_deleting_a_group_is_audited_for_every_member(ada, ben):
    operator = Group.objects.get(name="operator")
    ref = f"group_{operator.pk}"
    Group.objects.filter(name="operator").delete()
    assert sorted(kept()) == [
        ("role.deleted", ref, "Toolgate", ["operator"]),
        ("role.taken", "ada", "Toolgate", ["operator"]),
        ("role.taken", "ben", "Toolgate", ["operator"]),
    ]
    assert verify().intact


def test_accounts_and_groups_are_read_only_on_admin_pages(ada):
    client, group = Client(), Group.objects.get(name="reviewer")
    client.force_login(User.objects.create_superuser("root", password="secret-root"))
    for page in (f"/admin/auth/user/{ada.pk}", f"/admin/auth/group/{group.pk}"):
        shown = client.get(f"{page}/change/")
        assert shown.status_code == 200 and b"md5$" not in shown.content
        assert client.post(f"{page}/change/", {"name": "readers", "username": "root2"}).status_code == 403
        assert client.post(f"{page}/delete/", {"post": "yes"}).status_code == 403
    assert client.get("/admin/auth/user/add/").status_code == 403
    chosen = {"action": "delete_selected", "_selected_action": str(ada.pk), "post": "yes"}
    client.post("/admin/auth/user/", chosen)
    assert User.objects.filter(username="ada").exists()
