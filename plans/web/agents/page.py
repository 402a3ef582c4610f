"""Data of the pages of agents: the list, one agent with its editor and runs, and its tasks."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.http import Http404
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from catalog.access.roles import NotAllowed, has_role
from catalog.calls.vault import keyring
from catalog.core.canonical_json import digest
from catalog.errors import Conflict
from catalog.inventory.selectors import LEVELS
from catalog.rest.idempotency import run_once
from catalog.text.formats import format_number
from catalog.ui.labels import Badge
from plans.actions.create import create_plan
from plans.agents import administration, tool_calls
from plans.agents.definitions import AgentBudget, ToolFilter, agent_document, may_use
from plans.agents.runs import usage_parts, usage_text
from plans.llm import provider
from plans.llm.provider import NotConfigured
from plans.models import Agent, AgentRun, Plan
from plans.spec import PlanDocument
from plans.store import selectors
from plans.store.requesters import Requester
from plans.web.access import FORM_EXPIRED
from plans.web.agents.form import AgentForm, TaskForm
from plans.web.compose.ask_form import KEY, STRATEGIES, may_ask

MOST_RUNS = 20
AT_WORK = Badge(gettext_lazy("At work"), "run", "run")
STOP_LABELS = {
    AgentRun.Stopped.DONE: Badge(gettext_lazy("Done"), "ok", "ok"),
    AgentRun.Stopped.ROUNDS: Badge(gettext_lazy("Stopped: no model turns left"), "stop", "warn"),
    AgentRun.Stopped.CALLS: Badge(gettext_lazy("Stopped: no calls left"), "stop", "warn"),
    AgentRun.Stopped.TOKENS: Badge(gettext_lazy("Stopped: no tokens left"), "stop", "warn"),
    AgentRun.Stopped.COST: Badge(gettext_lazy("Stopped: cost limit reached"), "stop", "warn"),
    AgentRun.Stopped.SECONDS: Badge(gettext_lazy("Stopped: time limit reached"), "stop", "warn"),
    AgentRun.Stopped.FAILED: Badge(gettext_lazy("Failed"), "fail", "danger"),
}


@dataclass(frozen=True, slots=True)
class AgentRow:
    agent: Agent

    @property
    def times(self) -> int:
        """Number of steps that the agent began."""
        return int(getattr(self.agent, "times", 0))

    @property
    def strategy(self) -> Mapping[str, str]:
        known = next((each for each in STRATEGIES if each.name == self.agent.strategy), STRATEGIES[0])
        return {"label": str(known.label), "says": str(known.says)}

    @property
    def groups(self) -> str:
        return ", ".join(agent_document(self.agent).groups) or _("everyone")

    @property
    def tools(self) -> str:
        return describe_filter(agent_document(self.agent).tools)

    @property
    def budget(self) -> str:
        return describe_budget(agent_document(self.agent).budget)


@dataclass(frozen=True, slots=True)
class RunRow:
    run: AgentRun

    @property
    def plan(self) -> Plan:
        return self.run.step.plan

    @property
    def word(self) -> Badge:
        """Badge that says why the run stopped, or that it is at work."""
        why = self.run.stopped_for
        return STOP_LABELS[AgentRun.Stopped(why)] if self.run.ended_at and why else AT_WORK

    @property
    def took(self) -> str:
        return usage_text(self.run.rounds, self.run.calls, self.run.tokens, self.run.cost)


def describe_filter(tool_filter: ToolFilter) -> str:
    names, categories = tool_filter.names, tool_filter.categories
    parts = names[:4] + ([_("%(count)s more") % {"count": len(names) - 4}] if len(names) > 4 else [])
    parts += [_("all of %(category)s") % {"category": name} for name in categories[:4]]
    if len(categories) > 4:
        more = len(categories) - 4
        parts.append(ngettext("%(count)s more category", "%(count)s more categories", more) % {"count": more})
    listed = ", ".join(parts) or _("all tools")
    if tool_filter.max_level == "safe":
        return _("%(tools)s, only safe ones") % {"tools": listed}
    if tool_filter.max_level == "cautious":
        return _("%(tools)s, except dangerous ones") % {"tools": listed}
    return listed


def describe_budget(budget: AgentBudget) -> str:
    cost = f"{budget.cost.normalize():f}" if budget.cost else ""
    parts = usage_parts(budget.rounds, budget.calls, budget.tokens, cost)
    if budget.seconds:
        seconds = budget.seconds
        parts.append(
            ngettext("%(count)s second of work", "%(count)s seconds of work", seconds)
            % {"count": format_number(seconds)}
        )
    return _("Limits: %(limits)s.") % {"limits": ", ".join(parts)}


def agent_list_page(viewer: User) -> dict[str, Any]:
    rows = [AgentRow(agent) for agent in administration.agents_for(viewer)]
    return _frame(viewer) | {"rows": rows}


def new_agent_page(viewer: User, form: AgentForm | None = None) -> dict[str, Any]:
    """Return the context of the form for a new agent. Raises NotAllowed if the viewer may not create one."""
    if not administration.may_change_agent(viewer):
        raise NotAllowed(administration.NOT_ALLOWED)
    return _frame(viewer) | _editor(viewer, form or AgentForm()) | {"form_url": reverse("agent-new")}


def agent_page(viewer: User, name: str, form: AgentForm | None = None, task: TaskForm | None = None) -> dict[str, Any]:
    """Return the context of one agent: data, runs, task, and the form for administrators. Raises Http404."""
    agent = agent_or_404(viewer, name)
    document = agent_document(agent)
    seen = selectors.plans_for(viewer, None).values("pk")
    found = AgentRun.objects.filter(agent=agent, step__plan__in=seen).select_related("step__plan")
    shown = {
        "row": AgentRow(agent),
        "document": document,
        "form_url": reverse("agent", args=[agent.name]),
        **_offers(viewer, document.tools),
        "runs": [RunRow(run) for run in found.order_by("-pk")[:MOST_RUNS]],
        "task": task or TaskForm(),
        "has_model": bool(agent.model) or provider.is_configured(),
        "may_give": agent.enabled and may_ask(viewer) and may_use(viewer, agent),
    }
    if administration.may_change_agent(viewer):
        shown |= _editor(viewer, form or AgentForm(agent=agent))
    return _frame(viewer) | shown


def agent_or_404(viewer: User, name: str) -> Agent:
    try:
        return administration.agent_for(viewer, name)
    except Agent.DoesNotExist:
        raise Http404 from None


def give_task(agent: Agent, task: str, key: str, *, by: Requester) -> str:
    """Store and start a plan with one step for the agent, only once for each key; return the plan's id.

    Raises NotAllowed, Conflict, NotConfigured, PlanProblems.
    """
    if not may_ask(by.user):
        raise NotAllowed(_("Giving an agent a task needs the role operator or administrator. Nothing was stored."))
    if not KEY.fullmatch(key):
        raise Conflict(_(FORM_EXPIRED))
    if not agent.enabled:
        raise Conflict(_("This agent is disabled. Nothing was stored."))
    if not agent.model and not provider.is_configured():
        raise NotConfigured
    what = keyring().fingerprint(digest("task", agent.name, task))
    owner, stored_key = f"user:{by.user.pk}", f"task:{key}:{what}"
    return run_once(owner, stored_key, what, lambda: create_plan(task_document(agent, task), by=by).public_id)


def task_document(agent: Agent, task: str) -> PlanDocument:
    kept = {"expected_key": "answer", "output_path": ["results", "0"]}
    steps = [{"step_id": 1, "description": task, "agent": agent.name, **kept}]
    return PlanDocument.model_validate({"goal": task, "steps": steps})


def _offers(viewer: User, tool_filter: ToolFilter) -> dict[str, Any]:
    """Return the tools of a filter in the viewer's plans, by name, and the number of them at each safety level."""
    offers = tool_calls.tools_allowed(tool_filter, Plan(author=viewer))
    counts = Counter(str(each.tool.safety_level) for each in offers.values())
    return {
        "offers": offers,
        "levels": [(level, counts[level]) for level in LEVELS if counts[level]],
        "tools_in_words": describe_filter(tool_filter),
        "most_offered": tool_calls.MOST_TOOLS,
    }


def _editor(viewer: User, form: AgentForm) -> dict[str, Any]:
    return {"form": form} | _offers(viewer, form.tools)


def _frame(viewer: User) -> dict[str, Any]:
    may_change = administration.may_change_agent(viewer)
    return {"section": "agents", "may_change": may_change, "has_role": has_role(viewer, "operator", "administrator")}
