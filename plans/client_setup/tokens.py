"""The token by which a coding agent asks: made in this installation's database, or given for another server."""

from typing import Any
from urllib.parse import urlsplit

import httpx2
from django.contrib.auth.models import User
from django.core.exceptions import ObjectDoesNotExist

from catalog.access.roles import find_active_user
from catalog.access.tokens import DEFAULT_TOKEN_DAYS, authenticate_token, issue_token, may_hold_scope, revoke_token
from catalog.errors import ToolgateError
from catalog.models import ApiToken
from plans.client_setup.configuration import NotChanged

ASKING = "permissions:ask"
SCOPES = ("tools:read", "calls:create", ASKING)
SECONDS = 15


def check_address(text: str) -> str:
    """Return the address of a server without slash at its end. Raises NotChanged."""
    try:
        parts = urlsplit(text)
    except ValueError:  # brackets without an IPv6 address between them
        parts = urlsplit("")
    plain = not (parts.username or parts.password or parts.query or parts.fragment)
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain or '"' in text or "\\" in text:
        raise NotChanged(f"{text} is not the address of a server, such as https://toolgate.example.org.")
    return text.rstrip("/")


def asking_user(username: str | None) -> User:
    """Return the owner of the token: the person named, or the only one who may own it. Raises NotChanged."""
    if username is not None:
        user = find_active_user(username)
        if user is None or not may_hold_scope(user, ASKING):
            raise NotChanged(f"'{username}' is no active user with the role operator or administrator.")
        return user
    able = [user for user in User.objects.filter(is_active=True) if may_hold_scope(user, ASKING)]
    if len(able) == 1:
        return able[0]
    names = ", ".join(sorted(user.get_username() for user in able)[:10])
    raise NotChanged(f"Name the person for whom the agent asks, with --user: {names or 'there is no operator yet'}.")


def make_token(user: User, name: str) -> str:
    """Return the text of a new token. Raises NotChanged if the person's roles do not allow it."""
    try:
        return issue_token(user=user, kind=ApiToken.Kind.AGENT, scopes=SCOPES, name=name, days=DEFAULT_TOKEN_DAYS)[1]
    except ToolgateError as error:
        raise NotChanged(error.message) from None


def token_here(text: str) -> ApiToken | None:
    """Return the live token of this installation that may ask, or None."""
    token = authenticate_token(text)
    return token if token is not None and ASKING in token.scopes else None


def check_token_there(url: str, text: str) -> None:
    """Ask a server about a token. Raises NotChanged if it may not ask."""
    answer = _request("GET", url, text)
    if answer is None:
        raise NotChanged(f"{url} does not answer as Toolgate does. Check the address and whether the server runs.")
    if not answer:
        raise NotChanged(f"{url} does not accept the token in TOOLGATE_TOKEN. Make one on its page Connect an agent.")
    if ASKING not in answer.get("scopes", ()):
        raise NotChanged(f"The token in TOOLGATE_TOKEN lacks the scope {ASKING}. Make one on {url}/connect/.")


def accepts_token(url: str, text: str) -> bool:
    """Return True if a server at this address answers, and knows the token."""
    return bool(_request("GET", url, text))


def end_token(url: str, text: str) -> bool:
    """Revoke a token, here or at its server; return whether it was. It may have ended before."""
    try:
        token = authenticate_token(text)
        if token is not None:
            revoke_token(token, by=token.user, reason="connect --undo")
            return True
    except (ToolgateError, ObjectDoesNotExist):
        return False
    return bool(_request("DELETE", url, text))


def _request(method: str, url: str, text: str) -> dict[str, Any] | None:
    """Return what a server says about a token: {} if it refuses it, None if it does not answer as Toolgate."""
    try:
        headers = {"Authorization": f"Bearer {text}", "Accept": "application/json"}
        answer = httpx2.request(method, f"{url}/api/v1/tokens/current/", headers=headers, timeout=SECONDS)
        if answer.status_code in (401, 403):
            return {}
        found = answer.json() if answer.status_code == 200 else None
    except (httpx2.HTTPError, ValueError):
        return None
    return found if isinstance(found, dict) and found else None
