"""Sessions as their pages and the API show them: a session's list and calls, and the list of sessions.

Sessions have no rows of their own: the newest plan stands for its session, with or without a to-do list.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import Case, Count, Exists, F, Max, OuterRef, Q, QuerySet, Subquery, Value, When
from django.utils.translation import gettext

from catalog.access.roles import user_display_name
from catalog.calls.privacy import private_parts_of
from catalog.client_tools.previews import preview
from catalog.models import ApiToken, Call, ClientRun
from catalog.ui.labels import Badge, status_badge
from plans.models import Plan, Step
from plans.sessions.lists import SessionKey, current_lists, session_calls
from plans.store.selectors import plan_for, plans_for, step_counts

MAX_SUMMARISED = 50_000
"""Characters of arguments that are read to summarise the calls of one page: that many commands may take 0.3 s."""


@dataclass(frozen=True, slots=True)
class ListedStep:
    step: Step
    word: Badge


@dataclass(frozen=True, slots=True)
class SessionCall:
    """A call, and for one that its client runs itself its `run`, and what it would do unless that is private."""

    call: Call
    word: Badge
    summary: str = ""
    run: ClientRun | None = None


@dataclass(frozen=True, slots=True)
class SessionOverview:
    """One session: its owner, its list if there is one, and its newest calls, newest first."""

    id: str
    name: str
    author: User
    token: ApiToken | None
    row: Plan | None
    steps: Sequence[ListedStep]
    calls: Sequence[SessionCall]

    @property
    def title(self) -> str:
        return title_of(self.name)

    @property
    def owner(self) -> str:
        return user_display_name(self.author)

    @property
    def word(self) -> Badge | None:
        return status_badge(self.row.status) if self.row else None

    @property
    def done(self) -> int:
        return sum(each.step.status == "completed" for each in self.steps)


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One session in the list: its newest plan, its to-do list, progress and number of calls (0 if not counted)."""

    newest: Plan
    todo_list: Plan | None
    done: int = 0
    total: int = 0
    calls: int = 0

    @property
    def id(self) -> str:
        """The id of its list, or else of its newest plan."""
        return (self.todo_list or self.newest).public_id

    @property
    def name(self) -> str:
        return self.newest.session

    @property
    def title(self) -> str:
        return title_of(self.name)

    @property
    def author(self) -> User:
        """The person who owns the session, or the owner of its agent's token."""
        return self.newest.author

    @property
    def token(self) -> ApiToken | None:
        """The agent's token that owns the session; None for a person's session."""
        token = self.newest.token
        return token if token is not None and token.kind == ApiToken.Kind.AGENT else None

    @property
    def word(self) -> Badge | None:
        return status_badge(self.todo_list.status) if self.todo_list else None

    @property
    def last_active_at(self) -> datetime:
        """The time of its last call or change of its list."""
        return self.newest.created_at


def title_of(name: str) -> str:
    return name or gettext("Default session")


AGENT_TOKEN = Case(When(token__kind=ApiToken.Kind.AGENT, then=F("token_id")), default=Value(0))
"""For a plan: the agent's token that owns its session, or 0 for a person's session."""
HAS_CALL = ~Q(kind=Plan.Kind.PLAN) | Exists(Step.objects.filter(plan=OuterRef("pk"), call__isnull=False))
"""For a plan: true if a call was made in it. Lists always are set up by a call."""


def newest_plans_of_sessions(
    viewer: User, token: ApiToken | None = None, *, through: int | None = None, status: str | None = None
) -> "QuerySet[Plan]":
    """Return the newest plan of each session with a call that the viewer may see; `list_pk` is the key of its list.

    `through` filters by a token used in the session, `status` by the status of its list.
    """
    visible = plans_for(viewer, token).order_by().filter(HAS_CALL)
    if through is not None:
        visible = visible.filter(token=through)
    sessions = visible.annotate(agent=AGENT_TOKEN).values("author", "agent", "session").annotate(newest=Max("pk"))
    own = {"author": OuterRef("author"), "agent": OuterRef("agent"), "session": OuterRef("session")}
    lists = current_lists(Plan.objects.annotate(agent=AGENT_TOKEN)).filter(**own).order_by("-pk")
    found = Plan.objects.select_related("author", "token").annotate(agent=AGENT_TOKEN)
    found = found.filter(pk__in=sessions.values("newest")).annotate(list_pk=Subquery(lists.values("pk")[:1]))
    return found if status is None else found.filter(Exists(lists.filter(status=status)))


def session_rows(newest_plans: Sequence[Plan]) -> list[SessionRow]:
    """Return the sessions of these newest plans with their lists; two queries."""
    keys: dict[int, int | None] = {plan.pk: plan.list_pk for plan in newest_plans}  # type: ignore[attr-defined] # annotated
    lists = Plan.objects.in_bulk([key for key in keys.values() if key is not None])
    counts = step_counts(lists.values())
    rows = []
    for plan in newest_plans:
        found = lists.get(keys[plan.pk] or 0)
        counted = counts[found.pk] if found else {"completed": 0, "steps": 0}
        rows.append(SessionRow(plan, found, counted["completed"], counted["steps"]))
    return rows


def _calls_of_sessions(newest_plans: Sequence[Plan]) -> dict[int, int]:
    """Return the number of calls made in the session of each of these plans, by the plan's key; one query."""
    calls = Step.objects.filter(call__isnull=False, plan__author__in={plan.author_id for plan in newest_plans})
    calls = calls.filter(plan__session__in={plan.session for plan in newest_plans}).exclude(
        plan__kind=Plan.Kind.SESSION
    )
    agent = Case(When(plan__token__kind=ApiToken.Kind.AGENT, then=F("plan__token_id")), default=Value(0))
    counted = calls.order_by().annotate(owner_token=agent).values("plan__author", "owner_token", "plan__session")
    numbers = {
        (row["plan__author"], row["owner_token"], row["plan__session"]): row["number"]
        for row in counted.annotate(number=Count("pk"))
    }
    return {
        plan.pk: numbers.get((plan.author_id, plan.agent, plan.session), 0)  # type: ignore[attr-defined] # annotated
        for plan in newest_plans
    }


def find_session_overview(viewer: User, public_id: str, token: ApiToken | None = None) -> SessionOverview:
    """Return the session of a plan of any kind. Raises Plan.DoesNotExist if the viewer may not see it."""
    return session_overview(plan_for(viewer, token, public_id))


def session_overview(plan: Plan) -> SessionOverview:
    key = SessionKey.of_plan(plan)
    is_current = plan.kind == Plan.Kind.SESSION and not plan.clones.filter(kind=Plan.Kind.SESSION).exists()
    row = plan if is_current else key.current_list()
    steps = row.steps.order_by("step_id") if row else []
    return SessionOverview(
        id=row.public_id if row else plan.public_id,
        name=key.name,
        author=plan.author,
        token=plan.token if key.agent_token_id else None,
        row=row,
        steps=[ListedStep(step, status_badge(step.status)) for step in steps],
        calls=_summarised_calls(session_calls(key)),
    )


def _summarised_calls(calls: Sequence[Call]) -> list[SessionCall]:
    runs: dict[int, ClientRun] = {call.pk: call.client_run for call in calls if hasattr(call, "client_run")}
    private = private_parts_of([call for call in calls if call.pk in runs]) if runs else {}
    rows, left = [], MAX_SUMMARISED
    for call in calls:
        run, shown = runs.get(call.pk), None
        if run is not None and call.pk not in private and len(call.arguments) <= left:
            left -= len(call.arguments)
            shown = preview(run.client, run.client_tool, call.arguments_json, run.cwd)
        rows.append(SessionCall(call, status_badge(call.status), shown.summary if shown else "", run))
    return rows


def counted_session_rows(newest_plans: Sequence[Plan]) -> list[SessionRow]:
    """Return the sessions of these newest plans with their lists and numbers of calls; three queries."""
    calls = _calls_of_sessions(newest_plans)
    return [replace(row, calls=calls[row.newest.pk]) for row in session_rows(newest_plans)]
