"""I21: rows that decide rights are as their last entries in the audit log say."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group, User
from django.db import connection, transaction
from django.test import Client

from approvals.audit.log import record_rights
from approvals.audit.rights import changed_rows
from approvals.grants.services import revoke_grant
from approvals.models import AuditEntry, Instance, Policy
from approvals.policies.services import change_policy, create_policy, end_policy, move_policy
from approvals.reviews.coordination import delegate
from catalog.access.tokens import change_token, create_token, revoke_token
from catalog.connections.models import Connection
from catalog.connections.services import clear_credentials
from catalog.core import clock
from catalog.inventory.overrides import apply_overrides
from catalog.inventory.sources import create_source, update_source
from catalog.models import ApiToken, Tool
from plans.agents import administration
from plans.invariants.audit_log import rights_are_as_recorded
from tests.approvals.factories import grant
from tests.builders import act, approve, call_of, make_http_tool, make_plan, request_of, work_off
from tests.catalog.connections.oauth_client import OAuthClient
from tests.invariants import world
from tests.plans.invariants.worlds import nothing_watches

pytestmark = [pytest.mark.db, pytest.mark.django_db]

AGENT = {"name": "ann", "instructions": "Do it.", "tools": {"names": ["safe"]}}
POLICY = {"name": "x", "match": {"tool": "safe"}, "effect": "hold", "stages": [{"group": "reviewer", "count": 1}]}


@pytest.fixture
def rights(stage: Any, workspace: Any, ada: User, rosa: User, admin: User) -> dict[str, Any]:
    """Rows of each kind, written by the services; those of the builders are recorded as those before an upgrade."""
    with nothing_watches():
        AuditEntry.objects.all().delete()
    Instance.objects.update(audit_seq=0, audit_head="")
    zoe = User.objects.create_user("zoe", password="secret-zoe")
    zoe.groups.add(Group.objects.get(name="reviewer"))
    Tool.objects.filter(name="dangerous").update(grantable={"max_hours": 24, "max_uses": 3})
    record_rights()
    token, _ = create_token(user=zoe, kind="agent", scopes=["tools:read"])
    client = OAuthClient.registered()
    tokens = client.connected(ada)
    ran = work_off(make_plan(ada, act(1, "x", "dangerous")))
    approve(ran, rosa)
    work_off(ran)
    waiting = work_off(make_plan(ada, act(1, "y", "dangerous")))
    return {
        "user": zoe,
        "role": Group.objects.get(name="viewer"),
        "token": token,
        "connection": Connection.objects.get(),
        "refresh": lambda: client.refresh(tokens["refresh_token"]),
        "policy": create_policy(POLICY, by=admin),
        "grant": grant(admin),
        "tool": make_http_tool(admin),
        "source": create_source({"name": "clock", "kind": "mcp", "url": "https://clock.invalid/mcp"}, by=admin),
        "agent": administration.create(AGENT, by=admin),
        "request": request_of(waiting),
        "call": call_of(ran),
    }


REFS = {
    "user": "user_{user.pk}",
    "role": "group_{role.pk}",
    "token": "token:{token.prefix}",
    "connection": "connection_{connection.token_id}",
    "policy": "{policy.public_id}",
    "grant": "{grant.public_id}",
    "source": "source:{source.name}",
    "tool": "tool:{tool.name}",
    "agent": "agent:{agent.name}",
    "request": "{request.public_id}",
    "call": "{call.public_id}",
}
TAMPERINGS = [
    ("token", "UPDATE catalog_apitoken SET kind = 'personal' WHERE id = {token.pk}"),
    ("token", "UPDATE catalog_apitoken SET expires_at = '2099-01-01 00:00:00+00:00' WHERE id = {token.pk}"),
    ("token", "UPDATE catalog_apitoken SET secret_digest = 'f' WHERE id = {token.pk}"),
    ("connection", "UPDATE connections_accesstoken SET token_checksum = 'f'"),
    ("connection", "UPDATE connections_refreshtoken SET expires = '2099-01-01 00:00:00+00:00'"),
    ("connection", "DELETE FROM connections_refreshtoken"),
    ("user", "UPDATE auth_user SET password = '{hash}' WHERE id = {user.pk}"),
    ("user", "UPDATE auth_user SET is_staff = (1 = 1) WHERE id = {user.pk}"),
    ("user", "DELETE FROM auth_user_groups WHERE user_id = {user.pk}"),
    ("role", "UPDATE auth_group SET name = 'x' WHERE id = {role.pk}"),
    ("policy", "UPDATE approvals_policy SET enabled = (1 = 0) WHERE id = {policy.pk}"),
    ("policy", "UPDATE approvals_policyrevision SET stages = '[]' WHERE policy_id = {policy.pk}"),
    ("policy", "UPDATE approvals_policyrevision SET allow_self_review = (1 = 1) WHERE policy_id = {policy.pk}"),
    ("grant", "UPDATE approvals_grant SET conditions = '[]', max_uses = 9 WHERE id = {grant.pk}"),
    ("grant", "DELETE FROM approvals_grant WHERE id = {grant.pk}"),
    ("source", "UPDATE catalog_source SET url = 'https://evil.invalid/mcp' WHERE id = {source.pk}"),
    ("source", "UPDATE catalog_source SET command = '[\"sh\"]' WHERE id = {source.pk}"),
    ("tool", "UPDATE catalog_tool SET definition = '{{}}' WHERE id = {tool.pk}"),
    ("tool", "UPDATE catalog_tool SET grantable = '{{}}' WHERE id = {tool.pk}"),
    ("tool", "UPDATE catalog_toolversion SET output_key = 'x' WHERE tool_id = {tool.pk}"),
    ("agent", "UPDATE plans_agent SET tools = '{{}}' WHERE id = {agent.pk}"),
    ("request", "DELETE FROM catalog_callrequester WHERE call_id = {request.call_id}"),
    (
        "request",
        "UPDATE approvals_approvalrequest SET expires_at = '2099-01-01 00:00:00+00:00' WHERE id = {request.pk}",
    ),
    ("request", "UPDATE approvals_approvalrequest SET escalated_to = 'viewer' WHERE id = {request.pk}"),
    ("call", "UPDATE catalog_call SET response = '{{}}' WHERE id = {call.pk}"),
    ("call", "UPDATE catalog_call SET message = 'done' WHERE id = {call.pk}"),
]


def test_each_change_past_the_product_is_found(rights):
    names = {**rights, "hash": make_password("other")}
    assert list(changed_rows()) == []
    for row, sql in TAMPERINGS:
        with undone():
            run(sql.format_map(names))
            assert [each for each, _ in changed_rows()] == [REFS[row].format_map(names)], sql


@pytest.mark.parametrize("change", ["person_id = {user.pk}", "verdict = 'reject'"])
def test_review_that_is_not_in_the_log_is_found(rights, change):
    run(f"UPDATE approvals_review SET {change.format_map(rights)}")  # noqa: S608 - from above
    ids = [ref for ref, why in rights_are_as_recorded(world()) if "reviews" in why]
    assert ids == [rights["call"].approval.public_id]


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="PostgreSQL stores no other types")
@pytest.mark.parametrize("value", ["CAST(name AS BLOB)", "CAST(x'ff' AS TEXT)", "name || char(0) || 'x'", "7.5"])
def test_malformed_row_is_named(rights, value):
    token = rights["token"]
    run(f"UPDATE catalog_apitoken SET name = {value} WHERE id = {token.pk}")  # noqa: S608 - the values above
    assert [each for each, _ in changed_rows()] == [f"token:{token.prefix}"]


def test_changes_by_the_product_are_recorded(rights, admin, rosa):
    user, token, policy, source = rights["user"], rights["token"], rights["policy"], rights["source"]
    change_token(token, {"hold_seconds": 5}, by=admin)
    revoke_token(token, by=admin)
    ApiToken.objects.filter(pk=token.pk).update(last_used_at=token.created_at)
    assert rights["refresh"]().status_code == rights["refresh"]().status_code == 200
    assert clear_credentials(now=clock.now() + timedelta(hours=13)) > 0
    change_policy(policy, {"enabled": False, "match": {"tool": "s*"}}, by=admin)
    move_policy(Policy.objects.get(pk=policy.pk), up=False, by=admin)
    end_policy(policy, by=admin)
    revoke_grant(rights["grant"], by=admin)
    delegate(rights["request"], by=rosa, to=user)
    update_source(source, {"timeout": 9, "headers": {"X-Key": "k"}}, by=admin)
    apply_overrides(rights["tool"].name, {"safety_level": "dangerous", "categories": ["a"]}, by=admin)
    administration.change_agent(rights["agent"], {"instructions": "Other."}, by=admin)
    administration.end_agent(rights["agent"], by=admin)
    user.set_password("another")
    user.save()
    user.groups.clear()
    Group.objects.create(name="guests").user_set.add(user)
    Group.objects.get(name="guests").delete()
    User.objects.create_user("gone").delete()
    assert list(changed_rows()) == []


def test_rehash_of_a_password_at_sign_in_is_a_change(rights, settings):
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher", *settings.PASSWORD_HASHERS]
    user = rights["user"]
    before = user.password
    assert Client().login(username="zoe", password="secret-zoe")
    user.refresh_from_db()
    assert user.password != before
    assert list(changed_rows()) == []
    assert AuditEntry.objects.filter(action="account.changed", object_ref=f"user_{user.pk}").exists()


def test_a_table_is_recorded_once(rights):
    run(f"UPDATE catalog_apitoken SET kind = 'personal' WHERE id = {rights['token'].pk}")  # noqa: S608 - a key
    record_rights()
    assert AuditEntry.objects.filter(action="rights.recorded").count() == 1
    assert list(changed_rows()) != []


def run(sql: str) -> None:
    """Change rows as the owner of the database can."""
    with nothing_watches(), connection.cursor() as cursor:
        cursor.execute("PRAGMA defer_foreign_keys = ON" if connection.vendor == "sqlite" else "SELECT 1")
        cursor.execute(sql)
        assert cursor.rowcount >= 1


@contextmanager
def undone() -> Iterator[None]:
    """Take back what the body changes."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)
