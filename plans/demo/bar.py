"""The bar on every page of a demo: it says that this is a demo, and names three steps that tick themselves.

The sign-in page, which has no bar, names the demo's people.

Steps that lead to a page are ticked once that page was opened, which the person's session remembers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy

from approvals.models import Review
from catalog.access.roles import ADMINISTRATOR, OPERATOR, REVIEWER, roles_of
from plans.demo.installation import demo_created_at
from plans.demo.people import PEOPLE, Person
from plans.models import Plan, Question
from plans.states import PlanStatus

HIDDEN, VISITED = "demo_bar_hidden", "demo_pages_visited"
"""Keys of the session."""
PAGES = frozenset({"approvals", "plan", "insights", "audit"})
"""Names of the pages whose visits are remembered."""

_created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DemoStep:
    """One thing to try, with the address of the page for it."""

    label: str | Promise
    address: str
    done: bool


@dataclass(frozen=True, slots=True)
class DemoBar:
    steps: list[DemoStep]

    @property
    def done(self) -> int:
        """The number of steps done."""
        return sum(step.done for step in self.steps)

    @property
    def next(self) -> DemoStep | None:
        """The first step that is not done; None after the last."""
        return next((step for step in self.steps if not step.done), None)


def recognise_demo() -> None:
    """Find out whether this installation is a demo. Called when a server starts, so that pages need not ask."""
    global _created_at
    _created_at = demo_created_at()


def people_to_sign_in_as() -> Sequence[Person]:
    """Return the people of the demo; nobody if this installation is no demo."""
    return PEOPLE if _created_at is not None else ()


def bar_for(request: HttpRequest) -> DemoBar | None:
    """Return the bar for the request's user; None if this is no demo, nobody has signed in, or the bar was hidden.

    Remembers the visit of the page that the request opens.
    """
    user = getattr(request, "user", None)
    if _created_at is None or not isinstance(user, User) or request.session.get(HIDDEN):
        return None
    visited = set(request.session.get(VISITED, ()))
    page = request.resolver_match.url_name if request.resolver_match else None
    if page in PAGES and page not in visited:
        visited.add(page)
        request.session[VISITED] = sorted(visited)
    return DemoBar(list(_steps_for(user, visited, _created_at)))


def _steps_for(user: User, visited: set[str], since: datetime) -> Iterator[DemoStep]:
    roles = roles_of(user)
    decides = bool({REVIEWER, ADMINISTRATOR} & roles)
    approvals = reverse("approvals")
    if decides:
        reviewed = Review.objects.filter(at__gt=since).exists()
        yield DemoStep(gettext_lazy("Approve a request"), approvals, reviewed)
    elif OPERATOR in roles:
        asking = Plan.objects.filter(author=user, steps__questions__answered_at=None, steps__waiting_for="input")
        plan = asking.order_by("-id").values_list("public_id", flat=True).first()
        address = reverse("plan", args=[plan]) if plan else reverse("plans")
        answered = Question.objects.filter(answered_at__gt=since).exists()
        yield DemoStep(gettext_lazy("Answer a plan's question"), address, answered)
    else:
        yield DemoStep(gettext_lazy("Read a request that waits"), approvals, "approvals" in visited)
    running = Plan.objects.filter(kind=Plan.Kind.PLAN, status=PlanStatus.IN_PROGRESS).order_by("-id")
    plan = running.values_list("public_id", flat=True).first()
    address = reverse("plan", args=[plan]) if plan else reverse("plans")
    yield DemoStep(gettext_lazy("Watch a plan run"), address, "plan" in visited)
    if ADMINISTRATOR in roles:
        yield DemoStep(gettext_lazy("Read the audit log"), reverse("audit"), "audit" in visited)
    elif OPERATOR in roles:
        called = Plan.objects.filter(token__isnull=False, created_at__gt=since).exists()
        yield DemoStep(gettext_lazy("Connect an agent"), reverse("connect"), called)
    else:
        yield DemoStep(gettext_lazy("See how the team decides"), reverse("insights"), "insights" in visited)
