"""Data of the pages of agents: the list, one agent with its editor and runs, and its tasks."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import Group, User
from django.http import Http404
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from catalog.access.roles import NotAllowed, has_role
from catalog.calls.vault import keyring
from catalog.core.canonical_json import digest
from catalog.errors import Conflict, ParameterError
from catalog.inventory import snapshot
from catalog.inventory.selectors import LEVELS
from catalog.inventory.snapshot import CallableTool
from catalog.models import Category
from catalog.rest.idempotency import run_once
from catalog.ui.labels import Badge
from plans.actions.create import create_plan
from plans.agents import administration, tool_calls
from plans.agents.definitions import AgentBudget, ToolFilter, agent_document, may_use
from plans.agents.runs import usage_parts, usage_text
from plans.engine.questions import ASK_USER
from plans.llm import provider
from plans.llm.provider import NotConfigured
from plans.llm.tools import EXCLUDED_CATEGORIES
from plans.models import Agent, AgentRun, Plan
from plans.spec import PlanDocument
from plans.store import selectors
from plans.store.requesters import Requester
from plans.web.access import FORM_EXPIRED, NUL_CHARACTER
from plans.web.agents.form import AgentForm, filter_in, form_of
from plans.web.compose.ask_form import KEY, STRATEGIES, may_ask

MOST_RUNS = 20
MOST_TASK = 500
MOST_CHOICES = 500
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
    """One agent in the list and on its page."""

    agent: Agent

    @property
    def times(self) -> int:
        """Number of steps it began."""
        return int(getattr(self.agent, "times", 0))

    @property
    def strategy(self) -> Mapping[str, str]:
        """Name and description of its strategy."""
        known = next((each for each in STRATEGIES if each.name == self.agent.strategy), STRATEGIES[0])
        return {"label": str(known.label), "says": str(known.says)}

    @property
    def groups(self) -> str:
        """Names of the groups that may use it."""
        return ", ".join(agent_document(self.agent).groups) or _("everyone")

    @property
    def tools(self) -> str:
        """The tools it may call, in words."""
        return describe_filter(agent_document(self.agent).tools)

    @property
    def budget(self) -> str:
        """The limits of one run, in words."""
        return describe_budget(agent_document(self.agent).budget)


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run of an agent."""

    run: AgentRun

    @property
    def plan(self) -> Plan:
        """The plan of the run's step."""
        return self.run.step.plan

    @property
    def word(self) -> Badge:
        """Badge with the reason why it stopped, or that it is at work."""
        why = self.run.stopped_for
        return STOP_LABELS[AgentRun.Stopped(why)] if self.run.ended_at and why else AT_WORK

    @property
    def took(self) -> str:
        """Its usage, in words."""
        return usage_text(self.run.rounds, self.run.calls, self.run.tokens, self.run.cost)


@dataclass(slots=True, kw_only=True)
class TaskForm:
    """Form with a task for an agent; `wrong` is the reason why it was not stored, `code` the HTTP status."""

    task: str = ""
    key: str = field(default_factory=lambda: secrets.token_urlsafe(18))
    wrong: str = ""
    code: int = 200
    most = MOST_TASK


def describe_filter(wanted: ToolFilter) -> str:
    """Return a tool filter in words."""
    names, categories = wanted.names, wanted.categories
    parts = names[:4] + ([_("%(count)s more") % {"count": len(names) - 4}] if len(names) > 4 else [])
    parts += [_("all of %(category)s") % {"category": name} for name in categories[:4]]
    if len(categories) > 4:
        more = len(categories) - 4
        parts.append(ngettext("%(count)s more category", "%(count)s more categories", more) % {"count": more})
    listed = ", ".join(parts) or _("all tools")
    if wanted.max_level == "safe":
        return _("%(tools)s, only safe ones") % {"tools": listed}
    if wanted.max_level == "cautious":
        return _("%(tools)s, except dangerous ones") % {"tools": listed}
    return listed


def describe_budget(budget: AgentBudget) -> str:
    """Return the limits of a run in words."""
    cost = f"{budget.cost.normalize():f}" if budget.cost else ""
    parts = usage_parts(budget.rounds, budget.calls, budget.tokens, cost)
    if budget.seconds:
        seconds = budget.seconds
        parts.append(
            ngettext("%(count)s second of work", "%(count)s seconds of work", seconds) % {"count": f"{seconds:,}"}
        )
    return _("Limits: %(limits)s.") % {"limits": ", ".join(parts)}


def agent_list_page(viewer: User) -> dict[str, Any]:
    """Return the context of the list."""
    rows = [AgentRow(agent) for agent in administration.agents_for(viewer)]
    return _frame(viewer) | {"rows": rows}


def new_agent_page(viewer: User, form: AgentForm | None = None) -> dict[str, Any]:
    """Return the context of the form for a new agent. Raises NotAllowed if the viewer may not create one."""
    if not administration.may_change_agent(viewer):
        raise NotAllowed(administration.NOT_ALLOWED)
    return _frame(viewer) | _editor(viewer, form or form_of(None))


def agent_page(viewer: User, name: str, form: AgentForm | None = None, task: TaskForm | None = None) -> dict[str, Any]:
    """Return the context of one agent: data, runs, task, and the form for administrators. Raises Http404."""
    agent = agent_or_404(viewer, name)
    document = agent_document(agent)
    shown = {
        "row": AgentRow(agent),
        "document": document,
        "offers": _callable_tools(viewer, document.tools),
        "most_offered": tool_calls.MOST_TOOLS,
        "runs": _runs(viewer, agent),
        "task": task or TaskForm(),
        "has_model": bool(agent.model) or provider.is_configured(),
        "may_give": agent.enabled and may_ask(viewer) and may_use(viewer, agent),
    }
    if administration.may_change_agent(viewer):
        shown |= _editor(viewer, form or form_of(document, agent))
    return _frame(viewer) | shown


def agent_or_404(viewer: User, name: str) -> Agent:
    """Return an agent that the viewer may see. Raises Http404 otherwise."""
    try:
        return administration.agent_for(viewer, name)
    except Agent.DoesNotExist:
        raise Http404 from None


def give_task(agent: Agent, form: TaskForm, *, by: Requester) -> str:
    """Store and start a plan whose only step the agent carries out, once for each form; return the plan's id.

    Raises NotAllowed, ParameterError, Conflict, NotConfigured, PlanProblems.
    """
    if not may_ask(by.user):
        raise NotAllowed(_("Giving an agent a task needs the role operator or administrator. Nothing was stored."))
    _check(form)
    if not agent.enabled:
        raise Conflict(_("This agent is switched off. Nothing was stored."))
    if not agent.model and not provider.is_configured():
        raise NotConfigured
    what = keyring().fingerprint(digest("task", agent.name, form.task))
    owner, key = f"user:{by.user.pk}", f"task:{form.key}:{what}"
    return run_once(owner, key, what, lambda: create_plan(task_document(agent, form.task), by=by).public_id)


def task_document(agent: Agent, task: str) -> PlanDocument:
    """Return a plan whose only step the agent carries out."""
    kept = {"expected_key": "answer", "output_path": ["results", "0"]}
    steps = [{"step_id": 1, "description": task, "agent": agent.name, **kept}]
    return PlanDocument.model_validate({"goal": task, "steps": steps})


def _check(form: TaskForm) -> None:
    if not form.task:
        raise ParameterError(_("Describe the task in a sentence or two."))
    if len(form.task) > MOST_TASK:
        raise ParameterError(
            _("The task has %(length)s characters, but the maximum is %(max)s.")
            % {"length": f"{len(form.task):,}", "max": MOST_TASK}
        )
    if "\0" in form.task:
        raise ParameterError(_(NUL_CHARACTER))
    if not KEY.fullmatch(form.key):
        raise Conflict(_(FORM_EXPIRED))


def _runs(viewer: User, agent: Agent) -> Sequence[RunRow]:
    """Return the latest runs in plans that the viewer may see."""
    seen = selectors.plans_for(viewer, None).values("pk")
    found = AgentRun.objects.filter(agent=agent, step__plan__in=seen).select_related("step__plan")
    return [RunRow(run) for run in found.order_by("-pk")[:MOST_RUNS]]


def _callable_tools(viewer: User, wanted: ToolFilter) -> Mapping[str, CallableTool]:
    """Return the tools that the agent may call in the viewer's plans."""
    return tool_calls.tools_allowed(wanted, Plan(author=viewer))


def _editor(viewer: User, form: AgentForm) -> dict[str, Any]:
    """Return the form with its choices; checked values that no longer exist stay in the lists."""
    there = {name: each for name, each in snapshot.callable_tools().items() if _may_be_named(each)}
    gone = [name[:64] for name in form.ticked["names"] if name not in there]
    return {
        "form": form,
        "tools": [*gone, *sorted(there)],
        "levels_of": {name: each.tool.safety_level for name, each in there.items()},
        "categories": _with_missing_choices(
            Category.objects.exclude(name__in=EXCLUDED_CATEGORIES), form.ticked["categories"]
        ),
        "groups": _with_missing_choices(Group.objects.all(), form.ticked["groups"]),
        "levels": LEVELS,
        "strategies": STRATEGIES,
        "default_model": provider.configured_model(),
        "offers": _callable_tools(viewer, filter_in(form)),
        "most_offered": tool_calls.MOST_TOOLS,
    }


def _may_be_named(target: CallableTool) -> bool:
    return target.tool.name == ASK_USER or EXCLUDED_CATEGORIES.isdisjoint(target.tool.categories)


def _with_missing_choices(rows: Any, ticked: Sequence[str]) -> list[str]:
    names = list(rows.order_by("name").values_list("name", flat=True)[:MOST_CHOICES])
    return [*(each[:150] for each in ticked if each not in names), *names]


def _frame(viewer: User) -> dict[str, Any]:
    may_change = administration.may_change_agent(viewer)
    return {"section": "agents", "may_change": may_change, "has_role": has_role(viewer, "operator", "administrator")}
