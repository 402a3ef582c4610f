"""A session as its page and the API show it: its list beside the calls made in it; and the list of sessions."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import QuerySet

from catalog.access.roles import user_display_name
from catalog.models import ApiToken, Call
from catalog.rest.pagination import PageCursor, PageParameters, paginate
from catalog.ui.labels import Badge, status_badge
from plans.models import Plan, Step
from plans.sessions.lists import SessionKey, current_lists, session_calls
from plans.store.selectors import plan_for, plans_for, step_counts

PAGE_SIZE = 50


@dataclass(frozen=True, slots=True)
class ListedStep:
    """One step of a session's list."""

    step: Step
    word: Badge


@dataclass(frozen=True, slots=True)
class SessionCall:
    """One call made in a session."""

    call: Call
    word: Badge


@dataclass(frozen=True, slots=True)
class SessionOverview:
    """One session: whose it is, its list, if one was set up, and its newest calls, the last first."""

    id: str
    name: str
    author: User
    token: ApiToken | None
    row: Plan | None
    steps: Sequence[ListedStep]
    calls: Sequence[SessionCall]

    @property
    def title(self) -> str:
        """The name of the session; without one it is the default session of its owner."""
        return title_of(self.name)

    @property
    def owner(self) -> str:
        """Whose session it is."""
        return user_display_name(self.author)

    @property
    def word(self) -> Badge | None:
        """How the list stands; None without one."""
        return status_badge(self.row.status) if self.row else None

    @property
    def done(self) -> int:
        """How many steps are done."""
        return sum(each.step.status == "completed" for each in self.steps)


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One session in the list of sessions."""

    plan: Plan
    title: str
    word: Badge
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class SessionList:
    """One page of sessions, and the address of the next."""

    rows: Sequence[SessionRow]
    older: str
    is_first: bool


def title_of(name: str) -> str:
    """Return what a session is called."""
    return name or "Default session"


def sessions_for(viewer: User, token: ApiToken | None = None) -> "QuerySet[Plan]":
    """Return the lists of the sessions that the viewer may see, each standing for its session."""
    return current_lists(plans_for(viewer, token))


def find_session_overview(viewer: User, public_id: str, token: ApiToken | None = None) -> SessionOverview:
    """Return the session in which a plan was stored: its list now or before, a call, or a plan of its own.

    Raises Plan.DoesNotExist where there is none that the viewer may see.
    """
    return session_overview(plan_for(viewer, token, public_id))


def session_overview(plan: Plan) -> SessionOverview:
    """Return the session in which a plan was stored."""
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
        calls=[SessionCall(call, status_badge(call.status)) for call in session_calls(key)],
    )


def session_list(viewer: User, before: int | None) -> SessionList:
    """Return one page of the sessions that the viewer may see, the newest list first; two queries."""
    cursor = PageCursor(back=False, value=before, pk=before) if before is not None else None
    page = paginate(sessions_for(viewer), order="-id", at=PageParameters(PAGE_SIZE, cursor))
    counts = step_counts(list(page.rows))
    rows = [
        SessionRow(
            plan=plan,
            title=title_of(plan.session),
            word=status_badge(plan.status),
            done=counts[plan.pk]["completed"],
            total=counts[plan.pk]["steps"],
        )
        for plan in page.rows
    ]
    return SessionList(rows, f"/sessions/?before={page.next.pk}" if page.next else "", is_first=before is None)
