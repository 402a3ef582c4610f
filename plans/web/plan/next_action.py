"""The one action that a person can take about a wait of a plan: a link, or a form that posts."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from django.contrib.auth.models import User
from django.urls import reverse
from django.utils.translation import gettext as _

from approvals.models import ApprovalRequest
from approvals.policies.eligibility import may_decide
from approvals.policies.quorum import approvals_of
from approvals.requests.deadlines import TIME_BETWEEN_REMINDERS, reminder_objection
from catalog.core import clock
from catalog.ui.labels import format_time_ago
from plans.models import Plan
from plans.states import PlanStatus
from plans.web.plan.waits import StepWait, WaitKind


@dataclass(frozen=True, slots=True)
class NextAction:
    """An action with its address, to which `fields` are posted if `posts`; `hint` says why this person has it."""

    name: str
    label: str
    icon: str
    address: str
    posts: bool = False
    fields: Mapping[str, object] = field(default_factory=dict)
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """The rights of one viewer to act on a plan."""

    plan: Plan = field(kw_only=False)
    viewer: User = field(kw_only=False)
    may_control: bool
    may_write: bool


def next_action(wait: StepWait | None, controls: Controls) -> NextAction | None:
    """Return what the viewer can do about a wait; None if that is nothing, or what the plan's own buttons do."""
    if wait is None:
        return None
    ref, number, action = controls.plan.public_id, wait.number, None
    may_write = controls.may_control and controls.may_write
    match wait.kind:
        case WaitKind.APPROVAL if wait.request is not None:
            action = _about_request(wait.request, number, controls)
        case WaitKind.ARGUMENTS if controls.may_control:
            action = NextAction("change", _("Change arguments"), "edit", reverse("plan-input", args=[ref, number]))
        case WaitKind.OUTCOME if controls.may_control:
            address = f"{reverse('plan', args=[ref])}?step={number}#settle"
            action = NextAction("settle", _("Record what happened"), "hand", address)
        case WaitKind.ANSWER if may_write:
            hint = _("The question is for you.") if controls.plan.author_id == controls.viewer.pk else ""
            action = NextAction("answer", _("Answer"), "reply", f"#question-{number}", hint=hint)
        case WaitKind.FAILED if may_write and controls.plan.status == PlanStatus.IN_PROGRESS:
            label = _("Retry step %(number)s") % {"number": number}
            address = reverse("plan-retry", args=[ref])
            action = NextAction("retry", label, "retry", address, posts=True, fields={"step": number})
    return action


def _about_request(request: ApprovalRequest, number: int, controls: Controls) -> NextAction:
    viewer, address = controls.viewer, f"{reverse('approvals')}?item={request.public_id}"
    has_voted = any(review.person_id == viewer.pk for review in approvals_of(request))
    if not has_voted and may_decide(request, viewer) is None:
        return NextAction("review", _("Review request"), "hand", address, hint=_("You can approve it."))
    hint = _("You approved it; others must agree.") if has_voted else ""
    if reminder_objection(request, viewer) is not None:
        return NextAction("review", _("Open request"), "hand", address, hint=hint)
    if request.reminded_at is not None and request.reminded_at > clock.now() - TIME_BETWEEN_REMINDERS:
        hint = _("The reviewers were reminded %(ago)s.") % {"ago": format_time_ago(request.reminded_at)}
        return NextAction("review", _("Open request"), "hand", address, hint=hint)
    address = reverse("plan-remind", args=[controls.plan.public_id, number])
    return NextAction("remind", _("Remind"), "clock", address, posts=True, hint=hint)
