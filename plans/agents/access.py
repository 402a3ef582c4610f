"""Who may use an agent: the members of its groups, or everyone where it names none. Administrators always may."""

from typing import TYPE_CHECKING

from django.conf import settings

from catalog.access.roles import groups_of as groups_of_user
from catalog.access.roles import has_role
from plans.agents.settings import groups_of
from plans.documents.checking import AgentThere
from plans.models import Agent

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def may_use(user: "User", agent: Agent) -> bool:
    """Say whether a person may have steps carried out by the agent, switched on or not."""
    groups = groups_of(agent)
    return not groups or has_role(user, "administrator") or not groups_of_user(user).isdisjoint(groups)


def named_agents(user: "User | None" = None) -> dict[str, AgentThere]:
    """Return what a plan's check is to know of the agents that the person may use, by name; of all for nobody."""
    has_default = bool(settings.TOOLGATE_MODEL)
    return {
        agent.name: AgentThere(agent.enabled, bool(agent.model) or has_default)
        for agent in Agent.objects.all()
        if user is None or may_use(user, agent)
    }


def usable_by(user: "User") -> dict[str, Agent]:
    """Return the agents that are switched on and that the person may use, by name."""
    return {agent.name: agent for agent in Agent.objects.filter(enabled=True) if may_use(user, agent)}
