"""Deferred calls: the client's process ends while people decide, and a runner resumes its session afterwards.

A runner claims a decided call with a lease and starts the client, which asks again by its hook. The answer then takes
the decision (`permissions.take_decision`): an allowed call is handed out once, whoever asks, so a session that is
resumed twice runs nothing twice.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django.db.models import Q, QuerySet

from approvals.models import ApprovalRequest
from catalog.core import clock
from catalog.core.canonical_json import format_utc
from catalog.errors import Conflict
from catalog.models import Call, ClientRun, new_public_id
from catalog.signals import record_fact
from catalog.states import CallStatus
from plans.coding_agents.permissions import owner_of
from plans.engine.client_runs import stop_waiting_for_report
from plans.engine.stops import tools_not_stopped
from plans.store.requesters import Requester
from plans.store.transactions import PlanTransaction, transact_for

MAX_LISTED = 100
MAX_ATTEMPTS = 4
FIRST_PAUSE = timedelta(seconds=30)
"""Pause after the first failed resumption; each further one is four times as long."""
SIBLING_TIME = timedelta(minutes=1)
"""Time within which another question of a session that has deferred comes from the same turn of its model."""
LISTED_FOR = timedelta(days=30)
"""Time after which a session that nobody resumed is listed no longer."""
STARTABLE = (CallStatus.CREATED, CallStatus.READY)

Outcome = Literal[
    "ran", "unknown", "told", "deferred_again", "superseded", "not_asked", "failed", "given_up", "session_gone"
]


@dataclass(frozen=True, slots=True)
class DeferredCall:
    """A decided call whose session is to be resumed."""

    run: ClientRun
    decision: Literal["allow", "deny"]
    message: str
    request: ApprovalRequest | None
    expires_at: datetime | None
    """Time until which an allowed call can start; None for a refusal, and where nothing limits it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A runner's right to resume a session until the lease ends; `ref` names it in later requests."""

    ref: str
    deferred: DeferredCall
    lease_until: datetime


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """The end of a resumed process. `session_gone` says that the client no longer knows the session.

    `message` is the runner's, for people.
    """

    exit_code: int
    session_gone: bool = False
    message: str = ""


def list_deferred(by: Requester, *, client: str | None = None) -> list[DeferredCall]:
    """Return the deferred calls of `by` whose sessions can be resumed now, the first deferred first."""
    runs = _claimable(by).select_related("call__approval").order_by("deferred_at", "pk")
    if client is not None:
        runs = runs.filter(client=client)
    found = list(runs[:MAX_LISTED])
    busy = set(_of(by).filter(resume_lease_until__gt=clock.now()).values_list("client", "session"))
    free = tools_not_stopped({run.call.tool_name for run in found}, by.ids)
    resumable = [run for run in found if (run.client, run.session) not in busy and run.call.tool_name in free]
    return [_described(run) for run in resumable]


def _of(by: Requester) -> QuerySet[ClientRun]:
    return ClientRun.objects.filter(owner=owner_of(by))


def _claimable(by: Requester) -> QuerySet[ClientRun]:
    """Return the deferred runs that are decided, not taken by an answer, not claimed, and not pausing."""
    now = clock.now()
    waiting = _of(by).filter(deferred_at__gt=now - LISTED_FOR, resumed_at=None, resume_outcome="", is_current=True)
    free = Q(resume_lease_until=None) | Q(resume_lease_until__lte=now)
    rested = Q(resume_after=None) | Q(resume_after__lte=now)
    return waiting.filter(free, rested).exclude(call__status=CallStatus.HELD)


def _described(run: ClientRun) -> DeferredCall:
    call = run.call
    request: ApprovalRequest | None = getattr(call, "approval", None)
    if call.status in STARTABLE or (call.status == CallStatus.RUNNING and run.allowed_at is not None):
        return DeferredCall(run, "allow", "It may run now.", request, request.not_after if request else None)
    return DeferredCall(run, "deny", call.message or f"The call has ended as {call.status}.", request, None)


def claim(call_ref: str, runner: str, *, seconds: float, by: Requester) -> Claim:
    """Claim a deferred call for a runner, for `seconds`.

    Raises Call.DoesNotExist if `by` has asked for no such call, and Conflict if its session cannot be resumed now.
    """
    run = _run(call_ref, by)
    claim_ref = new_public_id("clm")

    def take(tx: PlanTransaction) -> datetime:
        if not tools_not_stopped({run.call.tool_name}, by.ids, tx):
            raise Conflict("This is stopped. Its session is resumed once the stop is lifted.")
        until = tx.now + timedelta(seconds=seconds)
        is_busy = _of(by).filter(client=run.client, session=run.session, resume_lease_until__gt=tx.now).exists()
        changes = {"resume_owner": f"{claim_ref} {runner}"[:64], "resume_lease_until": until}
        changes |= {"resume_attempts": run.resume_attempts + 1, "resume_claimed_at": tx.now, "resume_ended_at": None}
        same = _claimable(by).filter(pk=run.pk, resume_owner=run.resume_owner)
        same = same.filter(resume_attempts=run.resume_attempts, resume_lease_until=run.resume_lease_until)
        if is_busy or not same.update(**changes):
            raise Conflict(_why_not(run, is_busy=is_busy))
        if run.resume_lease_until is not None:
            ran_out = format_utc(run.resume_lease_until)
            record_fact("resumption.lost", call=run.call, by=by.user, runner=run.runner, until=ran_out)
        details = {"runner": runner, "until": format_utc(until), "attempt": run.resume_attempts + 1}
        record_fact("resumption.claimed", call=run.call, by=by.user, **details)
        return until

    until = transact_for(run.call, take)
    return Claim(claim_ref, _described(_run(call_ref, by)), until)


def _why_not(run: ClientRun, *, is_busy: bool) -> str:
    if is_busy:
        return "Another runner is resuming this session."
    if run.deferred_at is None:
        return "This call was not deferred."
    if run.call.status == CallStatus.HELD:
        return "This call is not decided yet."
    if run.resume_outcome == "superseded":
        return "A later call of this session was deferred, and the client resumes only its last one."
    if run.resumed_at is not None or run.resume_outcome:
        return "The decision about this call was delivered already, or its session was given up."
    return "This session cannot be resumed now. List the deferred calls again."


def renew(call_ref: str, claim_ref: str, *, seconds: float, by: Requester) -> Claim:
    """Extend the lease of a claim. Raises Conflict if it was lost, and Call.DoesNotExist."""
    until = clock.now() + timedelta(seconds=seconds)
    run = _claimed(call_ref, claim_ref, by)
    if not _under_claim(run).update(resume_lease_until=until):
        raise Conflict("The lease of this claim has ended. Stop the process.")
    return Claim(claim_ref, _described(_run(call_ref, by)), until)


def give_back(call_ref: str, claim_ref: str, *, by: Requester) -> DeferredCall:
    """End a claim before its process was started. Raises Conflict if the claim was lost, and Call.DoesNotExist."""
    run = _claimed(call_ref, claim_ref, by)
    changes: dict[str, object] = {"resume_owner": "", "resume_lease_until": None, "resume_claimed_at": None}
    changes["resume_attempts"] = max(0, run.resume_attempts - 1)

    def release(tx: PlanTransaction) -> None:
        if not _under_claim(run).update(**changes):
            raise Conflict("The lease of this claim has ended.")
        record_fact("resumption.given_back", call=run.call, by=by.user, runner=run.runner)

    transact_for(run.call, release)
    return _described(_run(call_ref, by))


def end(call_ref: str, claim_ref: str, process: ProcessEnd, *, by: Requester) -> tuple[Outcome, DeferredCall]:
    """Record the end of a resumed process, and return what became of the call.

    A repeat returns the same. Raises Conflict if another runner has claimed the session since, and Call.DoesNotExist.
    """
    run = _claimed(call_ref, claim_ref, by)
    outcome = _outcome(run, process)
    changes: dict[str, object] = {"resume_lease_until": None, "resume_exit_code": process.exit_code}
    changes["resume_message"] = process.message
    if outcome not in ("failed", "deferred_again"):
        changes["resume_outcome"] = outcome

    def end_claim(tx: PlanTransaction) -> None:
        changes["resume_ended_at"] = tx.now
        if outcome == "failed":
            changes["resume_after"] = tx.now + FIRST_PAUSE * 4 ** (run.resume_attempts - 1)
        if not _under_claim(run).filter(resume_lease_until__isnull=False).update(**changes):
            return  # reported already
        details = {"runner": run.runner, "outcome": outcome, "exit_code": process.exit_code}
        record_fact("resumption.ended", call=run.call, by=by.user, **details)
        if outcome == "unknown":
            # The process that ran it has ended, so nothing is gained by waiting for its report.
            stop_waiting_for_report(run)

    if run.resume_lease_until is not None:
        transact_for(run.call, end_claim)
    return outcome, _described(_run(call_ref, by))


def _outcome(run: ClientRun, process: ProcessEnd) -> Outcome:
    if run.resumed_at is not None:
        return "told" if run.allowed_at is None else "ran" if run.reported_at is not None else "unknown"
    if run.resume_outcome == "superseded":
        return "superseded"
    if run.call.status == CallStatus.HELD or not run.is_current:
        return "deferred_again"
    if process.session_gone:
        return "session_gone"
    if process.exit_code == 0:
        return "not_asked"
    return "failed" if run.resume_attempts < MAX_ATTEMPTS else "given_up"


def _run(call_ref: str, by: Requester) -> ClientRun:
    found = _of(by).select_related("call__approval").filter(call__public_id=call_ref).first()
    if found is None:
        raise Call.DoesNotExist(call_ref)
    return found


def _claimed(call_ref: str, claim_ref: str, by: Requester) -> ClientRun:
    run = _run(call_ref, by)
    if not run.resume_owner.startswith(f"{claim_ref} "):
        raise Conflict("This claim has ended, or another runner has claimed the session since.")
    return run


def _under_claim(run: ClientRun) -> QuerySet[ClientRun]:
    """Return the row of a run while its claim is the one that was read."""
    return ClientRun.objects.filter(pk=run.pk, resume_owner=run.resume_owner)


def has_deferred_just_now(client: str, session: str, call_ref: str | None, *, by: Requester) -> bool:
    """Return whether another call of the session was deferred a moment ago, so that its process is about to end."""
    since = clock.now() - SIBLING_TIME
    others = _of(by).filter(client=client, session=session, deferred_at__gt=since, resumed_at=None)
    return others.exclude(call__public_id=call_ref or "").exists()


def supersede_earlier(call_ref: str, *, by: Requester) -> None:
    """End earlier deferrals of the session of a call that was just deferred: a client resumes only its last one."""
    run = _run(call_ref, by)
    earlier = _of(by).filter(client=run.client, session=run.session, deferred_at__isnull=False, resumed_at=None)
    earlier.exclude(pk=run.pk).filter(resume_outcome="").update(resume_outcome="superseded")
