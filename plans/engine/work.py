"""Work items of executor threads: a claimed step, a snapshot of its plan, and the work to do."""

import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from time import monotonic
from typing import Any, Protocol

from django.db import connection

from approvals.errors import Drift
from approvals.policies.history import History
from approvals.policies.rulebook import Rule
from approvals.reviews.edits import EditSummary
from catalog.access.limits import Limits
from catalog.context import Budget, CancelToken
from catalog.core.database import read_datetime
from catalog.core.json_paths import without_paths
from catalog.dispatch.arguments import CallArguments, paths_to_store
from catalog.dispatch.pipeline import CallOutcome
from catalog.errors import Stopped
from catalog.inventory.snapshot import CallableTool
from catalog.models import Call
from catalog.schemas.defaults import NO_DEFAULTS, given_text
from catalog.secrets.placeholders import Secret, without_macs
from plans.models import Plan
from plans.store.requesters import RequesterIds
from plans.store.statements import ClaimedStep


@dataclass(frozen=True, slots=True)
class PlanSnapshot:
    """Facts about a plan for the executor; all except deadline and limits never change once stored."""

    pk: int
    ref: str
    author_id: int
    token_id: int | None
    token_user_id: int | None
    via: str
    session: str
    is_call: bool
    deadline_at: datetime | None
    has_budget: bool
    traceparent: str = ""
    token_limits: Limits | None = field(default=None, compare=False)
    """The limits of the token through which the plan was made, as of now."""
    caller_ids: str = ""
    """JSON of the ids given by the calling program; empty if there are none."""

    @property
    def asker(self) -> RequesterIds:
        """The requester of the calls of the plan's own steps."""
        user_id = self.token_user_id or self.author_id
        return RequesterIds(user_id, self.token_id, self.via, self.session, self.token_limits)

    def with_deadline_of(self, step: ClaimedStep) -> "PlanSnapshot":
        """Return the snapshot with the plan's deadline at the time of the step's claim."""
        moment = read_datetime(step.deadline_at) if step.deadline_at else None
        return self if moment == self.deadline_at else replace(self, deadline_at=moment)


def load_snapshot(plan_pk: int) -> PlanSnapshot:
    return snapshot_of(Plan.objects.select_related("token").get(pk=plan_pk))


def load_snapshot_of(call: Call) -> PlanSnapshot:
    """Return the snapshot of the plan of a stored call."""
    return snapshot_of(Plan.objects.select_related("token").get(public_id=call.plan_ref))


def snapshot_of(plan: Plan) -> PlanSnapshot:
    return PlanSnapshot(
        pk=plan.pk or 0,
        ref=plan.public_id,
        author_id=plan.author_id,
        token_id=plan.token_id,
        token_user_id=plan.token.user_id if plan.token else None,
        via=plan.via,
        session=plan.session,
        is_call=plan.kind == Plan.Kind.CALL,
        deadline_at=plan.deadline_at,
        has_budget=plan.has_budget,
        traceparent=plan.traceparent,
        token_limits=plan.token.limits if plan.token else None,
        caller_ids=plan.caller_ids,
    )


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call ready to be made: target in the catalog and prepared arguments. `asker` is None for the plan's requester.

    `arguments` are passed to the handler and never stored; `text` is the stored form, with secrets redacted.
    """

    target: CallableTool
    arguments: CallArguments
    text: str
    replaces: Call | None = None
    reason: str = ""
    asker: RequesterIds | None = None
    secrets: tuple[Secret, ...] = ()
    call_id: str = ""
    """The id that the call will have; chosen when it is stored if empty."""
    cwd: str = ""
    """The working directory that a client claims for a call that it runs itself."""

    @property
    def redacted_arguments(self) -> dict[str, Any]:
        return json.loads(without_macs(self.text)) if self.secrets else self.arguments.storable

    @property
    def given_arguments(self) -> dict[str, Any]:
        """The arguments for responses: with secrets redacted, and without the defaults that were filled in."""
        return without_paths(self.redacted_arguments, self.arguments.defaults)

    @property
    def given_text(self) -> str:
        """The stored form without the defaults that were filled in, from which the same call can be prepared again."""
        return given_text(self.text, self.defaults_text)

    @property
    def defaults_text(self) -> str:
        """The paths of the defaults that were filled in, as JSON text."""
        return paths_to_store(self.arguments, json.loads(self.text)) if self.arguments.defaults else NO_DEFAULTS

    @property
    def omitted_text(self) -> str:
        """The dotted paths of nulls that were left out, as JSON text."""
        return json.dumps(self.arguments.omitted) if self.arguments.omitted else "[]"

    @property
    def level(self) -> str:
        return str(self.target.tool.safety_level)


@dataclass(frozen=True, slots=True)
class RunningCall:
    """A started call whose handler is to run; `stop` is set when its plan ends.

    `abandoned_at` has a time if the handler could not be stopped and was left running. `edited` summarises the edits
    made before approval. `sent` has the commands sent to the session, which are stored when the call ends.
    """

    step: ClaimedStep
    plan: PlanSnapshot
    call: Call
    prepared: PreparedCall
    target_state: str | None = None
    budget: Budget | None = None
    edited: EditSummary | None = None
    stop: CancelToken = field(default_factory=CancelToken, compare=False)
    began: float = field(default_factory=monotonic, compare=False)
    abandoned_at: list[datetime] = field(default_factory=list, compare=False)
    sent: list[Any] = field(default_factory=list, compare=False)

    @property
    def seconds(self) -> float:
        """Seconds after which the handler is ended: the tool's timeout, limited by the plan's remaining budget."""
        timeout = self.prepared.target.tool.longest_seconds
        left = self.budget.seconds if self.budget else None
        return timeout if left is None else min(timeout, left)


STORED_AFTER_SECONDS = 0.05
"""Time after which a call that runs before it is stored is stored as running."""


class HandlerThread(Protocol):
    """Interface of the thread that runs the handler."""

    def begin_work(self, running_call: RunningCall, /) -> None:
        """Renew the lease of a stored call, and end it at its deadline."""

    def stop(self, attempts: Collection[tuple[int, int]], /) -> None:
        """Ask a call to stop if it is one of these, by key and attempt of its step; leave it running if it does not."""


class UnstoredCall:
    """A call that runs in a thread of the executor while the thread that admitted it waits, and is not stored yet."""

    def __init__(self, running_call: RunningCall) -> None:
        self.running_call = running_call
        self.stored: RunningCall | None = None
        """The call as it was stored while it ran."""
        self.stopped: Stopped | None = None
        """The stop for which its handler did not begin."""
        self._thread: HandlerThread | None = None
        self._outcome: CallOutcome | None = None
        self._is_withdrawn = self._has_failed = False
        self._lock = threading.Lock()
        self._ended = threading.Lock()
        self._ended.acquire()

    def run(
        self,
        thread: HandlerThread,
        may_begin: "Callable[[UnstoredCall], bool]",
        run_call: "Callable[[UnstoredCall], CallOutcome]",
    ) -> CallOutcome | None:
        """Run the handler in this thread; return its outcome if the call was stored meanwhile and is to be ended.

        Does nothing if the call may not begin, or nobody waits for it any more.
        """
        outcome = None
        try:
            if may_begin(self) and self._begin_in(thread):
                outcome = run_call(self)
        finally:
            # Waits while the call is being stored: until then, the thread must not go on to other work.
            with self._lock:
                self._outcome, self._has_failed = outcome, outcome is None
            self._ended.release()
        return outcome if self.stored is not None else None

    def _begin_in(self, thread: HandlerThread) -> bool:
        with self._lock:
            if not self._is_withdrawn:
                self._thread = thread
            return not self._is_withdrawn

    def wait(self, store_call: Callable[[], RunningCall]) -> CallOutcome | None:
        """Return the outcome, or None after 50 ms: then `store_call` stored the call, unless no thread has begun it.

        Raises the errors of `store_call`. Nobody learns the outcome then, so the handler is asked to stop.
        """
        self._ended.acquire(timeout=STORED_AFTER_SECONDS)
        with self._lock:
            if self._outcome is not None:
                return self._outcome
            if self._thread is None or self._has_failed:
                self._is_withdrawn = True
                return None
            shared = {name: getattr(self.running_call, name) for name in ("stop", "began", "abandoned_at", "sent")}
            try:
                self.stored = replace(store_call(), **shared)
            except BaseException:
                self._thread.begin_work(self.running_call)
                self._thread.stop({(self.running_call.step.pk, self.running_call.step.attempt)})
                raise
            self._thread.begin_work(self.stored)
        return None


@dataclass(frozen=True, slots=True)
class RateLimitedCall:
    """A call to be counted against its rate limit before it may start or be held."""

    step: ClaimedStep
    plan: PlanSnapshot
    prepared: PreparedCall


@dataclass(frozen=True, slots=True)
class HeldCall:
    """A call that needs approval: compute its preview and store its request, unless a grant or envelope covers it.

    `call` is set if the call is already stored: a direct call that was covered when it was stored. `history` was
    judged in the transaction that made this item, and only that one may store it.
    """

    step: ClaimedStep
    plan: PlanSnapshot
    prepared: PreparedCall
    rule: Rule
    call: Call | None = None
    history: History | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ApprovedCall:
    """An approved call, to be compared with its approval before it starts."""

    step: ClaimedStep
    plan: PlanSnapshot
    call: Call


@dataclass(frozen=True, slots=True)
class StaleApproval:
    """An approved call that has changed since its approval, so that a new approval must be requested."""

    step: ClaimedStep
    plan: PlanSnapshot
    call: Call
    reason: str
    what: Drift


WorkWithPreview = HeldCall | ApprovedCall | StaleApproval
"""Work that computes a preview before its transaction."""
WorkItem = RunningCall | RateLimitedCall | WorkWithPreview
READ_MEMORY = "SELECT key, value FROM plans_memoryitem WHERE plan_id = %s AND type = 'value'"


class Memory(Mapping[str, Any]):
    """A plan's values by key, loaded from the database at first use.

    With `stored`, used to resolve references, values keep the HMACs that locate secrets. Tools get values without
    HMACs.
    """

    def __init__(self, plan_pk: int, *, stored: bool = False) -> None:
        self._plan_pk = plan_pk
        self._convert: Callable[[str], str] = str if stored else without_macs
        self._values: dict[str, Any] | None = None

    def _loaded(self) -> dict[str, Any]:
        if self._values is None:
            with connection.cursor() as cursor:
                cursor.execute(READ_MEMORY, [self._plan_pk])
                self._values = {key: json.loads(self._convert(text)) for key, text in cursor.fetchall()}
        return self._values

    def __getitem__(self, key: str) -> Any:
        return self._loaded()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded())

    def __len__(self) -> int:
        return len(self._loaded())
