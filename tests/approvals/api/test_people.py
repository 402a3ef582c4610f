"""REST endpoints of people and groups."""

import pytest
from django.contrib.auth.models import Group, User
from django.core import mail
from django.db import connection
from django.test.utils import CaptureQueriesContext

from catalog.access.people import find_link, is_usable
from catalog.access.roles import SIGNED_IN_AT_KEY
from tests.approvals.factories import set_rule
from tests.rest import Rest, wrong_paths

pytestmark = pytest.mark.django_db
BODY = {"username": "noor", "first_name": "Noor", "roles": ["reviewer"], "groups": ["finance"], "delivery": "link"}


@pytest.fixture
def rest(admin: User) -> Rest:
    """The client of an administrator who has just signed in."""
    Group.objects.create(name="finance")
    signed_in = Rest(None)
    signed_in.client.force_login(admin)
    return signed_in


def test_person_is_invited_and_the_link_shown_once(rest):
    created = rest.post("people/", BODY, key="once")
    assert created.status_code == 201
    person = created.json()
    assert "/welcome/?key=" in person.pop("link")
    assert (person["state"], person["roles"], person["groups"]) == ("invited", ["reviewer"], ["finance"])
    assert rest.post("people/", BODY, key="once").json() == person
    assert rest.get("people/noor/").json() == person
    assert [each["username"] for each in rest.get("people/", state="invited").json()["results"]] == ["noor"]
    renewed = rest.post("people/noor/reset/", {"delivery": "link"}, key="again").json()
    assert "link" not in rest.post("people/noor/reset/", {"delivery": "link"}, key="again").json()
    renewed_link = find_link(renewed["link"].partition("key=")[2])
    assert renewed_link is not None and is_usable(renewed_link)
    assert rest.delete("people/noor/").status_code == 200
    assert rest.get("people/noor/").status_code == 404


def test_link_is_mailed_or_the_failure_told(rest, settings, monkeypatch):
    refused = rest.post("people/", BODY | {"delivery": "mail"})
    assert wrong_paths(refused) == ["delivery"]
    settings.TOOLGATE_SENDS_MAIL = True
    assert wrong_paths(rest.post("people/", BODY | {"delivery": "mail"})) == ["email"]
    created = rest.post("people/", BODY | {"delivery": "mail", "email": "noor@example.org"})
    assert created.status_code == 201 and "link" not in created.json()
    assert created.json()["open_link"]["sent_to"] == "noor@example.org" and len(mail.outbox) == 1
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    monkeypatch.setattr("smtplib.SMTP.connect", refuse_connection)
    again = rest.post("people/noor/reset/", {"delivery": "mail"}).json()
    assert "mail_error" in again and "link" in again and again["open_link"]["sent_to"] == ""


def test_tokens_are_locked_before_the_audit_log(rest, ada):
    with CaptureQueriesContext(connection) as queries:
        assert rest.patch("people/ada/", {"first_name": "Ada", "active": False}).status_code == 200
    statements = [each["sql"] for each in queries]
    [tokens, head] = (
        next(number for number, sql in enumerate(statements) if part in sql)
        for part in ('FROM "catalog_apitoken"', "audit_head FROM approvals_instance")
    )
    assert tokens < head


def refuse_connection(*args: object, **options: object) -> None:
    raise ConnectionRefusedError


def test_roles_and_access_are_changed(rest, ada):
    changed = rest.patch("people/ada/", {"roles": ["operator", "reviewer"], "email": "ada@example.org"}).json()
    assert (changed["roles"], changed["groups"], changed["email"]) == (["operator", "reviewer"], [], "ada@example.org")
    assert rest.patch("people/ada/", {"groups": ["finance"]}).json()["roles"] == ["operator", "reviewer"]
    assert wrong_paths(rest.patch("people/ada/", {"groups": ["administrator"]})) == ["groups"]
    assert rest.patch("people/ada/", {"active": False}).json()["state"] == "deactivated"
    assert rest.patch("people/ada/", {"active": False}).status_code == 409
    activated = rest.patch("people/ada/", {"active": True}).json()
    assert activated["state"] == "active" and "link" in activated


def test_last_administrator_stays(rest, admin):
    changes: list[dict[str, object]] = [{"roles": []}, {"active": False}]
    for change in changes:
        assert rest.patch("people/admin/", change).status_code == 409
    assert rest.get("people/admin/").json()["roles"] == ["administrator"]


def test_tokens_and_old_sessions_change_nothing(rest, admin, ada):
    session = rest.client.session
    session[SIGNED_IN_AT_KEY] -= 3601
    session.save()
    for caller in (rest, Rest(admin)):
        assert caller.get("people/ada/").status_code == 200
        answers = [
            caller.post("people/", BODY),
            caller.patch("people/ada/", {"active": False}),
            caller.delete("people/ada/"),
            caller.post("people/ada/reset/", {"delivery": "link"}),
            caller.post("groups/", {"name": "night"}),
            caller.patch("groups/finance/", {"add": ["ada"]}),
            caller.delete("groups/finance/"),
        ]
        assert {answer.status_code for answer in answers} == {403}
    assert Rest(admin, "plans:read").get("people/").status_code == 403


def test_invalid_bodies_name_their_fields(rest, ada):
    for path, body in (
        ("username", {"username": "ADA"}),
        ("groups", {"groups": ["nobody"]}),
        ("roles.0", {"roles": ["king"]}),
        ("delivery", {"delivery": "pigeon"}),
        ("first_name", {"first_name": "x" * 151}),
        ("password", {"password": "x"}),
    ):
        assert wrong_paths(rest.post("people/", BODY | body)) == [path]


def test_group_is_filled_and_not_deleted_while_named(rest, ada):
    assert rest.post("groups/", {"name": "night", "members": ["ada"]}).json()["members"] == 1
    set_rule(stages=[{"group": "night", "count": 1}])
    assert len(rest.get("groups/night/").json()["policies"]) == 1
    assert rest.delete("groups/night/").status_code == 409
    assert rest.patch("groups/night/", {"remove": ["ada"]}).json()["members"] == 0
    assert rest.patch("groups/administrator/", {"add": ["ada"]}).status_code == 409
    set_rule(stages=[{"group": "reviewer", "count": 1}])
    assert rest.delete("groups/night/").status_code == 200
    assert [each["name"] for each in rest.get("groups/").json()["results"] if not each["role"]] == ["finance"]
