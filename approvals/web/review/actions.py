"""Actions on a request other than its decision: which are offered to a user, and carrying them out.

`Bar` lists the buttons below a request and the choices of their menus; `act` performs an action by its name.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import NamedTuple

from django.contrib.auth.models import User
from django.http import QueryDict
from django.utils.dateparse import parse_datetime

from approvals.grants.services import GRANTABLE_STATUSES, may_create_from
from approvals.models import ApprovalRequest, Review
from approvals.policies.eligibility import (
    delegator_of,
    is_requester,
    may_decide,
    may_revoke_approval,
    other_deciders,
)
from approvals.requests import lifecycle
from approvals.reviews import coordination, decisions
from approvals.reviews.coordination import claimant_of, extension_objection
from approvals.reviews.decisions import needs_reason
from approvals.states import RequestStatus, ReviewVerdict
from catalog.access.roles import agent_token_of, find_active_user, user_display_name
from catalog.core import clock
from catalog.core.canonical_json import format_utc
from catalog.errors import field_error
from catalog.ui.labels import format_time_left

MAX_REASONS_OFFERED = 3
REJECTIONS_SEARCHED = 20
MORNING_HOUR = 9
"""The hour, UTC, at which a request put off until another day comes back."""


class SnoozeChoice(NamedTuple):
    """A time until which a request can be put off: what the menu says, and the time as the form sends it."""

    label: str
    value: str


class DelegateChoice(NamedTuple):
    """Someone to whom a request can be handed."""

    username: str
    name: str


class ReviewActions:
    """The actions on a request, loaded whole, for one viewer; each is worked out when it is asked for."""

    def __init__(self, request: ApprovalRequest, viewer: User) -> None:
        self.request = request
        self.viewer = viewer

    @cached_property
    def is_open(self) -> bool:
        """Whether an answer is still waited for and there is time to give it."""
        return self.request.status == RequestStatus.PENDING and self.request.expires_at > clock.now()

    @cached_property
    def why_not(self) -> str | None:
        """Why the viewer may not decide; None when they may."""
        return may_decide(self.request, self.viewer)

    @cached_property
    def may_answer(self) -> bool:
        """Whether the viewer may answer now."""
        return self.is_open and self.why_not is None and not self.has_answered

    @cached_property
    def has_answered(self) -> bool:
        """Whether the viewer's vote is counted already, and others are waited for."""
        reviews = self.request.reviews.all()
        return self.is_open and any(each.counts and each.person_id == self.viewer.pk for each in reviews)

    @property
    def may_extend(self) -> bool:
        """Whether the viewer may give it half an hour more: it will soon expire."""
        return self.is_open and self.why_not is None and extension_objection(self.request, clock.now()) is None

    @property
    def own(self) -> bool:
        """Whether the viewer is among those who asked: with leave of the policy they review themselves."""
        return is_requester(self.request, self.viewer)

    @cached_property
    def delegator_name(self) -> str:
        """In whose place the viewer decides; empty when by their own right."""
        giver = delegator_of(self.request, self.viewer)
        return user_display_name(giver) if giver else ""

    @property
    def needs_reason(self) -> bool:
        """Whether a rejection needs a reason."""
        return needs_reason(self.request)

    @property
    def may_withdraw(self) -> bool:
        """Whether the viewer may take the request back: it is theirs, and nothing has run."""
        return self.request.status in (RequestStatus.PENDING, RequestStatus.APPROVED) and is_requester(
            self.request, self.viewer
        )

    @property
    def may_revoke(self) -> bool:
        """Whether the viewer may stop what was approved and has not started; in the undo window one undoes instead."""
        request = self.request
        return (
            request.status == RequestStatus.APPROVED
            and request.applied_at is not None
            and may_revoke_approval(request, self.viewer) is None
        )

    @property
    def may_create_grant(self) -> bool:
        """Whether the viewer may make a grant out of it."""
        return self.request.status in GRANTABLE_STATUSES and may_create_from(self.request, self.viewer) is None

    @property
    def may_ask(self) -> bool:
        """Whether the viewer may write into the thread."""
        return agent_token_of(self.viewer) is None

    @cached_property
    def claimed_by(self) -> str:
        """Who looks after the request; empty when nobody does."""
        holder = claimant_of(self.request, clock.now())
        return user_display_name(holder) if holder else ""

    @property
    def claimed_by_me(self) -> bool:
        """Whether the viewer looks after it."""
        holder = claimant_of(self.request, clock.now())
        return holder is not None and holder.pk == self.viewer.pk

    @property
    def claim_time_left(self) -> str:
        """How long the claim holds."""
        return format_time_left(self.request.claimed_until) if self.request.claimed_until else ""

    @property
    def snoozed_until(self) -> datetime | None:
        """Until when the viewer does not want to see it: `request_for` reads it with the request."""
        until: datetime | None = self.request.snoozed_until  # type: ignore[attr-defined] # see with_snooze
        return until if until and until > clock.now() else None

    @property
    def snooze_choices(self) -> list[SnoozeChoice]:
        """When it can come back: later today, tomorrow, after the weekend, all before it expires."""
        now, ends = clock.now(), self.request.expires_at
        morning = (now + timedelta(days=1)).replace(hour=MORNING_HOUR, minute=0, second=0, microsecond=0)
        monday = morning + timedelta(days=(7 - morning.weekday()) % 7)
        half = now + (ends - now) / 2
        offered = [
            ("15 minutes", now + timedelta(minutes=15)),
            ("1 hour", now + timedelta(hours=1)),
            ("4 hours", now + timedelta(hours=4)),
            ("until tomorrow, 09:00 UTC", morning),
            ("until Monday, 09:00 UTC", monday),
        ]
        times = [SnoozeChoice(label, format_utc(at)) for label, at in dict(offered).items() if at < ends]
        return times or [SnoozeChoice("half of the time left", format_utc(half))]

    @cached_property
    def candidates(self) -> list[DelegateChoice]:
        """The people to whom the viewer may hand it: everyone else who may decide it."""
        people = other_deciders(self.request, self.viewer)
        return [DelegateChoice(person.get_username(), user_display_name(person)) for person in people]

    @cached_property
    def delegate_name(self) -> str:
        """To whom the viewer has handed it; empty for nobody."""
        given = (each for each in self.request.delegations.all() if each.by_id == self.viewer.pk)
        return next((user_display_name(each.to) for each in given), "")

    @cached_property
    def reasons(self) -> list[str]:
        """The last reasons with which the viewer rejected anything: offered again, first in line."""
        mine = Review.objects.filter(person=self.viewer.pk, verdict=ReviewVerdict.REJECT).exclude(comment="")
        said = mine.order_by("-id").values_list("comment", flat=True)[:REJECTIONS_SEARCHED]
        return list(dict.fromkeys(text.strip() for text in said if len(text) <= 200))[:MAX_REASONS_OFFERED]

    @property
    def response_schema(self) -> object:
        """The schema that an answer in the tool's place must keep to; None where any text does."""
        return self.request.tool_version.output_schema

    @property
    def expects_json_response(self) -> bool:
        """Whether an answer in the tool's place is read as JSON unless told otherwise: a text would not fit."""
        schema = self.request.tool_version.output_schema
        kinds = schema.get("type") if isinstance(schema, dict) else "string"
        return "string" not in (kinds if isinstance(kinds, list) else [kinds])


Action = Callable[[ApprovalRequest, User, QueryDict], str]
HIDING_ACTIONS = frozenset({"snooze"})
"""After these, the page goes on to the next request."""


def perform_action(action: str, request: ApprovalRequest, by: User, form: QueryDict) -> str:
    """Do it and return what the person is told.

    Raises KeyError for no action of ours; NotAllowed, Conflict and ParameterError as the action itself does.
    """
    return ACTIONS[action](request, by, form)


def _claim(request: ApprovalRequest, by: User, form: QueryDict) -> str:
    coordination.claim(request, by=by)
    return "Claimed: others see that you look after it. They may decide it all the same."


def _release(request: ApprovalRequest, by: User, form: QueryDict) -> str:
    coordination.release(request, by=by)
    return "Released."


def _extend(request: ApprovalRequest, by: User, form: QueryDict) -> str:
    until = coordination.extend(request, by=by).expires_at
    return f"Extended: it can be answered until {until:%-d %b %H:%M} UTC."


def _snooze(request: ApprovalRequest, by: User, form: QueryDict) -> str:
    until = _parse_snooze_time(form.get("until", ""))
    coordination.snooze(request, by=by, until=until)
    return f"Snoozed until {until:%-d %b %H:%M} UTC, for you alone."


def _parse_snooze_time(text: str) -> datetime:
    try:
        moment = parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise field_error("until", "invalid", "Choose one of the times in the menu.")
    return moment


def _unsnooze(request: ApprovalRequest, by: User, form: QueryDict) -> str:
    coordination.unsnooze(request, by=by)
    return "It is back in your list."


def _delegate(request: ApprovalRequest, by: User, form: QueryDict) -> str:
    username = form.get("to", "")
    person = find_active_user(username) if username else None
    if username and person is None:
        raise field_error("to", "invalid", "There is nobody of this name with an account in use.")
    if person is None and by.pk not in {each.by_id for each in request.delegations.all()}:
        raise field_error("to", "required", "Choose who is to answer in your place.")
    coordination.delegate(request, by=by, to=person)
    return (
        f"{user_display_name(person)} may answer in your place now."
        if person
        else "Nobody answers in your place any more."
    )


def _comment(request: ApprovalRequest, by: User, form: QueryDict) -> str:
    coordination.comment(request, by=by, text=form.get("comment", "").replace("\r\n", "\n"))
    return "Added to the thread. It decides nothing."


def _withdraw(request: ApprovalRequest, by: User, form: QueryDict) -> str:
    lifecycle.withdraw(request, by=by, reason=form.get("comment", "").replace("\r\n", "\n"))
    return "Withdrawn. It does not run."


def _revoke(request: ApprovalRequest, by: User, form: QueryDict) -> str:
    decisions.revoke(request, by=by, comment=form.get("comment", "").replace("\r\n", "\n"))
    return "Revoked. It does not run."


ACTIONS: Mapping[str, Action] = {
    "claim": _claim,
    "release": _release,
    "extend": _extend,
    "snooze": _snooze,
    "wake": _unsnooze,
    "delegate": _delegate,
    "comment": _comment,
    "withdraw": _withdraw,
    "revoke": _revoke,
}
