"""Page for approving the next gated steps of a plan together: upcoming steps, open requests in full, and results."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from django.contrib.auth.models import User
from django.http import HttpResponse, QueryDict
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from approvals.models import ApprovalRequest
from approvals.policies.eligibility import may_pre_approve
from approvals.requests.queries import requests_for, with_related, with_snooze
from approvals.reviews.batch import BatchItemResult
from approvals.reviews.confirmation import INDIVIDUAL_REVIEW_REQUIRED, requires_individual_review
from approvals.states import RequestStatus
from approvals.web.review.detail import RequestDetail, detail_for
from catalog.access.roles import NotAllowed
from catalog.calls.privacy import PRIVATE_NOTICE
from catalog.errors import ToolgateError
from catalog.ui.requests import PageRequest, parse_number, sign_in_required
from plans.actions import slices
from plans.actions.slices import MAX_SLICE_STEPS, ApprovalTerms, SliceItem
from plans.actions.upcoming import ASKED, GATED, LATER, WAITS, UpcomingStep, upcoming_steps
from plans.models import Plan
from plans.states import PLAN_TERMINAL
from plans.store.privacy import hidden_parts
from plans.web.access import plan_or_404

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

DEFAULT_COUNT = 3
KIND_LABELS = {
    "alone": ("play", "idle", gettext_lazy("Runs without approval")),
    "gated": ("hand", "human", gettext_lazy("Needs approval: can be requested now")),
    "later": ("hand", "idle", gettext_lazy("Needs approval later")),
    "asked": ("hand", "human", gettext_lazy("Shown below")),
    "waits": ("hand", "human", gettext_lazy("Waiting for approval")),
    "approved": ("check", "ok", gettext_lazy("Approved")),
    "stops": ("cautious", "warn", gettext_lazy("Will be refused as things stand")),
}


@dataclass(frozen=True, slots=True)
class UpcomingRow:
    ahead: UpcomingStep
    icon: str
    hue: str
    words: "StrOrPromise"
    why: str


@dataclass(frozen=True, slots=True)
class SliceRequest:
    """One request in full; `obstacle` is the reason why this viewer cannot approve it here."""

    ahead: UpcomingStep
    detail: RequestDetail
    obstacle: str
    checked: bool

    @property
    def value(self) -> str:
        """Value of its checkbox: request id and the displayed digest."""
        return f"{self.detail.request.public_id}:{self.detail.request.digest}"


@dataclass(frozen=True, slots=True)
class SliceOutcome:
    item: BatchItemResult
    step_id: str
    is_done: bool


class SlicePage:
    """Data of the page; `results` after an approval, or `setback` with the reason for a failure."""

    def __init__(self, viewer: User, plan: Plan) -> None:
        self.viewer = viewer
        self.plan = plan
        self.count = DEFAULT_COUNT
        self.comment = ""
        self.setback = ""
        self.answered_with = 200
        self.asks_again = False
        self.left: Sequence[tuple[int, str]] = ()
        self.results: list[SliceOutcome] = []
        self.chosen: frozenset[str] | None = None

    @cached_property
    def _ahead(self) -> list[UpcomingStep]:
        return [] if self.is_over else upcoming_steps(self.plan)

    @cached_property
    def is_over(self) -> bool:
        return self.plan.kind == Plan.Kind.CALL or self.plan.status in PLAN_TERMINAL

    @cached_property
    def rows(self) -> list[UpcomingRow]:
        """All upcoming steps; reasons are hidden from viewers who may not see private data."""
        private = hidden_parts(self.viewer, self.plan).steps
        return [
            UpcomingRow(
                each, *KIND_LABELS[each.kind], PRIVATE_NOTICE if each.why and each.step.step_id in private else each.why
            )
            for each in self._ahead
        ]

    @cached_property
    def items(self) -> list[SliceRequest]:
        """The requests that can be decided now, in step order."""
        open_ones = {each.request.pk: each for each in self._ahead if each.is_open and each.request}
        rows = with_snooze(with_related(requests_for(self.viewer)), self.viewer).filter(pk__in=open_ones)
        shown = [self._shown(open_ones[row.pk], row) for row in rows if open_ones[row.pk].kind in (ASKED, WAITS)]
        return sorted(shown, key=lambda each: each.ahead.step.step_id)

    def _shown(self, upcoming: UpcomingStep, request: ApprovalRequest) -> SliceRequest:
        detail = detail_for(request, self.viewer)
        obstacle = detail.why_not or ("" if detail.may_answer else detail.status_text)
        if not obstacle and requires_individual_review(request.policy_revision):
            obstacle = INDIVIDUAL_REVIEW_REQUIRED
        is_checked = not obstacle and (self.chosen is None or request.public_id in self.chosen)
        return SliceRequest(upcoming, detail, obstacle, is_checked)

    @property
    def answerable(self) -> int:
        """Number of requests that this viewer may approve here."""
        return sum(not each.obstacle for each in self.items)

    @property
    def checked(self) -> int:
        return sum(each.checked for each in self.items)

    @property
    def second_press(self) -> str:
        """Reason why approving the chosen requests needs a confirmation; empty if it needs none."""
        reasons = (each.detail.second_press for each in self.items if each.checked)
        return next(filter(None, reasons), "")

    @property
    def more(self) -> range:
        """Choices for the number of further steps, up to as many as this viewer might decide."""
        authors = {self.plan.author_id}
        rules = [each.rule for each in self._ahead if each.kind == GATED and each.rule is not None]
        possible = sum(may_pre_approve(rule, self.viewer, authors) is None for rule in rules)
        return range(1, min(MAX_SLICE_STEPS, possible) + 1)

    @property
    def later(self) -> int:
        """Number of steps that need approval once their arguments are known."""
        return sum(each.kind == LATER for each in self._ahead)


def request_more(viewer: User, plan: Plan, form: QueryDict) -> SlicePage:
    """Request approval for the number of further steps in the form, and return the page."""
    number = parse_number(form.get("count", ""), most_digits=2)
    more = DEFAULT_COUNT if number is None else max(1, min(MAX_SLICE_STEPS, number))
    page = SlicePage(viewer, plan)
    try:
        now = sum(each.kind == ASKED for each in upcoming_steps(plan))
        page.left = slices.prepare_slice(plan, min(MAX_SLICE_STEPS, now + more), by=viewer).left
    except ToolgateError as error:
        page.setback, page.answered_with = error.message, 403 if isinstance(error, NotAllowed) else 409
    return page


def approve_checked(viewer: User, plan: Plan, form: QueryDict) -> SlicePage:
    """Approve the checked requests by their displayed digests, and return the page with results."""
    page = SlicePage(viewer, plan)
    sent = dict(text.split(":", 1) for text in form.getlist("item")[:MAX_SLICE_STEPS] if ":" in text)
    page.chosen, page.comment = frozenset(sent), form.get("comment", "").replace("\r\n", "\n")
    chosen = {each.detail.request.public_id: each for each in page.items}
    if not sent:
        page.setback, page.answered_with = _("Choose at least one step."), 422
    elif page.second_press and form.get("confirmed") != "1":
        page.asks_again = True
    else:
        items = [SliceItem(key, digest) for key, digest in sent.items()]
        given = ApprovalTerms(by=viewer, comment=page.comment, channel="page")
        results = slices.approve_slice(plan, items, given)
        page = SlicePage(viewer, plan)
        for result in results:
            shown = chosen.get(result.id)
            step_id = str(shown.ahead.step.step_id) if shown else ""
            page.results.append(SliceOutcome(result, step_id, result.status in set(RequestStatus)))
    return page


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def plan_slice(request: PageRequest, public_id: str) -> HttpResponse:
    plan = plan_or_404(request.user, public_id)
    if request.method != "POST":
        page = SlicePage(request.user, plan)
    elif request.POST.get("do") == "approve":
        page = approve_checked(request.user, plan, request.POST)
    elif request.POST.get("do") == "ask":
        page = request_more(request.user, plan, request.POST)
    else:
        page = SlicePage(request.user, plan)
        page.setback, page.answered_with = _("Press one of the buttons of the page."), 422
    return render(request, "plans/slice.html", {"section": "plans", "page": page}, status=page.answered_with)
