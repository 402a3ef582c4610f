"""Use of the installation over the last days: calls, decisions, tokens and cost, by day, tool, person, agent and model.

Reads no arguments or results. The number of queries is fixed, and only the newest rows are counted.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from statistics import median
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, QuerySet, Sum
from django.utils.translation import gettext as _

from approvals.queue.insights import TimedDecision, decisions_since
from catalog.access.roles import NotAllowed, can_see_all, user_display_name
from catalog.calls.statistics import UtcDay
from catalog.core import clock
from catalog.models import ApiToken, Call
from catalog.states import CallStatus
from plans.models import AgentRun, ModelUse, Step

MAX_CALLS_COUNTED, MAX_MODEL_USES_COUNTED = 50_000, 20_000
"""Maximum numbers of rows evaluated, newest first."""
FAILED = frozenset({CallStatus.FAILED, CallStatus.OUTCOME_UNKNOWN})


@dataclass(frozen=True, slots=True)
class UsageLine:
    """Calls, decisions, and requests to language models with tokens and cost, of one day, tool, person, agent or model.

    `failed` counts failed calls and those with unknown outcome; `cost` is in US dollars, as far as prices are known.
    `wait` is the median time to decision in seconds; None without decisions.
    """

    name: str = ""
    calls: int = 0
    failed: int = 0
    requests: int = 0
    tokens: int = 0
    cost: Decimal = Decimal(0)
    decided: int = 0
    approved: int = 0
    wait: float | None = None

    def plus(self, line: "UsageLine") -> "UsageLine":
        return replace(
            self,
            calls=self.calls + line.calls,
            failed=self.failed + line.failed,
            requests=self.requests + line.requests,
            tokens=self.tokens + line.tokens,
            cost=self.cost + line.cost,
        )

    def with_decisions(self, decisions: Sequence[TimedDecision]) -> "UsageLine":
        if not decisions:
            return self
        return replace(
            self,
            decided=len(decisions),
            approved=sum(each.is_approval for each in decisions),
            wait=median(each.seconds for each in decisions),
        )


@dataclass(frozen=True, slots=True)
class UsageDay:
    """The usage of one day (UTC)."""

    day: date
    line: UsageLine


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Usage over the last `days`.

    `is_cut` is True if older calls or requests to models of the period are not counted, `are_decisions_cut` if older
    decisions are not. Lines of tools, people, clients, agents and models are sorted by use, most first. In `agents`,
    `calls` are those that the agents' runs made, and `requests` counts the runs. `clients` are the tokens that call
    tools over REST and MCP.
    """

    days: int
    since: datetime
    per_day: Sequence[UsageDay]
    tools: Sequence[UsageLine]
    people: Sequence[UsageLine]
    clients: Sequence[UsageLine]
    agents: Sequence[UsageLine]
    models: Sequence[UsageLine]
    total: UsageLine
    is_cut: bool
    are_decisions_cut: bool
    unpriced: int
    """Number of requests to models without a known price."""


@dataclass(slots=True)
class _Tally:
    lines: dict[Any, UsageLine] = field(default_factory=lambda: defaultdict(UsageLine))

    def decide(self, decisions: Iterable[TimedDecision], key: Callable[[TimedDecision], Any]) -> None:
        """Count the decisions at their lines. Those whose key is None belong to no line."""
        grouped: dict[Any, list[TimedDecision]] = defaultdict(list)
        for each in decisions:
            grouped[key(each)].append(each)
        grouped.pop(None, None)
        for name, own in grouped.items():
            self.lines[name] = self.lines[name].with_decisions(own)

    def add(self, key: Any, line: UsageLine) -> None:
        self.lines[key] = self.lines[key].plus(line)

    def named(self, names: Mapping[Any, str] | None = None) -> list[UsageLine]:
        """Return the lines with their names, most used first."""
        lines = [
            replace(line, name=str(key) if names is None else names.get(key, "")) for key, line in self.lines.items()
        ]
        return sorted(lines, key=lambda line: (-line.calls, -line.tokens, -line.requests, -line.decided, line.name))


def usage_report(viewer: User, days: int) -> UsageReport:
    """Return the usage over the last `days`, today included. Raises NotAllowed for users without a role."""
    if not can_see_all(viewer):
        raise NotAllowed("Usage is for people with a role; agents' tokens have none.")
    last = clock.now().date()
    since = datetime.combine(last - timedelta(days=days - 1), time.min, tzinfo=UTC)
    calls, calls_cut = _newest(Call.objects.all(), MAX_CALLS_COUNTED, "created_at", since)
    uses, uses_cut = _newest(ModelUse.objects.all(), MAX_MODEL_USES_COUNTED, "at", since)
    by_day, by_tool, by_person, by_token, by_model = _Tally(), _Tally(), _Tally(), _Tally(), _Tally()
    grouped = calls.order_by().values_list(UtcDay("created_at"), "tool_name", "requested_by", "token", "status")
    for day, tool, person, token, status, count in grouped.annotate(count=Count("pk")):
        line = UsageLine(calls=count, failed=count if status in FAILED else 0)
        for tally, key in ((by_day, day), (by_tool, tool), (by_person, person)):
            tally.add(key, line)
        if token is not None:
            by_token.add(token, line)
    used = uses.order_by().values_list(UtcDay("at"), "model", "call__requested_by")
    sums = used.annotate(
        requests=Count("pk"),
        priced=Count("cost"),
        read=Sum("input_tokens"),
        written=Sum("output_tokens"),
        paid=Sum("cost"),
    )
    unpriced = 0
    for day, model, person, requests, priced, read, written, paid in sums:
        line = UsageLine(requests=requests, tokens=read + written, cost=paid or Decimal(0))
        unpriced += requests - priced
        for tally, key in ((by_day, day), (by_model, model), (by_person, person)):
            tally.add(key, line)
    decisions, are_decisions_cut = decisions_since(since)
    by_day.decide(decisions, lambda decision: decision.at.date())
    by_tool.decide(decisions, lambda decision: decision.tool)
    by_person.decide(decisions, lambda decision: decision.requester)
    by_token.decide(decisions, lambda decision: decision.token)
    people = {user.pk: user_display_name(user) for user in User.objects.filter(pk__in=filter(None, by_person.lines))}
    dates = [since.date() + timedelta(days=number) for number in range(days)]
    per_day = [UsageDay(day, by_day.lines.get(day, UsageLine())) for day in dates]
    return UsageReport(
        days=days,
        since=since,
        per_day=per_day,
        tools=by_tool.named(),
        people=by_person.named(people),
        clients=by_token.named(_client_names(by_token.lines)),
        agents=_agents(since, decisions),
        models=by_model.named(),
        total=_total(day.line for day in per_day).with_decisions(decisions),
        is_cut=calls_cut or uses_cut,
        are_decisions_cut=are_decisions_cut,
        unpriced=unpriced,
    )


def _newest(rows: "QuerySet[Any]", most: int, time_field: str, since: datetime) -> "tuple[QuerySet[Any], bool]":
    """Return the newest rows since a time, and whether older ones of that time are left out. Times follow the keys."""
    found = rows.filter(**{f"{time_field}__gte": since})
    first_left_out = rows.order_by("-pk").values_list("pk", time_field)[most : most + 1]
    for key, at in first_left_out:
        return found.filter(pk__gt=key), at >= since
    return found, False


def _client_names(tokens: Iterable[int]) -> dict[int, str]:
    """Return the names of tokens, each with the person for whom its client works."""
    found = ApiToken.objects.filter(pk__in=tokens).select_related("user")
    return {
        token.pk: _("%(token)s, for %(person)s") % {"token": token.name, "person": user_display_name(token.user)}
        for token in found
    }


def _agents(since: datetime, decisions: Sequence[TimedDecision]) -> list[UsageLine]:
    """Return the runs of agents that began since a time, with what they have used since their last (re)start."""
    runs = AgentRun.objects.filter(started_at__gte=since).order_by().values_list("agent__name")
    sums = runs.annotate(runs=Count("pk"), made=Sum("calls"), used=Sum("tokens"), paid=Sum("cost"))
    tally = _Tally()
    for name, count, calls, tokens, cost in sums:
        tally.add(name, UsageLine(requests=count, calls=calls, tokens=tokens, cost=cost))
    steps = Step.objects.filter(call__in=[each.call for each in decisions], parent__agent_run__isnull=False)
    agents = dict(steps.values_list("call", "parent__agent_run__agent__name"))
    tally.decide(decisions, lambda decision: agents.get(decision.call))
    return tally.named()


def _total(lines: Iterable[UsageLine]) -> UsageLine:
    total = UsageLine()
    for line in lines:
        total = total.plus(line)
    return total
