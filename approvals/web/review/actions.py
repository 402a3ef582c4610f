"""Actions on a request other than its decision: which ones a user may take, and carrying them out."""

import json
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

from django import forms
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import QueryDict
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _

from approvals.grants.services import GRANTABLE_STATUSES, may_create_from
from approvals.models import ApprovalRequest, Review
from approvals.policies.eligibility import (
    delegator_of,
    is_requester,
    may_decide,
    may_revoke_approval,
    other_deciders,
)
from approvals.requests import deadlines, lifecycle
from approvals.requests.deadlines import extension_objection
from approvals.reviews import coordination, decisions
from approvals.reviews.coordination import claimant_of
from approvals.reviews.decisions import needs_reason
from approvals.states import RequestStatus, ReviewVerdict
from catalog.access.roles import agent_token_of, find_active_user, user_display_name
from catalog.core import clock
from catalog.core.canonical_json import format_utc
from catalog.errors import field_error
from catalog.schemas.description import accepts_text, skeleton
from catalog.text.formats import format_moment, local_time
from catalog.ui.labels import format_time_left
from catalog.ui.page_forms import MultilineField

MAX_REASONS_OFFERED = 3
REJECTIONS_SEARCHED = 20
MORNING_HOUR = 9
"""The hour, in the reader's time zone, at which a request snoozed until another day returns."""


class SnoozeChoice(NamedTuple):
    """A time until which a request can be snoozed: label in the menu, and the form's value."""

    label: str
    value: str


class DelegateChoice(NamedTuple):
    username: str
    name: str


class ReviewActions:
    """Actions of one viewer on a request from `with_related`; each property is computed on access."""

    def __init__(self, request: ApprovalRequest, viewer: User) -> None:
        self.request = request
        self.viewer = viewer

    @cached_property
    def is_open(self) -> bool:
        """True if the request is pending and has not expired."""
        return self.request.status == RequestStatus.PENDING and self.request.expires_at > clock.now()

    @cached_property
    def why_not(self) -> str | None:
        """Reason why the viewer may not decide; None if they may."""
        return may_decide(self.request, self.viewer)

    @cached_property
    def may_answer(self) -> bool:
        """True if the viewer may decide now and has not done so yet."""
        return self.is_open and self.why_not is None and not self.has_answered

    @cached_property
    def has_answered(self) -> bool:
        """True if the viewer's own vote counts already, but the request is still open for the votes of others."""
        reviews = self.request.reviews.all()
        return self.is_open and any(each.counts and each.person_id == self.viewer.pk for each in reviews)

    @property
    def may_extend(self) -> bool:
        """True if the viewer may extend the deadline, which is possible only in the last hour before it."""
        return self.is_open and self.why_not is None and extension_objection(self.request, clock.now()) is None

    @property
    def own(self) -> bool:
        """True if the viewer is one of the requesters; they may review it only if the policy allows self-review."""
        return is_requester(self.request, self.viewer)

    @cached_property
    def delegator_name(self) -> str:
        """Name of the user on whose behalf the viewer decides; empty if the viewer may decide in their own right."""
        giver = delegator_of(self.request, self.viewer)
        return user_display_name(giver) if giver else ""

    @property
    def needs_reason(self) -> bool:
        return needs_reason(self.request)

    @property
    def may_withdraw(self) -> bool:
        """True if the viewer may withdraw the request: they are a requester, and nothing has run."""
        return self.request.status in (RequestStatus.PENDING, RequestStatus.APPROVED) and is_requester(
            self.request, self.viewer
        )

    @property
    def may_revoke(self) -> bool:
        """True if the viewer may revoke an unused approval. During the undo window an approval is undone instead."""
        request = self.request
        return (
            request.status == RequestStatus.APPROVED
            and request.applied_at is not None
            and may_revoke_approval(request, self.viewer) is None
        )

    @property
    def may_create_grant(self) -> bool:
        return self.request.status in GRANTABLE_STATUSES and may_create_from(self.request, self.viewer) is None

    @property
    def may_ask(self) -> bool:
        return agent_token_of(self.viewer) is None

    @cached_property
    def claimed_by(self) -> str:
        """Name of the user who has claimed the request; empty if it is unclaimed."""
        holder = claimant_of(self.request, clock.now())
        return user_display_name(holder) if holder else ""

    @property
    def claimed_by_me(self) -> bool:
        holder = claimant_of(self.request, clock.now())
        return holder is not None and holder.pk == self.viewer.pk

    @property
    def claim_time_left(self) -> str:
        return format_time_left(self.request.claimed_until) if self.request.claimed_until else ""

    @property
    def snoozed_until(self) -> datetime | None:
        """Time until which the viewer has snoozed a request from `request_for`; None if it is not snoozed."""
        until: datetime | None = self.request.snoozed_until  # type: ignore[attr-defined] # see with_snooze
        return until if until and until > clock.now() else None

    @property
    def snooze_choices(self) -> list[SnoozeChoice]:
        """Times to snooze until, such as in an hour or tomorrow; all are before the request expires."""
        now, ends = clock.now(), self.request.expires_at
        morning = (local_time(now) + timedelta(days=1)).replace(hour=MORNING_HOUR, minute=0, second=0, microsecond=0)
        monday = morning + timedelta(days=(7 - morning.weekday()) % 7)
        half = now + (ends - now) / 2
        offered = [
            (_("15 minutes"), now + timedelta(minutes=15)),
            (_("1 hour"), now + timedelta(hours=1)),
            (_("4 hours"), now + timedelta(hours=4)),
            (_("until tomorrow, 09:00"), morning),
            (_("until Monday, 09:00"), monday),
        ]
        times = [SnoozeChoice(label, format_utc(at)) for label, at in dict(offered).items() if at < ends]
        return times or [SnoozeChoice(_("half of the time left"), format_utc(half))]

    @cached_property
    def candidates(self) -> list[DelegateChoice]:
        """Users to whom the viewer may delegate: all others who may decide the request."""
        people = other_deciders(self.request, self.viewer)
        return [DelegateChoice(person.get_username(), user_display_name(person)) for person in people]

    @cached_property
    def delegate_name(self) -> str:
        """Name of the user to whom the viewer has delegated; empty for none."""
        given = (each for each in self.request.delegations.all() if each.by_id == self.viewer.pk)
        return next((user_display_name(each.to) for each in given), "")

    @cached_property
    def reasons(self) -> list[str]:
        """The viewer's most recent rejection reasons, offered for reuse."""
        mine = Review.objects.filter(person=self.viewer.pk, verdict=ReviewVerdict.REJECT).exclude(comment="")
        said = mine.order_by("-id").values_list("comment", flat=True)[:REJECTIONS_SEARCHED]
        return list(dict.fromkeys(text.strip() for text in said if len(text) <= 200))[:MAX_REASONS_OFFERED]

    @property
    def response_schema(self) -> object:
        """JSON Schema for an answer instead of the tool; None if any text is allowed."""
        return self.request.tool_version.output_schema

    @property
    def expects_json_response(self) -> bool:
        """True if an answer instead of the tool must be JSON because the output schema allows no string."""
        return self.response_schema is not None and not accepts_text(self.response_schema)

    @property
    def response_skeleton(self) -> str:
        """JSON text with the shape that the output schema requires; empty if text is accepted."""
        if not self.expects_json_response:
            return ""
        return json.dumps(skeleton(self.response_schema), indent=2, ensure_ascii=False)


class NoteForm(forms.Form):
    """The text of a comment, or the reason of a withdrawal or revocation."""

    comment = MultilineField(required=False, strip=False)


class SnoozeForm(forms.Form):
    """The time until which a request is snoozed, with its offset from UTC."""

    until = forms.CharField(required=False)

    def clean_until(self) -> datetime:
        try:
            moment = parse_datetime(self.cleaned_data["until"])
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise ValidationError(_("Choose one of the times in the menu."))
        return moment


class DelegateForm(forms.Form):
    """The user to whom a request is delegated; an empty choice ends the delegation."""

    to = forms.CharField(required=False, strip=False)

    def __init__(self, data: QueryDict, *, is_delegated: bool) -> None:
        super().__init__(data)
        self.is_delegated = is_delegated

    def clean_to(self) -> User | None:
        username = self.cleaned_data["to"]
        person = find_active_user(username) if username else None
        if username and person is None:
            raise ValidationError(_("There is no active user with this name."))
        if person is None and not self.is_delegated:
            raise ValidationError(_("Choose a user to delegate to."))
        return person


def _cleaned(form: forms.Form, name: str) -> Any:
    """Return the value of a form's field. Raises ParameterError."""
    if not form.is_valid():
        raise field_error(name, "invalid", str(form.errors[name][0]))
    return form.cleaned_data[name]


ACTIONS = frozenset({"claim", "release", "extend", "snooze", "wake", "delegate", "comment", "withdraw", "revoke"})
HIDING_ACTIONS = frozenset({"snooze"})
"""Actions after which the page opens the next request."""


def perform_action(action: str, request: ApprovalRequest, by: User, sent: QueryDict) -> str:
    """Perform one of ACTIONS and return its success message. Raises NotAllowed, Conflict and ParameterError."""
    message = ""
    match action:
        case "claim":
            coordination.claim(request, by=by)
            message = _("Claimed: others see that you are working on it. They can still decide it.")
        case "release":
            coordination.release(request, by=by)
            message = _("Claim released.")
        case "extend":
            until = deadlines.extend(request, by=by).expires_at
            message = _("Deadline extended until %(time)s.") % {"time": format_moment(until)}
        case "snooze":
            until = _cleaned(SnoozeForm(sent), "until")
            coordination.snooze(request, by=by, until=until)
            message = _("Snoozed until %(time)s, for you only.") % {"time": format_moment(until)}
        case "wake":
            coordination.unsnooze(request, by=by)
            message = _("Back in your list.")
        case "delegate":
            is_delegated = by.pk in {each.by_id for each in request.delegations.all()}
            person = _cleaned(DelegateForm(sent, is_delegated=is_delegated), "to")
            coordination.delegate(request, by=by, to=person)
            message = _("Delegation removed.")
            if person is not None:
                name = {"name": user_display_name(person)}
                message = _("Delegated to %(name)s, who can now answer on your behalf.") % name
        case "comment":
            coordination.comment(request, by=by, text=_cleaned(NoteForm(sent), "comment"))
            message = _("Comment added.")
        case "withdraw":
            lifecycle.withdraw(request, by=by, reason=_cleaned(NoteForm(sent), "comment"))
            message = _("Request withdrawn. The call will not run.")
        case "revoke":
            decisions.revoke(request, by=by, comment=_cleaned(NoteForm(sent), "comment"))
            message = _("Approval revoked. The call will not run.")
    return message
