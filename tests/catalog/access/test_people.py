"""People and groups: who may change them, what is refused, and what ends with an account."""

import threading
from datetime import timedelta

import pytest
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client

from approvals.audit.verification import verify
from approvals.models import AuditEntry
from approvals.reviews.coordination import claim
from catalog.access import people
from catalog.access.people import (
    INVITED,
    NewLink,
    activate_person,
    change_members,
    change_person,
    create_group,
    create_person,
    deactivate_person,
    delete_group,
    find_link,
    is_usable,
    open_links,
    reset_person,
    state_of,
    use_link,
    withdraw_invitation,
)
from catalog.access.roles import FRESH_SIGN_IN, NotAllowed, mark_session_user, roles_of, user_for_token
from catalog.access.tokens import authenticate_token, create_token
from catalog.core import clock
from catalog.errors import Conflict
from catalog.models import AccountLink
from tests.approvals.factories import ask, refusal_at, set_rule
from tests.conftest import person as make_person

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


@pytest.fixture
def boss(admin: User) -> User:
    """An administrator who has just signed in."""
    return signed_in(admin)


def signed_in(user: User, *, age: timedelta = timedelta()) -> User:
    mark_session_user(user, (clock.now() - age).timestamp())
    return user


def fresh(user: User) -> User:
    """Return the account as stored, without what the instance remembers."""
    return User.objects.get(pk=user.pk)


def found(new_link: NewLink | None) -> AccountLink:
    """Return a link as it is found by its key."""
    assert new_link is not None
    link = find_link(new_link.key)
    assert link is not None
    return link


def actions() -> list[tuple[str, str]]:
    entries = AuditEntry.objects.exclude(action__startswith="sign_in").order_by("seq")
    return [(entry.action, entry.actor_name) for entry in entries]


def test_invited_person_sets_a_password_once(boss):
    Group.objects.create(name="finance")
    person, link = create_person(
        username="Noor", first_name=" Noor ", last_name="van  Dijk", roles=["reviewer"], groups=["finance"], by=boss
    )
    assert link is not None and link.key not in str(AccountLink.objects.values())
    assert state_of(person, link.link) == INVITED and roles_of(fresh(person)) == frozenset()
    assert not Client().login(username="Noor", password="")
    with refusal_at("password", "invalid"):
        use_link(found(link), password="short")
    opened = found(link)
    use_link(opened, password=PASSWORD, last_name="de Wit")
    assert fresh(person).get_full_name() == "Noor de Wit" and roles_of(fresh(person)) == {"reviewer"}
    assert Client().login(username="Noor", password=PASSWORD)
    with pytest.raises(Conflict):
        use_link(opened, password=PASSWORD + "!")
    assert not Client().login(username="Noor", password=PASSWORD + "!")
    assert actions() == [
        ("role.created", "Toolgate"),
        ("account.created", "admin"),
        ("account.switched_off", "admin"),
        ("role.given", "admin"),
        ("link.created", "admin"),
        ("account.changed", "Noor"),
        ("account.switched_on", "Noor"),
        ("link.used", "Noor"),
    ]
    assert verify().intact


def test_link_expires_and_ends_with_a_newer_one(boss):
    person, first = create_person(username="noor", by=boss)
    second = reset_person(person, by=boss)
    assert [is_usable(found(each)) for each in (first, second)] == [False, True]
    AccountLink.objects.update(expires_at=clock.now())
    with pytest.raises(Conflict):
        use_link(found(second), password=PASSWORD)
    assert state_of(fresh(person), open_links([person.pk])[person.pk]) == INVITED
    withdraw_invitation(person, by=boss)
    assert not User.objects.filter(username="noor").exists()


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("username", {"username": "ADA"}),
        ("username", {"username": "x" * 151}),
        ("username", {"username": "two words"}),
        ("username", {"username": ".."}),
        ("username", {"username": "аda"}),  # noqa: RUF001 - a Cyrillic letter
        ("first_name", {"username": "noor", "first_name": "N" * 151}),
        ("last_name", {"username": "noor", "last_name": "Noor\u202egpj"}),
        ("email", {"username": "noor", "email": "Ada@Example.ORG"}),
        ("email", {"username": "noor", "email": "nowhere"}),
        ("groups", {"username": "noor", "groups": ["nobody"]}),
        ("groups", {"username": "noor", "groups": ["administrator"]}),
        ("roles", {"username": "noor", "roles": ["king"]}),
    ],
)
def test_invalid_person_is_refused(boss, ada, field, fields):
    User.objects.filter(pk=ada.pk).update(email="ada@example.org")
    with refusal_at(field, "invalid"):
        create_person(**fields, by=boss)
    assert User.objects.count() == 2


def test_name_of_150_characters_or_written_from_right_to_left_is_kept(boss):
    for number, name in enumerate(("N" * 150, "נועה לוי", "علي")):
        person, _link = create_person(username=f"noor{number}", first_name=name, last_name=name, by=boss)
        assert fresh(person).get_full_name() == f"{name} {name}"


def test_only_administrators_with_a_fresh_sign_in_change_people(boss, ada, rosa):
    token, _text = create_token(user=boss, kind="personal", scopes=["audit:read"])
    through_token = user_for_token(token)
    for caller in (
        signed_in(ada),
        signed_in(fresh(boss), age=FRESH_SIGN_IN + timedelta(seconds=1)),
        through_token,
        fresh(boss),
    ):
        with pytest.raises(NotAllowed):
            deactivate_person(rosa, by=caller)
    assert fresh(rosa).is_active


def test_deactivation_ends_sessions_tokens_and_claims(boss, ada, rosa, django_capture_on_commit_callbacks):
    request = ask(ada)
    claim(request, by=rosa)
    _token, text = create_token(user=rosa, kind="personal", scopes=["approvals:read"])
    client = Client()
    client.force_login(rosa)
    with django_capture_on_commit_callbacks(execute=True):
        deactivate_person(rosa, by=boss)
    assert client.get("/approvals/").status_code == 302 and authenticate_token(text) is None
    request.refresh_from_db()
    assert request.claimed_by is None and request.status == "pending"
    link = activate_person(rosa, by=boss)
    assert client.get("/approvals/").status_code == 302 and authenticate_token(text) is None
    assert not client.login(username="rosa", password="secret-rosa")
    use_link(found(link), password=PASSWORD)
    assert client.login(username="rosa", password=PASSWORD)


def test_token_made_during_the_deactivation_does_not_live_again(boss, ada):
    deactivate_person(ada, by=boss)
    _, text = create_token(user=ada, kind="agent", scopes=["calls:create"])
    activate_person(ada, by=boss)
    assert authenticate_token(text) is None


def test_change_keeps_a_password_that_was_set_meanwhile(boss, ada, monkeypatch):
    def set_a_password(columns: dict[str, str]) -> dict[str, str]:
        """Stand in for the person, after the account was read and before it is stored."""
        User.objects.filter(pk=ada.pk).update(password="new")
        return columns

    monkeypatch.setattr(people, "_clean_columns", set_a_password)
    change_person(ada, {"first_name": "Ada"}, by=boss)
    assert (fresh(ada).password, fresh(ada).first_name) == ("new", "Ada")


def test_reset_ends_sessions_and_the_password(boss, ada):
    client = Client()
    client.force_login(ada)
    link = reset_person(ada, by=boss)
    assert client.get("/approvals/").status_code == 302
    assert not client.login(username="ada", password="secret-ada")
    deactivate_person(ada, by=boss)
    assert not is_usable(found(link))
    with pytest.raises(Conflict):
        reset_person(ada, by=boss)


@pytest.mark.parametrize("other", ["nobody", "an administrator without a password"])
def test_last_administrator_who_can_sign_in_stays(boss, ada, other):
    if other != "nobody":
        create_person(username="noor", roles=["administrator"], invited=False, by=boss)
    for change in (
        lambda: deactivate_person(boss, by=boss),
        lambda: reset_person(boss, by=boss),
        lambda: change_person(boss, {"roles": ["viewer"]}, by=boss),
    ):
        with pytest.raises(Conflict):
            change()
    change_person(ada, {"roles": ["administrator"]}, by=boss)
    deactivate_person(boss, by=boss)
    with pytest.raises(Conflict):
        deactivate_person(ada, by=signed_in(fresh(ada)))


def test_administrator_with_a_passkey_or_a_link_to_the_provider_can_sign_in(boss, settings):
    settings.TOOLGATE_SSO_ISSUER = "https://login.example.org"
    for username in ("noor", "sam"):
        create_person(username=username, roles=["administrator"], invited=False, by=boss)
    noor, sam = User.objects.filter(username__in=("noor", "sam")).order_by("username")
    Authenticator.objects.create(user=noor, type=Authenticator.Type.WEBAUTHN, data={})
    SocialAccount.objects.create(user=sam, provider=people.sso_provider(), uid="s1")
    assert set(people.administrators_who_can_sign_in()) == {boss, noor, sam}
    settings.TOOLGATE_SSO_ISSUER = "https://other.example.org"
    assert set(people.administrators_who_can_sign_in()) == {boss, noor}


def test_roles_and_groups_are_changed_apart(boss, ada):
    """Two administrators at once: neither writes back what the other one has taken away."""
    Group.objects.create(name="finance")
    change_person(ada, {"roles": ["administrator"]}, by=boss)
    stale = fresh(ada)
    assert people.held_roles(stale) == ["administrator"]
    change_person(ada, {"roles": ["viewer"]}, by=boss)
    change_person(stale, {"groups": ["finance"]}, by=boss)
    assert sorted(fresh(ada).groups.values_list("name", flat=True)) == ["finance", "viewer"]


def test_superuser_counts_as_administrator_until_demoted(boss):
    root = User.objects.create_superuser("root", password=PASSWORD)
    change_person(boss, {"roles": []}, by=boss)
    with pytest.raises(Conflict):
        change_person(root, {"roles": ["operator"]}, by=signed_in(fresh(root)))
    change_person(boss, {"roles": ["administrator"]}, by=signed_in(fresh(root)))
    change_person(root, {"roles": ["operator"]}, by=signed_in(fresh(boss)))
    assert roles_of(fresh(root)) == {"operator"} and not fresh(root).is_staff
    assert verify().intact


def test_demoted_administrator_changes_nobody(boss, ada):
    other = signed_in(make_person("noor", "administrator"))
    assert roles_of(other) == {"administrator"}
    change_person(other, {"roles": []}, by=boss)
    with pytest.raises(NotAllowed):
        deactivate_person(ada, by=other)


@pytest.mark.django_db(transaction=True)
@pytest.mark.db
def test_two_administrators_who_demote_each_other_leave_one(boss):
    other = signed_in(make_person("noor", "administrator"))
    gate = threading.Barrier(2)

    def demote(whom: User, by: User) -> None:
        gate.wait()
        try:
            change_person(whom, {"roles": []}, by=by)
        except (Conflict, NotAllowed):
            pass
        finally:
            connection.close()

    threads = [threading.Thread(target=demote, args=pair) for pair in ((boss, other), (other, boss))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert people.administrators().count() == 1


def test_group_is_not_deleted_while_a_policy_or_request_names_it(boss, ada):
    group = create_group("finance  team", ["ada"], by=boss)
    assert group.name == "finance team" and ada.groups.filter(pk=group.pk).exists()
    revision = set_rule(stages=[{"group": "finance team", "count": 1}])
    with pytest.raises(Conflict):
        delete_group(group, by=boss)
    request = ask(ada)
    assert request.policy_revision.groups == ["finance team"]
    revision.policy.ended_at = clock.now()
    revision.policy.save()
    with pytest.raises(Conflict):
        delete_group(group, by=boss)
    type(request).objects.filter(pk=request.pk).update(status="withdrawn")
    delete_group(group, by=boss)
    assert not Group.objects.filter(name="finance team").exists()
    assert verify().intact


def test_roles_are_neither_deleted_nor_filled_as_groups(boss):
    role = Group.objects.get(name="administrator")
    with pytest.raises(Conflict):
        delete_group(role, by=boss)
    with pytest.raises(Conflict):
        change_members(role, add=["admin"], by=boss)
    for name in ("Administrator", "ad\u1d0din", "a/b", "", "x" * 151):
        with refusal_at("name", "invalid"):
            create_group(name, by=boss)


def test_members_join_and_leave_a_group(boss, ada, ben):
    group = create_group("finance", ["ada"], by=boss)
    change_members(group, add=["ben"], remove=["ada"], by=boss)
    assert [each.username for each in group.user_set.all()] == ["ben"]
    with refusal_at("add", "invalid"):
        change_members(group, add=["nobody"], by=boss)
    with refusal_at("remove", "invalid"):
        change_members(group, add=["ada"], remove=["ada"], by=boss)
