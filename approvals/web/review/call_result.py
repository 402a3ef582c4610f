"""Result of a decided request's call, shown on the request's page; private results are never shown here."""

from dataclasses import dataclass

from approvals.models import ApprovalRequest
from approvals.states import RequestStatus
from approvals.stops.standing import StandingStop
from approvals.stops.stopped_time import find_stop_of
from catalog.calls.privacy import private_parts_of
from catalog.models import Call
from catalog.states import TERMINAL, CallStatus
from catalog.ui.results import ShownResult, shown_result

EXECUTED_STATUSES = frozenset({RequestStatus.APPROVED, RequestStatus.CONSUMED, RequestStatus.RESPONDED})
"""Statuses of requests whose call runs or was answered by a reviewer; all others explain why nothing ran."""
NOT_BEGUN = frozenset({CallStatus.CREATED, CallStatus.HELD, CallStatus.READY})


@dataclass(frozen=True, slots=True)
class CallResult:
    """State of a call and its result.

    `shown` is the result for people, None if there is nothing to show; `stop` is what keeps the call from starting.
    """

    call: Call
    request_status: str
    shown: ShownResult | None = None
    is_private: bool = False
    stop: StandingStop | None = None

    @property
    def has_begun(self) -> bool:
        """True once the call no longer waits for its start."""
        return self.call.status not in NOT_BEGUN

    @property
    def is_running(self) -> bool:
        return self.call.status == CallStatus.RUNNING

    @property
    def has_failed(self) -> bool:
        """True if the call ended with a message instead of a result."""
        return self.call.status in (CallStatus.FAILED, CallStatus.CANCELLED)

    @property
    def looks_again(self) -> str:
        """Interval of polling; empty if the call has ended, or its outcome is unknown and needs a person."""
        if self.call.status in (*TERMINAL, CallStatus.OUTCOME_UNKNOWN):
            return ""
        return "1s" if self.has_begun else "3s"

    @property
    def mark(self) -> str:
        """Identifier of the displayed state, which the page sends when it polls for a newer one."""
        stop = f"-{self.stop.public_id}" if self.stop is not None else ""
        return f"{self.request_status}-{self.call.status}-{self.call.attempt}{stop}"


def result_of(request: ApprovalRequest) -> CallResult | None:
    """Return the current result of a request's call; None if the request was not approved or answered."""
    if request.status not in EXECUTED_STATUSES:
        return None
    call = request.call
    if call.status in NOT_BEGUN:
        return CallResult(call, request.status, stop=find_stop_of(call))
    if call.status != CallStatus.COMPLETED or not call.response:
        return CallResult(call, request.status)
    if private_parts_of([call]):
        return CallResult(call, request.status, is_private=True)
    return CallResult(call, request.status, shown_result(call))
