"""Questions of clients that run their tools themselves: the question, the answer as of now, and the wait for it.

A question becomes an ordinary call, which passes the same gate and limits as any other. The call starts in the
transaction of the question that is allowed; the client then runs it and reports its end.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Coalesce

from approvals.errors import AuditUnavailable
from approvals.models import ApprovalRequest
from approvals.requests.lifecycle import CHANGED_PREFIX
from approvals.reviews.edits import summarise_edits
from catalog.calls import vault
from catalog.client_tools.paths import is_absolute_directory
from catalog.core import clock
from catalog.core.locks import LockSpace, LockTimeout, exclusive
from catalog.errors import Conflict, RestoredDatabase, ToolError, field_error
from catalog.inventory.client_tools import check_client_names, find_client_tool, find_or_add_client_tool
from catalog.models import Call, ClientRun
from catalog.results import format_for_model
from catalog.states import CallStatus
from plans.actions.call import CallOrder, create_call
from plans.engine import calls, client_runs, stops
from plans.engine.client_runs import run_digest
from plans.engine.work import PreparedCall
from plans.store.requesters import Requester

SESSION_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
CALL_ID = re.compile(r"[!-~]{0,200}")
MAX_CWD = 4096
TRIES = 5
"""Answers to a question that are tried, because its call may change at that moment."""
LOCK_SECONDS = 5.0
MAX_SESSIONS_OF_ID = 10
"""Sessions with a call of one id that are compared with a question."""
PROMPT_SESSION = "permission-prompt"
"""The session of questions by MCP about calls of which no hook has told: a client's prompt names no session."""
ASK_AGAIN_WITHIN = timedelta(days=1)
"""Time within which a call that is made again, as its client was told, gets the decision about the earlier one."""

OTHER_INPUT = (
    "This call id was used before for another tool or another input. Nothing was allowed. Make the call again under a "
    "new id."
)
OTHER_DIRECTORY = (
    "This call id was used before in another working directory, where the call would mean something else. Nothing was "
    "allowed. Make the call again under a new id."
)
RAN_ALREADY = "This call ran already, and its end was reported. Make a new call to run it again."
NOT_REPORTED = (
    "This call was handed out before, and its end was not reported: whether it ran is unknown until a person settles "
    "it. It is not allowed again. If it must run, make a new call."
)
BUSY = "The same call is being answered at this moment. Ask again in a few seconds."
UNWITNESSED = "The audit log cannot be written completely now, so no dangerous call may start. Ask again later."


@dataclass(frozen=True, slots=True)
class PermissionQuestion:
    """A client's question whether it may run a tool with this input.

    `client` is the name of the source, `tool` the client's own name of its tool, `call_id` the client's id of the call
    (empty if it has none). `cwd` is the working directory that the client claims. `may_defer` says that the client can
    end its process and be resumed after the decision. `repeats` says that this is the client's own permission question,
    which follows the one of its hook about the same call, and may lack the call's id.
    """

    client: str
    session: str
    tool: str
    input: Mapping[str, Any]
    call_id: str = ""
    cwd: str = ""
    may_defer: bool = False
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class PermissionAnswer:
    """The answer as of now. `call` is None if nothing was stored, `input` what is to run (on `allow` only).

    `message` is for the model. `approval` is the id of the request and `url` its page.
    """

    decision: Literal["allow", "deny", "wait", "defer"]
    call: str | None
    input: Mapping[str, Any] | None
    message: str
    approval: str | None = None
    url: str = ""


def check_question(question: PermissionQuestion) -> None:
    """Raise ParameterError, naming the field, unless the question can be asked."""
    check_client_names(question.client, question.tool)
    check_session_id(question.session)
    if not CALL_ID.fullmatch(question.call_id):
        raise field_error("call_id", "invalid", "A call id is 1 to 200 visible ASCII characters.")
    if len(question.cwd) > MAX_CWD or "\0" in question.cwd:
        raise field_error("cwd", "invalid", f"A working directory is at most {MAX_CWD:,} characters without NUL.")


def check_session_id(session: str) -> None:
    if not SESSION_ID.fullmatch(session):
        raise field_error("session", "invalid", "A session is 1 to 128 characters from A-Z, a-z, 0-9, '_' and '-'.")


def is_resumable(question: PermissionQuestion) -> bool:
    """Return whether a runner can resume the question's session: it starts a command with the id, in the directory.

    An id like `-c` would be an option of that command.
    """
    return not question.session.startswith("-") and is_absolute_directory(question.cwd)


def owner_of(by: Requester) -> str:
    """Return the owner of a client's sessions and calls: `token:ID`, or `user:ID` for a person without a token."""
    return f"token:{by.token.pk}" if by.token is not None else f"user:{by.user.pk}"


def ask(question: PermissionQuestion, *, by: Requester, waited_for: str | None = None) -> PermissionAnswer:
    """Answer a question as of now; a call that may run is started and handed out by this answer.

    The same call id with the same input joins the same call. `waited_for` is the id of the call that an earlier answer
    to this very question named: it joins that call even without a call id. Refusals by policies, limits and switched
    off tools are answered with `deny`. Raises ParameterError for a question that cannot be asked, and RestoredDatabase.
    """
    check_question(question)
    return _Asker(question, replace(by, session=question.session)).answer(waited_for)


def tell_to_ask_again(call_ref: str, *, by: Requester) -> None:
    """Record that the client was told to make an undecided call again, under whatever id, to get the decision."""
    runs = ClientRun.objects.filter(owner=owner_of(by), call__public_id=call_ref, allowed_at=None)
    runs.update(ask_again_at=clock.now())


def take_decision(run: ClientRun, *, repeats: bool) -> bool:
    """Return whether this answer may give a deferred call's decision to its client, which happens once.

    The client's own permission question, which `repeats` that of its hook, may be given the same decision once more.
    Call it when the answer is certain, before it leaves. True for calls that were not deferred.
    """
    if run.deferred_at is None:
        return True
    deferred, now = ClientRun.objects.filter(pk=run.pk), clock.now()
    if repeats:
        free = deferred.filter(confirmed_at=None)
        return free.update(confirmed_at=now, resumed_at=Coalesce(F("resumed_at"), now)) > 0
    return deferred.filter(resumed_at=None).update(resumed_at=now) > 0


def session_of_question(question: PermissionQuestion, *, by: Requester) -> str | None:
    """Return the session in which the same call was asked about under the same id, whatever the question's own is.

    None if there is none. For doors at which a client names no session.
    """
    tool = find_client_tool(question.client, question.tool)
    if tool is None or not question.call_id or not CALL_ID.fullmatch(question.call_id):
        return None
    text = calls.prepare_for_plan(tool.tool.name, dict(question.input)).text
    runs = ClientRun.objects.filter(owner=owner_of(by), client=question.client, is_current=True)
    for run in runs.filter(client_call_id=question.call_id).order_by("-pk")[:MAX_SESSIONS_OF_ID]:
        same = run_digest(question.client, run.session, question.tool, text)
        if same in (run.input_digest, run.run_digest):
            return run.session
    return None


class _Asker:
    """One question with its requester, and the prepared call that it asks about."""

    def __init__(self, question: PermissionQuestion, by: Requester) -> None:
        self.question, self.by, self.owner = question, by, owner_of(by)
        self.prepared: PreparedCall
        self.digest: str
        self.joined: str | None = None
        """The id of the call that a question without a call id has joined."""

    def answer(self, waited_for: str | None) -> PermissionAnswer:
        question = self.question
        try:
            tool = find_or_add_client_tool(question.client, question.tool, by=self.by.user, owner=self.owner)
            self.prepared = calls.prepare_for_plan(tool.tool.name, dict(question.input))
            self.digest = run_digest(question.client, question.session, question.tool, self.prepared.text)
            stops.require_requester_not_stopped(tool.tool.name, self.by.ids)
            self.joined = waited_for
            for _ in range(TRIES):
                found = self._answer_once()
                if found is not None:
                    return found
            return _deny(BUSY)
        except AuditUnavailable:
            return _deny(UNWITNESSED)
        except ToolError as refusal:
            return _deny(refusal.user_message())

    def _answer_once(self) -> PermissionAnswer | None:
        """Return the answer; None if the call changed at this moment, so that it is to be looked up again."""
        run = self._find(self.joined)
        if run is None:
            return self._make(None)
        self.joined = run.call.public_id
        mismatch = self._mismatch(run)
        if mismatch:
            return _deny(mismatch)
        call = run.call
        if call.status == CallStatus.CANCELLED and call.error_kind.startswith(CHANGED_PREFIX):
            return self._make(call)
        if call.status in (CallStatus.CREATED, CallStatus.READY):
            return self._hand_out(run)
        if call.status == CallStatus.RUNNING and not self.question.call_id and not self.question.repeats:
            self.joined = None  # another question has used the allowance
            return self._make(None)
        return self._answer_for(run)

    def _mismatch(self, run: ClientRun) -> str:
        """Return why the question is about another call than the run, or an empty text."""
        # Reviewers may have edited the input, and the client may ask again with the edited one.
        now_bound = run_digest(run.client, run.session, run.client_tool, run.call.arguments)
        if self.digest not in (run.input_digest, now_bound):
            return OTHER_INPUT
        is_elsewhere = self.question.cwd and run.cwd and self.question.cwd != run.cwd
        return OTHER_DIRECTORY if is_elsewhere else ""

    def _find(self, joined: str | None) -> ClientRun | None:
        """Return the current run that the question is about; None if it is to be made.

        Without the id of a call, only the same input in the same working directory is the same call.
        """
        question = self.question
        runs = ClientRun.objects.select_related("call__approval", "call__version")
        mine = runs.filter(owner=self.owner, client=question.client, session=question.session)
        if question.call_id:
            known = mine.filter(client_call_id=question.call_id, is_current=True).first()
            return known if known is not None else self._adopt(mine)
        if joined is not None:
            return mine.filter(call__public_id=joined).first()
        mine = mine.filter(cwd=question.cwd)
        if question.repeats:
            same = mine.filter(run_digest=self.digest, call__status=CallStatus.RUNNING, allowed_until__gt=clock.now())
            out = same.exclude(client_call_id="").order_by("-allowed_at").first()
            if out is not None:
                return out
        adopted = self._adopt(mine)
        if adopted is not None:
            return adopted
        startable = (CallStatus.HELD, CallStatus.CREATED, CallStatus.READY)
        same = mine.filter(input_digest=self.digest, client_call_id="", is_current=True, reported_at=None)
        return same.filter(allowed_at=None, call__status__in=startable).order_by("pk").first()

    def _adopt(self, runs: QuerySet[ClientRun]) -> ClientRun | None:
        """Return a run whose client was told to make the call again, decided or not; it is this question's from now on.

        Each is adopted once, so that of two equal calls only one gets the decision.
        """
        same = runs.filter(input_digest=self.digest, cwd=self.question.cwd, is_current=True)
        told = same.filter(allowed_at=None, reported_at=None)
        told = told.filter(ask_again_at__gt=clock.now() - ASK_AGAIN_WITHIN).order_by("pk")
        for run in told:
            try:
                with transaction.atomic():
                    mine_now = told.filter(pk=run.pk).update(ask_again_at=None, client_call_id=self.question.call_id)
            except IntegrityError:  # this call id has just been used
                return None
            if mine_now:
                self.joined = run.call.public_id
                return run
        return None

    def _make(self, replaced_call: Call | None) -> PermissionAnswer | None:
        question = self.question
        key = f"{self.owner} {question.call_id or self.digest}"
        try:
            with exclusive(LockSpace.SAME_CALL, key, seconds=LOCK_SECONDS):
                if replaced_call is None and self._is_made():
                    return None
                run = ClientRun(
                    client=question.client,
                    session=question.session,
                    owner=self.owner,
                    client_call_id=question.call_id,
                    client_tool=question.tool,
                    input_digest=self.digest,
                    cwd=question.cwd,
                )
                order = CallOrder(
                    tool=self.prepared.target.tool.name,
                    arguments=dict(question.input),
                    replaces=replaced_call.public_id if replaced_call is not None else None,
                    prepared=self.prepared,
                    client_run=run,
                )
                create_call(order, by=self.by)
        except LockTimeout:
            return _deny(BUSY)
        except (AuditUnavailable, RestoredDatabase):
            raise
        except (IntegrityError, Conflict):  # stored by another process, or a policy has just changed
            return None
        if run.allowed_at is not None and not client_runs.confirm_start(run):
            raise AuditUnavailable(UNWITNESSED)
        return self._answer_for(self._read(run))

    def _is_made(self) -> bool:
        """Return whether another question has made the call since this one looked for it."""
        return self._find(None) is not None

    def _hand_out(self, run: ClientRun) -> PermissionAnswer | None:
        try:
            is_handed_out = client_runs.hand_out(run)
        except AuditUnavailable:
            return self._wait(run, UNWITNESSED)
        except RestoredDatabase:
            raise
        except Conflict:
            return None
        run = self._read(run)
        if run.call.status in (CallStatus.CREATED, CallStatus.READY):
            return self._wait(run, "It is approved, but cannot start now, because its plan is paused or busy.")
        return self._answer_for(run) if is_handed_out else None

    def _read(self, run: ClientRun) -> ClientRun:
        return ClientRun.objects.select_related("call__approval", "call__version").get(pk=run.pk)

    def _answer_for(self, run: ClientRun) -> PermissionAnswer | None:
        """Return the answer, and take the decision about a deferred call; None if the call changed at this moment."""
        if run.call.status == CallStatus.HELD:
            return self._wait(run, "A person must approve this call before it runs.")
        answer = self._decided(run)
        is_taken = take_decision(run, repeats=self.question.repeats)
        return answer if is_taken or answer.decision != "allow" else _deny(NOT_REPORTED, run.call)

    def _decided(self, run: ClientRun) -> PermissionAnswer:
        call = run.call
        match call.status:
            case CallStatus.RUNNING if run.allowed_until is not None and run.allowed_until > clock.now():
                return self._allow(run)
            case CallStatus.RUNNING | CallStatus.OUTCOME_UNKNOWN:
                message = NOT_REPORTED
            case _ if run.reported_at is not None:
                message = RAN_ALREADY
            case CallStatus.COMPLETED:
                results = (call.response_json or {}).get("results")
                message = f"{call.message}\n\n{format_for_model(results)}" if results else call.message
            case _:
                message = call.message or f"The call has ended as {call.status}."
        return _deny(message, call)

    def _wait(self, run: ClientRun, why: str) -> PermissionAnswer | None:
        request = _request_of(run.call)
        url = _page_of(request)
        if not (self.question.may_defer and is_resumable(self.question)):
            return PermissionAnswer("wait", run.call.public_id, None, f"{why} {url}".strip(), _id_of(request), url)
        # A runner's lease stays: it ends with the process that was just told to end.
        changes = {"deferred_at": clock.now(), "resumed_at": None, "confirmed_at": None, "resume_outcome": ""}
        if not ClientRun.objects.filter(pk=run.pk, allowed_at=None).update(**changes):
            return None  # another question has just got it: deferred, it would be handed out a second time
        message = f"{why} This session is resumed after the decision. {url}".strip()
        return PermissionAnswer("defer", run.call.public_id, None, message, _id_of(request), url)

    def _allow(self, run: ClientRun) -> PermissionAnswer:
        call, request = run.call, _request_of(run.call)
        edited = summarise_edits(request) if request is not None and request.round_number > 1 else None
        message = ""
        if edited is not None:
            message = f"Edited by {' and '.join(edited.by)} before it was approved: {', '.join(edited.fields)}."
        arguments = vault.load_call_arguments(call)
        return PermissionAnswer("allow", call.public_id, arguments, message, _id_of(request), _page_of(request))


def _deny(message: str, call: Call | None = None) -> PermissionAnswer:
    request = _request_of(call) if call is not None else None
    ref = call.public_id if call is not None else None
    return PermissionAnswer("deny", ref, None, message, _id_of(request), _page_of(request))


def _request_of(call: Call) -> ApprovalRequest | None:
    return getattr(call, "approval", None)


def _id_of(request: ApprovalRequest | None) -> str | None:
    return request.public_id if request is not None else None


def _page_of(request: ApprovalRequest | None) -> str:
    return f"{settings.TOOLGATE_URL}/approvals/?item={request.public_id}" if request is not None else ""
