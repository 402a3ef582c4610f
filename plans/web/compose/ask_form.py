"""Asking for a plan in words: the form as it was sent, and what this person asked for before.

Asking is a direct call of `draft_plan` in the name of who asks (`plans.planner.drafts`). The same form sent twice is
one call.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.http import QueryDict
from rest_framework.exceptions import ValidationError

from catalog.access.roles import ADMINISTRATOR, OPERATOR, NotAllowed, has_role
from catalog.calls.vault import keyring
from catalog.core.canonical_json import digest
from catalog.errors import Conflict, ParameterError
from catalog.models import ApiToken, Call
from catalog.rest.idempotency import run_once
from catalog.rest.pagination import Page, PageCursor, PageParameters, paginate
from catalog.ui.labels import Badge, status_badge
from plans import states
from plans.llm import provider
from plans.models import Plan
from plans.planner import drafts
from plans.store.requesters import Requester
from plans.strategies import PlanningStrategy
from plans.web.plan_list import AWAITED_FROM_PEOPLE

KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
PAGE_SIZE = 20
NEEDS_ROLE = NotAllowed("Asking for plans needs the role operator or administrator. Nothing was asked.")
DRAFT_LABELS = {
    "running": Badge("Drafting", "run", "run"),
    "completed": Badge("Drafted", "edit", "idle"),
    "failed": Badge("No draft", "fail", "danger"),
    "cancelled": Badge("Cancelled", "stop", "idle"),
}


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way for the planner to go about a request."""

    name: PlanningStrategy
    label: str
    says: str


STRATEGIES = (
    Strategy(PlanningStrategy.REACT, "Step by step", "One step leads to the next. Right for most requests."),
    Strategy(
        PlanningStrategy.PLAN_ACT_REFLECT,
        "Plan first",
        "The whole plan is outlined before anything runs, then worked off.",
    ),
    Strategy(
        PlanningStrategy.GOAL_DECOMPOSE_ROUTE_SYNTHESISE,
        "Break it down",
        "The goal is restated and split into parts; each gets its tools, and the results are brought together.",
    ),
)


@dataclass(frozen=True, slots=True)
class Example:
    """A request to begin with."""

    name: str
    label: str
    request: str
    strategy: PlanningStrategy = PlanningStrategy.REACT


EXAMPLES = {
    example.name: example
    for example in (
        Example("badge", "Send a badge again", "Please resend my badge."),
        Example(
            "revenue",
            "Compare two companies",
            "Compare the revenue of Apple and Microsoft for fiscal 2022, and write a short brief to reports/brief.md.",
            PlanningStrategy.GOAL_DECOMPOSE_ROUTE_SYNTHESISE,
        ),
        Example(
            "note",
            "Write a file",
            "Write a note to notes/reminder.txt that says what to bring on Monday: badge, laptop, charger.",
            PlanningStrategy.PLAN_ACT_REFLECT,
        ),
    )
}


@dataclass(slots=True, kw_only=True)
class AskForm:
    """What is asked for, as the form shows it; `wrong` says why it was not sent on, `code` is HTTP's for that."""

    request: str = ""
    strategy: str = PlanningStrategy.REACT
    key: str = field(default_factory=lambda: secrets.token_urlsafe(18))
    wrong: str = ""
    code: int = 200
    strategies = STRATEGIES
    most = drafts.LONGEST_REQUEST

    @property
    def is_configured(self) -> bool:
        """Whether there is a model to ask."""
        return provider.is_configured()


def new_form(query: Mapping[str, str]) -> AskForm:
    """Return a form nobody has sent yet, filled with the example that the query names."""
    example = EXAMPLES.get(query.get("example", ""))
    return AskForm(request=example.request, strategy=example.strategy) if example else AskForm()


def submitted_form(form: QueryDict) -> AskForm:
    """Return the form as it was sent."""
    return AskForm(
        request=form.get("request", "").replace("\r\n", "\n").strip(),
        strategy=form.get("strategy", ""),
        key=form.get("key", ""),
    )


def submit_request(form: AskForm, *, by: Requester) -> str:
    """Ask the planner; return the draft's id. Raises NotAllowed, ParameterError, NotConfigured, what calls raise."""
    if not may_ask(by.user):
        raise NEEDS_ROLE
    _check(form)
    what = keyring().fingerprint(digest("ask", form.strategy, form.request))
    owner, key = f"user:{by.user.pk}", f"ask:{form.key}:{what}"
    return run_once(owner, key, what, lambda: drafts.request_draft(form.request, form.strategy, by=by).public_id)


def _check(form: AskForm) -> None:
    if not form.request:
        raise ParameterError("Say in a sentence or two what you would like to have done.")
    if len(form.request) > drafts.LONGEST_REQUEST:
        raise ParameterError(
            f"This has {len(form.request):,} characters; a request has at most {drafts.LONGEST_REQUEST:,}."
        )
    if "\0" in form.request:
        raise ParameterError("This holds the NUL character, which no request may.")
    if form.strategy not in {each.name for each in STRATEGIES}:
        raise ParameterError("Choose one of the ways to go about it.")
    if not KEY.fullmatch(form.key):
        raise Conflict("This form has lost its key; send it once more.")


def may_ask(viewer: User) -> bool:
    """Say whether the person may have plans drafted and start them."""
    return has_role(viewer, OPERATOR, ADMINISTRATOR)


@dataclass(frozen=True, slots=True)
class EarlierRequest:
    """One earlier request: its words, where it stands, the plan that came of it and what that replied."""

    call: Call
    request: str
    word: Badge
    plan: Plan | None

    @property
    def reply(self) -> str:
        """What the plan told who asked; empty while there is none."""
        return self.plan.reply if self.plan else ""


@dataclass(frozen=True, slots=True)
class RequestHistory:
    """A page of what one person asked for, newest first; `older` is the cursor of the next page."""

    rows: Sequence[EarlierRequest]
    older: str
    is_first: bool


def load_history(viewer: User, cursor: str) -> RequestHistory:
    """Return what the person asked for on pages and with tokens of their own; two queries."""
    own = Q(token=None) | Q(token__kind=ApiToken.Kind.PERSONAL)
    calls = Call.objects.filter(own, tool_name=states.DRAFT_TOOL, requested_by=viewer)
    calls = calls.only("public_id", "arguments", "status", "created_at", "plan_ref")
    page, is_first = _page(calls, cursor)
    plans = drafts.started_plans(page.rows, Plan.objects.annotate(awaited=AWAITED_FROM_PEOPLE))
    rows = [_earlier_request(call, plans.get(call.pk)) for call in page.rows]
    return RequestHistory(rows, page.next.text() if page.next else "", is_first)


def _page(calls: QuerySet[Call], cursor: str) -> tuple[Page[Call], bool]:
    """Return a page and whether it is the first; so is that of a cursor that is not ours."""
    try:
        at = PageCursor.read(cursor[:400])
        return paginate(calls, order="-created_at", at=PageParameters(PAGE_SIZE, at)), at is None
    except ValidationError:
        return paginate(calls, order="-created_at", at=PageParameters(PAGE_SIZE)), True


def _earlier_request(call: Call, plan: Plan | None) -> EarlierRequest:
    return EarlierRequest(call, drafts.request_of(call), _plan_word(plan) if plan else draft_word(call), plan)


def _plan_word(plan: Plan) -> Badge:
    awaited: str | None = plan.awaited  # type: ignore[attr-defined] # annotated by history_of
    return status_badge(plan.status, awaited)


def draft_word(call: Call) -> Badge:
    """Say where a draft stands."""
    return DRAFT_LABELS.get(call.public_status) or status_badge(call.public_status, call.waiting_for)
