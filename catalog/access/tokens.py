"""Bearer tokens: made, shown once, recognised. Only their SHA-256 is stored.

Knows nothing of requests; what a token lets its user do is decided where the scope is asked for.
"""

import hashlib
import secrets
from collections.abc import Iterable
from datetime import timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q

from catalog import signals
from catalog.core import clock
from catalog.errors import field_error
from catalog.models import ApiToken

SCOPES = (
    "tools:read",
    "calls:create",
    "plans:read",
    "plans:write",
    "approvals:read",
    "approvals:decide",
    "catalog:write",
    "policies:write",
    "audit:read",
)
# An agent asks; it never decides, never changes what is asked of it, and reads only what is its own.
SCOPES_DENIED_TO_AGENTS = frozenset({"approvals:decide", "catalog:write", "policies:write", "audit:read"})
TOKEN_PREFIX = "tg_"  # noqa: S105 - how a token begins, so that scanners of leaked secrets can find one
TOKEN_BYTES = 32
PREFIX_CHARACTERS = 10
DEFAULT_TOKEN_DAYS = 90
MAX_TOKEN_DAYS = 366
MAX_TOKEN_NAME = 128
USE_RECORD_INTERVAL_SECONDS = 60


def create_token(
    *, user: User, kind: str, scopes: Iterable[str], name: str = "", days: int = DEFAULT_TOKEN_DAYS
) -> tuple[ApiToken, str]:
    """Make a token for `days` days; return it with its text, shown only here. Raises ParameterError."""
    wanted = list(dict.fromkeys(scopes))
    _validate_token(kind, wanted, days)
    _validate_token_name(name)
    text = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    with transaction.atomic():
        token = ApiToken.objects.create(
            name=name or f"{kind} token of {user.get_username()}",
            user=user,
            kind=kind,
            scopes=wanted,
            secret_digest=_token_digest(text),
            prefix=text[:PREFIX_CHARACTERS],
            expires_at=clock.now() + timedelta(days=days),
        )
        signals.record_fact("token.created", by=user, token=token.prefix, kind_of_token=kind, scopes=wanted)
    return token, text


def authenticate_token(text: str) -> ApiToken | None:
    """Return the live token with this text, its user loaded; None when it or its user is no longer good."""
    token = ApiToken.objects.select_related("user").filter(secret_digest=_token_digest(text)).order_by().first()
    if token is None or not token.is_live or not token.user.is_active:
        return None
    _record_use(token)
    return token


def _record_use(token: ApiToken) -> None:
    """Keep when the token was last used, writing at most once a minute."""
    now = clock.now()
    long_ago = now - timedelta(seconds=USE_RECORD_INTERVAL_SECONDS)
    if token.last_used_at is None or token.last_used_at < long_ago:
        not_just_now = Q(last_used_at=None) | Q(last_used_at__lt=long_ago)
        ApiToken.objects.filter(not_just_now, pk=token.pk).update(last_used_at=now)


def _token_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _validate_token(kind: str, scopes: list[str], days: int) -> None:
    if kind not in ApiToken.Kind.values:
        message = f"A token's kind is one of {', '.join(ApiToken.Kind.values)}, not '{kind}'."
        raise field_error("kind", "invalid", message)
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        raise field_error("scopes", "invalid", f"Name at least one scope; the scopes are {', '.join(SCOPES)}.")
    forbidden = [scope for scope in scopes if scope in SCOPES_DENIED_TO_AGENTS]
    if kind == ApiToken.Kind.AGENT and forbidden:
        message = f"An agent token never has {', '.join(forbidden)}; use a personal token."
        raise field_error("scopes", "invalid", message)
    if not 1 <= days <= MAX_TOKEN_DAYS:
        raise field_error("days", "invalid", f"A token lives 1 to {MAX_TOKEN_DAYS} days.")


def _validate_token_name(name: str) -> None:
    if len(name) > MAX_TOKEN_NAME or "\0" in name:
        raise field_error("name", "invalid", f"A token's name is a text of at most {MAX_TOKEN_NAME} characters.")
