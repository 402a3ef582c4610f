"""Definition of an agent: the document that the API and the page accept, and access to the agent."""

import json
from decimal import Decimal
from typing import Annotated, Any

from django.conf import settings
from django.contrib.auth.models import User
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator
from pydantic_core import PydanticCustomError

from catalog.access.roles import groups_of as groups_of_user
from catalog.access.roles import has_role
from catalog.definitions.levels import SafetyLevel
from plans.documents.checking import AgentAvailability
from plans.models import Agent
from plans.spec import Text
from plans.strategies import PlanningStrategy

NAME = r"^[a-z][a-z0-9_-]{0,63}$"
MOST_ROUNDS = 100
MOST_CALLS = 400
MOST_TOKENS = 100_000_000
MOST_COST = 10_000
MOST_SECONDS = 30 * 24 * 3600
MOST_NAMED = 200
MOST_LETTERS = 20_000

NameText = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Group = Annotated[str, StringConstraints(min_length=1, max_length=150)]


class _StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ToolFilter(_StrictModel):
    """Filter for the tools that an agent may call, among those its plan's owner may: these names or these categories.

    Without names and categories, all of them. Tools above `max_level` are always excluded.
    """

    names: list[NameText] = Field(default_factory=list, max_length=MOST_NAMED)
    categories: list[NameText] = Field(default_factory=list, max_length=MOST_NAMED)
    max_level: SafetyLevel = SafetyLevel.DANGEROUS

    @field_validator("names", "categories")
    @classmethod
    def _refuse_duplicates(cls, values: list[str]) -> list[str]:
        if len(set(values)) < len(values):
            raise PydanticCustomError("duplicate", "Each name may appear only once in this list.")
        return values


class AgentBudget(_StrictModel):
    """Limits of one run: model turns (`rounds`), calls, tokens read and written, US dollars, seconds of work.

    Time spent waiting for people does not count as work. None means unlimited; rounds are always limited.
    """

    rounds: int = Field(default=10, ge=1, le=MOST_ROUNDS)
    calls: int | None = Field(default=None, ge=1, le=MOST_CALLS)
    tokens: int | None = Field(default=None, ge=1, le=MOST_TOKENS)
    cost: Decimal | None = Field(default=None, gt=0, le=MOST_COST, max_digits=12, decimal_places=6)
    seconds: int | None = Field(default=None, ge=1, le=MOST_SECONDS)


class AgentTerms(_StrictModel):
    """Fields of an agent that can be changed. AgentDocument requires the instructions."""

    instructions: Annotated[Text, Field(max_length=MOST_LETTERS)] = ""
    model: Annotated[str, StringConstraints(max_length=128)] = ""
    tools: ToolFilter = Field(default_factory=ToolFilter)
    strategy: PlanningStrategy = PlanningStrategy.REACT
    budget: AgentBudget = Field(default_factory=AgentBudget)
    groups: list[Group] = Field(default_factory=list, max_length=20)
    enabled: bool = True


class AgentDocument(AgentTerms):
    """An agent as submitted and returned by the API (contract.md, "agent")."""

    name: Annotated[str, StringConstraints(pattern=NAME)]
    instructions: Annotated[Text, Field(max_length=MOST_LETTERS)]


def agent_document(agent: Agent) -> AgentDocument:
    return AgentDocument(
        name=agent.name,
        instructions=agent.instructions,
        model=agent.model,
        tools=ToolFilter.model_validate_json(agent.tools),
        strategy=PlanningStrategy(agent.strategy),
        budget=AgentBudget.model_validate_json(agent.budget),
        groups=agent_groups(agent),
        enabled=agent.enabled,
    )


def agent_groups(agent: Agent) -> list[str]:
    """Return the names of the groups that may use an agent; an empty list means everyone."""
    names: list[str] = json.loads(agent.groups)
    return names


def agent_columns(document: AgentDocument) -> dict[str, Any]:
    return {
        "name": document.name,
        "instructions": document.instructions,
        "model": document.model,
        "tools": document.tools.model_dump_json(),
        "strategy": document.strategy.value,
        "budget": document.budget.model_dump_json(),
        "groups": json.dumps(sorted(set(document.groups)), ensure_ascii=False),
        "enabled": document.enabled,
    }


def may_use(user: User, agent: Agent) -> bool:
    """Return whether a user may assign steps to the agent, whether it is switched on or not."""
    groups = agent_groups(agent)
    return not groups or has_role(user, "administrator") or not groups_of_user(user).isdisjoint(groups)


def named_agents(user: "User | None" = None) -> dict[str, AgentAvailability]:
    """Return the availability of the agents that the user may use, by name; of all agents if `user` is None."""
    has_default = bool(settings.TOOLGATE_MODEL)
    return {
        agent.name: AgentAvailability(agent.enabled, bool(agent.model) or has_default)
        for agent in Agent.objects.all()
        if user is None or may_use(user, agent)
    }


def usable_by(user: User) -> dict[str, Agent]:
    """Return the enabled agents that the user may use, by name."""
    return {agent.name: agent for agent in Agent.objects.filter(enabled=True) if may_use(user, agent)}
