"""What people do about a request on its page beside deciding it: each action by its name, and what they are told."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from django.http import QueryDict
from django.utils.dateparse import parse_datetime

from approvals.models import ApprovalRequest
from approvals.requests import lifecycle
from approvals.reviews import coordination, decisions
from catalog.access.roles import name_of, person_named
from catalog.errors import field_error

if TYPE_CHECKING:
    from django.contrib.auth.models import User

Action = Callable[[ApprovalRequest, "User", QueryDict], str]
LEAVES = frozenset({"snooze"})
"""After these, the page goes on to the next request."""


def act(action: str, request: ApprovalRequest, by: "User", form: QueryDict) -> str:
    """Do it and return what the person is told.

    Raises KeyError for no action of ours; NotAllowed, Conflict and ParameterError as the action itself does.
    """
    return ACTIONS[action](request, by, form)


def _claim(request: ApprovalRequest, by: "User", form: QueryDict) -> str:
    coordination.claim(request, by=by)
    return "Claimed: others see that you look after it. They may decide it all the same."


def _release(request: ApprovalRequest, by: "User", form: QueryDict) -> str:
    coordination.release(request, by=by)
    return "Released."


def _extend(request: ApprovalRequest, by: "User", form: QueryDict) -> str:
    until = coordination.extend(request, by=by).expires_at
    return f"Extended: it can be answered until {until:%-d %b %H:%M} UTC."


def _snooze(request: ApprovalRequest, by: "User", form: QueryDict) -> str:
    until = _moment(form.get("until", ""))
    coordination.snooze(request, by=by, until=until)
    return f"Snoozed until {until:%-d %b %H:%M} UTC, for you alone."


def _moment(text: str) -> datetime:
    try:
        moment = parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise field_error("until", "invalid", "Choose one of the times in the menu.")
    return moment


def _wake(request: ApprovalRequest, by: "User", form: QueryDict) -> str:
    coordination.wake(request, by=by)
    return "It is back in your list."


def _delegate(request: ApprovalRequest, by: "User", form: QueryDict) -> str:
    username = form.get("to", "")
    person = person_named(username) if username else None
    if username and person is None:
        raise field_error("to", "invalid", "There is nobody of this name with an account in use.")
    if person is None and by.pk not in {each.by_id for each in request.delegations.all()}:
        raise field_error("to", "required", "Choose who is to answer in your place.")
    coordination.delegate(request, by=by, to=person)
    return f"{name_of(person)} may answer in your place now." if person else "Nobody answers in your place any more."


def _comment(request: ApprovalRequest, by: "User", form: QueryDict) -> str:
    coordination.comment(request, by=by, text=form.get("comment", "").replace("\r\n", "\n"))
    return "Added to the thread. It decides nothing."


def _withdraw(request: ApprovalRequest, by: "User", form: QueryDict) -> str:
    lifecycle.withdraw(request, by=by, reason=form.get("comment", "").replace("\r\n", "\n"))
    return "Withdrawn. It does not run."


def _revoke(request: ApprovalRequest, by: "User", form: QueryDict) -> str:
    decisions.revoke(request, by=by, comment=form.get("comment", "").replace("\r\n", "\n"))
    return "Revoked. It does not run."


ACTIONS: Mapping[str, Action] = {
    "claim": _claim,
    "release": _release,
    "extend": _extend,
    "snooze": _snooze,
    "wake": _wake,
    "delegate": _delegate,
    "comment": _comment,
    "withdraw": _withdraw,
    "revoke": _revoke,
}
