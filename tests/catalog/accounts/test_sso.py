"""Sign-in by OpenID Connect, against a provider on this machine."""

import re
from html import unescape

import pytest
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import Group, User

from approvals.models import AuditEntry
from catalog.access.roles import roles_of
from catalog.core import clock
from tests.catalog.accounts.factories import add_app, codes_of, secure_pages
from tests.catalog.accounts.oidc_provider import OidcProvider
from tests.http_server import serving
from tests.pages import Pages

pytestmark = pytest.mark.django_db


@pytest.fixture
def provider(settings):
    with serving(OidcProvider()) as found:
        settings.TOOLGATE_SSO_ISSUER = found.issuer
        settings.TOOLGATE_EGRESS_ALLOW = [f"127.0.0.1:{found.server_port}"]
        settings.TOOLGATE_SSO_NAME = "Example ID"
        settings.TOOLGATE_SSO_CREATE = True
        settings.TOOLGATE_SSO_GROUPS = {"ops": "operator", "sec": "reviewer", "root": "administrator"}
        yield found


def sign_in(provider: OidcProvider, pages: Pages, query: str = "?next=/tools/"):
    """Play the browser through a sign-in and return the answer of the callback."""
    response = pages.client.get(f"/sign-in/sso/{query}")
    assert response["Location"].startswith(f"{provider.issuer}/authorize?")
    return pages.client.get("/sign-in/sso/callback/" + provider.authorize(response["Location"]))


def is_signed_in(pages: Pages) -> bool:
    return pages.client.get("/profile/sign-ins/").status_code == 200


def test_an_account_is_created_with_its_groups_and_found_again(provider):
    provider.identify("s1", preferred_username="eve", name="Eve Adams", groups=["ops", "unknown"])
    pages = secure_pages()
    assert sign_in(provider, pages)["Location"] == "/tools/"
    eve = User.objects.get(username="eve")
    assert (eve.get_full_name(), eve.has_usable_password(), list(roles_of(eve))) == ("Eve Adams", False, ["operator"])
    Group.objects.create(name="finance").user_set.add(eve)
    provider.identify("s1", preferred_username="renamed", groups="sec")
    again = secure_pages()
    sign_in(provider, again)
    found = User.objects.get(pk=eve.pk)
    assert sorted(found.groups.values_list("name", flat=True)) == ["finance", "reviewer"]
    assert found.username == "eve"
    assert SocialAccount.objects.get().extra_data == {}
    actions = set(AuditEntry.objects.values_list("action", flat=True))
    assert {"account.created", "account.sso_linked", "role.given", "role.taken"} <= actions


@pytest.mark.parametrize("claim", ["preferred_username", "email"])
def test_an_existing_account_is_never_taken_over_by_name_or_mail(provider, admin, claim):
    admin.email = "admin@example.org"
    admin.save()
    value = {"preferred_username": "admin", "email": "admin@example.org"}[claim]
    provider.identify("s2", email_verified=True, **{claim: value})
    pages = secure_pages()
    sign_in(provider, pages)
    session = pages.client.session
    assert int(session["_auth_user_id"]) != admin.pk


def test_an_administrator_at_the_provider_is_staff_and_nothing_stays_without_the_group(provider, admin):
    provider.identify("s1", preferred_username="eve", groups=["root"])
    sign_in(provider, secure_pages())
    eve = User.objects.get(username="eve")
    assert eve.is_staff and "administrator" in roles_of(eve)
    User.objects.filter(pk=eve.pk).update(is_superuser=True)
    provider.identify("s1", preferred_username="eve", groups=["ops"])
    sign_in(provider, secure_pages())
    eve = User.objects.get(username="eve")
    assert (eve.is_staff, eve.is_superuser, list(roles_of(eve))) == (False, False, ["operator"])


@pytest.mark.parametrize("factor", ["", "app"])
@pytest.mark.parametrize(("auth_time", "is_fresh"), [(-5, True), (-8 * 3600, False), (None, False), ("now", False)])
def test_a_sign_in_is_as_old_as_at_the_provider(provider, auth_time, is_fresh, factor):
    provider.identify("s1", preferred_username="eve")
    if factor:
        sign_in(provider, secure_pages())
        add_app(User.objects.get())
    given = int(clock.now().timestamp()) + auth_time if isinstance(auth_time, int) else auth_time
    provider.claims = {**provider.claims, "auth_time": given}
    pages = secure_pages()
    sign_in(provider, pages, "?again=&next=/tools/")
    if factor:
        pages.open("/sign-in/code/")
        shown = pages.send("/sign-in/code/", {"code": codes_of(User.objects.get())[0]})
    else:
        shown = pages.open("/profile/")
    assert ("did not confirm" in shown) is not is_fresh
    assert pages.client.get("/profile/security/mail/").status_code == (200 if is_fresh else 302)


def test_the_provider_is_asked_when_the_person_signed_in(provider):
    for query, asked in (("", "max_age=43200"), ("?again=", "max_age=0")):
        assert asked in secure_pages().client.get(f"/sign-in/sso/{query}")["Location"]


def test_names_and_address_that_people_would_refuse_are_not_taken_over(provider, ada):
    User.objects.filter(pk=ada.pk).update(email="ada@example.org")
    provider.identify(
        "s1", preferred_username="eve", given_name="E\u202eve", family_name="Adams", email="ADA@example.org"
    )
    sign_in(provider, secure_pages())
    eve = User.objects.get(username="eve")
    assert (eve.first_name, eve.last_name, eve.email) == ("", "Adams", "")


def test_without_permission_no_account_is_created(provider, settings):
    settings.TOOLGATE_SSO_CREATE = False
    provider.identify("s3", preferred_username="eve")
    pages = secure_pages()
    assert sign_in(provider, pages)["Location"] == "/sign-in/"
    assert not User.objects.filter(username="eve").exists()
    pages.open("/sign-in/")
    assert len(pages.context["messages"]) == 1


def test_an_account_is_linked_and_unlinked_by_its_owner(provider, settings, rosa, ada):
    settings.TOOLGATE_SSO_CREATE = False
    provider.identify("s4")
    pages = secure_pages(rosa)
    pages.open("/profile/security/")
    pages.send("/profile/security/sso/link/")
    found = re.search(r'href="(http://127\.0\.0\.1[^"]*)"', pages.html)
    assert found is not None
    answer = pages.client.get("/sign-in/sso/callback/" + provider.authorize(unescape(found[1])))
    assert answer["Location"] == "/profile/security/"
    assert SocialAccount.objects.get().user == rosa
    fresh = secure_pages()
    sign_in(provider, fresh)
    assert int(fresh.client.session["_auth_user_id"]) == rosa.pk
    assert roles_of(User.objects.get(pk=rosa.pk)) == frozenset()
    other = secure_pages(ada)
    other.open("/profile/security/")
    other.send("/profile/security/sso/unlink/", status=404)
    pages.open("/profile/security/")
    pages.send("/profile/security/sso/unlink/")
    assert not SocialAccount.objects.exists()


def test_the_last_administrator_stays_one(provider, admin):
    provider.identify("s5")
    pages = secure_pages(admin)
    pages.open("/profile/security/")
    pages.send("/profile/security/sso/link/")
    address = re.search(r'href="(http://127\.0\.0\.1[^"]*)"', pages.html)
    assert address is not None
    pages.client.get("/sign-in/sso/callback/" + provider.authorize(unescape(address[1])))
    sign_in(provider, secure_pages())
    assert "administrator" in roles_of(User.objects.get(pk=admin.pk))


@pytest.mark.parametrize(
    "fault", ["issuer", "audience", "expired", "subjects", "no token", "state", "code", "denied", "discovery", "egress"]
)
def test_a_faulty_answer_signs_nobody_in(provider, settings, fault):
    provider.identify("s6", preferred_username="eve")
    changes: dict[str, dict[str, object]] = {
        "issuer": {"iss": "https://evil.example"},
        "audience": {"aud": "other"},
        "expired": {"exp": 1},
    }
    provider.claims = {**provider.claims, **changes.get(fault, {})}
    if fault == "subjects":
        provider.userinfo = {"sub": "s1"}
    pages = secure_pages()
    if fault in ("discovery", "egress"):
        if fault == "discovery":
            provider.discovery = {"issuer": "https://evil.example"}
        else:
            settings.TOOLGATE_EGRESS_ALLOW = []
        assert pages.client.get("/sign-in/sso/")["Location"] == "/sign-in/"
        return
    query = provider.authorize(pages.client.get("/sign-in/sso/")["Location"])
    provider.sends_id_token = fault != "no token"
    if fault == "state":
        pages = secure_pages()
    if fault == "code":  # that another browser was sent
        code = provider.authorize(secure_pages().client.get("/sign-in/sso/")["Location"]).split("&")[0]
        query = f"{code}&{query.split('&')[1]}"
    if fault == "denied":
        query = query.replace("?code=", "?error=access_denied&was=")
    assert pages.client.get(f"/sign-in/sso/callback/{query}")["Location"] == "/sign-in/"
    assert not is_signed_in(pages)
