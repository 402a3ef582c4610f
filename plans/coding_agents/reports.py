"""Reports of clients about the tools that they ran: they end the call, or raise an alarm if nobody was asked."""

from dataclasses import dataclass
from typing import Any, Literal

from catalog.models import Call
from plans.store.requesters import Requester


@dataclass(frozen=True, slots=True)
class RunReport:
    """The end of a run as its client reports it; `output` is any JSON value, `message` the client's words."""

    succeeded: bool
    output: Any = None
    message: str = ""
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """The run that a hook reports, by the client's own names."""

    client: str
    session: str
    tool: str
    call_id: str = ""
    cwd: str = ""


@dataclass(frozen=True, slots=True)
class ReportOutcome:
    """Effect of a report.

    `ended`: it ended the call. `repeated`: the call was reported before. `late`: it settled a call whose outcome was
    unknown. `kept`: the call had ended otherwise, and the report is kept as evidence. `ungated`: nobody was asked; an
    alarm is stored.
    """

    effect: Literal["ended", "repeated", "late", "kept", "ungated"]
    call: str | None = None


def report_call(call_ref: str, report: RunReport, *, by: Requester) -> ReportOutcome:
    """Take the report about a call by its id. Raises Call.DoesNotExist if `by` has not asked for such a call."""
    raise Call.DoesNotExist(call_ref)


def report_run(run: ReportedRun, report: RunReport, *, by: Requester) -> ReportOutcome:
    """Take the report about a run by the client's own names; an alarm is stored if nobody asked about it."""
    return ReportOutcome("ungated")
