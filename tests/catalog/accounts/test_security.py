"""The page Security: factors, recovery codes, password and mail address, and roles that require a factor."""

import json
import re
from urllib.parse import urlencode

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from django.contrib.sessions.models import Session
from django.core import mail
from django.test import Client

from approvals.models import AuditEntry
from catalog.access import second_factors
from catalog.access.people import reset_person
from catalog.access.roles import SIGNED_IN_AT_KEY, mark_session_user
from catalog.access.second_factors import STEP_SECONDS
from catalog.accounts import mails, password_reset
from catalog.core import clock
from catalog.core.rate_limits import RateLimit
from plans.live.sockets import SocketRefused, authenticate_socket
from tests.catalog.accounts.factories import SECRET, add_app, add_passkey, codes_of, secure_pages
from tests.config.factories import capture
from tests.pages import Pages
from tests.passkeys import Passkey
from tests.rest import agent

pytestmark = pytest.mark.django_db
NEW = "a-long-new-secret"


@pytest.fixture
def sends_mail(settings, monkeypatch):
    """Send mails at once."""
    settings.TOOLGATE_SENDS_MAIL = True

    def send(email, subject, *paragraphs):
        mail.send_mail(subject, "\n\n".join(paragraphs), None, [email])

    for module in ("mails", "security", "password_reset"):
        monkeypatch.setattr(f"catalog.accounts.{module}.send_soon", send)


def actions() -> list[str]:
    return list(
        AuditEntry.objects.filter(action__startswith="account.").order_by("seq").values_list("action", flat=True)
    )


def make_stale(pages: Pages) -> None:
    session = pages.client.session
    session[SIGNED_IN_AT_KEY] = clock.now().timestamp() - 3601
    session.save()


def link_in_mail() -> str:
    found = re.search(r"https?://[^/\s]+(/\S+)", str(mail.outbox[-1].body))
    assert found is not None
    return found[1]


def test_an_app_is_set_up_by_its_first_code_and_kept_encrypted(rosa, monkeypatch):
    monkeypatch.setattr("allauth.mfa.totp.internal.auth.generate_totp_secret", lambda: SECRET)
    pages = secure_pages(rosa)
    pages.open("/profile/security/app/")
    pages.send("/profile/security/app/", {"code": "12"}, 422)
    code = format_hotp_value(hotp_value(SECRET, int(clock.now().timestamp()) // STEP_SECONDS))
    pages.send("/profile/security/app/", {"code": code})
    codes = pages.context["codes"]
    assert len(codes) == 10
    app = Authenticator.objects.get(user=rosa, type="totp")
    assert SECRET not in json.dumps(app.data)
    assert second_factors.decrypt(app.data["secret"]) == SECRET
    assert second_factors.use_code(rosa, code) is None
    assert "account.second_factor_added" in actions()
    assert not any(code in pages.open("/profile/security/codes/") for code in codes)


def test_new_recovery_codes_end_the_old_and_are_shown_once(rosa):
    add_app(rosa)
    old = codes_of(rosa)
    pages = secure_pages(rosa)
    pages.open("/profile/security/")
    pages.send("/profile/security/codes/")
    assert set(pages.context["codes"]).isdisjoint(old)
    pages.open("/profile/security/codes/")
    assert pages.context["codes"] == []
    assert second_factors.use_code(rosa, old[0]) is None
    assert actions() == ["account.recovery_codes_made"]


def test_a_passkey_is_added_and_removed(rosa):
    pages = secure_pages(rosa)
    pages.open("/profile/security/passkeys/new/")
    credential = Passkey().create(json.loads(pages.context["options"]))
    pages.send("/profile/security/passkeys/new/", {"name": "Phone", "credential": credential})
    assert "Phone" in pages.open("/profile/security/")
    number = Authenticator.objects.get(user=rosa, type="webauthn").pk
    other = secure_pages(rosa)
    other.open("/profile/security/")
    pages.send(f"/profile/security/passkeys/{number}/remove/")
    assert not Authenticator.objects.filter(user=rosa).exists()
    other.send(f"/profile/security/passkeys/{number}/remove/", status=404)
    assert actions() == ["account.passkey_added", "account.passkey_removed"]


def test_factors_of_others_cannot_be_removed(rosa, ada):
    add_passkey(rosa)
    pages = secure_pages(ada)
    pages.open("/profile/security/")
    number = Authenticator.objects.get(user=rosa, type="webauthn").pk
    pages.send(f"/profile/security/passkeys/{number}/remove/", status=404)
    assert Authenticator.objects.filter(user=rosa, type="webauthn").exists()


@pytest.mark.parametrize(
    "path", ["password/", "mail/", "app/", "passkeys/new/", "codes/", "app/remove/", "passkeys/1/remove/"]
)
def test_changes_need_a_fresh_sign_in(rosa, path):
    pages = secure_pages(rosa)
    pages.open("/profile/security/")
    make_stale(pages)
    response = pages.client.get(f"/profile/security/{path}")
    if response.status_code != 405:
        assert response["Location"] == f"/sign-in/?again=&next=/profile/security/{path}"
    pages.send(f"/profile/security/{path}", {"email": "new@example.org", "code": "123456"}, 403)
    assert pages.context["typed"] == [("email", "new@example.org")]
    [address] = re.findall(r'next=([^"]+)', pages.html)
    assert pages.client.get(address).status_code == 200


def test_a_new_password_ends_all_other_sessions(rosa):
    pages, other = secure_pages(rosa), secure_pages(rosa)
    pages.open("/profile/security/password/")
    sent = {"old_password": "wrong", "new_password1": NEW, "new_password2": NEW}
    pages.send("/profile/security/password/", sent, 422)
    pages.send("/profile/security/password/", sent | {"old_password": "secret-rosa", "new_password2": "x"}, 422)
    pages.send("/profile/security/password/", sent | {"old_password": "secret-rosa"})
    rosa.refresh_from_db()
    assert rosa.check_password(NEW)
    assert pages.client.get("/profile/sign-ins/").status_code == 200
    assert other.client.get("/profile/sign-ins/").status_code == 302
    assert Session.objects.count() == 1
    assert "account.password_changed" in actions()


def test_a_mail_address_is_confirmed_by_its_own_mail(rosa, ada, sends_mail):
    pages = secure_pages(rosa)
    pages.open("/profile/security/mail/")
    pages.send("/profile/security/mail/", {"email": "new@example.org"})
    rosa.refresh_from_db()
    assert rosa.email != "new@example.org"
    address = link_in_mail()
    assert mail.outbox[-1].to == ["new@example.org"]
    secure_pages(ada).open(address, 410)
    pages.open(address)
    pages.send(address)
    rosa.refresh_from_db()
    assert rosa.email == "new@example.org"
    pages.open(address, 410)
    assert actions().count("account.mail_changed") == 1


def test_links_to_one_address_are_limited_whoever_asks(rosa, ada, sends_mail):
    for person in (rosa, ada):
        pages = secure_pages(person)
        pages.open("/profile/security/mail/")
        for _ in range(3):
            pages.send("/profile/security/mail/", {"email": "stranger@example.org"}, 200 if person == rosa else 422)
            pages.open("/profile/security/mail/")
    assert len(mail.outbox) == 3


@pytest.mark.parametrize("with_mail", [False, True])
def test_a_mail_address_of_somebody_else_is_refused(rosa, ada, with_mail, request):
    if with_mail:
        request.getfixturevalue("sends_mail")
    pages = secure_pages(rosa)
    pages.open("/profile/security/mail/")
    if with_mail:
        pages.send("/profile/security/mail/", {"email": "Ada@example.org"})
        address = link_in_mail()
        pages.open(address)
    ada.email = "ada@example.org"
    ada.save()
    if with_mail:
        assert "Someone else" in pages.send(address)
        pages.open("/profile/security/mail/")
    pages.send("/profile/security/mail/", {"email": "ADA@example.org"}, 422)
    rosa.refresh_from_db()
    assert rosa.email == ""


def test_without_a_mail_server_the_address_changes_at_once(rosa):
    pages = secure_pages(rosa)
    pages.open("/profile/security/mail/")
    pages.send("/profile/security/mail/", {"email": "not an address"}, 422)
    pages.send("/profile/security/mail/", {"email": "new@example.org"})
    rosa.refresh_from_db()
    assert rosa.email == "new@example.org"


def test_a_password_is_reset_by_mail_and_the_answer_never_says_for_whom(rosa, sends_mail):
    rosa.email = "rosa@example.org"
    rosa.save()
    other = secure_pages(rosa)
    pages = secure_pages()
    pages.open("/sign-in/reset/")
    answers = []
    for email in ("rosa@example.org", "nobody@example.org"):
        answers.append(pages.send("/sign-in/reset/", {"email": email}).replace(email, ""))
        pages.open("/sign-in/reset/")
    assert answers[0] == answers[1]
    assert [each.to for each in mail.outbox] == [["rosa@example.org"]]
    address = link_in_mail()
    response = pages.client.get(address)
    pages.open(response["Location"])
    pages.send(response["Location"], {"new_password1": NEW, "new_password2": NEW})
    assert pages.context["form"]["username"].value() == "rosa"
    rosa.refresh_from_db()
    assert rosa.check_password(NEW)
    assert other.client.get("/profile/sign-ins/").status_code == 302
    pages.open(address)
    assert not pages.context["validlink"]
    assert "account.password_reset" in actions()


def test_keys_of_mailed_links_are_not_logged(rosa, sends_mail):
    rosa.email = "rosa@example.org"
    rosa.save()
    links = {"/sign-in/reset/": "rosa@example.org", "/profile/security/mail/": "new@example.org"}
    for [lines] in capture("json"):
        for path, email in links.items():
            pages = secure_pages(rosa)
            pages.open(path)
            pages.send(path, {"email": email})
            address = link_in_mail()
            pages.client.get(address)
            assert address not in lines.text
            assert address.partition("?")[0] in lines.text


def test_resets_are_limited(rosa, sends_mail, monkeypatch):
    monkeypatch.setattr(password_reset, "ADDRESS_RATES", (RateLimit(3, "h"),))
    monkeypatch.setattr(mails, "LINK_RATES", (RateLimit(2, "h"),))
    rosa.email = "rosa@example.org"
    rosa.save()
    pages = secure_pages()
    pages.open("/sign-in/reset/")
    statuses = []
    for _ in range(4):
        token = pages.field("csrfmiddlewaretoken")
        sent = {"email": "rosa@example.org", "csrfmiddlewaretoken": token}
        statuses.append(pages.client.post("/sign-in/reset/", sent).status_code)
    assert statuses == [200] * 3 + [429]
    assert len(mail.outbox) == 2


def test_without_a_mail_server_no_reset_is_offered(db):
    pages = secure_pages()
    pages.open("/sign-in/reset/")
    assert 'name="email"' not in pages.html


def test_a_role_leads_to_a_factor_before_anything_else(rosa, ada, settings):
    settings.TOOLGATE_SECOND_FACTOR_ROLES = ["reviewer"]
    pages = secure_pages(rosa)
    assert pages.client.get("/approvals/")["Location"] == "/profile/security/"
    pages.open("/profile/security/")
    pages.send("/profile/sign-ins/end-others/", status=403)
    answer = pages.client.get("/api/v1/approvals/")
    assert answer.status_code == 403
    assert "/profile/security/" in answer.json()["detail"]
    assert agent(rosa).get("approvals/").status_code == 200
    cookie = "; ".join(f"{name}={each.value}" for name, each in pages.client.cookies.items())
    headers = [(b"host", b"testserver"), (b"origin", b"http://testserver"), (b"cookie", cookie.encode())]
    with pytest.raises(SocketRefused):
        authenticate_socket(headers, None)
    assert secure_pages(ada).client.get("/approvals/").status_code == 200
    add_passkey(rosa)
    assert authenticate_socket(headers, None).user == rosa
    assert pages.client.get("/approvals/").status_code == 200


def test_whoever_must_set_up_a_factor_sees_no_dead_links_and_gets_to_the_page_they_opened(rosa, settings):
    settings.TOOLGATE_SECOND_FACTOR_ROLES = ["reviewer"]
    pages = secure_pages(rosa)
    opened = "/approvals/?text=report"
    pages.client.get(opened)
    pages.open("/profile/security/")
    assert 'data-live=""' in pages.html
    for address in ("/approvals/", "/profile/", "/jump/", "/profile/security/mail/"):
        assert f'href="{address}"' not in pages.html
    pages.open("/profile/security/passkeys/new/")
    credential = Passkey().create(json.loads(pages.context["options"]))
    pages.send("/profile/security/passkeys/new/", {"name": "Phone", "credential": credential})
    assert f'href="{opened}"' in pages.html
    assert 'data-live="/ws/pages/shell/"' in pages.html


@pytest.mark.parametrize(
    ("address", "leads_to"), [("/tools/?text=a", "/tools/?text=a"), ("https://evil.example/", "/profile/security/")]
)
def test_a_passkey_leads_back_to_the_page_that_needs_it(rosa, address, leads_to):
    add_app(rosa)
    pages = secure_pages(rosa)
    pages.open("/profile/security/passkeys/new/?" + urlencode({"next": address}))
    credential = Passkey().create(json.loads(pages.context["options"]))
    pages.send("/profile/security/passkeys/new/", {"name": "Phone", "credential": credential})
    assert pages.context["request"].get_full_path() == leads_to


def test_the_last_required_factor_stays(rosa, settings):
    settings.TOOLGATE_SECOND_FACTOR_ROLES = ["reviewer"]
    add_passkey(rosa)
    pages = secure_pages(rosa)
    pages.open("/profile/security/")
    number = Authenticator.objects.get(user=rosa, type="webauthn").pk
    pages.send(f"/profile/security/passkeys/{number}/remove/")
    assert Authenticator.objects.filter(pk=number).exists()
    add_app(rosa)
    pages.send(f"/profile/security/passkeys/{number}/remove/")
    assert not Authenticator.objects.filter(pk=number).exists()


def test_an_ip_address_leads_to_localhost_for_passkeys(rosa, settings):
    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    client = Client(HTTP_HOST="127.0.0.1:8000")
    client.force_login(rosa)
    page = client.get("/profile/security/", SERVER_PORT="8000").content.decode()
    assert 'href="http://localhost:8000/profile/security/"' in page
    assert client.get("/profile/security/passkeys/new/").status_code == 302


def test_a_reset_by_an_administrator_removes_the_factors_and_ends_the_sessions(rosa, admin):
    add_app(rosa)
    pages = secure_pages(rosa)
    mark_session_user(admin, clock.now().timestamp())
    reset_person(rosa, by=admin)
    assert not Authenticator.objects.filter(user=rosa).exists()
    assert pages.client.get("/profile/sign-ins/").status_code == 302
    assert not Session.objects.exists()
    assert "account.second_factor_removed" in actions()
