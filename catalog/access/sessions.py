"""Sessions of people: which browsers are signed in, when they were last seen, and ending them.

`UserSession` rows of django-allauth hold what is displayed. Whether a session is alive is decided by Django's table.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from allauth.usersessions.models import UserSession
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import DatabaseError, transaction
from django.dispatch import Signal
from django.http import HttpRequest

from catalog.access.roles import SIGNED_IN_AT_KEY
from catalog.access.sign_in import client_address
from catalog.core import clock
from catalog.signals import record_fact

SEEN_SECONDS = 300
"""A session's time of last use is stored at most this often by each process."""
MAX_TRACKED = 10_000

sessions_ended = Signal()
"""Sent with `user` and `keep`, inside the transaction, when all sessions of a person end, or all but that of `keep`.

Push subscriptions of the other browsers end too.
"""

_seen: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class OwnSession:
    row: UserSession
    is_current: bool


def note_activity(request: HttpRequest) -> None:
    """Store that the session of the request was used. Changes nothing in the session, which would prolong it."""
    session = request.session
    if not session.accessed or SESSION_KEY not in session or session.session_key is None:
        return
    key, now = session.session_key, clock.now().timestamp()
    if now - _seen.get(key, session.get(SIGNED_IN_AT_KEY) or 0.0) < SEEN_SECONDS:
        return
    if len(_seen) >= MAX_TRACKED:
        _seen.clear()
    _seen[key] = now
    with suppress(DatabaseError):  # a busy database is no reason to fail a request
        rows = UserSession.objects.filter(session_key=key)
        if not rows.update(last_seen_at=clock.now(), ip=client_address(request) or "0.0.0.0"):  # noqa: S104 - unknown
            UserSession.objects.create_from_request(request)


def live_sessions(user: User, current_key: str | None) -> list[OwnSession]:
    """Return the user's sessions, the current one first, then those last used."""
    rows = UserSession.objects.filter(user=user).order_by("-last_seen_at")
    live = Session.objects.filter(expire_date__gt=clock.now(), session_key__in=rows.values("session_key"))
    keys = set(live.values_list("session_key", flat=True))
    found = [OwnSession(row, row.session_key == current_key) for row in rows if row.session_key in keys]
    return sorted(found, key=lambda each: not each.is_current)


def end_session(user: User, number: int) -> bool:
    """End one of the user's sessions. Return False if they have no such session."""
    with transaction.atomic():
        row = UserSession.objects.filter(user=user, pk=number).first()
        if row is None:
            return False
        Session.objects.filter(session_key=row.session_key).delete()
        row.delete()
        record_fact("account.session_ended", by=user, account=f"user_{user.pk}", person=user.get_username())
    return True


def end_sessions(user: User, *, keep: HttpRequest | None) -> int:
    """End all sessions of the user but that of the request `keep` and return how many.

    Open sockets of their pages close within seconds.
    """
    kept = keep.session.session_key if keep is not None else None
    with transaction.atomic():
        keys = [key for key in _keys_of(user) if key != kept]
        Session.objects.filter(session_key__in=keys).delete()
        UserSession.objects.filter(user=user).exclude(session_key=kept or "").delete()
        sessions_ended.send(sender=None, user=user, keep=keep)
    return len(keys)


def sign_out_everywhere(user: User, *, keep: HttpRequest | None) -> None:
    """End all sessions of the user but that of the request `keep`, and record that."""
    with transaction.atomic():
        ended, ref = end_sessions(user, keep=keep), f"user_{user.pk}"
        record_fact("account.signed_out_everywhere", by=user, account=ref, person=user.get_username(), sessions=ended)


def on_access_ended(sender: object, *, person: User, **kwargs: Any) -> None:
    """End all sessions of someone whose access an administrator ended or reset."""
    end_sessions(person, keep=None)


def rename_session(old_key: str | None, new_key: str | None) -> None:
    """Follow a session whose key was changed, as Django does when a password changes."""
    UserSession.objects.filter(session_key=old_key or "").update(session_key=new_key or "")


def _keys_of(user: User) -> Iterator[str]:
    """Yield the keys of all sessions of a user. Sessions have no column for that, so that each one is decoded."""
    for session in Session.objects.filter(expire_date__gt=clock.now()).iterator():
        if session.get_decoded().get(SESSION_KEY) == str(user.pk):
            yield session.session_key


BROWSERS = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("FxiOS", "Firefox"),
    ("CriOS", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
)
"""Marks in user agents, the more special ones first: every browser also calls itself Safari."""
SYSTEMS = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("CrOS", "ChromeOS"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)


def device_words(user_agent: str) -> tuple[str, str]:
    """Return the browser and the system that a user agent names, each empty if unknown."""
    browser = next((name for mark, name in BROWSERS if mark in user_agent), "")
    system = next((name for mark, name in SYSTEMS if mark in user_agent), "")
    return browser, system
