"""The situation of a stored call when its step is claimed: why it is there, and so how its step goes on."""

from enum import Enum, auto

from approvals.requests.lifecycle import ASKED_AGAIN, CHANGED_PREFIX
from catalog.models import Call
from catalog.states import TERMINAL


class CallSituation(Enum):
    """The reasons for which a step that is claimed has a call already."""

    EARLY = auto()
    """An approval was requested before the step was ready; it is pending or approved."""
    EARLY_ANSWERED = auto()
    """People ended the call before its step was ready: they rejected it, answered it or sent it back."""
    EARLY_UNANSWERED = auto()
    """An early request ended without an answer of people, so that the step has to request a new approval."""
    ENDED = auto()
    """The call has ended and its step goes on: people sent it back, and the step has been given other arguments."""
    APPROVED = auto()
    """The call is approved; its approval is not consumed yet."""
    HANDED_BACK = auto()
    """The approval is consumed, and the worker stopped before the handler began."""
    GRANTED = auto()
    """A grant let the call start, and the worker stopped before the handler began."""
    UNBEGUN = auto()
    """The call needed no approval and has not run: a direct call left to the executor, or one that was handed back."""
    ATTEMPTED = auto()
    """The handler ran: the call is tried again, or its worker was lost."""

    @property
    def is_early(self) -> bool:
        """Whether an approval was requested before the step was ready, and the step meets it only now."""
        return self in (CallSituation.EARLY, CallSituation.EARLY_ANSWERED, CallSituation.EARLY_UNANSWERED)


def classify(call: Call) -> CallSituation:
    """Return the situation of a call; without a query if its `approval` and `grant_use` are at hand."""
    request = call.approval if hasattr(call, "approval") else None
    if request is not None and request.is_pre_approval:
        return _classify_early(call)
    if call.status in TERMINAL:
        return CallSituation.ENDED
    if request is not None and request.consumed_at is None:
        return CallSituation.APPROVED
    if call.attempt:
        return CallSituation.ATTEMPTED
    if request is not None:
        return CallSituation.HANDED_BACK
    return CallSituation.GRANTED if hasattr(call, "grant_use") else CallSituation.UNBEGUN


def _classify_early(call: Call) -> CallSituation:
    if call.status not in TERMINAL:
        return CallSituation.EARLY
    is_unanswered = call.error_kind == ASKED_AGAIN or call.error_kind.startswith(CHANGED_PREFIX)
    return CallSituation.EARLY_UNANSWERED if is_unanswered else CallSituation.EARLY_ANSWERED
