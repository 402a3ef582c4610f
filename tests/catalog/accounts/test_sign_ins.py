"""The page Sign-ins: what it lists, ending one sign-in, and signing out everywhere."""

from datetime import timedelta

import pytest
from allauth.usersessions.models import UserSession

from approvals.models import AuditEntry
from catalog.access import sessions
from catalog.core import clock
from tests.catalog.accounts.factories import secure_pages
from tests.pages import Pages

pytestmark = pytest.mark.django_db
PHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 Version/18.5 Mobile Safari/604.1"


@pytest.fixture
def signed_in(rosa):
    """Two browsers of rosa, both signed in by password; the second one is a phone."""
    found = []
    for agent in ("curl/8", PHONE):
        pages = secure_pages()
        pages.client.defaults["HTTP_USER_AGENT"] = agent
        pages.open("/sign-in/")
        pages.send("/sign-in/", {"username": "rosa", "password": "secret-rosa"})
        found.append(pages)
    return found


def is_signed_in(pages: Pages) -> bool:
    return pages.client.get("/profile/sign-ins/").status_code == 200


def test_sessions_are_listed_and_ended_singly(signed_in, ada):
    here, phone = signed_in
    assert "Safari on iPhone" in here.open("/profile/sign-ins/")
    number = UserSession.objects.get(user_agent=PHONE).pk
    stranger = secure_pages(ada)
    stranger.open("/profile/sign-ins/")
    stranger.send(f"/profile/sign-ins/end/{number}/")
    assert is_signed_in(phone)
    assert "Safari on iPhone" not in here.send(f"/profile/sign-ins/end/{number}/")
    assert not is_signed_in(phone)
    assert is_signed_in(here)


def test_signing_out_everywhere_keeps_this_session_only(signed_in, rosa):
    here, phone = signed_in
    unlisted = secure_pages(rosa)
    ended = []
    sessions.sessions_ended.connect(receiver := lambda user, **_: ended.append(user))
    here.open("/profile/sign-ins/")
    here.send("/profile/sign-ins/end-others/")
    assert [is_signed_in(each) for each in (here, phone, unlisted)] == [True, False, False]
    assert ended == [rosa]
    del receiver
    assert AuditEntry.objects.get(action="account.signed_out_everywhere").actor == rosa


def test_use_is_stored_every_five_minutes(signed_in, monkeypatch):
    here, _phone = signed_in
    row, start = UserSession.objects.get(user_agent="curl/8"), clock.now()
    for minutes, stored in ((6, 6), (8, 6), (12, 12)):
        now = start + timedelta(minutes=minutes)
        monkeypatch.setattr(clock, "now", lambda now=now: now)
        here.open("/profile/sign-ins/")
        row.refresh_from_db()
        assert row.last_seen_at == start + timedelta(minutes=stored)


def test_devices_are_named_by_their_browser_and_system():
    windows = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/141.0 Safari/537.36 Edg/141.0"
    assert sessions.device_words(windows) == ("Edge", "Windows")
    assert sessions.device_words(PHONE) == ("Safari", "iPhone")
    assert sessions.device_words("curl/8") == ("", "")
