"""Changes of connections: create one from a consent, end one, allow a client, delete what is too old."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Exists, OuterRef

from catalog import signals
from catalog.access import tokens
from catalog.access.roles import ADMINISTRATOR, NotAllowed, acting_token_of, has_role
from catalog.access.tokens import DEFAULT_TOKEN_DAYS, MAX_TOKEN_NAME
from catalog.connections.models import (
    MAX_CLIENT_NAME,
    AccessToken,
    Client,
    Connection,
    Grant,
    RefreshToken,
    Step,
    redirect_host,
)
from catalog.connections.scopes import held_scopes
from catalog.core import clock
from catalog.core.rate_limits import MAX_CLEARED_ROWS
from catalog.core.transactions import retry_on_deadlock
from catalog.models import ApiToken

UNUSED_CLIENT_LIFETIME = timedelta(days=1)
"""Time after which a client without a connection is deleted."""
GRANT_LIFETIME = timedelta(days=1)
"""Time for which a code is kept, so that the log can say that it was used twice or too late."""


@dataclass(frozen=True, slots=True)
class ConsentTerms:
    """Terms of the connection that a person consents to. `limits` is None for a connection without limits."""

    scopes: tuple[str, ...]
    days: int = DEFAULT_TOKEN_DAYS
    limits: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        limits = None if self.limits is None else dict(self.limits)
        return {"scopes": list(self.scopes), "days": self.days, "limits": limits}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        return cls(tuple(stored["scopes"]), stored["days"], stored["limits"])


def create_connection(*, user: User, client: Client, redirect_uri: str, terms: ConsentTerms) -> Connection:
    """Create a connection: a token of kind agent that has no text, and the client that uses it.

    The scopes are those of the terms that the user's roles allow at this moment. Raises NotAllowed if none are left,
    and ParameterError.
    """
    scopes = held_scopes(user, terms.scopes)
    if not user.is_active or not scopes:
        raise NotAllowed(f"The roles of {user.get_username()} allow none of the scopes {', '.join(terms.scopes)}.")
    name = (client.name or client.client_id)[: min(MAX_TOKEN_NAME, MAX_CLIENT_NAME)]
    with transaction.atomic():
        # The text that belongs to the digest is forgotten here, so that no bearer token but OAuth's finds the row.
        token, _ = tokens.create_token(
            user=user, kind="agent", scopes=scopes, name=name, days=terms.days, limits=terms.limits
        )
        connection = Connection.objects.create(
            token=token, client=client, client_name=name, client_host=redirect_host(redirect_uri)
        )
        signals.record_fact(
            "token.connected", by=user, token=token.prefix, client=name, host=connection.client_host, scopes=scopes
        )
    return connection


@retry_on_deadlock
def end_for_client(token: ApiToken, *, reason: str, kind: str = "token.revoked") -> bool:
    """End a connection for its client, because it was misused, or because it cannot be used any more.

    Return whether it was live.
    """
    with transaction.atomic():
        if not ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=clock.now()):
            return False
        signals.record_fact(kind, token=token.prefix, owner=token.user.get_username(), reason=reason)
    return True


@contextmanager
def changing_tokens_of(token_pk: int, kind: str) -> Iterator[None]:
    """Open the transaction of a change of a connection's OAuth tokens, and record it as a fact of this kind.

    One change waits for another one: each records a digest of all tokens of the connection.
    """
    with transaction.atomic():
        ApiToken.objects.select_for_update().get(pk=token_pk)
        yield
        signals.record_fact(kind, connection=f"connection_{token_pk}")


def allow_client(client: Client, *, by: User) -> None:
    """Let people connect a client while TOOLGATE_OAUTH_CLIENTS is `known`. Raises NotAllowed."""
    _require_administrator(by)
    with transaction.atomic():
        if Client.objects.filter(pk=client.pk, allowed_at=None).update(allowed_at=clock.now(), allowed_by=by):
            signals.record_fact("client.allowed", by=by, client=client.client_id, name=str(client))


def forbid_client(client: Client, *, by: User) -> None:
    """Take back `allow_client`; its connections go on until they are ended. Raises NotAllowed."""
    _require_administrator(by)
    with transaction.atomic():
        if Client.objects.filter(pk=client.pk, allowed_at__isnull=False).update(allowed_at=None, allowed_by=None):
            signals.record_fact("client.forbidden", by=by, client=client.client_id, name=str(client))


def _require_administrator(by: User) -> None:
    if acting_token_of(by) is not None or not has_role(by, ADMINISTRATOR):
        raise NotAllowed("Only an administrator who has signed in may allow clients.")


def clear_credentials(*, now: datetime) -> int:
    """Delete a batch of expired codes and tokens and return how many; end the connections that have no token left."""
    codes = Grant.objects.filter(expires__lt=now - GRANT_LIFETIME).order_by("pk")
    old = list(codes.values_list("pk", flat=True)[:MAX_CLEARED_ROWS])
    deleted: int = Grant.objects.filter(pk__in=old).delete()[0] if old else 0
    for model in (AccessToken, RefreshToken):
        expired = model.objects.filter(expires__lt=now)
        for token_pk in set(expired.order_by("pk").values_list("api_token", flat=True)[:MAX_CLEARED_ROWS]):
            with changing_tokens_of(token_pk, "connection.cleared"):
                deleted += expired.filter(api_token=token_pk).delete()[0]
    has_no_token = [~Exists(model.objects.filter(api_token=OuterRef("token"))) for model in (AccessToken, RefreshToken)]
    lapsed = Connection.objects.filter(*has_no_token, token__revoked_at=None, token__expires_at__gt=now)
    for connection in lapsed.select_related("token__user")[:MAX_CLEARED_ROWS]:
        end_for_client(connection.token, reason="Its client did not use it for 30 days, so that its tokens expired.")
    return deleted


def on_access_ended(sender: object, *, person: User, **kwargs: Any) -> None:
    """End the unused codes of a person whose access an administrator ended or reset."""
    now = clock.now()
    Grant.objects.filter(user=person, used_at=None, expires__gt=now).update(expires=now)


def clear_clients(*, now: datetime) -> int:
    """Delete a batch of clients that nobody connected within a day and return how many; allowed ones are kept."""
    unused = unused_clients().filter(updated__lt=now - UNUSED_CLIENT_LIFETIME)
    return delete_unused(unused.order_by("pk").values_list("pk", flat=True)[:MAX_CLEARED_ROWS])


def delete_unused(keys: Iterable[int]) -> int:
    """Delete the clients with these primary keys that nobody has begun to connect meanwhile; return how many."""
    with transaction.atomic():
        locked = Client.objects.select_for_update().filter(pk__in=list(keys)).order_by("pk")
        deleted: int = unused_clients().filter(pk__in=[client.pk for client in locked]).delete()[0]
    return deleted


def unused_clients() -> Any:
    """Return the clients without a connection, a code or an administrator's permission.

    Those that wait for permission are not among them while the log says that a person tried to connect them.
    """
    connected = Connection.objects.filter(client=OuterRef("pk"))
    consented = Grant.objects.filter(application=OuterRef("pk"))
    unused = Client.objects.filter(~Exists(connected), ~Exists(consented), allowed_at=None)
    return unused.exclude(tried_by_people()) if settings.TOOLGATE_OAUTH_CLIENTS == "known" else unused


def tried_by_people() -> Exists:
    """Return the condition for clients that a person who had signed in tried to connect."""
    return Exists(Step.objects.filter(client=OuterRef("pk"), user__isnull=False))
