"""The token by which a coding agent asks: made in this installation's database, or given for another server."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from django.contrib.auth.models import User
from django.core.exceptions import ObjectDoesNotExist
from django.db import OperationalError, ProgrammingError

from approvals.policies.services import may_change_policy
from catalog.access.tokens import (
    ASK_SCOPE,
    DEFAULT_TOKEN_DAYS,
    authenticate_token,
    issue_token,
    may_hold_scope,
    revoke_token,
)
from catalog.errors import ToolgateError
from catalog.models import ApiToken
from plans.client_setup.configuration import NotChanged
from plans.client_setup.server import Server

SCOPES = ("tools:read", "calls:create", "plans:read", ASK_SCOPE)
"""Scopes of a token; by `plans:read` the check reads the sessions and calls of the token itself."""


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
    able = [user for user in User.objects.filter(is_active=True) if may_hold_scope(user, ASK_SCOPE)]
    return _one_of(able, username, "--user", "operator or administrator")


def policy_changer(username: str) -> User:
    """Return the administrator who adds policies: the one named, or the only one if it is empty. Raises NotChanged."""
    able = [user for user in User.objects.filter(is_active=True) if may_change_policy(user)]
    return _one_of(able, username or None, "--policies", "administrator")


def _one_of(able: Sequence[User], username: str | None, option: str, role: str) -> User:
    found = [user for user in able if username in (None, user.get_username())]
    if len(found) == 1:
        return found[0]
    if username is not None:
        raise NotChanged(f"'{username}' is no active user with the role {role}.")
    names = ", ".join(sorted(user.get_username() for user in able)[:10])
    raise NotChanged(f"Name the person with the role {role}, with {option}: {names or 'there is none yet'}.")


def make_token(user: User, name: str) -> str:
    """Return the text of a new token. Raises NotChanged if the person's roles do not allow it."""
    try:
        return issue_token(user=user, kind=ApiToken.Kind.AGENT, scopes=SCOPES, name=name, days=DEFAULT_TOKEN_DAYS)[1]
    except ToolgateError as error:
        raise NotChanged(error.message) from None


def token_here(text: str) -> ApiToken | None:
    """Return the live token of this installation that may ask, or None."""
    token = authenticate_token(text)
    return token if token is not None and ASK_SCOPE in token.scopes else None


def token_if_here(text: str) -> ApiToken | None:
    """Return what `token_here` does; None also on a machine where this installation has no database."""
    try:
        return token_here(text)
    except (OperationalError, ProgrammingError):
        return None


def check_token_there(server: Server, scopes: Sequence[str], source: str) -> int:
    """Return the id of a token at its server. Raises NotChanged if it lacks scopes; `source` says where it is from."""
    answer, url = server.read_token(), server.url
    if answer is None:
        raise NotChanged(f"{url} does not answer as Toolgate does. Check the address and whether the server runs.")
    if not answer:
        raise NotChanged(f"{url} does not accept the token {source}. Make one on its page Connect an agent.")
    missing = [scope for scope in scopes if scope not in answer.get("scopes", ())]
    if missing:
        raise NotChanged(f"The token {source} lacks the scope {missing[0]}. Make one on {url}/connect/.")
    return int(answer["id"])


def end_token(server: Server) -> bool:
    """Revoke a token, here or at its server; return whether it was. It may have ended before."""
    try:
        token = authenticate_token(server.token)
        if token is not None:
            revoke_token(token, by=token.user, reason="connect --undo")
            return True
    except (OperationalError, ProgrammingError):  # on this machine this installation has no database
        pass
    except (ToolgateError, ObjectDoesNotExist):
        return False
    return server.revoke_token()
