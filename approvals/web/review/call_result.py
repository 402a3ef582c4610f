"""Result of the call behind a decided request, as the request's page shows it while it runs and when it has ended.

A private result is shown to nobody here: its values are revealed one by one on the page of its step, and audited there.
"""

import json
from dataclasses import dataclass

from approvals.models import ApprovalRequest
from approvals.states import RequestStatus
from catalog.calls.privacy import private_parts_of
from catalog.models import Call
from catalog.secrets.placeholders import without_macs
from catalog.states import TERMINAL, CallStatus

EXECUTED_STATUSES = frozenset({RequestStatus.APPROVED, RequestStatus.CONSUMED, RequestStatus.RESPONDED})
"""Requests whose call runs, or is answered by a person: every other end says itself why nothing ran."""
MAX_RESULT_SHOWN = 4_000
"""Characters of a response on the page."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """The state of a call, and the beginning of its response as indented JSON; empty when there is none to show."""

    call: Call
    request_status: str
    text: str = ""
    size: int = 0
    is_private: bool = False

    @property
    def has_begun(self) -> bool:
        """True once the call has left the queue of what waits to start."""
        return self.call.status not in (CallStatus.CREATED, CallStatus.HELD, CallStatus.READY)

    @property
    def is_running(self) -> bool:
        """True while the tool is at work."""
        return self.call.status == CallStatus.RUNNING

    @property
    def has_failed(self) -> bool:
        """True when it ended with a message instead of a result."""
        return self.call.status in (CallStatus.FAILED, CallStatus.CANCELLED)

    @property
    def is_cut(self) -> bool:
        """True when there is more of the response than is shown."""
        return self.size > len(self.text)

    @property
    def looks_again(self) -> str:
        """The interval of asking again; empty when nothing more will happen, or only a person can settle it."""
        if self.call.status in (*TERMINAL, CallStatus.OUTCOME_UNKNOWN):
            return ""
        return "1s" if self.has_begun else "3s"

    @property
    def mark(self) -> str:
        """The state that has been shown: the page asks for what is newer."""
        return f"{self.request_status}-{self.call.status}-{self.call.attempt}"


def result_of(request: ApprovalRequest) -> CallResult | None:
    """Return the result of a request's call so far; None for a request whose call is not carried out."""
    if request.status not in EXECUTED_STATUSES:
        return None
    call = request.call
    if call.status != CallStatus.COMPLETED or not call.response:
        return CallResult(call, request.status)
    if private_parts_of([call]):
        return CallResult(call, request.status, is_private=True)
    text = json.dumps(json.loads(without_macs(call.response)), indent=2, ensure_ascii=False)
    return CallResult(call, request.status, text[:MAX_RESULT_SHOWN], len(text))
