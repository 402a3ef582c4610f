"""The pages of agents: the list, one with its editor and what it did, and giving it a task."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import Group, User
from django.http import Http404

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
from plans.engine.questions import ASK_USER
from plans.llm import provider
from plans.llm.provider import NotConfigured
from plans.llm.tools import EXCLUDED_CATEGORIES
from plans.models import Agent, AgentRun, Plan
from plans.spec import PlanDocument
from plans.store import selectors
from plans.store.requesters import Requester
from plans.web.agents.form import AgentForm, filter_in, form_of
from plans.web.compose.ask_form import KEY, STRATEGIES, may_ask

MOST_RUNS = 20
MOST_TASK = 500
MOST_CHOICES = 500
NEEDS_ROLE = "Giving an agent a task needs the role operator or administrator. Nothing was stored."
AT_WORK = Badge("At work", "run", "run")
STOP_LABELS = {
    AgentRun.Stopped.DONE: Badge("Done", "ok", "ok"),
    AgentRun.Stopped.ROUNDS: Badge("Stopped: its rounds were used up", "stop", "warn"),
    AgentRun.Stopped.CALLS: Badge("Stopped: its calls were used up", "stop", "warn"),
    AgentRun.Stopped.TOKENS: Badge("Stopped: its tokens were used up", "stop", "warn"),
    AgentRun.Stopped.COST: Badge("Stopped: it cost as much as it may", "stop", "warn"),
    AgentRun.Stopped.SECONDS: Badge("Stopped: its time was used up", "stop", "warn"),
    AgentRun.Stopped.FAILED: Badge("Failed", "fail", "danger"),
}


@dataclass(frozen=True, slots=True)
class AgentRow:
    """One agent as the list and its page say it."""

    agent: Agent

    @property
    def times(self) -> int:
        """How many steps it began."""
        return int(getattr(self.agent, "times", 0))

    @property
    def strategy(self) -> Mapping[str, str]:
        """How it goes about its work, in words."""
        known = next((each for each in STRATEGIES if each.name == self.agent.strategy), STRATEGIES[0])
        return {"label": known.label, "says": known.says}

    @property
    def groups(self) -> str:
        """Who may use it."""
        return ", ".join(agent_document(self.agent).groups) or "everyone"

    @property
    def tools(self) -> str:
        """Which tools it may call, in words."""
        return describe_filter(agent_document(self.agent).tools)

    @property
    def budget(self) -> str:
        """What one run may take, in words."""
        return describe_budget(agent_document(self.agent).budget)


@dataclass(frozen=True, slots=True)
class RunRow:
    """One time an agent began a step."""

    run: AgentRun

    @property
    def plan(self) -> Plan:
        """The plan whose step it was."""
        return self.run.step.plan

    @property
    def word(self) -> Badge:
        """Why it stopped, or that it has not."""
        why = self.run.stopped_for
        return STOP_LABELS[AgentRun.Stopped(why)] if self.run.ended_at and why else AT_WORK

    @property
    def took(self) -> str:
        """What it took, in words."""
        calls = f"{self.run.calls:,} call{'' if self.run.calls == 1 else 's'}"
        cost = f", {self.run.cost:.4f} US dollars" if self.run.cost else ""
        asked = "once" if self.run.rounds == 1 else f"{self.run.rounds:,} times"
        return f"asked {asked}, {calls}, {self.run.tokens:,} tokens{cost}"


@dataclass(slots=True, kw_only=True)
class TaskForm:
    """What an agent is to do, as its form shows it; `wrong` says why it was not stored, `code` is HTTP's for that."""

    task: str = ""
    key: str = field(default_factory=lambda: secrets.token_urlsafe(18))
    wrong: str = ""
    code: int = 200
    most = MOST_TASK


def describe_filter(wanted: ToolFilter) -> str:
    """Say which tools a filter lets through."""
    parts = [*wanted.names[:4], *([f"{len(wanted.names) - 4} more"] if len(wanted.names) > 4 else [])]
    parts += [f"all of {name}" for name in wanted.categories[:4]]
    parts += [f"{len(wanted.categories) - 4} more categories"] if len(wanted.categories) > 4 else []
    up_to = {"safe": ", safe ones only", "cautious": ", none that is dangerous"}.get(wanted.max_level, "")
    return f"{', '.join(parts) or 'all tools'}{up_to}"


def describe_budget(budget: AgentBudget) -> str:
    """Say what one run may take."""
    parts = [f"{budget.rounds} model turns"]
    parts += [f"{budget.calls:,} calls"] if budget.calls else []
    parts += [f"{budget.tokens:,} tokens"] if budget.tokens else []
    parts += [f"{budget.cost.normalize():f} US dollars"] if budget.cost else []
    parts += [f"{budget.seconds:,} seconds of work"] if budget.seconds else []
    return f"Limits: {', '.join(parts)}."


def agent_list_page(viewer: User) -> dict[str, Any]:
    """Return the list."""
    rows = [AgentRow(agent) for agent in administration.agents_for(viewer)]
    return _frame(viewer) | {"rows": rows}


def new_agent_page(viewer: User, form: AgentForm | None = None) -> dict[str, Any]:
    """Return the form of an agent that is to be made. Raises NotAllowed for who may make none."""
    if not administration.may_change_agent(viewer):
        raise NotAllowed(administration.NOT_ALLOWED)
    return _frame(viewer) | _editor(viewer, form or form_of(None))


def agent_page(viewer: User, name: str, form: AgentForm | None = None, task: TaskForm | None = None) -> dict[str, Any]:
    """Return one agent: what it is, its form for administrators, its runs, its task. Raises Http404."""
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
    """Return an agent that the viewer sees; raise Http404."""
    try:
        return administration.agent_for(viewer, name)
    except Agent.DoesNotExist:
        raise Http404 from None


def give_task(agent: Agent, form: TaskForm, *, by: Requester) -> str:
    """Store and start a plan of the one step that the agent carries out; return its id. The same form makes it once.

    Raises NotAllowed, ParameterError, Conflict, NotConfigured, PlanProblems.
    """
    if not may_ask(by.user):
        raise NotAllowed(NEEDS_ROLE)
    _check(form)
    if not agent.enabled:
        raise Conflict("This agent is switched off. Nothing was stored.")
    if not agent.model and not provider.is_configured():
        raise NotConfigured
    what = keyring().fingerprint(digest("task", agent.name, form.task))
    owner, key = f"user:{by.user.pk}", f"task:{form.key}:{what}"
    return run_once(owner, key, what, lambda: create_plan(task_document(agent, form.task), by=by).public_id)


def task_document(agent: Agent, task: str) -> PlanDocument:
    """Return the plan of the one step that the agent carries out."""
    kept = {"expected_key": "answer", "output_path": ["results", "0"]}
    steps = [{"step_id": 1, "description": task, "agent": agent.name, **kept}]
    return PlanDocument.model_validate({"goal": task, "steps": steps})


def _check(form: TaskForm) -> None:
    if not form.task:
        raise ParameterError("Say in a sentence or two what it is to do.")
    if len(form.task) > MOST_TASK:
        raise ParameterError(f"This has {len(form.task):,} characters; a task has at most {MOST_TASK}.")
    if "\0" in form.task:
        raise ParameterError("This holds the NUL character, which no task may.")
    if not KEY.fullmatch(form.key):
        raise Conflict("This form has lost its key; send it once more.")


def _runs(viewer: User, agent: Agent) -> Sequence[RunRow]:
    """Return the last runs in plans that the viewer sees."""
    seen = selectors.plans_for(viewer, None).values("pk")
    found = AgentRun.objects.filter(agent=agent, step__plan__in=seen).select_related("step__plan")
    return [RunRow(run) for run in found.order_by("-pk")[:MOST_RUNS]]


def _callable_tools(viewer: User, wanted: ToolFilter) -> Mapping[str, CallableTool]:
    """Return the tools that the agent may call in the viewer's plans: of too many, the likest its task are offered."""
    return tool_calls.tools_allowed(wanted, Plan(author=viewer))


def _editor(viewer: User, form: AgentForm) -> dict[str, Any]:
    """Return the form with what there is to choose from; what is ticked and gone stays to be unticked."""
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
