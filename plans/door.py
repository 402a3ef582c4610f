"""Who may open a socket: a bearer token, or else the session from a page of ours. A token's cookies are ignored."""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from django.conf import settings
from django.contrib.auth import get_user
from django.http import parse_cookie
from django.http.request import split_domain_port, validate_host
from django.utils.http import is_same_domain

from catalog.access.roles import act_through, sees_all
from catalog.access.tokens import authenticate
from catalog.models import ApiToken

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MALFORMED, SIGNED_OUT, NO_RIGHT, NOT_FOUND = 4400, 4401, 4403, 4404
TRY_AGAIN = 1013
"""Clients connect again after it."""
MAX_NUMBER = 2**53 - 1
MAX_DIGITS = 16


class TurnedAway(Exception):
    """A socket that is closed, with the code that clients rely on and a sentence."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who looks, with which token, and whether at everyone's things."""

    user: "User"
    token: ApiToken | None
    sees_all: bool


Headers = Iterable[tuple[bytes, bytes]]


def admit(headers: Headers, scope: str | None) -> Visitor:
    """Return who is there; `scope` is what a token needs, None where only sessions enter. Raises TurnedAway."""
    texts = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]
    kind, _, secret = dict(texts).get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return _by_token(secret.strip(), scope)
    return _by_session(texts)


def _by_token(secret: str, scope: str | None) -> Visitor:
    token = authenticate(secret)
    if token is None:
        raise TurnedAway(SIGNED_OUT, "This token is unknown, expired or revoked.")
    if scope is None:
        raise TurnedAway(NO_RIGHT, "This socket is for pages: sign in.")
    if scope not in token.scopes:
        raise TurnedAway(NO_RIGHT, f"This token lacks the scope {scope}.")
    user = act_through(token)
    return Visitor(user, token, sees_all(user))


def _by_session(headers: list[tuple[str, str]]) -> Visitor:
    cookies = parse_cookie("; ".join(value for name, value in headers if name == "cookie"))
    key = cookies.get(settings.SESSION_COOKIE_NAME)
    origins = [value for name, value in headers if name == "origin"]
    host = dict(headers).get("host", "").lower()
    if (key or origins) and not (len(origins) == 1 and is_allowed(origins[0], host)):
        raise TurnedAway(NO_RIGHT, "A page of another origin may not open this socket.")
    session = import_module(settings.SESSION_ENGINE).SessionStore(key)
    user = get_user(SimpleNamespace(session=session))  # type: ignore[arg-type] # it reads the session and nothing else
    if key is None or not user.is_authenticated:
        raise TurnedAway(SIGNED_OUT, "Sign in first.")
    return Visitor(user, None, sees_all(user))


def is_allowed(origin: str, host: str) -> bool:
    """Return whether a page of `origin` may open a socket that was asked for at `host`, as Django's CSRF check decides.

    Scheme, host and port must be the socket's own, or those of an entry in CSRF_TRUSTED_ORIGINS.
    """
    own_scheme = "https" if settings.TOOLGATE_HTTPS else "http"
    if validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS) and origin.lower() == f"{own_scheme}://{host}":
        return True
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return any(
        parts.scheme == trusted.scheme and is_same_domain(parts.netloc, trusted.netloc.lstrip("*"))
        for trusted in map(urlsplit, settings.CSRF_TRUSTED_ORIGINS)
    )


def read_after(query: bytes) -> int:
    """Return the number after which events are wanted, 0 unless it is given. Raises TurnedAway for anything else."""
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    if not pairs:
        return 0
    [(name, text), *more] = pairs
    if more or name != "after":
        raise TurnedAway(MALFORMED, "The one parameter of this socket is `after`.")
    if not (text.isascii() and text.isdigit()) or len(text) > MAX_DIGITS or int(text) > MAX_NUMBER:
        raise TurnedAway(MALFORMED, "`after` takes the number of an event, or 0.")
    return int(text)
