"""WebSocket connections: authentication, sending, and closing with a code and a reason.

A socket is opened with a bearer token, or with the session of a page of the same origin; cookies are ignored if there
is a token. Access is checked again while the socket is open. Even a refused socket is accepted first, so that browsers
see the code. Plain ASGI is used because Channels consumers share one thread for all database work and lose that code.
"""

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import User
from django.http import parse_cookie
from django.http.request import split_domain_port, validate_host
from django.utils.http import is_same_domain

from catalog.access.roles import can_see_all, user_for_token
from catalog.access.second_factors import FACTOR_REQUIRED, lacks_required_factor
from catalog.access.tokens import authenticate_token
from catalog.core.asgi import Receive, Scope, Send
from catalog.core.transactions import log_unexpected
from catalog.models import ApiToken
from plans import metrics
from plans.live.access_marks import access_marks
from plans.live.feed import current_feed
from plans.live.waits import until_disconnected, until_one_ends

MALFORMED, SIGNED_OUT, NO_RIGHT, NOT_FOUND = 4400, 4401, 4403, 4404
TRY_AGAIN = 1013
"""Close code after which clients reconnect."""
MAX_NUMBER = 2**53 - 1
MAX_DIGITS = 16


class SocketRefused(Exception):
    """Raised to close the socket, with a close code for programs and a reason for people."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class SocketUser:
    user: User
    token: ApiToken | None
    sees_all: bool
    session_key: str = ""
    """Key of the session; empty for a token."""


Headers = Iterable[tuple[bytes, bytes]]


def authenticate_socket(headers: Headers, scope: str | None) -> SocketUser:
    """Return the user. A token needs `scope`; if that is None, only sessions are accepted. Raises SocketRefused."""
    texts = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]
    kind, _, secret = dict(texts).get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        token = authenticate_token(secret.strip())
        if token is None:
            raise SocketRefused(SIGNED_OUT, "This token is unknown, expired or revoked.")
        if scope is None:
            raise SocketRefused(NO_RIGHT, "This socket accepts no tokens. Sign in instead.")
        if scope not in token.scopes:
            raise SocketRefused(NO_RIGHT, f"This token lacks the scope {scope}.")
        owner = user_for_token(token)
        return SocketUser(owner, token, can_see_all(owner))
    cookies = parse_cookie("; ".join(value for name, value in texts if name == "cookie"))
    key = cookies.get(settings.SESSION_COOKIE_NAME)
    origins = [value for name, value in texts if name == "origin"]
    host = dict(texts).get("host", "").lower()
    if (key or origins) and not (len(origins) == 1 and is_allowed_origin(origins[0], host)):
        raise SocketRefused(NO_RIGHT, "A page of another origin may not open this socket.")
    session = import_module(settings.SESSION_ENGINE).SessionStore(key)
    user = get_user(SimpleNamespace(session=session))  # type: ignore[arg-type] # it reads the session and nothing else
    if key is None or not user.is_authenticated:
        raise SocketRefused(SIGNED_OUT, "Sign in first.")
    if lacks_required_factor(user):
        raise SocketRefused(NO_RIGHT, FACTOR_REQUIRED)
    return SocketUser(user, None, can_see_all(user), key)


def is_allowed_origin(origin: str, host: str) -> bool:
    """Return whether a page of `origin` may open a socket on `host`, by the rules of Django's CSRF check.

    Scheme, host and port must equal the socket's own or match an entry in CSRF_TRUSTED_ORIGINS.
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


def parse_after(query: bytes) -> int:
    """Return the query parameter `after`, 0 if it is missing. Raises SocketRefused for other parameters."""
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    if not pairs:
        return 0
    [(name, text), *more] = pairs
    if more or name != "after":
        raise SocketRefused(MALFORMED, "The only parameter of this socket is `after`.")
    if not (text.isascii() and text.isdigit()) or len(text) > MAX_DIGITS or int(text) > MAX_NUMBER:
        raise SocketRefused(MALFORMED, "`after` must be the number of an event, or 0.")
    return int(text)


log = logging.getLogger("toolgate.sockets")


class Socket(ABC):
    """One connection. Subclasses define who may connect and what is sent."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.scope = scope
        self.feed = current_feed()
        self._send = send
        self._accepted = False

    @classmethod
    async def serve(cls, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection. This method is the ASGI application."""
        await receive()
        socket = cls(scope, send)
        try:
            with metrics.count_open_socket():
                user = await socket.feed.run(socket.enter)
                await until_one_ends(socket.tell(user), socket.recheck_access(user), until_disconnected(receive))
        except SocketRefused as refusal:
            await socket.close(refusal.code, str(refusal))
        except OSError:
            log.debug("a client disconnected before a message was sent")
        except Exception as error:  # noqa: BLE001 - logged without its message, which may hold arguments
            log.warning("a socket failed")
            log_unexpected(error)
            await socket.close(1011, "Something went wrong. The error has been logged.")

    @abstractmethod
    def enter(self) -> SocketUser:
        """Return the authenticated user, or raise SocketRefused. Called in a thread.

        It is called again whenever the access may have changed, and so may read nothing that `read_marks` does not.
        """

    @abstractmethod
    async def tell(self, user: SocketUser) -> None:
        """Accept the connection, then send messages forever."""

    async def recheck_access(self, user: SocketUser) -> None:
        """Check access repeatedly. Raises SocketRefused once the user has signed out or lost a right."""
        gone = SocketRefused(NO_RIGHT, "You no longer have access.")
        plan_ref = str(self.scope["url_route"]["kwargs"].get("plan_ref", ""))
        with access_marks(self.feed).follow(user.user.pk, user.session_key, plan_ref) as is_due:
            while True:
                await is_due.wait()
                is_due.clear()
                try:
                    now = await self.feed.run_later(self.enter)
                except SocketRefused as refusal:
                    raise (gone if refusal.code == NOT_FOUND else refusal) from None
                if user.sees_all and not now.sees_all:
                    raise gone

    async def say(self, message: dict[str, Any]) -> None:
        """Send one message as JSON; return when the client can take more."""
        await self.send_text(json.dumps(message, ensure_ascii=False))

    async def send_text(self, text: str) -> None:
        await self._send({"type": "websocket.send", "text": text})

    async def accept(self) -> None:
        if not self._accepted:
            self._accepted = True
            await self._send({"type": "websocket.accept"})

    async def close(self, code: int, reason: str) -> None:
        """Close with a code and a reason. Accepts the connection first; otherwise browsers do not receive them."""
        await self.accept()
        await self._send({"type": "websocket.close", "code": code, "reason": reason})
