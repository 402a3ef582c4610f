"""Sessions of coding agents: whether the client asks before it runs its own tools, and since when."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, Max, Q, QuerySet
from django.db.models.functions import Coalesce
from django.utils.translation import gettext

from catalog.client_tools.known_tools import CLIENT_TITLES, client_title
from catalog.core import clock
from catalog.models import ApiToken, UngatedRun
from plans.coding_agents.permissions import owner_of
from plans.models import ClientSession
from plans.sessions.lists import SessionKey
from plans.store.requesters import Requester

NOTED_EVERY = timedelta(minutes=1)
"""Age after which the time of a session's last question or MCP call is written again."""
ASKED_LATELY = timedelta(days=1)
"""Time for which a question in one session shows that the same client asks in others."""


@dataclass(frozen=True, slots=True)
class Armed:
    """The client asks first: since when, when this was last checked through the real client, and how it asks."""

    client: str
    since: datetime
    checked_at: datetime | None
    how: str


@dataclass(frozen=True, slots=True)
class NotArmed:
    """The client of a coding agent's session does not ask first, as far as can be known; `why` is for people."""

    client: str
    why: str


@dataclass(frozen=True, slots=True)
class AsksElsewhere:
    """The client of a session that has never asked does ask in another one; `why` is for people.

    A client's MCP connection is often a session of its own, beside that of its hooks.
    """

    client: str
    why: str


def note_hook_traffic(client: str, session: str, *, by: Requester, how: str) -> None:
    """Record that a client has asked in this session; `how` is hook, permission_prompt or permissions."""
    now = clock.now()
    rows = _row(client, session, by)
    if rows.filter(how=how, last_asked_at__gt=now - NOTED_EVERY).exclude(armed_since=None).exists():
        return
    _note(client, session, by, armed_since=Coalesce(F("armed_since"), now), last_asked_at=now, how=how)


def note_check(client: str, session: str, *, by: Requester) -> None:
    """Record that the real client, driven by the command connect, has asked about a canary."""
    _note(client, session, by, checked_at=clock.now())


def coding_agent_of(mcp_client: str) -> str | None:
    """Return the coding agent that introduces itself over MCP under this name; None for any other client."""
    name = mcp_client.lower()
    return next((client for client in CLIENT_TITLES if name.startswith(client)), None)


def note_connection(client: str, session: str, *, by: Requester) -> None:
    """Record that a coding agent has made an MCP call in this session."""
    now = clock.now()
    if not _row(client, session, by).filter(connected_at__gt=now - NOTED_EVERY).exists():
        _note(client, session, by, connected_at=now)


def note_ungated_run(client: str, session: str, *, by: Requester) -> None:
    """Record that a client has run a tool without permission: its session is not armed until it asks again."""
    _note(client, session, by, armed_since=None)


def disarm(client: str, session: str, *, by: Requester) -> None:
    """Record a further run without permission, if the session is known: clients may make up any number of sessions."""
    _row(client, session, by).update(armed_since=None)


def _row(client: str, session: str, by: Requester) -> QuerySet[ClientSession]:
    return ClientSession.objects.filter(owner=owner_of(by), client=client, session=session)


def _note(client: str, session: str, by: Requester, **columns: Any) -> None:
    rows = _row(client, session, by)
    if rows.update(**columns):
        return
    plain = {
        name: value if not hasattr(value, "resolve_expression") else clock.now() for name, value in columns.items()
    }
    names = {"owner": owner_of(by), "client": client, "session": session, "user": by.user, "token": by.token}
    try:
        with transaction.atomic():
            ClientSession.objects.create(**names, **plain)
    except IntegrityError:
        rows.update(**columns)


def _rows_of(key: SessionKey) -> Q:
    """Return the condition for a session's rows: those of its agent's token, or of all other tokens of its person."""
    own = Q(user=key.user_id, session=key.name)
    if key.agent_token_id:
        return own & Q(token=key.agent_token_id)
    return own & ~Q(token__kind=ApiToken.Kind.AGENT)


def armed_state(key: SessionKey) -> Armed | AsksElsewhere | NotArmed | None:
    """Return whether a session's client is armed; None for a session without a coding agent."""
    rows = list(ClientSession.objects.filter(_rows_of(key)).order_by(F("last_asked_at").desc(nulls_last=True), "pk"))
    if not rows:
        return None
    row = rows[0]
    if row.armed_since is not None:
        return Armed(row.client, row.armed_since, _last_check(row), row.how)
    title = {"client": client_title(row.client)}
    if row.connected_at is None or ungated_runs_in(key).exists():
        return NotArmed(row.client, gettext("%(client)s ran a tool without permission.") % title)
    same = ClientSession.objects.filter(
        owner=row.owner, client=row.client, last_asked_at__gt=clock.now() - ASKED_LATELY
    )
    if same.exclude(armed_since=None).exists():
        why = gettext("%(client)s asks in another session, maybe that of its hooks; it has not asked in this one.")
        return AsksElsewhere(row.client, why % title)
    why = gettext("%(client)s is connected over MCP, but does not ask before it runs its own tools.")
    return NotArmed(row.client, why % title)


def _last_check(session: ClientSession) -> datetime | None:
    """Return the time of the last check, which has a session of its own and holds for all of its client and token."""
    checks = ClientSession.objects.filter(owner=session.owner, client=session.client)
    last: datetime | None = checks.aggregate(last=Max("checked_at"))["last"]
    return last


def ungated_runs_in(key: SessionKey) -> QuerySet[UngatedRun]:
    """Return the runs of a session that nobody allowed, newest first."""
    return UngatedRun.objects.filter(_rows_of(key)).order_by("-reported_at", "-pk")
