"""Sign-in with a second factor, with a passkey, and what is reachable of django-allauth."""

import json
from datetime import timedelta

import pytest
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from django.conf import settings
from django.contrib.auth.models import User
from django.test import RequestFactory
from django.urls import get_resolver
from fido2.utils import websafe_decode, websafe_encode

from approvals.models import AuditEntry
from catalog.access.second_factors import STEP_SECONDS
from catalog.access.sign_in import check_second_factor
from catalog.core import clock
from tests.catalog.accounts.factories import add_app, add_passkey, codes_of, secure_pages
from tests.pages import Pages

pytestmark = pytest.mark.django_db


@pytest.fixture
def now(monkeypatch):
    """Set the clock; `now[0]` moves it."""
    moment = [clock.now()]
    monkeypatch.setattr(clock, "now", lambda: moment[0])
    return moment


def enter_password(pages: Pages, user: User, after: str = "") -> None:
    pages.open(f"/sign-in/{after}")
    pages.send("/sign-in/" + after, {"username": user.username, "password": f"secret-{user.username}"})


def code_at(secret: str, moment) -> str:
    code: str = format_hotp_value(hotp_value(secret, int(moment.timestamp()) // STEP_SECONDS))
    return code


def is_signed_in(pages: Pages) -> bool:
    return pages.client.get("/profile/sign-ins/").status_code == 200


def test_an_app_is_asked_for_after_the_password_and_leads_on(rosa, now):
    secret = add_app(rosa)
    pages = secure_pages()
    enter_password(pages, rosa, "?next=/tools/")
    assert not is_signed_in(pages)
    response = pages.client.post(
        "/sign-in/code/",
        {"code": code_at(secret, now[0]), "csrfmiddlewaretoken": pages.field("csrfmiddlewaretoken")},
    )
    assert response["Location"] == "/tools/"
    assert is_signed_in(pages)


def test_a_code_is_accepted_once_by_all_processes(rosa, now):
    """Its step is in the database, and no earlier step is accepted after it."""
    secret = add_app(rosa)
    code, earlier = code_at(secret, now[0]), code_at(secret, now[0] - timedelta(seconds=STEP_SECONDS))
    first, second = secure_pages(), secure_pages()
    for pages in (first, second):
        enter_password(pages, rosa)
    first.send("/sign-in/code/", {"code": code})
    assert is_signed_in(first)
    for used in (code, earlier):
        second.send("/sign-in/code/", {"code": used})
        assert not is_signed_in(second)
    now[0] += timedelta(seconds=STEP_SECONDS)
    second.send("/sign-in/code/", {"code": code_at(secret, now[0])})
    assert is_signed_in(second)


def test_wrong_codes_are_throttled_whatever_passwords_are_entered_between(rosa, now):
    secret = add_app(rosa)
    pages = secure_pages()
    for _ in range(8):
        check_second_factor(RequestFactory().post("/"), username="rosa", check=lambda: None)
    for _ in range(2):
        enter_password(pages, rosa)
        pages.send("/sign-in/code/", {"code": "000000"})
    enter_password(pages, rosa)
    pages.send("/sign-in/code/", {"code": code_at(secret, now[0])}, 429)
    assert not is_signed_in(pages)
    assert AuditEntry.objects.filter(action="sign_in.failed", object_ref=f"user_{rosa.pk}").count() == 10
    assert AuditEntry.objects.filter(action="sign_in.refused", object_ref=f"user_{rosa.pk}").count() == 1


def test_a_recovery_code_works_once(rosa):
    add_app(rosa)
    code = codes_of(rosa)[0]
    for signs_in in (True, False):
        pages = secure_pages()
        enter_password(pages, rosa)
        pages.send("/sign-in/code/", {"code": code})
        assert is_signed_in(pages) == signs_in


@pytest.mark.parametrize("change", ["password", "is_active"])
def test_a_pending_sign_in_ends_with_the_password_and_with_the_account(rosa, now, change):
    secret = add_app(rosa)
    pages = secure_pages()
    enter_password(pages, rosa)
    setattr(rosa, change, "!" if change == "password" else False)
    rosa.save()
    pages.send("/sign-in/code/", {"code": code_at(secret, now[0])})
    assert not is_signed_in(pages)
    assert not AuditEntry.objects.filter(action="sign_in.succeeded").exists()


def test_signing_in_again_asks_for_the_factor_again(rosa, now):
    secret = add_app(rosa)
    pages = secure_pages(rosa)
    before = pages.client.session["toolgate.signed_in"]
    now[0] += timedelta(hours=2)
    enter_password(pages, rosa, "?again&next=/profile/security/password/")
    assert pages.client.session["toolgate.signed_in"] == before
    pages.send("/sign-in/code/", {"code": code_at(secret, now[0])})
    assert pages.client.session["toolgate.signed_in"] > before


def test_a_passkey_signs_in_by_itself(rosa):
    passkey = add_passkey(rosa)
    pages = secure_pages()
    options = json.loads(pages.client.get("/sign-in/passkey/").content)
    pages.open("/sign-in/")
    pages.send("/sign-in/passkey/", {"credential": passkey.sign(options)})
    assert is_signed_in(pages)


@pytest.mark.parametrize("fault", ["unverified", "challenge", "other", "signature", "junk", "nested", "cut"])
def test_an_assertion_with_a_fault_signs_nobody_in(rosa, ada, fault):
    passkey, other = add_passkey(rosa), add_passkey(ada)
    pages = secure_pages()
    options = json.loads(pages.client.get("/sign-in/passkey/").content)
    if fault == "unverified":
        passkey.verifies = False
    if fault == "challenge":
        pages.client.get("/sign-in/passkey/")
    signed = json.loads(passkey.sign(options))
    if fault == "other":
        signed["response"]["userHandle"] = json.loads(other.sign(options))["response"]["userHandle"]
    if fault == "signature":
        signed["response"]["signature"] = json.loads(other.sign(options))["response"]["signature"]
    if fault == "nested":
        signed["response"]["clientDataJSON"] = websafe_encode(b"[" * 5000)
    if fault == "cut":  # flags of extensions, which are missing
        data = websafe_decode(signed["response"]["authenticatorData"])
        signed["response"]["authenticatorData"] = websafe_encode(data[:32] + b"\x85" + data[33:])
    pages.open("/sign-in/")
    for sent in ([], {}, {"response": []}, {"id": 1}, "x") if fault == "junk" else (signed,):
        pages.send("/sign-in/passkey/", {"credential": json.dumps(sent)})
        assert not is_signed_in(pages)


def test_a_passkey_is_a_second_factor_too(rosa):
    passkey = add_passkey(rosa)
    pages = secure_pages()
    enter_password(pages, rosa)
    options = json.loads(pages.context["passkey_options"])
    pages.send("/sign-in/code/", {"credential": passkey.sign(options)})
    assert is_signed_in(pages)


def test_nothing_else_of_allauth_is_reachable():
    views = {str(each.pattern): each.callback.__module__ for each in _patterns(get_resolver().url_patterns)}
    assert {path for path, module in views.items() if module.startswith("allauth")} == set()


def _patterns(patterns):
    for each in patterns:
        yield from _patterns(each.url_patterns) if hasattr(each, "url_patterns") else [each]


def test_a_session_ends_twelve_hours_after_the_sign_in(rosa, now):
    """Storing when it was last used must not prolong it."""
    pages = secure_pages()
    enter_password(pages, rosa)
    cookie = pages.client.cookies[settings.SESSION_COOKIE_NAME]
    assert cookie["max-age"] == settings.SESSION_COOKIE_AGE
    pages.client.cookies[settings.SESSION_COOKIE_NAME]["max-age"] = ""
    now[0] += timedelta(minutes=6)
    pages.open("/profile/sign-ins/")
    assert pages.client.cookies[settings.SESSION_COOKIE_NAME]["max-age"] == ""


def test_the_page_says_how_the_first_account_is_created():
    assert "createsuperuser" in Pages().open("/sign-in/")
    User.objects.create_user("noor")
    assert "createsuperuser" not in Pages().open("/sign-in/")
