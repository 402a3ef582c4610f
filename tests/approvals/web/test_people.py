"""Pages of people and groups, and the page behind a link."""

import re
from typing import Any

import pytest
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group, User
from django.core import mail
from django.test import Client

from catalog.access.people import member_count
from catalog.access.roles import SIGNED_IN_AT_KEY
from catalog.core.database import on_sqlite
from catalog.models import AccountLink
from tests.approvals.factories import set_rule
from tests.conftest import person as make_person
from tests.pages import Pages

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"
LINK = re.compile(r"/welcome/\?key=([\w-]+)")
FIELDS = {
    "username": "noor",
    "first_name": "Noor",
    "email": "noor@example.org",
    "roles": "reviewer",
    "delivery": "link",
}


def set_passwords(**more: str) -> dict[str, str]:
    return {"password": PASSWORD, "password_again": PASSWORD, **more}


def test_person_is_invited_by_a_link_and_accepts_once(admin):
    pages, guest, late = Pages(admin), Pages(), Pages()
    pages.open("/people/new/")
    pages.send("/people/new/", FIELDS, status=201)
    [key] = LINK.findall(pages.html)
    assert User.objects.get(username="noor").is_active is False
    late.open(f"/welcome/?key={key}")
    guest.open(f"/welcome/?key={key}")
    assert "noor" in guest.html and guest.context["form"]["first_name"].value() == "Noor"
    guest.send("/welcome/", set_passwords(key=key, password_again="other"), status=422)
    guest.send("/welcome/", set_passwords(key=key, first_name="Noor", last_name="Haddad"))
    person = User.objects.get(username="noor")
    assert person.is_active and person.check_password(PASSWORD) and person.get_full_name() == "Noor Haddad"
    guest.open(f"/welcome/?key={key}", status=410)
    late.send("/welcome/", set_passwords(key=key), status=410)
    pages.open("/people/?state=active")
    assert [row.person.username for row in pages.context["listed"].rows] == ["admin", "noor"]


@pytest.mark.db
def test_username_that_postgresql_refuses_is_a_bad_request(admin):
    pages, group = Pages(admin), Group.objects.create(name="finance")
    pages.open(f"/groups/{group.pk}/")
    pages.send(f"/groups/{group.pk}/change/", {"do": "remove:\0"}, status=200 if on_sqlite() else 400)


def test_unknown_links_are_throttled(db):
    pages = Pages()
    for _ in range(20):
        pages.open("/welcome/?key=unknown", status=404)
    pages.open("/welcome/?key=unknown", status=429)


def test_invitation_is_mailed_where_mail_is_set_up(admin, settings):
    pages = Pages(admin)
    pages.open("/people/new/")
    pages.send("/people/new/", FIELDS | {"delivery": "mail"}, status=422)
    settings.TOOLGATE_SENDS_MAIL = True
    pages.send("/people/new/", FIELDS | {"delivery": "mail", "email": ""}, status=422)
    pages.send("/people/new/", FIELDS | {"delivery": "mail"})
    [message] = mail.outbox
    [key] = LINK.findall(str(message.body))
    assert message.to == ["noor@example.org"] and key not in pages.html
    assert "http://testserver/welcome/" in str(message.body)
    assert AccountLink.objects.get().sent_to == "noor@example.org"


def test_invalid_fields_are_marked(admin, ada):
    pages = Pages(admin)
    for field, value in (("username", "ADA"), ("first_name", "n" * 151), ("roles", "king"), ("email", "x")):
        pages.open("/people/new/")
        pages.send("/people/new/", FIELDS | {field: value}, status=422)
        assert f'id="id_{field}_error"' in pages.html
    assert User.objects.count() == 2


def test_roles_are_changed_and_a_stale_page_shows_what_is_stored(admin, ada):
    Group.objects.create(name="finance")
    pages, path = Pages(admin), f"/people/{ada.pk}/"
    pages.open(path)
    fields = {"first_name": "Ada", "email": "", "roles": "reviewer", "groups": "finance", "seen": pages.field("seen")}
    pages.send(path, fields)
    assert sorted(ada.groups.values_list("name", flat=True)) == ["finance", "reviewer"]
    pages.send(path, fields | {"roles": "viewer"}, status=422)
    assert sorted(ada.groups.values_list("name", flat=True)) == ["finance", "reviewer"]
    assert [name for name in pages.context["form"].errors if name != "seen"] == ["roles"]
    pages.send(path, fields | {"roles": "viewer", "seen": pages.field("seen")})
    assert sorted(ada.groups.values_list("name", flat=True)) == ["finance", "viewer"]


def test_last_administrator_is_told_why_they_stay(admin):
    pages = Pages(admin)
    pages.open(f"/people/{admin.pk}/")
    pages.send(f"/people/{admin.pk}/access/", {"do": "deactivate"})
    assert "last administrator who can sign in" in pages.html
    pages.send(f"/people/{admin.pk}/", {"seen": pages.field("seen")}, status=422)
    assert User.objects.get(pk=admin.pk).groups.filter(name="administrator").exists()


def test_access_is_ended_and_given_back(admin, ada):
    pages, path = Pages(admin), f"/people/{ada.pk}/access/"
    pages.open(f"/people/{ada.pk}/")
    pages.send(path, {"do": "deactivate"})
    pages.send(path, {"do": "activate:link"}, status=201)
    pages.open(f"/people/{ada.pk}/")
    pages.send(path, {"do": "reset:link"}, status=201)
    assert len(LINK.findall(pages.html)) == 1
    pages.open("/people/new/")
    pages.send("/people/new/", FIELDS, status=201)
    noor = User.objects.get(username="noor")
    pages.open(f"/people/{noor.pk}/")
    pages.send(f"/people/{noor.pk}/access/", {"do": "withdraw"})
    assert not User.objects.filter(username="noor").exists()


def test_administrator_ends_their_own_access(admin):
    """A reset shows the link although it ended the session; with another administrator, one can leave."""
    make_person("noor", "administrator")
    for do, status, sign_in in (("reset:link", 201, "/welcome/?key="), ("deactivate", 200, 'name="password"')):
        User.objects.filter(pk=admin.pk).update(password=make_password("secret-admin"))
        pages = Pages(User.objects.get(pk=admin.pk))
        pages.open(f"/people/{admin.pk}/")
        pages.send(f"/people/{admin.pk}/access/", {"do": do}, status=status)
        assert sign_in in pages.html
        assert pages.client.get("/people/").status_code == 302


def test_old_sign_in_changes_nothing(admin, ada):
    pages = Pages(admin)
    session = pages.client.session
    session[SIGNED_IN_AT_KEY] -= 3601
    session.save()
    pages.open(f"/people/{ada.pk}/")
    assert 'id="sign-in-again"' in pages.html
    pages.send(f"/people/{ada.pk}/", {"first_name": "Eve", "seen": pages.field("seen")}, status=422)
    pages.send(f"/people/{ada.pk}/access/", {"do": "deactivate"})
    pages.send("/groups/new/", {"name": "finance"}, status=422)
    ada.refresh_from_db()
    assert ada.is_active and ada.get_full_name() == "Ada" and not Group.objects.filter(name="finance").exists()


def test_superusers_count_as_members_of_the_role_administrator_once(admin, ada):
    User.objects.filter(pk=ada.pk).update(is_superuser=True)
    before = Group.objects.annotate(members=member_count()).get(name="administrator").members
    ada.groups.add(Group.objects.get(name="administrator"))
    found = {group.name: group.members for group in Group.objects.annotate(members=member_count())}
    assert found["administrator"] == before == User.objects.filter(is_active=True, groups__name="administrator").count()
    assert found["viewer"] == 0


def test_group_is_made_filled_and_kept_while_a_policy_names_it(admin, ada):
    pages = Pages(admin)
    pages.open("/groups/new/")
    pages.send("/groups/new/", {"name": "finance"})
    group = Group.objects.get(name="finance")
    set_rule(stages=[{"group": "finance", "count": 1}])
    pages.open(f"/groups/{group.pk}/")
    assert 'id="nobody"' in pages.html
    pages.send(f"/groups/{group.pk}/", {"username": "nobody"}, status=422)
    pages.send(f"/groups/{group.pk}/", {"username": "ada"})
    assert [row.person for row in pages.context["rows"]] == [ada] and 'id="nobody"' not in pages.html
    pages.send(f"/groups/{group.pk}/change/", {"do": "delete"})
    assert Group.objects.filter(name="finance").exists()
    pages.open(f"/people/{ada.pk}/")
    assert [name for name, _policies in pages.context["policies"]] == ["finance"]
    pages.open(f"/groups/{group.pk}/")
    pages.send(f"/groups/{group.pk}/change/", {"do": "remove:ada"})
    set_rule(stages=[{"group": "reviewer", "count": 1}])
    pages.send(f"/groups/{group.pk}/change/", {"do": "delete"})
    assert not Group.objects.filter(name="finance").exists()


def test_hostile_numbers_and_characters_are_refused(admin):
    """SQLite takes every text; PostgreSQL's driver refuses NUL."""
    client = Client(raise_request_exception=False)
    client.force_login(admin)
    number = 10**23
    for path in (f"/people/{number}/", f"/groups/{number}/", f"/connections/{number}/"):
        assert client.get(path).status_code == 404
    assert client.post(f"/connections/{number}/end/").status_code == 404
    group = Group.objects.create(name="finance")
    assert client.post(f"/groups/{group.pk}/change/", {"do": "remove:\0"}).status_code in (302, 400)


def test_list_exports_and_filters(admin, ada, rosa):
    pages = Pages(admin)
    pages.open("/people/?role=reviewer")
    assert [row.person for row in pages.context["listed"].rows] == [rosa]
    pages.open("/people/?q=ada&sort=-signed-in")
    assert [row.person for row in pages.context["listed"].rows] == [ada]
    answer: Any = pages.client.get("/people/?format=csv&role=operator")
    lines = b"".join(answer.streaming_content).decode().splitlines()
    assert len(lines) == 2 and lines[1].startswith("ada,Ada,,active,operator,")
    pages.open("/groups/?kind=roles&sort=-members")
    assert len(pages.context["listed"].rows) == 4
