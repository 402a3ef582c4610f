"""Form that requests a plan in words, and the user's earlier requests.

Submitting it is a direct call of `draft_plan`; a form that is submitted twice makes one call.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from rest_framework.exceptions import ValidationError

from catalog.access.roles import ADMINISTRATOR, OPERATOR, NotAllowed, has_role
from catalog.calls.vault import keyring
from catalog.core.canonical_json import digest
from catalog.errors import Conflict, ParameterError
from catalog.models import ApiToken, Call
from catalog.rest.idempotency import run_once
from catalog.rest.pagination import Page, PageCursor, PageParameters, paginate
from catalog.ui.labels import Badge, status_badge
from catalog.ui.page_forms import CardSelect, CardText, MultilineField, PageForm
from plans import states
from plans.llm import provider
from plans.models import Plan
from plans.planner import drafts
from plans.store.requesters import Requester
from plans.strategies import PlanningStrategy
from plans.web.access import FORM_EXPIRED
from plans.web.plan_list import AWAITED_FROM_PEOPLE

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
PAGE_SIZE = 20
DRAFT_LABELS = {
    "running": Badge(gettext_lazy("Drafting"), "run", "run"),
    "completed": Badge(gettext_lazy("Drafted"), "edit", "idle"),
    "failed": Badge(gettext_lazy("No draft"), "fail", "danger"),
    "cancelled": Badge(gettext_lazy("Cancelled"), "stop", "idle"),
}


def asking_role_required() -> NotAllowed:
    return NotAllowed(_("Asking for plans needs the role operator or administrator. Nothing was stored."))


@dataclass(frozen=True, slots=True)
class Strategy:
    name: PlanningStrategy
    label: "StrOrPromise"
    says: "StrOrPromise"


STRATEGIES = (
    Strategy(
        PlanningStrategy.REACT,
        gettext_lazy("Step by step"),
        gettext_lazy("One step leads to the next. Right for most requests."),
    ),
    Strategy(
        PlanningStrategy.PLAN_ACT_REFLECT,
        gettext_lazy("Plan first"),
        gettext_lazy("The whole plan is outlined before anything runs, and then carried out."),
    ),
    Strategy(
        PlanningStrategy.GOAL_DECOMPOSE_ROUTE_SYNTHESISE,
        gettext_lazy("Break it down"),
        gettext_lazy(
            "The goal is restated and split into parts. Each part gets its tools, and the results are combined."
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Example:
    name: str
    label: "StrOrPromise"
    request: str
    strategy: PlanningStrategy = PlanningStrategy.REACT


EXAMPLES = {
    example.name: example
    for example in (
        Example("badge", gettext_lazy("Send a badge again"), "Please resend my badge."),
        Example(
            "revenue",
            gettext_lazy("Compare two companies"),
            "Compare the revenue of Apple and Microsoft for fiscal 2022, and write a short brief to reports/brief.md.",
            PlanningStrategy.GOAL_DECOMPOSE_ROUTE_SYNTHESISE,
        ),
        Example(
            "note",
            gettext_lazy("Write a file"),
            "Write a note to notes/reminder.txt that says what to bring on Monday: badge, laptop, charger.",
            PlanningStrategy.PLAN_ACT_REFLECT,
        ),
    )
}


class AskForm(PageForm):
    """Form with a request in words; `wrong` is the reason why it was not accepted, `code` the HTTP status.

    `key` is that of the next submission; the one that was sent is in the data.
    """

    request = MultilineField(
        label=gettext_lazy("What should be done?"),
        max_length=drafts.LONGEST_REQUEST,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text=gettext_lazy(
            "This text and the names of the tools you may call are sent to the language model. "
            "Do not include passwords."
        ),
        error_messages={"required": gettext_lazy("Describe in a sentence or two what you want done.")},
    )
    strategy = forms.ChoiceField(
        label=gettext_lazy("Strategy"),
        choices=[(each.name, each.label) for each in STRATEGIES],
        widget=CardSelect({each.name: CardText(each.says) for each in STRATEGIES}),
        initial=STRATEGIES[0].name,
        error_messages=dict.fromkeys(("required", "invalid_choice"), gettext_lazy("Choose a strategy.")),
    )

    def __init__(self, data: QueryDict | None = None, *, again: bool = False, **options: Any) -> None:
        super().__init__(data, auto_id="%s", **options)
        self.key, self.wrong, self.code = secrets.token_urlsafe(18), "", 200
        if again:
            self.fields["request"].label = _("Change the request")

    @property
    def is_configured(self) -> bool:
        return provider.is_configured()


def new_form(query: Mapping[str, str]) -> AskForm:
    """Return a new form, filled with the example named in the query."""
    example = EXAMPLES.get(query.get("example", ""))
    return AskForm(initial={"request": example.request, "strategy": example.strategy} if example else None)


def submit_request(form: AskForm, *, by: Requester) -> str:
    """Request a draft; return its id. Raises NotAllowed, ParameterError, NotConfigured and errors of calls."""
    if not may_ask(by.user):
        raise asking_role_required()
    if not form.is_valid():
        raise ParameterError(_("The request has errors."))
    key = form.data.get("key", "")
    if not KEY.fullmatch(key):
        raise Conflict(_(FORM_EXPIRED))
    request, strategy = form.cleaned_data["request"], form.cleaned_data["strategy"]
    what = keyring().fingerprint(digest("ask", strategy, request))
    owner, key = f"user:{by.user.pk}", f"ask:{key}:{what}"
    return run_once(owner, key, what, lambda: drafts.request_draft(request, strategy, by=by).public_id)


def may_ask(viewer: User) -> bool:
    return has_role(viewer, OPERATOR, ADMINISTRATOR)


@dataclass(frozen=True, slots=True)
class EarlierRequest:
    call: Call
    request: str
    word: Badge
    plan: Plan | None

    @property
    def reply(self) -> str:
        return self.plan.reply if self.plan else ""


@dataclass(frozen=True, slots=True)
class RequestHistory:
    """A page of one user's requests, newest first; `older` is the cursor of the next page."""

    rows: Sequence[EarlierRequest]
    older: str
    is_first: bool


def load_history(viewer: User, cursor: str) -> RequestHistory:
    """Return the viewer's own requests, made on pages or with personal tokens; two queries."""
    own = Q(token=None) | Q(token__kind=ApiToken.Kind.PERSONAL)
    calls = Call.objects.filter(own, tool_name=states.DRAFT_TOOL, requested_by=viewer)
    calls = calls.only("public_id", "arguments", "status", "created_at", "plan_ref")
    page, is_first = _page(calls, cursor)
    plans = drafts.started_plans(page.rows, Plan.objects.annotate(awaited=AWAITED_FROM_PEOPLE))
    rows = []
    for call in page.rows:
        plan = plans.get(call.pk)
        # `awaited` is annotated above
        badge = status_badge(plan.status, plan.awaited) if plan else draft_word(call)  # type: ignore[attr-defined]
        rows.append(EarlierRequest(call, drafts.request_of(call), badge, plan))
    return RequestHistory(rows, page.next.text() if page.next else "", is_first)


def _page(calls: QuerySet[Call], cursor: str) -> tuple[Page[Call], bool]:
    """Return a page and whether it is the first; an invalid cursor returns the first page."""
    try:
        at = PageCursor.read(cursor[:400])
        return paginate(calls, order="-created_at", at=PageParameters(PAGE_SIZE, at)), at is None
    except ValidationError:
        return paginate(calls, order="-created_at", at=PageParameters(PAGE_SIZE)), True


def draft_word(call: Call) -> Badge:
    return DRAFT_LABELS.get(call.public_status) or status_badge(call.public_status, call.waiting_for)
