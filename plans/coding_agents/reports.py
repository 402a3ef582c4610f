"""Reports of clients about the tools that they ran: they end the call, or raise an alarm if nobody was asked."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import F

from catalog import signals
from catalog.calls import vault
from catalog.core import clock
from catalog.core.canonical_json import format_utc
from catalog.errors import ToolgateError
from catalog.inventory.client_tools import check_client_names, find_client_tool
from catalog.models import Call, ClientRun, UngatedRun
from catalog.results import NO_MESSAGE, UpstreamResult
from catalog.states import CallStatus
from plans.coding_agents.permissions import CALL_ID, MAX_CWD, check_session_id, owner_of
from plans.coding_agents.sessions import disarm, note_ungated_run
from plans.engine import client_runs
from plans.engine.client_runs import EndEffect, run_digest
from plans.store.requesters import Requester

ReportEffect = EndEffect | Literal["ungated"]
MAX_MESSAGE = 4000
MAX_ALARMS = 100
"""Alarms of one session that are stored one by one; further reports are counted on the newest."""
QUIET_TIME = timedelta(hours=1)
"""Time in which further alarms of a session notify nobody."""
MAX_LATE_ALARMS, MAX_NOTICES = 200, 20
"""Alarms of one owner within QUIET_TIME that are stored one by one, and that notify: clients make up their sessions."""
FAILED = "The client reported that the tool failed."


@dataclass(frozen=True, slots=True)
class RunReport:
    """The end of a run as its client reports it; `output` is any JSON value, `message` the client's words."""

    succeeded: bool
    output: Any = None
    message: str = ""
    duration_ms: int | None = None

    def as_result(self) -> UpstreamResult[Any]:
        message = self.message[:MAX_MESSAGE] or (NO_MESSAGE if self.succeeded else FAILED)
        return UpstreamResult(message=message, value=self.output, success=self.succeeded)


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """The run that a hook reports, by the client's own names; `input` identifies the call of a client without ids."""

    client: str
    session: str
    tool: str
    call_id: str = ""
    cwd: str = ""
    input: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ReportOutcome:
    """Effect of a report.

    `ended`: it ended the call. `late`: it settled a call whose outcome was unknown. `repeated`: the call was reported
    before. `kept`: the call had ended otherwise, and the report is kept as evidence. `ungated`: the run was not
    allowed, had another input than was allowed, or nobody was asked; an alarm is stored.
    """

    effect: ReportEffect
    call: str | None = None


def report_call(
    call_ref: str, report: RunReport, *, by: Requester, input: Mapping[str, Any] | None = None
) -> ReportOutcome:
    """Take the report about a call by its id; `input` is what ran, if the client tells.

    Raises Call.DoesNotExist if `by` has not asked for such a call. A call that was not handed out, or not with this
    input, raises an alarm.
    """
    runs = ClientRun.objects.select_related("call").filter(owner=owner_of(by), call__public_id=call_ref)
    run = runs.first() if "\0" not in call_ref else None
    if run is None:
        raise Call.DoesNotExist(call_ref)
    reported = ReportedRun(run.client, run.session, run.client_tool, run.client_call_id, run.cwd, input)
    return _report(run, reported, report, by)


def report_run(run: ReportedRun, report: RunReport, *, by: Requester) -> ReportOutcome:
    """Take the report about a run by the client's own names; an alarm is stored if nobody allowed exactly this run.

    A call id that no question can have is not kept. Raises ParameterError, naming the field, for names that are none.
    """
    check_client_names(run.client, run.tool)
    check_session_id(run.session)
    if not CALL_ID.fullmatch(run.call_id):
        _raise_alarm(replace(run, call_id=""), by)
        return ReportOutcome("ungated")
    found = _find(run, owner_of(by))
    if found is not None:
        return _report(found, run, report, by)
    _raise_alarm(run, by)
    return ReportOutcome("ungated")


def _find(run: ReportedRun, owner: str) -> ClientRun | None:
    """Return the current run with the client's call id, or else the one handed out first with the same input."""
    mine = ClientRun.objects.select_related("call").filter(owner=owner, client=run.client, session=run.session)
    if run.call_id:
        return mine.filter(client_call_id=run.call_id, is_current=True).first()
    bound = _digest_of(run)
    if bound is None:
        return None
    out = mine.filter(run_digest=bound, reported_at=None).order_by("allowed_at")
    return out.filter(call__status__in=(CallStatus.RUNNING, CallStatus.OUTCOME_UNKNOWN)).first()


def _digest_of(run: ReportedRun) -> str | None:
    """Return the digest of a reported run like `ClientRun.run_digest`; None for one that was never allowed."""
    tool = find_client_tool(run.client, run.tool)
    if tool is None or run.input is None:
        return None
    try:
        text = vault.redact_arguments(tool.tool, dict(run.input)).text
    except (ToolgateError, ValueError, RecursionError):
        return None
    return run_digest(run.client, run.session, run.tool, text)


def _report(run: ClientRun, reported: ReportedRun, report: RunReport, by: Requester) -> ReportOutcome:
    ran_otherwise = reported.tool != run.client_tool or (
        reported.input is not None and _digest_of(reported) != run.run_digest
    )
    if run.allowed_at is None or ran_otherwise:
        _raise_alarm(reported, by, call=run.call)
        # Another input ran in place of the allowed one: nobody knows whether that ran as well.
        client_runs.stop_waiting_for_report(run)
        return ReportOutcome("ungated", run.call.public_id)
    effect = client_runs.end_reported(run.pk, report.as_result(), by=by.user)
    return ReportOutcome(effect, run.call.public_id)


def _raise_alarm(run: ReportedRun, by: Requester, *, call: Call | None = None) -> None:
    """Store an alarm about a run that nobody allowed.

    A repeated report only counts on the alarm that is there. Once that was seen, or is old, it is taken for a new run,
    since clients may count their ids anew, and raises the alarm again.
    """
    owner, now, input_digest = owner_of(by), clock.now(), _digest_of(run) or ""
    owned = UngatedRun.objects.filter(owner=owner)
    lately, mine = owned.filter(reported_at__gt=now - QUIET_TIME), owned.filter(client=run.client, session=run.session)
    same = mine.filter(client_call_id=run.call_id, client_tool=run.tool, input_digest=input_digest)
    known = same.first() if run.call_id else None
    unseen = mine.filter(reported_at__gt=now - QUIET_TIME, seen_at=None)
    is_first = not unseen.exists() and lately.count() < MAX_NOTICES
    if known is not None:
        disarm(run.client, run.session, by=by)
        if known.seen_at is None and known.reported_at > now - QUIET_TIME:
            same.update(reports=F("reports") + 1)
            return
        with transaction.atomic():
            old = same.filter(reported_at=known.reported_at, seen_at=known.seen_at)
            if old.update(reports=F("reports") + 1, reported_at=now, seen_at=None, seen_by=None):
                _record_alarm(known, by, call, is_first=is_first, again=format_utc(now))
        return
    full = mine if mine[:MAX_ALARMS].count() >= MAX_ALARMS else owned if lately.count() >= MAX_LATE_ALARMS else None
    newest = full.order_by("-pk").first() if full is not None else None
    if newest is not None:
        disarm(run.client, run.session, by=by)
        counted = UngatedRun.objects.filter(pk=newest.pk)
        counted.update(reports=F("reports") + 1, reported_at=now, seen_at=None, seen_by=None)
        return
    try:
        with transaction.atomic():
            alarm = UngatedRun.objects.create(
                owner=owner,
                user=by.user,
                token=by.token,
                client=run.client,
                session=run.session,
                client_tool=run.tool,
                client_call_id=run.call_id,
                input_digest=input_digest,
                cwd=run.cwd[:MAX_CWD].replace("\0", ""),
                reported_at=now,
            )
            note_ungated_run(run.client, run.session, by=by)
            _record_alarm(alarm, by, call, is_first=is_first)
    except IntegrityError:  # the same report arrived twice at once
        same.update(reports=F("reports") + 1)


def _record_alarm(run: UngatedRun, by: Requester, call: Call | None, *, is_first: bool, **more: str) -> None:
    names = {"client": run.client, "session": run.session, "client_tool": run.client_tool}
    details: dict[str, Any] = {"run": str(run.pk), **names, **more}
    details |= {"token": by.token.prefix} if by.token is not None else {}
    details |= {"asked": call.public_id} if call is not None else {}
    signals.record_fact("run.ungated", by=by.user, is_first=is_first, **details)


def mark_as_seen(run: UngatedRun, *, by: User) -> None:
    """Mark an alarm as seen by an administrator; the caller has checked the role. Does nothing if it is already."""
    with transaction.atomic():
        if UngatedRun.objects.filter(pk=run.pk, seen_at=None).update(seen_at=clock.now(), seen_by=by):
            signals.record_fact("run.seen", by=by, run=str(run.pk))
