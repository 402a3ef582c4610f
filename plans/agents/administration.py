"""Administration of agents: list, create, change and delete them. Each change is an audit entry.

An audit entry never contains instructions. A run keeps the agent's settings from when it began.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from django.contrib.auth.models import Group, User
from django.db import IntegrityError, transaction
from django.db.models import Count, QuerySet
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from catalog.access.roles import ADMINISTRATOR, NotAllowed, agent_token_of, can_see_all, has_role
from catalog.core import clock
from catalog.core.json_paths import dotted
from catalog.core.transactions import retry_on_deadlock
from catalog.errors import Conflict
from catalog.inventory import snapshot
from catalog.models import Category
from catalog.rest.idempotency import record_done
from catalog.schemas import ArgumentProblem, raise_for_problems
from catalog.secrets.detectors import find_secrets
from catalog.signals import record_fact
from plans.agents.definitions import (
    AgentBudget,
    AgentDocument,
    AgentTerms,
    ToolFilter,
    agent_columns,
    agent_document,
    usable_by,
)
from plans.documents.reading import problem_from_error, similar_names, suggestion_text
from plans.engine.questions import ASK_USER
from plans.llm.tools import EXCLUDED_CATEGORIES
from plans.models import Agent

NAME_RULE = "A name has 1 to 64 lower-case letters, digits, '-' and '_', and starts with a letter."
MODEL_RULE = "Use provider:model, such as openai:gpt-5, or leave it empty for the default, TOOLGATE_MODEL."
COST_RULE = "Enter an amount of US dollars with at most six decimal places."
NO_SECRETS = "Remove this secret: everyone with a role, and the model's provider, can read the instructions."
PARTS: Mapping[str, type[BaseModel]] = {"tools": ToolFilter, "budget": AgentBudget}
MergedT = TypeVar("MergedT", bound=BaseModel)
ReadT = TypeVar("ReadT", bound=AgentTerms)


def read_agent(body: object) -> AgentDocument:
    """Parse an agent from a request body. Raises ParameterError with every problem."""
    document = _parse(AgentDocument, body)
    raise_for_problems(list(_unusable_parts(document, AgentTerms())))
    return document


def read_agent_change(body: object, old_document: AgentDocument) -> AgentDocument:
    """Return the agent with the changes in a request body, which may contain only some fields of `tools` and `budget`.

    Raises ParameterError. Names of tools and groups that the agent already had are not checked again.
    """
    change = _parse(AgentTerms, body)
    if not change.model_fields_set:
        raise_for_problems([ArgumentProblem("", "required", "Name at least one field to change.")])
    changed = _merged(old_document, change)
    raise_for_problems(list(_unusable_parts(changed, old_document)))
    return changed


def _parse(kind: type[ReadT], body: object) -> ReadT:
    try:
        return kind.model_validate_json(json.dumps(body), strict=True)
    except ValidationError as error:
        raise_for_problems([_problem_from_error(each, kind) for each in error.errors(include_url=False)])
        raise


def _merged(before: MergedT, change: BaseModel) -> MergedT:
    new = {}
    for name in change.model_fields_set:
        value = getattr(change, name)
        new[name] = _merged(getattr(before, name), value) if name in PARTS else value
    return before.model_copy(update=new)


def _problem_from_error(error: ErrorDetails, kind: type[BaseModel]) -> ArgumentProblem:
    """Return a pydantic error as a problem for users; for an unknown field, suggest a similar name."""
    place = error["loc"]
    part = PARTS.get(str(place[0])) if len(place) > 1 else None
    found = problem_from_error({**error, "loc": place[:2]} if part else error, part or kind)
    message = found.message
    if error["type"] == "string_pattern_mismatch":
        message = NAME_RULE
    elif error["type"].startswith("decimal_"):
        message = COST_RULE
    elif error["type"] in ("enum", "literal_error"):
        message = f"This must be {error.get('ctx', {}).get('expected', 'one of the words')}."
    path = dotted(place)
    return ArgumentProblem(path, found.code, f"{message} {found.suggestion}" if found.suggestion else message)


def _unusable_parts(terms: AgentTerms, old_terms: AgentTerms) -> Iterator[ArgumentProblem]:
    provider, _, model = terms.model.partition(":")
    if terms.model and not (provider and model and terms.model.isascii() and terms.model.isprintable()):
        yield ArgumentProblem("model", "invalid", MODEL_RULE)
    if isinstance(terms, AgentDocument) and terms.name == "new":
        yield ArgumentProblem("name", "reserved", "The name new is reserved for the page that creates agents.")
    if find_secrets(terms.instructions):
        yield ArgumentProblem("instructions", "secret_in_instructions", NO_SECRETS)
    there = snapshot.callable_tools()
    yield from _unknown("tools.names", terms.tools.names, old_terms.tools.names, list(there), "tool")
    for place, name in enumerate(terms.tools.names):
        if name in there and name != ASK_USER and not EXCLUDED_CATEGORIES.isdisjoint(there[name].tool.categories):
            yield ArgumentProblem(f"tools.names.{place}", "not_for_agents", f"Agents may not call the tool {name}.")
    if set(terms.tools.categories) - set(old_terms.tools.categories):
        known = list(Category.objects.order_by("name").values_list("name", flat=True))
        yield from _unknown("tools.categories", terms.tools.categories, old_terms.tools.categories, known, "category")
    if set(terms.groups) - set(old_terms.groups):
        known = list(Group.objects.order_by("name").values_list("name", flat=True))
        yield from _unknown("groups", terms.groups, old_terms.groups, known, "group")


def _unknown(
    path: str, names: Sequence[str], before: Sequence[str], known: list[str], what: str
) -> Iterator[ArgumentProblem]:
    for place, name in enumerate(names):
        if name not in known and name not in before:
            nearest = suggestion_text(similar_names(name, known))
            message = f"There is no {what} called {name}."
            yield ArgumentProblem(f"{path}.{place}", f"unknown_{what}", f"{message} {nearest}" if nearest else message)


def agent_as_json(document: AgentDocument) -> dict[str, Any]:
    """Return an agent as the JSON of the API: its name first, costs as numbers."""
    dumped = document.model_dump(mode="json")
    cost = document.budget.cost
    dumped["budget"]["cost"] = None if cost is None else float(cost)
    return {"name": dumped.pop("name"), **dumped}


MOST_AGENTS = 200
NOT_ALLOWED = "Only administrators may change agents, and not with an agent's token."
CHANGED_MEANWHILE = "Someone else changed this agent in the meantime. Reload it and try again."
TOO_MANY = f"There are already {MOST_AGENTS} agents. Delete unused ones or change an existing one."


def may_change_agent(user: User) -> bool:
    """Return whether a user may change agents: administrators, but not with an agent's token."""
    return has_role(user, ADMINISTRATOR) and agent_token_of(user) is None


def agents_for(viewer: User) -> QuerySet[Agent]:
    """Return the agents with their number of runs (`times`). Without a role, a viewer sees only agents they may use."""
    seen = Agent.objects.annotate(times=Count("runs")).order_by("name")
    if can_see_all(viewer):
        return seen
    return seen.filter(pk__in=[agent.pk for agent in usable_by(viewer).values()])


def agent_for(viewer: User, name: str) -> Agent:
    return agents_for(viewer).get(name=name)


@retry_on_deadlock
def create(body: object, *, by: User) -> Agent:
    """Create an agent. Raises NotAllowed, ParameterError, and Conflict if there are too many."""
    _require_administrator(by)
    document = read_agent(body)
    now = clock.now()
    with transaction.atomic():
        if Agent.objects.count() >= MOST_AGENTS:
            raise Conflict(TOO_MANY)
        agent = Agent(created_at=now, updated_at=now, **agent_columns(document))
        try:
            with transaction.atomic():
                agent.save()
        except IntegrityError:
            raise_for_problems([ArgumentProblem("name", "taken", f"There is already an agent called {agent.name}.")])
        record_fact("agent.created", by=by, agent=agent.name)
        record_done(agent.name)
    return agent


@retry_on_deadlock
def change_agent(agent: Agent, body: object, *, by: User, seen: datetime | None = None) -> Agent:
    """Change the fields in `body`; `seen`, if given, is the `updated_at` of the version that the user edited.

    Raises NotAllowed, ParameterError, and Conflict if the agent was changed or deleted in the meantime.
    """
    _require_administrator(by)
    with transaction.atomic():
        row = _lock_agent(agent)
        if seen not in (None, row.updated_at):
            raise Conflict(CHANGED_MEANWHILE)
        old_document = agent_document(row)
        new_document = read_agent_change(body, old_document)
        if changes := list(differences(old_document, new_document)):
            for name, value in agent_columns(new_document).items():
                setattr(row, name, value)
            row.updated_at = clock.now()
            row.save()
            record_fact("agent.changed", by=by, agent=row.name, changes=changes)
        record_done(row.name)
    return row


@retry_on_deadlock
def end_agent(agent: Agent, *, by: User) -> Agent:
    """Delete an agent that never began a step; switch off any other agent. Return the agent in its last state.

    Raises NotAllowed, and Conflict if it was already deleted.
    """
    _require_administrator(by)
    with transaction.atomic():
        row = _lock_agent(agent)
        is_kept = row.runs.exists()
        row.enabled = False
        if is_kept:
            row.updated_at = clock.now()
            row.save()
        else:
            Agent.objects.filter(pk=row.pk).delete()
        record_fact("agent.ended", by=by, agent=row.name, kept=is_kept)
        record_done(row.name)
    return row


def _require_administrator(by: User) -> None:
    if not may_change_agent(by):
        raise NotAllowed(NOT_ALLOWED)


def _lock_agent(agent: Agent) -> Agent:
    row = Agent.objects.select_for_update().filter(pk=agent.pk).first()
    if row is None:
        raise Conflict("This agent was deleted.")
    return row


def differences(old_document: AgentDocument, new_document: AgentDocument) -> Iterator[str]:
    """Yield the differences in words; for instructions only the fact that they changed."""
    old, new = agent_columns(old_document), agent_columns(new_document)
    for name in (each for each in new if old[each] != new[each]):
        if name == "enabled":
            yield "enabled" if new[name] else "disabled"
        elif name == "instructions":
            yield "instructions changed"
        else:
            yield f"{name} {_display_value(old[name])} → {_display_value(new[name])}"


def _display_value(value: Any) -> str:
    return str(value) or "by default"
