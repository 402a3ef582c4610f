"""The situation of a stored call when its step is claimed, which determines how the step continues."""

from enum import Enum, auto

from approvals.requests.lifecycle import ASKED_AGAIN, CHANGED_PREFIX
from catalog.models import Call
from catalog.states import TERMINAL


class CallSituation(Enum):
    """The reasons why a claimed step already has a call."""

    EARLY = auto()
    """An approval was requested before the step was ready; it is pending or approved."""
    EARLY_ANSWERED = auto()
    """Reviewers ended the call before its step was ready: they rejected it, answered it or sent it back."""
    EARLY_UNANSWERED = auto()
    """An early request ended without a decision; the step must request a new approval."""
    ENDED = auto()
    """The call was sent back and has ended; the step continues with the arguments that a person entered."""
    APPROVED = auto()
    """The call is approved and its approval not yet consumed."""
    HANDED_BACK = auto()
    """The approval is consumed, and the worker stopped before the handler began."""
    GRANTED = auto()
    """A grant let the call start, and the worker stopped before the handler began."""
    UNBEGUN = auto()
    """The call needed no approval and has not run: a direct call left to the executor, or a call handed back."""
    ATTEMPTED = auto()
    """The handler ran: the call is retried, or its worker was lost."""

    @property
    def is_early(self) -> bool:
        """True if approval was requested early and the step has now become ready."""
        return self in (CallSituation.EARLY, CallSituation.EARLY_ANSWERED, CallSituation.EARLY_UNANSWERED)


def classify(call: Call) -> CallSituation:
    """Return the situation of a call; no query if its `approval` and `grant_use` are loaded."""
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
