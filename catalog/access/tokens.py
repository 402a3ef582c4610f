"""Bearer tokens: issue, authenticate, list, change and revoke. Only the SHA-256 of a token is stored.

A scope is effective only while the token's owner has a role for it, which is checked at each request.
"""

import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cache
from typing import Any

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Prefetch, Q, QuerySet

from catalog import signals
from catalog.access.learnt_waits import forget_waits
from catalog.access.limits import read_limits
from catalog.access.roles import (
    ADMINISTRATOR,
    OPERATOR,
    ROLES,
    VIEWER,
    NotAllowed,
    acting_token_of,
    groups_of,
    has_role,
    remember_groups,
)
from catalog.core import clock
from catalog.core.canonical_json import format_utc
from catalog.core.rows import row_reader
from catalog.core.transactions import retry_on_deadlock
from catalog.errors import Conflict, field_error
from catalog.models import ApiToken, LearntWait

ASK_SCOPE = "permissions:ask"
"""Scope of clients that ask before they run their own tools."""

# Reading plans and approvals needs no role: without one, selectors return only a person's own objects. The policy of
# each request says who may decide it, and the service checks that.
SCOPE_ROLES: Mapping[str, tuple[str, ...]] = {
    "tools:read": ROLES,
    "calls:create": (OPERATOR, ADMINISTRATOR),
    "plans:read": (),
    "plans:write": (OPERATOR, ADMINISTRATOR),
    "approvals:read": (),
    "approvals:decide": (),
    "catalog:write": (ADMINISTRATOR,),
    "policies:write": (ADMINISTRATOR,),
    "audit:read": (ADMINISTRATOR,),
    ASK_SCOPE: (OPERATOR, ADMINISTRATOR),
}
"""Scope → roles of which its owner needs one; an empty tuple stands for everyone."""
SCOPES = tuple(SCOPE_ROLES)
KINDS = ApiToken.Kind.values
# Agents make requests: they never decide or change policies, and read only their own objects.
SCOPES_DENIED_TO_AGENTS = frozenset({"approvals:decide", "catalog:write", "policies:write", "audit:read"})
TOKEN_PREFIX = "tg_"  # noqa: S105 - prefix by which secret scanners recognise a token
TOKEN_BYTES = 32
PREFIX_CHARACTERS = 10
DEFAULT_TOKEN_DAYS = 90
MAX_TOKEN_DAYS = 365
MAX_TOKEN_NAME = 128
MAX_HOLD_SECONDS = 600
LISTED_AFTER_END = timedelta(days=90)
"""Days for which a revoked or expired token stays listed."""
USE_RECORD_INTERVAL_SECONDS = 60
TOKEN_HAS_DIGEST = "token.secret_digest = %s"  # noqa: S105 - a condition in SQL
TOKEN_HAS_ID = "token.id = %s"  # noqa: S105 - a condition in SQL


def issue_token(*, user: User, scopes: Iterable[str], **terms: Any) -> tuple[ApiToken, str]:
    """Create a token as `create_token` does, with scopes that the user's roles allow. Raises ParameterError."""
    requested = list(scopes)
    beyond = [scope for scope in requested if scope in SCOPES and not may_hold_scope(user, scope)]
    if beyond:
        raise field_error("scopes", "invalid", f"The roles of {user.get_username()} do not allow {', '.join(beyond)}.")
    return create_token(user=user, scopes=requested, **terms)


def may_hold_scope(user: User, scope: str) -> bool:
    """Return whether the user's roles allow tokens with this scope.

    Policies may name any group as reviewers, so all groups but viewers and operators may hold `approvals:decide`.
    """
    if scope == "approvals:decide":
        return has_role(user, ADMINISTRATOR) or bool(groups_of(user) - {VIEWER, OPERATOR})
    roles = SCOPE_ROLES[scope]
    return not roles or has_role(user, *roles)


def create_token(  # noqa: PLR0913 - the fields of a token, each named by its caller
    *,
    user: User,
    kind: str,
    scopes: Iterable[str],
    name: str = "",
    days: int = DEFAULT_TOKEN_DAYS,
    hold_seconds: int | None = None,
    limits: object = None,
) -> tuple[ApiToken, str]:
    """Create a token for `days` days, whatever the user's roles; return it with its text. Raises ParameterError.

    `limits` are null or an object as `catalog.access.limits` describes it.
    """
    requested = list(dict.fromkeys(scopes))
    if kind not in KINDS:
        raise field_error("kind", "invalid", f"The token kind must be one of {', '.join(KINDS)}, not '{kind}'.")
    unknown = [scope for scope in requested if scope not in SCOPES]
    if unknown or not requested:
        raise field_error("scopes", "invalid", f"Choose at least one scope: {', '.join(SCOPES)}.")
    forbidden = [scope for scope in requested if scope in SCOPES_DENIED_TO_AGENTS]
    if kind == ApiToken.Kind.AGENT and forbidden:
        message = f"An agent token cannot have {', '.join(forbidden)}. Use a personal token."
        raise field_error("scopes", "invalid", message)
    if not 1 <= days <= MAX_TOKEN_DAYS:
        raise field_error("days", "invalid", f"A token is valid for 1 to {MAX_TOKEN_DAYS} days.")
    _validate_token_name(name)
    _validate_hold_seconds(hold_seconds)
    allowed = read_limits(limits)
    text = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    with transaction.atomic():
        token = ApiToken.objects.create(
            name=name or f"{kind} token of {user.get_username()}",
            user=user,
            kind=kind,
            scopes=requested,
            secret_digest=checksum_of(text),
            prefix=text[:PREFIX_CHARACTERS],
            expires_at=clock.now() + timedelta(days=days),
            hold_seconds=hold_seconds,
            limits=allowed,
        )
        terms: dict[str, Any] = {"kind_of_token": kind, "scopes": requested}
        if allowed is not None:
            terms["limits"] = allowed
        signals.record_fact("token.created", by=user, token=token.prefix, **terms)
    return token, text


def tokens_for(viewer: User) -> QuerySet[ApiToken]:
    """Return the tokens that the viewer may see, newest first, with their owners and learnt waits.

    Administrators see all tokens, others their own, an agent's token only itself.
    """
    learnt = LearntWait.objects.filter(seconds__isnull=False).order_by("client")
    tokens = (
        ApiToken.objects.select_related("user", "connection")
        .prefetch_related(Prefetch("learnt_waits", learnt))
        .order_by("-pk")
    )
    acting = acting_token_of(viewer)
    if acting is not None and acting.kind == ApiToken.Kind.AGENT:
        return tokens.filter(pk=acting.pk)
    return tokens if has_role(viewer, ADMINISTRATOR) else tokens.filter(user=viewer)


def listed_tokens(viewer: User) -> QuerySet[ApiToken]:
    """Return the tokens that the viewer may see, except those that ended over 90 days ago."""
    since = clock.now() - LISTED_AFTER_END
    return tokens_for(viewer).filter(Q(revoked_at=None) | Q(revoked_at__gt=since), expires_at__gt=since)


def token_for(viewer: User, pk: int) -> ApiToken:
    """Return one token. Raises ApiToken.DoesNotExist if there is none that the viewer may see."""
    return tokens_for(viewer).get(pk=pk)


@retry_on_deadlock
def change_token(token: ApiToken, changes: Mapping[str, Any], *, by: User) -> None:
    """Change `name`, `hold_seconds` or `limits` of a live token, or delete the `learnt_waits` of its clients.

    Raises NotAllowed, ParameterError, and Conflict if the token has ended.
    """
    _require_change(token, by)
    if "limits" in changes:
        acting = acting_token_of(by)
        if acting is not None and acting.limits is not None:
            raise NotAllowed("A token with limits cannot change limits. Sign in, or use a token without them.")
        changes = {**changes, "limits": read_limits(changes["limits"])}
    if "name" in changes:
        _validate_token_name(changes["name"])
    _validate_hold_seconds(changes.get("hold_seconds"))
    columns = {name: value for name, value in changes.items() if name != "learnt_waits"}
    live = ApiToken.objects.filter(pk=token.pk, revoked_at=None, expires_at__gt=clock.now())
    with transaction.atomic():
        if columns and not live.update(**columns):
            raise Conflict("This token has expired or was revoked, so it cannot be changed.")
        if "learnt_waits" in changes:
            forget_waits(token.pk)
        signals.record_fact("token.changed", by=by, token=token.prefix, changes=dict(changes))


@retry_on_deadlock
def revoke_token(token: ApiToken, *, by: User, reason: str = "") -> None:
    """End a token permanently. Raises NotAllowed, and Conflict if it is already revoked."""
    acting = acting_token_of(by)
    if acting is None or acting.pk != token.pk:
        _require_change(token, by)
    with transaction.atomic():
        if not ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=clock.now()):
            raise Conflict("This token is already revoked.")
        why: dict[str, Any] = {"reason": reason} if reason else {}
        signals.record_fact("token.revoked", by=by, token=token.prefix, owner=token.user.get_username(), **why)


def _require_change(token: ApiToken, by: User) -> None:
    """Raise NotAllowed unless `by` is the token's owner or an administrator, and acts through no agent's token.

    Through a personal token a person changes only their own tokens: no scope covers managing those of others.
    """
    acting = acting_token_of(by)
    if acting is not None and acting.kind == ApiToken.Kind.AGENT:
        raise NotAllowed("An agent's token cannot change tokens. It can only revoke itself.")
    if token.user_id == by.pk:
        return
    if acting is not None or not has_role(by, ADMINISTRATOR):
        raise NotAllowed("Only an administrator who has signed in may change the tokens of others.")


def authenticate_token(text: str) -> ApiToken | None:
    """Return the token with this text, its user and groups loaded; None if token or user is not valid any more."""
    return authenticate_token_where(TOKEN_HAS_DIGEST, [checksum_of(text)])


def authenticate_token_where(condition: str, parameters: Sequence[Any]) -> ApiToken | None:
    """Return the token that meets an SQL condition on `token`, as `authenticate_token` does."""
    token = _read_live_token(condition, parameters)
    if token is not None:
        now = clock.now()
        long_ago = now - timedelta(seconds=USE_RECORD_INTERVAL_SECONDS)
        if token.last_used_at is None or token.last_used_at < long_ago:
            not_just_now = Q(last_used_at=None) | Q(last_used_at__lt=long_ago)
            ApiToken.objects.filter(not_just_now, pk=token.pk).update(last_used_at=now)
    return token


def reload_token(token: ApiToken) -> ApiToken | None:
    """Return a token's current state, its user and groups loaded; None if token or user is not valid any more."""
    return _read_live_token(TOKEN_HAS_ID, [token.pk])


def _read_live_token(condition: str, parameters: Sequence[Any]) -> ApiToken | None:
    """Read a token by a hand-written statement: every call does so, and the ORM takes 0.75 ms of processor time."""
    with connection.cursor() as cursor:
        cursor.execute(_token_statement(condition), parameters)
        rows = cursor.fetchall()
    if not rows:
        return None
    tokens, users = row_reader(ApiToken, "token"), row_reader(User, "owner")
    token: ApiToken = tokens.read(rows[0][: tokens.width])
    token.user = user = users.read(rows[0][tokens.width : -1])
    remember_groups(user, (name for *_, name in rows if name is not None))
    return token if token.is_live and user.is_active else None


def record_first_refusal(token: ApiToken, tool: str, reason: str) -> None:
    """Store a token's first refused MCP call for the page Connect an agent. `reason` must hold no arguments."""
    if token.first_refusal is not None:
        return
    refusal = {"tool": _printable(tool, 64), "reason": _printable(reason, 400), "at": format_utc(clock.now())}
    ApiToken.objects.filter(pk=token.pk, first_refusal__isnull=True).update(first_refusal=refusal)


def _printable(text: str, most: int) -> str:
    return "".join(each for each in text if each.isprintable())[:most]


@cache
def _token_statement(condition: str) -> str:
    """Return the query for a token by a condition: one row for each group of its user, with the group's name last."""
    tokens, users = row_reader(ApiToken, "token"), row_reader(User, "owner")
    return (
        f"SELECT {tokens.columns}, {users.columns}, auth_group.name "  # noqa: S608 - names of our columns
        "FROM catalog_apitoken AS token JOIN auth_user AS owner ON owner.id = token.user_id "
        "LEFT JOIN auth_user_groups AS member ON member.user_id = owner.id "
        f"LEFT JOIN auth_group ON auth_group.id = member.group_id WHERE {condition}"
    )


def checksum_of(text: str) -> str:
    """Return the SHA-256 of a token or of a link's key. Both are random, so that a slow hash would add nothing."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _validate_token_name(name: str) -> None:
    if len(name) > MAX_TOKEN_NAME or "\0" in name:
        raise field_error("name", "invalid", f"The token name must be text of at most {MAX_TOKEN_NAME} characters.")


def _validate_hold_seconds(seconds: int | None) -> None:
    if seconds is not None and not 0 <= seconds <= MAX_HOLD_SECONDS:
        raise field_error("hold_seconds", "invalid", f"hold_seconds must be from 0 to {MAX_HOLD_SECONDS}.")
