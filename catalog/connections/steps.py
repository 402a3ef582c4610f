"""The log of connecting: each step of a client's attempt in words, for the person and for administrators.

It is bounded: MAX_STEPS_PER_HOUR limits what a client writes, and old steps are deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet

from catalog.access.roles import ADMINISTRATOR, acting_token_of, has_role
from catalog.connections.models import MAX_CLIENT_NAME, MAX_WORDS, Client, Connection, Step
from catalog.core import clock
from catalog.core.rate_limits import MAX_CLEARED_ROWS
from catalog.models import ApiToken
from catalog.signals import Fact

MAX_STEPS_PER_HOUR = 100
"""Steps kept in an hour of one client for one person, and of its requests that name nobody, which a stranger can send.

All unknown clients count as one.
"""
KEPT_FOR = timedelta(days=30)
ATTEMPT_KEY = "toolgate.attempt"
"""Key in a request's META of the attempt that it belongs to; the OAuth library hands META on to the validator."""


@dataclass(slots=True)
class Attempt:
    """One request of a client, filled in while it is checked."""

    name: str
    client: Client | None = None
    user: User | None = None
    token: ApiToken | None = None
    words: str = ""
    """Why it is refused, if the check knows more than the answer says."""


def attempt_of(request: Any) -> Attempt:
    """Return the attempt of a request of the OAuth library."""
    attempt = request.headers.get(ATTEMPT_KEY)
    return attempt if isinstance(attempt, Attempt) else Attempt("")


def record_step(attempt: Attempt, *, succeeded: bool, words: str) -> None:
    """Write a step, unless there were too many of its client and person within the hour."""
    since = clock.now() - timedelta(hours=1)
    if Step.objects.filter(client=attempt.client, user=attempt.user, at__gt=since).count() >= MAX_STEPS_PER_HOUR:
        return
    Step.objects.create(
        name=attempt.name,
        succeeded=succeeded,
        words="".join(each for each in words if each.isprintable())[:MAX_WORDS],
        client=attempt.client,
        client_name=str(attempt.client or "")[:MAX_CLIENT_NAME],
        user=attempt.user,
        token=attempt.token,
    )


def on_fact(sender: object, *, fact: Fact, **kwargs: Any) -> None:
    """Write into the log of a connection that it was ended, by whom and why."""
    if fact.kind != "token.revoked":
        return
    connections = Connection.objects.select_related("token", "client")
    connection = connections.filter(token__prefix=fact.data["token"]).first()
    if connection is None:  # a token of another kind
        return
    words = "Ended."
    if fact.by is not None:
        is_own = fact.by.pk == connection.token.user_id
        words = "Ended by its owner." if is_own else f"Ended by the administrator {fact.by.get_username()}."
    Step.objects.create(
        name="end",
        succeeded=True,
        words=" ".join([words, fact.data.get("reason", "")]).strip()[:MAX_WORDS],
        client=connection.client,
        client_name=connection.client_name,
        user_id=connection.token.user_id,
        token=connection.token,
    )


def steps_for(viewer: User) -> QuerySet[Step]:
    """Return the steps that the viewer may see, newest first: one's own, for administrators all, for agents none."""
    steps = Step.objects.select_related("client", "user", "token").order_by("-pk")
    if acting_token_of(viewer) is not None:
        return steps.none()
    return steps if has_role(viewer, ADMINISTRATOR) else steps.filter(user=viewer)


def steps_of(connection: Connection, viewer: User) -> QuerySet[Step]:
    """Return the steps of a connection: those with its token, and its client's before that."""
    own = Q(token=connection.token_id)
    if connection.client_id is not None:
        own |= Q(client=connection.client_id, token=None, at__lte=connection.token.created_at)
    return steps_for(viewer).filter(own)


def failed_steps_for(viewer: User) -> QuerySet[Step]:
    """Return the failed steps that no connection's log shows, newest first: mostly of clients that never connected."""
    return steps_for(viewer).filter(succeeded=False, token=None)


def clear_steps(*, now: datetime) -> int:
    """Delete a batch of old steps and return how many."""
    old = Step.objects.filter(at__lt=now - KEPT_FOR).order_by("pk").values_list("pk", flat=True)[:MAX_CLEARED_ROWS]
    return Step.objects.filter(pk__in=list(old)).delete()[0]
