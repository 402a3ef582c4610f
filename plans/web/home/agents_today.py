"""Agents at work today: calls, waiting requests, tokens and cost, for each token of a client and each agent."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import lru_cache

from django.contrib.auth.models import User
from django.db.models import Count

from approvals.requests.queries import pending_for
from catalog.access.roles import ADMINISTRATOR, can_see_all, has_role, user_display_name
from catalog.core import clock
from catalog.core.clock import current_minute
from catalog.models import ApiToken, Call, Tool
from catalog.states import CallStatus
from catalog.text.formats import local_time
from plans.models import AgentRun, Step
from plans.states import WaitingFor
from plans.store.selectors import plans_for

MOST_SHOWN = 8
MOST_RUNS = 1000
"""Number of newest runs of agents that are considered."""


@dataclass(frozen=True, slots=True)
class AgentDay:
    """Work of a client's token or of an agent since midnight, of the reader, and its requests that wait now.

    `tokens` and `cost` (US dollars) are None for a token, because its client's model is not known. `token_pk` is set if
    the viewer may open the page of the token.
    """

    name: str
    owner: str = ""
    is_agent: bool = False
    token_pk: int | None = None
    calls: int = 0
    waiting: int = 0
    tokens: int | None = None
    cost: Decimal | None = None


def agents_today(viewer: User) -> Sequence[AgentDay]:
    """Return who worked today or waits now, most calls first, as far as the viewer may see it."""
    midnight = local_time(clock.now()).replace(hour=0, minute=0, second=0, microsecond=0)
    rows = [*_agents(viewer, midnight), *_tokens(viewer, midnight)]
    return sorted(rows, key=lambda row: (-row.calls, -row.waiting, row.name))[:MOST_SHOWN]


def _tokens(viewer: User, midnight: datetime) -> list[AgentDay]:
    made = _calls_by_token(current_minute(), midnight)
    # Open calls are indexed by status: without it PostgreSQL reads all calls to find those with tokens.
    held = pending_for(viewer).filter(call__status=CallStatus.HELD).exclude(call__token=None)
    waiting = dict(held.order_by().values_list("call__token").annotate(count=Count("*")))
    tokens = ApiToken.objects.filter(pk__in=made.keys() | waiting.keys()).select_related("user")
    tokens = tokens if can_see_all(viewer) else tokens.filter(user=viewer)
    return [
        AgentDay(
            token.name,
            user_display_name(token.user),
            token_pk=token.pk if has_role(viewer, ADMINISTRATOR) or token.user_id == viewer.pk else None,
            calls=made.get(token.pk, 0),
            waiting=waiting.get(token.pk, 0),
        )
        for token in tokens
    ]


@lru_cache(maxsize=8)
def _calls_by_token(_minute: int, midnight: datetime) -> Mapping[int, int]:
    """Return the number of calls since midnight of each token, counted once a minute."""
    # Calls are indexed by the names of their tools and time.
    calls = Call.objects.filter(tool_name__in=Tool.objects.order_by().values("name"), created_at__gte=midnight)
    return dict(calls.exclude(token=None).order_by().values_list("token").annotate(count=Count("*")))


def _agents(viewer: User, midnight: datetime) -> list[AgentDay]:
    seen = (
        AgentRun.objects.all()
        if can_see_all(viewer)
        else AgentRun.objects.filter(step__plan__in=plans_for(viewer).values("pk"))
    )
    columns = ("pk", "agent__name", "started_at", "ended_at", "calls", "tokens", "cost")
    newest = seen.order_by("-pk").values_list(*columns)[:MOST_RUNS]
    runs = [run for run in newest if run[3] is None or run[3] >= midnight]
    open_runs = [pk for pk, _, _, ended_at, *_ in runs if ended_at is None]
    held = Step.objects.filter(parent__agent_run__in=open_runs, waiting_for=WaitingFor.APPROVAL).order_by()
    waiting = dict(held.values_list("parent__agent_run__agent__name").annotate(count=Count("*"))) if open_runs else {}
    totals: dict[str, tuple[int, int, Decimal]] = defaultdict(lambda: (0, 0, Decimal()))
    for _, name, _, _, calls, tokens, cost in runs:
        before = totals[name]
        totals[name] = (before[0] + calls, before[1] + tokens, before[2] + cost)
    return [
        AgentDay(name, is_agent=True, calls=calls, waiting=waiting.get(name, 0), tokens=tokens, cost=cost)
        for name, (calls, tokens, cost) in totals.items()
    ]
