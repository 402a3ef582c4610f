"""Forecast of a plan before it starts: what runs at once, what waits and for whom, what is refused, what it may take.

The rules, limits, tools and grants of this moment judge each step as the gate would judge its call; the gate decides
again when the step starts. A step whose arguments are not known yet is judged by what holds for all arguments.
Never writes. The number of queries does not depend on the number of steps.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from itertools import chain
from statistics import median
from time import thread_time
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from approvals.envelopes.coverage import StandingEnvelopes, open_envelopes
from approvals.envelopes.coverage import find_covering as find_covering_envelope
from approvals.grants.coverage import find_covering, grants_in_scope
from approvals.models import Envelope, Grant, Policy
from approvals.policies.eligibility import may_pre_approve, people_named
from approvals.policies.envelope_rules import verdict_of
from approvals.policies.gate import rules_in_force
from approvals.policies.quorum import is_satisfied
from approvals.policies.rulebook import Rule
from approvals.policy_language.envelopes import PROPOSE_ENVELOPE
from catalog.access.limits import refusal_of
from catalog.access.roles import can_see_all
from catalog.core import clock
from catalog.core.canonical_json import Json
from catalog.core.json_paths import value_at
from catalog.dispatch.arguments import CallArguments
from catalog.dispatch.pipeline import Allow, CallFacts, Deny, GateDecision, Hold
from catalog.errors import ToolError, ToolHeld
from catalog.inventory import snapshot
from catalog.inventory.snapshot import CallableTool
from catalog.models import Call
from catalog.states import CallStatus
from catalog.tools.registry import output_key_of
from catalog.ui.labels import format_seconds
from plans.agents.definitions import AgentBudget, may_use
from plans.documents import references
from plans.documents.reading import parse_plan
from plans.engine import calls
from plans.engine.grants import grant_query
from plans.engine.questions import ASK_USER
from plans.engine.retries import most_attempts
from plans.engine.work import PlanSnapshot, PreparedCall, snapshot_of
from plans.models import Agent, AgentRun, ModelUse, Plan, StepAsker
from plans.spec import PlanDocument, StepDocument
from plans.store.plan_documents import initial_memory, step_documents
from plans.store.requesters import Requester
from plans.web.plan.waits import approvers_in_words

SECONDS_OF_DETAIL = 0.06
"""Processor time for judging steps by their arguments; the others are judged by what holds for all arguments."""
LATEST_RUNS = 20
"""Number of the newest runs of a tool or an agent that make its history."""
MOST_TIMED = 30
"""Maximum number of tools, those that most steps call, and of agents whose history is read: one query each."""
MODEL_TOOLS = {"plan_on": ModelUse.Purpose.CONTINUE, "compose_reply": ModelUse.Purpose.REPLY}
"""Tools of the planner that ask a model, and the purpose of their requests."""


class Prospect(StrEnum):
    RUNS = "runs"
    """It runs without approval."""
    GRANTED = "granted"
    """A grant lets it run without a new approval."""
    ENVELOPE = "envelope"
    """An envelope lets it run without a new approval."""
    DEPENDS = "depends"
    """Its arguments decide if it runs, waits or is refused."""
    WAITS = "waits"
    ASKS = "asks"
    """It asks the plan's owner a question."""
    AGENT = "agent"
    """An agent makes calls, each of which is judged when it is made."""
    REFUSED = "refused"
    NEVER = "never"
    """It waits for a step that waits for it."""


@dataclass(frozen=True, slots=True)
class StepOutlook:
    """The outlook of one step. Steps with an equal outlook are shown together.

    `people` are those who must approve, `policies` the names of the rules that hold or refuse; `nobody` is True if
    nobody may approve it.
    """

    prospect: Prospect
    people: str = ""
    policies: tuple[str, ...] = ()
    why: str = ""
    grant: str = ""
    envelope: str = ""
    nobody: bool = False


@dataclass(frozen=True, slots=True)
class PolicyLink:
    """A policy's name, and its id for viewers who may read it."""

    name: str
    public_id: str = ""


@dataclass(frozen=True, slots=True)
class OutlookGroup:
    outlook: StepOutlook
    steps: Sequence[int]
    policies: Sequence[PolicyLink] = ()


@dataclass(frozen=True, slots=True)
class AgentCost:
    """Limits of one agent's runs for all its steps, and medians of its last runs; None for unlimited or no history."""

    name: str
    calls: int | None
    rounds: int
    cost: Decimal | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Forecast:
    """Forecast for the steps of a plan; empty for a document without readable steps.

    `first` are the steps that begin at once, `side_by_side` how many steps may run together at most, `most_waiting` how
    many requests may wait at once if these are fewer than the gated steps. `seconds` is the
    time of the longest chain of steps without waits for people, `cost` the US dollars of its models; None without any
    history. `untimed` and `unpriced` are the tools and agents without a history.
    """

    total: int = 0
    first: Sequence[int] = ()
    side_by_side: int = 0
    most_waiting: int | None = None
    groups: Sequence[OutlookGroup] = ()
    calls: int = 0
    budget: int | None = None
    agents: Sequence[AgentCost] = ()
    seconds: float | None = None
    untimed: Sequence[str] = ()
    cost: Decimal | None = None
    unpriced: Sequence[str] = ()
    shows_cost: bool = True
    outlooks: Mapping[int, StepOutlook] = field(default_factory=dict)

    def of(self, *prospects: Prospect) -> list[OutlookGroup]:
        return [group for group in self.groups if group.outlook.prospect in prospects]

    @property
    def running(self) -> list[OutlookGroup]:
        return self.of(Prospect.RUNS, Prospect.GRANTED, Prospect.ENVELOPE, Prospect.AGENT)

    @property
    def waiting(self) -> list[OutlookGroup]:
        return self.of(Prospect.WAITS, Prospect.ASKS)

    @property
    def depending(self) -> list[OutlookGroup]:
        return self.of(Prospect.DEPENDS)

    @property
    def failing(self) -> list[OutlookGroup]:
        return self.of(Prospect.REFUSED, Prospect.NEVER)

    @property
    def duration(self) -> str:
        return "" if self.seconds is None else format_seconds(self.seconds)

    @property
    def gated(self) -> int:
        """Number of steps that need approval, or may need it."""
        found = self.of(Prospect.WAITS, Prospect.DEPENDS)
        return sum(len(group.steps) for group in found if group.outlook.people)

    @property
    def most_calls(self) -> str:
        """The number of calls at most, in words."""
        own = ngettext("%(count)s call", "%(count)s calls", self.calls) % {"count": f"{self.calls:,}"}
        parts = [own] if self.calls or not self.agents else []
        for agent in self.agents:
            words = _("any number of calls by %(agent)s, in %(rounds)s model turns")
            if agent.calls is not None:
                words = ngettext(
                    "%(calls)s call by %(agent)s, in %(rounds)s model turns",
                    "%(calls)s calls by %(agent)s, in %(rounds)s model turns",
                    agent.calls,
                )
            parts.append(words % {"calls": agent.calls, "agent": agent.name, "rounds": agent.rounds})
        return ", ".join(parts)


def forecast(document: Json | PlanDocument, by: Requester) -> Forecast:
    """Return the forecast of a plan that `by` would submit now. The document may have any errors."""
    parsed = parse_plan(document)
    facts = PlanSnapshot(
        pk=0,
        ref="",
        author_id=by.user.pk,
        token_id=by.ids.token_id,
        token_user_id=by.token.user_id if by.token else None,
        via=by.via,
        session=by.session,
        is_call=False,
        deadline_at=None,
        has_budget=False,
        token_limits=by.limits,
    )
    plain = document.model_dump(include={"budget"}) if isinstance(document, PlanDocument) else document
    budget = value_at(plain, ("budget", "calls"))
    steps = {step.step_id: step for step in parsed.steps.values() if step.step_id > 0}
    is_read = {step.step_id: parsed.reads(index, "parameters") for index, step in parsed.steps.items()}
    unread = frozenset(number for number in steps if not is_read[number])
    maker = _Forecaster(facts, steps, parsed.memory, by.user, unread=unread, requester=by.user)
    return maker.forecast(budget if isinstance(budget, int) else None)


def forecast_of_plan(plan: Plan, viewer: User) -> Forecast:
    """Return the forecast of a stored plan that has not started; its token must be loaded."""
    steps = {number: StepDocument.model_construct(**each) for number, each in step_documents(plan).items()}
    askers: dict[int, set[int]] = {}
    for number, person in StepAsker.objects.filter(step__plan=plan).values_list("step__step_id", "person"):
        askers.setdefault(number, set()).add(person)
    maker = _Forecaster(snapshot_of(plan), steps, initial_memory(plan), viewer, askers)
    return maker.forecast(plan.budget_calls)


@dataclass
class _Forecaster:
    """Judge of the steps of one plan at one moment.

    `askers` are people, besides the plan's requester, who shaped a step; `unread` the steps whose parameters could not
    be read; `requester` the person who must be allowed to use its agents, None for a plan that was checked.
    """

    plan: PlanSnapshot
    steps: Mapping[int, StepDocument]
    memory: Mapping[str, Any]
    viewer: User
    askers: Mapping[int, Collection[int]] = field(default_factory=dict)
    unread: Collection[int] = ()
    requester: User | None = None
    verdicts: dict[tuple[str, frozenset[int], frozenset[str]], list[GateDecision]] = field(
        default_factory=dict, init=False
    )
    """The verdicts that are possible for a tool, requesters and names of arguments."""
    held: dict[tuple[Rule, frozenset[int]], StepOutlook] = field(default_factory=dict, init=False)
    """The outlooks of held calls by rule and requesters."""

    def __post_init__(self) -> None:
        self.now = clock.now()
        self.rules = rules_in_force()
        self.until = thread_time() + SECONDS_OF_DETAIL
        self.writers: dict[str, int] = {}
        for number, step in self.steps.items():
            if key := step.expected_key or output_key_of(step.tool or ""):
                self.writers.setdefault(key, number)
        self.needs = {
            number: [each for each in step.dependencies if each in self.steps] for number, step in self.steps.items()
        }

    def forecast(self, budget: int | None) -> Forecast:
        if not self.steps:
            return Forecast()
        waves = self.waves()
        placed = set(chain.from_iterable(waves))
        outlooks = {
            number: self.outlook(step) if number in placed else StepOutlook(Prospect.NEVER)
            for number, step in self.steps.items()
        }
        limit = settings.TOOLGATE_MAX_RUNNING_PER_PLAN or len(self.steps)
        agents, times = self.agent_costs, self.times()
        return Forecast(
            total=len(self.steps),
            first=[number for number in (waves or [[]])[0] if outlooks[number].prospect != Prospect.REFUSED],
            side_by_side=min(limit, max(map(len, waves), default=0)),
            most_waiting=self.most_waiting(outlooks),
            groups=self.groups(outlooks),
            calls=sum(map(self.most_calls, self.steps.values())),
            budget=budget,
            agents=list(agents.values()),
            seconds=self.longest_chain(waves, times, agents),
            untimed=sorted(name for name, seconds in times.items() if seconds is None)
            + sorted(agent.name for agent in agents.values() if agent.seconds is None),
            outlooks=outlooks,
            **self.costs(agents),
        )

    def waves(self) -> list[list[int]]:
        """Return the steps by the length of the longest chain before them, without those behind a circle."""
        left = {number: len(set(needed)) for number, needed in self.needs.items()}
        dependents: dict[int, list[int]] = {}
        for number, needed in self.needs.items():
            for each in set(needed):
                dependents.setdefault(each, []).append(number)
        waves, wave = [], sorted(number for number, count in left.items() if not count)
        while wave:
            waves.append(wave)
            freed = []
            for dependent in chain.from_iterable(dependents.get(number, ()) for number in wave):
                left[dependent] -= 1
                if not left[dependent]:
                    freed.append(dependent)
            wave = sorted(freed)
        return waves

    def outlook(self, step: StepDocument) -> StepOutlook:
        if step.agent or not step.tool:
            return self.outlook_without_tool(step)
        target = snapshot.callable_tool(step.tool)
        if target is None or not target.enabled or target.held:
            return StepOutlook(Prospect.REFUSED, why=_why_unusable(step.tool, target))
        found = self.possible_verdicts(step, target)
        is_asked = isinstance(found[0], Hold) and self.may_be_covered(target)
        depends = step.tool == PROPOSE_ENVELOPE and not isinstance(found[0], Deny)  # on its items
        if len(found) == 1 and not is_asked and not depends:
            return self.judged(step, found[0])
        why, prepared = self.prepare(step, target)
        if prepared is None:
            return self.undecided(step, found, why)
        verdict = refusal_of(facts := self.facts(step, prepared)) or verdict_of(facts, self.rules, self.now)
        covering = self.covering(step, prepared, verdict.terms) if isinstance(verdict, Hold) else None
        return self.judged(step, verdict, covering)

    def outlook_without_tool(self, step: StepDocument) -> StepOutlook:
        if not step.agent:
            return StepOutlook(Prospect.RUNS)
        if step.agent in self.agent_costs:
            return StepOutlook(Prospect.AGENT, why=step.agent)
        why = _("There is no agent called %(agent)s, or it is switched off.") % {"agent": step.agent}
        return StepOutlook(Prospect.REFUSED, why=why)

    def requesters(self, step: StepDocument) -> frozenset[int]:
        return frozenset({self.plan.asker.user_id, self.plan.author_id, *self.askers.get(step.step_id, ())})

    def facts(self, step: StepDocument, prepared: PreparedCall) -> CallFacts:
        people = self.requesters(step)
        return replace(calls.facts_for_rules(prepared, self.plan), find_requesters=lambda: people)

    def possible_verdicts(self, step: StepDocument, callable_tool: CallableTool) -> list[GateDecision]:
        """Return the verdicts that calls of the step's tool may get, whatever the values of its arguments.

        They are the same for all steps of a tool that name the same arguments.
        """
        declared = callable_tool.tool.input_schema.get("properties", {})
        names = frozenset((*step.parameters, *declared))
        key = (callable_tool.tool.name, self.requesters(step), names)
        if key not in self.verdicts:
            facts = self.facts(step, PreparedCall(callable_tool, CallArguments({}), "{}"))
            refusal = refusal_of(facts)
            both = chain(*(self.rules.possible_verdicts(each, self.now, names) for each in (facts, facts.as_asked)))
            self.verdicts[key] = [refusal] if refusal else list(dict.fromkeys(both))
        return self.verdicts[key]

    def prepare(self, step: StepDocument, callable_tool: CallableTool) -> tuple[str, PreparedCall | None]:
        """Return the step's call, or None and the reason why its arguments are not known yet."""
        unknown = _("Its arguments are judged when it runs.")
        if step.step_id in self.unread or thread_time() > self.until:
            return unknown, None
        try:
            for reference in references.find(step.parameters):
                writer = self.writers.get(reference.key)
                if writer not in (None, step.step_id):
                    return _("It depends on the result of step %(number)s.") % {"number": writer}, None
                if reference.key not in self.memory:
                    return _("It depends on a value that is not known yet."), None
            arguments = references.resolve(step.parameters, self.memory)
            return "", calls.prepare_call(callable_tool.tool.name, arguments, plan_ref=self.plan.ref)
        except ToolError:  # a problem of the document, a secret that is kept apart, or code that is not loaded here
            return unknown, None

    def judged(
        self, step: StepDocument, verdict: GateDecision, grant_or_envelope: Grant | Envelope | None = None
    ) -> StepOutlook:
        if isinstance(verdict, Deny):
            policies = (verdict.policy,) if verdict.policy else ()
            return StepOutlook(Prospect.REFUSED, policies=policies, why=verdict.message)
        if isinstance(verdict, Allow):
            return StepOutlook(Prospect.ASKS if step.tool == ASK_USER else Prospect.RUNS)
        rule: Rule = verdict.terms
        if step.tool == ASK_USER:
            why = _("A policy holds questions for approval, which is not supported.")
            return StepOutlook(Prospect.REFUSED, policies=(rule.policy,), why=why)
        if isinstance(grant_or_envelope, Grant):
            return StepOutlook(Prospect.GRANTED, grant=grant_or_envelope.public_id)
        if grant_or_envelope is not None:
            return StepOutlook(Prospect.ENVELOPE, envelope=grant_or_envelope.public_id)
        return self.waiting(rule, self.requesters(step))

    def undecided(self, step: StepDocument, verdicts: Sequence[GateDecision], why: str) -> StepOutlook:
        """Return the outlook of a step that gets one of several verdicts, or that may be covered."""
        parts = [self.judged(step, verdict) for verdict in verdicts]
        if all(part.prospect == Prospect.RUNS for part in parts) and step.tool != PROPOSE_ENVELOPE:
            return parts[0]
        people = dict.fromkeys(part.people for part in parts if part.people)
        policies = tuple(dict.fromkeys(chain.from_iterable(part.policies for part in parts)))
        nobody = any(part.nobody for part in parts)
        return StepOutlook(Prospect.DEPENDS, _(" or ").join(people), policies, why, nobody=nobody)

    @cached_property
    def grants(self) -> list[Grant]:
        asker = self.plan.asker
        return list(grants_in_scope(self.plan.ref, asker.session, asker.user_id, self.now))

    @cached_property
    def envelopes(self) -> StandingEnvelopes:
        asker, plan_ref = self.plan.asker, self.plan.ref
        found = open_envelopes(
            requested_by=asker.user_id, token=asker.token_id, plan_ref=plan_ref, session=asker.session, now=self.now
        )
        return StandingEnvelopes(found)

    def may_be_covered(self, callable_tool: CallableTool) -> bool:
        """Return True if a grant or an envelope may let calls of the tool start, whatever their arguments."""
        tool_pk = callable_tool.tool_pk
        return any(grant.tool_id == tool_pk for grant in self.grants) or self.envelopes.has_tool(tool_pk)

    def covering(self, step: StepDocument, prepared: PreparedCall, rule: Rule) -> Grant | Envelope | None:
        """Return the grant or the envelope that lets the step's call start, as the gate finds it."""
        query = grant_query(self.plan, prepared, set(self.requesters(step)))
        return find_covering(query, rule, self.grants) or find_covering_envelope(query, rule, self.envelopes)

    def waiting(self, rule: Rule, requesters: frozenset[int]) -> StepOutlook:
        """Return the outlook of calls of these requesters that the rule holds; judged once."""
        key = (rule, requesters)  # all combined rules that are not stored have one revision
        if key not in self.held:
            people = None  # to check how long each person has been a member takes a query for each
            if not rule.min_role_age_seconds:
                people = [each for each in self.reviewers if may_pre_approve(rule, each, requesters) is None]
            nobody = people is not None and not is_satisfied(rule, people)
            words = approvers_in_words(rule.stages, people)
            self.held[key] = StepOutlook(Prospect.WAITS, words, (rule.policy,), nobody=nobody)
        return self.held[key]

    @cached_property
    def reviewers(self) -> list[User]:
        """The members of the groups that rules name, loaded once."""
        return people_named(clause.rule for clause in self.rules.clauses)

    def groups(self, outlooks: Mapping[int, StepOutlook]) -> list[OutlookGroup]:
        found: dict[StepOutlook, list[int]] = {}
        for number, outlook in sorted(outlooks.items()):
            found.setdefault(outlook, []).append(number)
        names = set(chain.from_iterable(outlook.policies for outlook in found))
        ids: dict[str, str] = {}
        if names and can_see_all(self.viewer):
            rows = Policy.objects.filter(name__in=names, ended_at=None)
            ids = dict(rows.values_list("name", "public_id"))
        return [
            OutlookGroup(outlook, steps, [PolicyLink(name, ids.get(name, "")) for name in outlook.policies])
            for outlook, steps in found.items()
        ]

    def most_waiting(self, outlooks: Mapping[int, StepOutlook]) -> int | None:
        """Return how many requests of the plan may wait at once; None if all that its steps need may."""
        gated = sum(outlook.prospect == Prospect.WAITS for outlook in outlooks.values())
        per_token = settings.TOOLGATE_MAX_PENDING_PER_TOKEN if self.plan.token_id else 0
        limits = (settings.TOOLGATE_MAX_PENDING_PER_PLAN, settings.TOOLGATE_MAX_PENDING_PER_REQUESTER, per_token)
        return min((limit for limit in limits if 0 < limit < gated), default=None)

    def most_calls(self, step: StepDocument) -> int:
        target = snapshot.callable_tool(step.tool) if step.tool else None
        return most_attempts(target.tool) if target is not None else 0

    def times(self) -> dict[str, float | None]:
        """Return the median seconds of the last runs of each tool; None for a tool that has not run yet."""
        counts: dict[str, int] = {}
        for step in self.steps.values():
            if step.tool and step.tool != ASK_USER and snapshot.callable_tool(step.tool) is not None:
                counts[step.tool] = counts.get(step.tool, 0) + 1
        found: dict[str, float | None] = {}
        for name in sorted(counts, key=lambda name: -counts[name])[:MOST_TIMED]:
            ended = Call.objects.filter(tool_name=name, status=CallStatus.COMPLETED, started_at__isnull=False)
            spans = ended.order_by("-created_at").values_list("started_at", "finished_at")[:LATEST_RUNS]
            found[name] = _median((end - start).total_seconds() for start, end in spans if start and end)
        return found

    @cached_property
    def agent_costs(self) -> dict[str, AgentCost]:
        """Limits and history of the enabled agents that the steps name: one query, and one for each agent."""
        counts: dict[str, int] = {}
        for step in self.steps.values():
            if step.agent:
                counts[step.agent] = counts.get(step.agent, 0) + 1
        found: dict[str, AgentCost] = {}
        for agent in Agent.objects.filter(enabled=True) if counts else ():  # PostgreSQL cannot compare a name with NUL
            if agent.name not in counts or (self.requester is not None and not may_use(self.requester, agent)):
                continue
            budget, times = AgentBudget.model_validate_json(agent.budget), counts[agent.name]
            runs = AgentRun.objects.filter(agent=agent, ended_at__isnull=False).order_by("-pk")
            history = list(runs.values_list("cost", "seconds")[:LATEST_RUNS]) if len(found) < MOST_TIMED else []
            found[agent.name] = AgentCost(
                agent.name,
                None if budget.calls is None else budget.calls * times,
                budget.rounds * times,
                _median(cost for cost, _ in history),
                _median(seconds for _, seconds in history),
            )
        return found

    def longest_chain(
        self, waves: Sequence[Sequence[int]], times: Mapping[str, float | None], agents: Mapping[str, AgentCost]
    ) -> float | None:
        """Return the seconds of the longest chain of steps; None if no step has a history."""
        if not any(times.values()) and not any(agent.seconds for agent in agents.values()):
            return None
        ends: dict[int, float] = {}
        for number in chain.from_iterable(waves):
            step = self.steps[number]
            took = agents[step.agent].seconds if step.agent and step.agent in agents else times.get(step.tool or "")
            ends[number] = (took or 0.0) + max((ends[needed] for needed in self.needs[number]), default=0.0)
        return max(ends.values(), default=0.0)

    def costs(self, agents: Mapping[str, AgentCost]) -> dict[str, Any]:
        """Return the cost of all model requests by the medians of their histories, and the names without one."""
        if not can_see_all(self.viewer):
            return {"shows_cost": False}
        prices = {agent.name: agent.cost for agent in agents.values()}
        for tool in {step.tool for step in self.steps.values() if step.tool in MODEL_TOOLS}:
            uses = ModelUse.objects.filter(purpose=MODEL_TOOLS[tool], cost__isnull=False).order_by("-pk")
            prices[tool] = _median(uses.values_list("cost", flat=True)[:LATEST_RUNS])
        known = [
            price for step in self.steps.values() if (price := prices.get(step.agent or step.tool or "")) is not None
        ]
        unpriced = sorted(name for name, price in prices.items() if price is None)
        return {"cost": sum(known, Decimal(0)) if known else None, "unpriced": unpriced}


def _why_unusable(name: str, callable_tool: CallableTool | None) -> str:
    if callable_tool is None:
        return _("There is no tool called %(tool)s.") % {"tool": name}
    return (
        _("%(tool)s is switched off.") % {"tool": name} if not callable_tool.enabled else ToolHeld(name).user_message()
    )


def _median(values: Iterable[Any]) -> Any:
    found = list(values)
    return median(found) if found else None
