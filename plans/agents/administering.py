"""Agents as administrators make, change and end them, and as others read them. Each change is an audit entry.

An entry says what is different, never the instructions. A run keeps the agent as it was when it began.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError, transaction
from django.db.models import Count, QuerySet

from catalog.access.roles import ADMINISTRATOR, NotAllowed, agent_token_of, has_role, sees_all
from catalog.core import clock
from catalog.core.transactions import retried
from catalog.errors import Conflict
from catalog.rest.idempotency import note_done
from catalog.schemas import Problem, refuse
from catalog.signals import record
from plans.agents.access import usable_by
from plans.agents.reading import read_agent, read_change
from plans.agents.settings import AgentDocument, columns_of, document_of
from plans.models import Agent

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MOST_AGENTS = 200
NOT_ALLOWED = "Only an administrator may change agents, and never through an agent's token."
CHANGED_MEANWHILE = "Someone has changed this agent meanwhile; look at it again."
TOO_MANY = f"There are {MOST_AGENTS} agents; end some that were never used, or change one that is there."


def may_change(user: "User") -> bool:
    """Say whether someone may change agents: administrators, never through an agent's token."""
    return has_role(user, ADMINISTRATOR) and agent_token_of(user) is None


def agents_for(viewer: "User") -> QuerySet[Agent]:
    """Return agents with how often each began a step (`times`): all to people with a role, else those to be used."""
    seen = Agent.objects.annotate(times=Count("runs")).order_by("name")
    if sees_all(viewer):
        return seen
    return seen.filter(pk__in=[agent.pk for agent in usable_by(viewer).values()])


def agent_for(viewer: "User", name: str) -> Agent:
    """Return one agent; raise Agent.DoesNotExist where there is none that the viewer sees."""
    return agents_for(viewer).get(name=name)


@retried
def create(body: object, *, by: "User") -> Agent:
    """Make an agent. Raises NotAllowed, ParameterError, and Conflict for one too many."""
    _see_who(by)
    document = read_agent(body)
    now = clock.now()
    with transaction.atomic():
        if Agent.objects.count() >= MOST_AGENTS:
            raise Conflict(TOO_MANY)
        agent = Agent(created_at=now, updated_at=now, **columns_of(document))
        try:
            with transaction.atomic():
                agent.save()
        except IntegrityError:
            refuse([Problem("name", "taken", f"There is an agent called {agent.name} already.")])
        record("agent.created", by=by, agent=agent.name)
        note_done(agent.name)
    return agent


@retried
def change(agent: Agent, body: object, *, by: "User", seen: datetime | None = None) -> Agent:
    """Change what is named; `seen`, when given, is when the agent that was read had been changed.

    Raises NotAllowed, ParameterError, and Conflict when it was changed meanwhile, or is gone.
    """
    _see_who(by)
    with transaction.atomic():
        row = _locked(agent)
        if seen not in (None, row.updated_at):
            raise Conflict(CHANGED_MEANWHILE)
        before = document_of(row)
        _store(row, before, read_change(body, before), by)
        note_done(row.name)
    return row


@retried
def end(agent: Agent, *, by: "User") -> Agent:
    """End an agent, and return it as it was left: switched off where it ever began a step, else deleted.

    Raises NotAllowed, and Conflict when it is gone.
    """
    _see_who(by)
    with transaction.atomic():
        row = _locked(agent)
        is_kept = row.runs.exists()
        row.enabled = False
        if is_kept:
            row.updated_at = clock.now()
            row.save()
        else:
            Agent.objects.filter(pk=row.pk).delete()
        record("agent.ended", by=by, agent=row.name, kept=is_kept)
        note_done(row.name)
    return row


def _see_who(by: "User") -> None:
    if not may_change(by):
        raise NotAllowed(NOT_ALLOWED)


def _locked(agent: Agent) -> Agent:
    row = Agent.objects.select_for_update().filter(pk=agent.pk).first()
    if row is None:
        raise Conflict("This agent is gone: it was ended before it was ever used.")
    return row


def _store(row: Agent, before: AgentDocument, after: AgentDocument, by: "User") -> None:
    changes = list(differences(before, after))
    if not changes:
        return
    for name, value in columns_of(after).items():
        setattr(row, name, value)
    row.updated_at = clock.now()
    row.save()
    record("agent.changed", by=by, agent=row.name, changes=changes)


def differences(before: AgentDocument, after: AgentDocument) -> Iterator[str]:
    """Yield in words what differs; of the instructions only that they do."""
    old, new = columns_of(before), columns_of(after)
    for name in (each for each in new if old[each] != new[each]):
        if name == "enabled":
            yield "switched on" if new[name] else "switched off"
        elif name == "instructions":
            yield "instructions changed"
        else:
            yield f"{name} {_shown(old[name])} → {_shown(new[name])}"


def _shown(value: Any) -> str:
    return str(value) or "by default"
