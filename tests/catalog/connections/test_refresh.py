"""Refresh tokens: rotation, the grace of other sessions of a client, reuse, and the end of a connection."""

from datetime import timedelta

import pytest

from approvals.models import AuditEntry, Delivery
from approvals.notifications.messages import build_notice
from catalog.access import tokens as access_tokens
from catalog.access.people import deactivate_person
from catalog.access.roles import mark_session_user
from catalog.connections import services, steps
from catalog.connections.authentication import authenticate_at_mcp
from catalog.connections.models import AccessToken, Client, Connection, Grant, RefreshToken, Step
from catalog.core import clock
from tests.catalog.connections.oauth_client import OAuthClient

pytestmark = pytest.mark.django_db


@pytest.fixture
def later(db, monkeypatch):
    """Set the clock forward."""
    now = [clock.now()]
    monkeypatch.setattr(clock, "now", lambda: now[0])

    def forward(**span):
        now[0] += timedelta(**span)

    return forward


@pytest.mark.db
def test_four_sessions_of_one_client_refresh_within_the_grace(ada, later):
    client = OAuthClient.registered()
    first = client.connected(ada)
    pairs = [client.refresh(first["refresh_token"]).json()]
    later(minutes=4)
    assert authenticate_at_mcp(first["access_token"])
    pairs += [client.refresh(first["refresh_token"]).json() for _ in range(3)]
    assert len({pair["refresh_token"] for pair in pairs}) == 4
    assert all(authenticate_at_mcp(pair["access_token"]) for pair in pairs)
    assert RefreshToken.objects.values("token_family").distinct().count() == 1
    later(minutes=1)
    assert authenticate_at_mcp(first["access_token"]) is None
    assert all(client.refresh(pair["refresh_token"]).status_code == 200 for pair in pairs)


def test_a_refresh_token_used_after_its_grace_ends_everything(ada, later):
    client = OAuthClient.registered()
    first = client.connected(ada)
    second = client.refresh(first["refresh_token"]).json()
    later(minutes=5, seconds=1)
    answer = client.refresh(first["refresh_token"])
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")
    assert authenticate_at_mcp(second["access_token"]) is None
    assert client.refresh(second["refresh_token"]).status_code == 400
    entry = AuditEntry.objects.get(action="token.reused")
    assert entry.object_ref == Connection.objects.get().token.prefix
    assert not Step.objects.filter(words__contains="tgr_").exists()


def test_refreshes_of_a_connection_are_limited(ada, later):
    client = OAuthClient.registered()
    first = client.connected(ada)["refresh_token"]
    assert {client.refresh(first).status_code for _ in range(30)} == {200}
    answer = client.refresh(first)
    assert answer.json()["error"] == "temporarily_unavailable"
    assert RefreshToken.objects.count() == 31


def test_the_owner_and_administrators_are_notified_of_reuse(ada, admin, ben, later, settings):
    settings.TOOLGATE_SENDS_MAIL = True
    for person in (ada, admin, ben):
        person.email = f"{person.username}@example.org"
        person.save()
    client = OAuthClient.registered(client_name="Claude")
    first = client.connected(ada)
    client.refresh(first["refresh_token"])
    later(minutes=6)
    client.refresh(first["refresh_token"])
    sent = Delivery.objects.filter(kind="token.reused")
    assert {each.person for each in sent} == {ada, admin}
    notice = build_notice(sent[0])
    assert "Claude" in notice.subject and notice.url.endswith(f"/tokens/{Connection.objects.get().token_id}/")


def test_tokens_end_with_their_time_and_with_their_connection(ada, later):
    client = OAuthClient.registered()
    pair = client.connected(ada)
    later(hours=12, seconds=1)
    assert authenticate_at_mcp(pair["access_token"]) is None
    assert client.refresh(pair["refresh_token"]).status_code == 200
    idle = client.connected(ada, days="60")
    later(days=30, seconds=1)
    assert "expired" in client.refresh(idle["refresh_token"]).json()["error_description"]
    short = client.connected(ada, days="1")
    later(hours=18)
    pair = client.refresh(short["refresh_token"]).json()
    assert pair["expires_in"] == 6 * 3600
    later(hours=6)
    assert client.refresh(pair["refresh_token"]).status_code == 400


def test_ending_a_connection_ends_its_tokens(ada):
    client = OAuthClient.registered()
    pair = client.connected(ada)
    access_tokens.revoke_token(Connection.objects.get().token, by=ada)
    assert authenticate_at_mcp(pair["access_token"]) is None
    assert "ended" in client.refresh(pair["refresh_token"]).json()["error_description"]


@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
def test_a_client_can_end_its_own_connection(ada, kind):
    client = OAuthClient.registered()
    pair = client.connected(ada)
    for token in ("unknown", pair[kind], pair[kind]):
        assert client.revoke(token).status_code == 200
    assert Step.objects.get(name="end").words == "Ended. The client asked for it."
    assert authenticate_at_mcp(pair["access_token"]) is None
    assert AuditEntry.objects.filter(action="token.revoked").count() == 1


def test_what_is_too_old_is_deleted(ada, later):
    unused, client = OAuthClient.registered(), OAuthClient.registered()
    client.connected(ada, days="60")
    later(days=1, seconds=61)
    assert services.clear_credentials(now=clock.now()) == 2 and services.clear_clients(now=clock.now()) == 1
    assert Client.objects.get().client_id == client.client_id != unused.client_id
    assert (Grant.objects.count(), AccessToken.objects.count(), RefreshToken.objects.count()) == (0, 0, 1)
    assert Connection.objects.get().token.is_live
    later(days=31)
    assert services.clear_credentials(now=clock.now()) == 1
    assert not Connection.objects.get().token.is_live  # no token is left with which its client could use it
    assert "30 days" in Step.objects.get(name="end").words
    assert steps.clear_steps(now=clock.now()) > 0


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (lambda token, admin: access_tokens.revoke_token(token, by=token.user), "Ended by its owner."),
        (lambda token, admin: access_tokens.revoke_token(token, by=admin), "Ended by the administrator admin."),
        (
            lambda token, admin: deactivate_person(token.user, by=admin),
            "Ended by the administrator admin. The account was deactivated.",
        ),
    ],
)
def test_the_log_says_who_ended_a_connection(ada, admin, end, words):
    OAuthClient.registered().connected(ada)
    connection = Connection.objects.get()
    mark_session_user(admin, clock.now().timestamp())
    end(connection.token, admin)
    assert steps.steps_of(connection, ada)[0].words == words


def test_a_client_cannot_fill_the_log_nor_silence_it_for_people(ada, monkeypatch):
    monkeypatch.setattr(steps, "MAX_STEPS_PER_HOUR", 3)
    client = OAuthClient.registered()
    for _ in range(5):
        client.refresh("unknown")
    assert Step.objects.filter(client__client_id=client.client_id).count() == 3
    client.consent(ada)
    assert Step.objects.filter(user=ada).count() == 1


def test_the_log_is_for_the_person_and_administrators(ada, ben, admin):
    OAuthClient.registered().connected(ada)
    connection = Connection.objects.get()
    assert [step.name for step in steps.steps_for(ada)] == ["token", "authorize"]
    assert not steps.steps_for(ben)
    assert [step.name for step in steps.steps_of(connection, admin)] == ["token", "authorize", "register"]
