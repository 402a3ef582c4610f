"""Waits of a plan's steps: what each waits for, since when, on whom, until when, and what happens then.

They are the same for all who see the plan: whoever sees a plan may see its requests, and so who may decide them. What
one person can do about a wait is in `plans.web.plan.next_action`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property

from django.contrib.auth.models import User
from django.db.models import Prefetch, prefetch_related_objects
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from approvals.models import ApprovalRequest, Delegation, Review, Round, Stop
from approvals.policies.eligibility import counting_groups, may_decide, people_named
from approvals.policies.quorum import approvals_of, unmet_stages, voters
from approvals.policies.rulebook import Rule, rule_for
from approvals.policy_language.sentences import expiry_consequence
from approvals.policy_language.stages import Stage, people_in_words
from approvals.requests.limits import TooManyWaiting
from approvals.states import RequestStatus
from approvals.stops.standing import covers
from catalog.access.roles import prefetch_groups, user_display_name
from catalog.inventory import snapshot
from plans.actions.give_input import is_sent_back
from plans.documents.graphs import descendants
from plans.engine.questions import waits_for_answer
from plans.engine.stops import facts_of_stored_step
from plans.executor.heartbeats import live_executors
from plans.models import Event, Plan, Step
from plans.states import PLAN_TERMINAL, PlanStatus, StepStatus, WaitingFor

MOST_NAMED = 3
"""Maximum number of people who are named; more are counted."""
MOST_READ = 50
"""Maximum number of waiting requests of which the approvals and the people are read, those of the first steps."""
UNCLAIMED = timedelta(seconds=3)
"""Time after which a ready step that no worker has claimed counts as waiting for one."""
LOST = timedelta(seconds=5)
"""Time after the end of a lease in which another worker takes the step over."""


class WaitKind(StrEnum):
    APPROVAL = "approval"
    START = "start"
    """Approved, and about to start."""
    ANSWER = "answer"
    ARGUMENTS = "arguments"
    """Reviewers sent it back for changes."""
    OUTCOME = "outcome"
    RETRY = "retry"
    ALLOWED = "allowed"
    """Approved, until its client asks again."""
    REPORT = "report"
    """Handed out to its client, which has not reported the end."""
    CALLS = "calls"
    """An agent's step, for its model or its calls."""
    STOP = "stop"
    """Under a stop, until an administrator lifts it."""
    WORKER = "worker"
    PAUSED = "paused"
    NOT_STARTED = "not_started"
    BEHIND = "behind"
    """Behind steps that have not ended."""
    BLOCKED = "blocked"
    """Behind a step that has failed or was cancelled."""
    FAILED = "failed"


KINDS: Mapping[str, WaitKind] = {
    WaitingFor.APPROVAL: WaitKind.APPROVAL,
    WaitingFor.CALLS: WaitKind.CALLS,
    WaitingFor.STOP: WaitKind.STOP,
}
"""Kinds of waits of steps that cannot be claimed; what is awaited as input depends on the step."""
RETRY_REASONS = {
    "rate_limited": gettext_lazy("Its tool has reached its rate limit."),
    TooManyWaiting.code: gettext_lazy(
        "Too many requests of its requester wait already. It goes on once some are answered."
    ),
    "audit_unavailable": gettext_lazy("The audit checkpoint of its start cannot be written."),
    "worker_lost": gettext_lazy("Its worker was lost."),
    "worker_stopped": gettext_lazy("Its worker stopped."),
    "drifted": gettext_lazy("It is left to a worker with the current version of its tool."),
    "upstream_unavailable": gettext_lazy("Its source could not be reached."),
    "timeout": gettext_lazy("Its call took too long."),
}
"""Reasons of retries, by the `error` of their events; any other call has failed."""


@dataclass(frozen=True, slots=True)
class StepWait:
    """The wait of one step.

    `people` are those on whom it waits, `approvals` the ones given so far, in words; `nobody` is True if nobody may
    approve it. `behind` are the steps on which it waits, of which a cancelled or failed one blocks it. `then` says what
    happens at `until`.
    """

    kind: WaitKind
    number: int
    since: datetime | None = None
    people: str = ""
    approvals: str = ""
    nobody: bool = False
    behind: tuple[int, ...] = ()
    reason: str = ""
    until: datetime | None = None
    then: str = ""
    request: ApprovalRequest | None = None

    @property
    def state(self) -> str:
        """A value that changes when parts of the page that show this wait to one person must be rendered again."""
        if self.kind in (WaitKind.BEHIND, WaitKind.NOT_STARTED):
            return self.kind
        request = self.request
        asked = (request.public_id, request.expires_at, request.reminders, request.claimed_by_id) if request else ()
        return f"{self.kind} {self.people} {self.approvals} {self.behind} {asked}"

    @property
    def label(self) -> str:
        """The people on whom it waits as a short status; empty if they are too many."""
        text = _("Waiting for %(people)s") % {"people": self.people} if self.kind == WaitKind.APPROVAL else ""
        return text if len(text) <= 32 else ""


PRIORITY = (
    *(WaitKind.OUTCOME, WaitKind.ANSWER, WaitKind.ARGUMENTS, WaitKind.APPROVAL, WaitKind.FAILED, WaitKind.STOP),
    *(WaitKind.WORKER, WaitKind.RETRY, WaitKind.START, WaitKind.ALLOWED, WaitKind.REPORT),
)
"""Waits that the head of the plan names, most urgent first."""
FOR_PEOPLE = PRIORITY[:4]
SEVERAL = {
    WaitKind.OUTCOME: ngettext_lazy("%(count)s outcome is unknown.", "%(count)s outcomes are unknown.", "count"),
    WaitKind.ANSWER: ngettext_lazy(
        "%(count)s question waits for an answer.", "%(count)s questions wait for an answer.", "count"
    ),
    WaitKind.ARGUMENTS: ngettext_lazy(
        "%(count)s step was sent back for changes.", "%(count)s steps were sent back for changes.", "count"
    ),
    WaitKind.APPROVAL: ngettext_lazy(
        "%(count)s step waits for approval.", "%(count)s steps wait for approval.", "count"
    ),
    WaitKind.FAILED: ngettext_lazy("%(count)s step has failed.", "%(count)s steps have failed.", "count"),
    WaitKind.STOP: ngettext_lazy("%(count)s step is stopped.", "%(count)s steps are stopped.", "count"),
    WaitKind.WORKER: ngettext_lazy("%(count)s step waits for a worker.", "%(count)s steps wait for a worker.", "count"),
    WaitKind.RETRY: ngettext_lazy("%(count)s step is tried again.", "%(count)s steps are tried again.", "count"),
    WaitKind.ALLOWED: ngettext_lazy(
        "%(count)s step waits for its client.", "%(count)s steps wait for their clients.", "count"
    ),
    WaitKind.REPORT: ngettext_lazy(
        "%(count)s step runs in its client.", "%(count)s steps run in their clients.", "count"
    ),
    WaitKind.START: ngettext_lazy("%(count)s step is about to start.", "%(count)s steps are about to start.", "count"),
}
TOLD_ON_CARD = frozenset(
    {WaitKind.APPROVAL, WaitKind.START, WaitKind.RETRY, WaitKind.WORKER, WaitKind.PAUSED, WaitKind.NOT_STARTED}
    | {WaitKind.BEHIND, WaitKind.BLOCKED, WaitKind.ALLOWED, WaitKind.STOP}
)
"""Waits that the card of a step tells; it has parts of its own for the others."""


@dataclass(frozen=True)
class PlanWaits:
    """The waits of a plan by step, with the edges of its graph: (step, step that depends on it)."""

    plan: Plan
    by_number: Mapping[int, StepWait]
    edges: Sequence[tuple[int, int]] = ()
    running: int = 0
    finished: int = 0
    total: int = 0
    open_steps: frozenset[int] = field(default_factory=frozenset)

    @cached_property
    def first(self) -> StepWait | None:
        """The wait that the head of the plan names: of the most urgent kind the one that began first."""
        found = [wait for wait in self.by_number.values() if wait.kind in PRIORITY]
        if self.plan.status in PLAN_TERMINAL:
            found = [wait for wait in found if wait.kind in (WaitKind.OUTCOME, WaitKind.FAILED)]
        elif self.plan.paused_at is not None:
            found = [wait for wait in found if wait.kind in FOR_PEOPLE]
        if self.plan.status in (PlanStatus.COMPLETED, PlanStatus.CANCELLED):
            found = [wait for wait in found if wait.kind == WaitKind.OUTCOME]
        return min(found, key=self._urgency, default=None)

    @staticmethod
    def _urgency(wait: StepWait) -> tuple[int, float, int]:
        return PRIORITY.index(wait.kind), wait.since.timestamp() if wait.since else 0.0, wait.number

    @cached_property
    def alike(self) -> int:
        """Number of waits of the same kind as the first."""
        return sum(wait.kind == self.first.kind for wait in self.by_number.values()) if self.first else 0

    @property
    def several(self) -> str:
        """The number of waits of the same kind as the first, as a sentence; empty if there is no other."""
        return str(SEVERAL[self.first.kind] % {"count": self.alike}) if self.first and self.alike > 1 else ""

    @cached_property
    def behind(self) -> int:
        """Number of open steps that depend on the first waiting step, directly or not."""
        if self.first is None:
            return 0
        return len(descendants(self.first.number, self.edges) & self.open_steps)

    @cached_property
    def blocked(self) -> int:
        return sum(wait.kind == WaitKind.BLOCKED for wait in self.by_number.values())

    @cached_property
    def failures(self) -> str:
        """The number of failed steps as a sentence; empty if there are none, or if the first wait is one of them."""
        count = sum(wait.kind == WaitKind.FAILED for wait in self.by_number.values())
        is_said = self.first is None or self.first.kind == WaitKind.FAILED
        return str(SEVERAL[WaitKind.FAILED] % {"count": count}) if count and not is_said else ""

    @property
    def is_running(self) -> bool:
        return self.plan.status == PlanStatus.IN_PROGRESS and self.plan.paused_at is None

    @property
    def state(self) -> str:
        return f"{self.first.number} {self.first.state} {self.alike}" if self.first else ""

    def root_of(self, number: int) -> StepWait | None:
        """Return the wait at the beginning of the chain behind which a step waits; None if a step there runs."""
        seen: set[int] = set()
        queue, roots = [number], []
        while queue:
            wait = self.by_number.get(queue.pop())
            if wait is None or wait.number in seen:
                continue
            seen.add(wait.number)
            if wait.kind in (WaitKind.BEHIND, WaitKind.BLOCKED):
                queue += wait.behind
            elif wait.number != number and wait.kind in PRIORITY:
                roots.append(wait)
        return min(roots, key=self._urgency, default=None)


def load_waits(
    plan: Plan,
    steps: Sequence[Step],
    needs: Mapping[int, Sequence[int]],
    events: Mapping[int, Sequence[Event]],
    now: datetime,
) -> PlanWaits:
    """Return the waits of all steps; a fixed number of queries, none if no step waits for approval or a worker.

    `steps` have their calls and requests loaded; `events` are the `interval_events` of each step.
    """
    status = {step.step_id: StepStatus(step.status) for step in steps}
    blockers = _blockers(needs, status)
    approvals = _load_approvals([step for step in steps if _waits_for_approval(step)][:MOST_READ], now)
    found: dict[int, StepWait] = {}
    for step in steps:
        wait = approvals.get(step.step_id) or _wait_of(plan, step, events.get(step.step_id, ()), now)
        if (
            wait is None
            and step.status == StepStatus.PENDING
            and plan.status not in PLAN_TERMINAL | {PlanStatus.PENDING}
        ):
            left = tuple(each for each in needs.get(step.step_id, ()) if status[each] != StepStatus.COMPLETED)
            wait = StepWait(WaitKind.BEHIND, step.step_id, behind=left) if left else None
        if step.status == StepStatus.PENDING and step.step_id in blockers:
            wait = StepWait(WaitKind.BLOCKED, step.step_id, behind=(blockers[step.step_id],))
        if wait is not None:
            found[step.step_id] = wait
    if any(wait.kind == WaitKind.WORKER for wait in found.values()):
        reason = _("All workers are busy.") if live_executors() else _("No worker runs.")
        for number, wait in found.items():
            if wait.kind == WaitKind.WORKER and not wait.reason:
                found[number] = StepWait(WaitKind.WORKER, number, wait.since, reason=reason)
    if any(wait.kind == WaitKind.STOP for wait in found.values()):
        found |= _load_stops(plan, [step for step in steps if step.waiting_for == WaitingFor.STOP])
    written = [step for step in steps if step.parent_id is None]
    return PlanWaits(
        plan,
        found,
        edges=[(needed, number) for number, all_needed in needs.items() for needed in all_needed],
        running=sum(step.status == StepStatus.IN_PROGRESS and step.step_id not in found for step in steps),
        finished=sum(step.status == StepStatus.COMPLETED for step in written),
        total=len(written),
        open_steps=frozenset(number for number, each in status.items() if each == StepStatus.PENDING),
    )


def _load_stops(plan: Plan, steps: Sequence[Step]) -> dict[int, StepWait]:
    """Return the waits of steps under stops, with the reason of the stop and the person who set it."""
    stops = list(Stop.objects.filter(lifted_at=None).select_related("set_by").order_by("pk"))
    found = {}
    for step in steps:
        step.plan = plan
        covering = [stop for stop in stops if covers(stop, facts_of_stored_step(step))] if len(stops) > 1 else stops
        stop = covering[0] if covering else None
        people, reason = (stop.set_by_name, stop.reason) if stop is not None else ("", _("The stop was just lifted."))
        reason = reason if reason.endswith((".", "!", "?")) else f"{reason}."
        found[step.step_id] = StepWait(WaitKind.STOP, step.step_id, step.waiting_since, people=people, reason=reason)
    return found


def _blockers(needs: Mapping[int, Sequence[int]], status: Mapping[int, StepStatus]) -> Mapping[int, int]:
    """Return the failed or cancelled step that blocks each step behind it, directly or not."""
    dependents: dict[int, list[int]] = {}
    for number, all_needed in needs.items():
        for needed in all_needed:
            dependents.setdefault(needed, []).append(number)
    found: dict[int, int] = {}
    queue = [(number, number) for number, each in status.items() if each in (StepStatus.FAILED, StepStatus.CANCELLED)]
    while queue:
        number, blocker = queue.pop(0)
        for dependent in dependents.get(number, ()):
            if dependent not in found:
                found[dependent] = blocker
                queue.append((dependent, blocker))
    return found


def _waits_for_approval(step: Step) -> bool:
    return step.status == StepStatus.IN_PROGRESS and step.waiting_for == WaitingFor.APPROVAL and step.ready_at is None


def _wait_of(plan: Plan, step: Step, events: Sequence[Event], now: datetime) -> StepWait | None:
    """Return what one step waits for, by its own row and events; None if it works, has ended or waits behind others."""
    if step.waiting_for == WaitingFor.OUTCOME:
        return StepWait(WaitKind.OUTCOME, step.step_id, step.waiting_since)
    if step.status == StepStatus.FAILED and step.parent_id is None:
        return StepWait(WaitKind.FAILED, step.step_id, step.completed_at)
    if step.status not in (StepStatus.PENDING, StepStatus.IN_PROGRESS) or plan.status in PLAN_TERMINAL:
        return None
    if plan.status == PlanStatus.PENDING:
        return StepWait(WaitKind.NOT_STARTED, step.step_id)
    return (
        _wait_to_be_claimed(plan, step, events, now) if step.ready_at is not None else _wait_of_unclaimable(step, now)
    )


def _wait_of_unclaimable(step: Step, now: datetime) -> StepWait | None:
    if step.waiting_for == WaitingFor.CLIENT:
        kind = WaitKind.REPORT if step.call is not None and step.call.attempt else WaitKind.ALLOWED
        target = snapshot.last_read(step.tool)
        client = target.source if target is not None else _("its client")
        return StepWait(kind, step.step_id, step.waiting_since, people=client)
    awaited = KINDS.get(step.waiting_for)
    if waits_for_answer(step):
        awaited = WaitKind.ANSWER
    elif is_sent_back(step):
        awaited = WaitKind.ARGUMENTS
    if awaited is not None:
        return StepWait(awaited, step.step_id, step.waiting_since)
    is_lost = step.lease_until is not None and step.lease_until < now - LOST
    return (
        StepWait(WaitKind.WORKER, step.step_id, step.lease_until, reason=_("Its worker was lost.")) if is_lost else None
    )


def _wait_to_be_claimed(plan: Plan, step: Step, events: Sequence[Event], now: datetime) -> StepWait | None:
    """Return the wait of a step that a worker may claim from its `ready_at` on; None if one is about to."""
    ready_at = step.ready_at or now
    if plan.paused_at is not None:
        return StepWait(WaitKind.PAUSED, step.step_id, plan.paused_at)
    if ready_at > now:
        return StepWait(WaitKind.RETRY, step.step_id, step.waiting_since, reason=_retry_reason(events), until=ready_at)
    return StepWait(WaitKind.WORKER, step.step_id, ready_at) if ready_at < now - UNCLAIMED else None


def _retry_reason(events: Sequence[Event]) -> str:
    data = next((event.data_json for event in reversed(events) if event.type == "step.retrying"), {})
    reason = RETRY_REASONS.get(str(data.get("error")), _("Its call failed."))
    if data.get("of"):
        values = {"reason": reason, "attempt": data.get("attempt"), "of": data["of"]}
        return _("%(reason)s Attempt %(attempt)s of %(of)s.") % values
    return str(reason)


def _load_approvals(steps: Sequence[Step], now: datetime) -> dict[int, StepWait]:
    """Return the waits of steps that wait for approval; at most nine queries, none without such steps."""
    if not steps:
        return {}
    reviews = Review.objects.select_related("person", "on_behalf_of", "round").defer("comment", "response", "passkey")
    texts = ("arguments", "defaults", "omitted", "preview")
    rows = (
        ApprovalRequest.objects.filter(call__in=[step.call_id for step in steps])
        .select_related("call", "policy_revision__policy", "claimed_by")
        .defer(*(f"call__{name}" for name in ("arguments", "response", "message", "content", "late_evidence")))
        .prefetch_related(
            "call__requesters",
            Prefetch("reviews", reviews.defer(*(f"round__{name}" for name in texts)).order_by("id")),
            Prefetch("delegations", Delegation.objects.select_related("by", "to")),
        )
    )
    requests = {row.call_id: row for row in rows}
    edited = [row for row in requests.values() if row.round_number > 1]
    prefetch_related_objects(edited, Prefetch("rounds", Round.objects.defer(*texts)))
    reviewers = _Reviewers(requests.values())
    found = {}
    for step in steps:
        request = requests.get(step.call_id) if step.call_id else None
        if request is not None:
            found[step.step_id] = _approval_wait(step, request, reviewers, now)
    return found


def _approval_wait(step: Step, request: ApprovalRequest, reviewers: "_Reviewers", now: datetime) -> StepWait:
    if request.status != RequestStatus.PENDING:
        until = request.effective_at
        reason = _("Approved. It starts once the decision can no longer be undone.")
        return StepWait(WaitKind.START, step.step_id, request.decided_at, reason=reason, until=until, request=request)
    rule = rule_for(request)
    given = approvals_of(request)
    lacking = unmet_stages(rule, reviewers.known(voters(given))) or [Stage(stage.group, 1) for stage in rule.stages[:1]]
    people = reviewers.who_may(request, rule, lacking)
    said = []
    if given:
        names = joined_names([user_display_name(review.person) for review in given], _("and"))
        said.append(
            _("%(given)s of %(needed)s approvals; %(names)s approved")
            % {"given": len(given), "needed": max(rule.quorum, len(given) + 1), "names": names}
        )
    if request.claimed_by is not None and request.claimed_until and request.claimed_until > now:
        said.append(_("claimed by %(name)s") % {"name": user_display_name(request.claimed_by)})
    return StepWait(
        WaitKind.APPROVAL,
        step.step_id,
        request.ready_at or request.opened_at,
        people=approvers_in_words(lacking, people),
        approvals="; ".join(said),
        nobody=people is not None and not people,
        until=request.expires_at,
        then=expiry_consequence(rule.on_expiry, "" if request.escalated_at else rule.escalate_to),
        request=request,
    )


class _Reviewers:
    """The people who may decide the requests of one plan: those whom their rules name, and delegates."""

    def __init__(self, requests: Iterable[ApprovalRequest]) -> None:
        requests = list(requests)
        delegates = [each.to for request in requests for each in request.delegations.all()]
        voted = [person for request in requests for person in voters(approvals_of(request))]
        prefetch_groups([*delegates, *voted])
        named = people_named(rule_for(request) for request in requests)
        self.people = {person.pk: person for person in [*delegates, *voted]} | {person.pk: person for person in named}
        self.named = list(dict.fromkeys([*(person.pk for person in named), *(person.pk for person in delegates)]))
        self._found: dict[object, list[User]] = {}

    def known(self, people: Iterable[User]) -> list[User]:
        """Return these people with their groups loaded."""
        return [self.people.get(person.pk, person) for person in people]

    def who_may(self, request: ApprovalRequest, rule: Rule, stages: Sequence[Stage]) -> list[User] | None:
        """Return the people who may give a lacking approval; None if the rule takes a query for each of them."""
        if rule.min_role_age_seconds:
            return None
        voted = {review.person_id for review in approvals_of(request)}
        delegations = tuple((each.by_id, each.to_id) for each in request.delegations.all())
        rounds = request.rounds.all() if request.round_number > 1 else ()
        editors = tuple((each.number, each.editor_id) for each in rounds if each.editor_id)
        askers = frozenset(each.user_id for each in request.call.requesters.all()) | {request.call.requested_by_id}
        groups = {stage.group for stage in stages}
        key = (rule, frozenset(voted), delegations, editors, askers, frozenset(groups))
        if key not in self._found:
            delegates = {to for _, to in delegations}
            self._found[key] = [
                person
                for person in (self.people[pk] for pk in self.named if pk not in voted)
                if (person.pk in delegates or counting_groups(rule, person) & groups)
                and may_decide(request, person, rule) is None
            ]
        return self._found[key]


def approvers_in_words(stages: Sequence[Stage], people: Sequence[User] | None) -> str:
    """Return the people who must approve: Rosa or Tomas, 2 of Rosa, Tomas and Ada, 1 member of finance.

    `stages` lack approvals, `people` may give them. Many people, none, or None for unknown are named by their groups.
    """
    needed = sum(stage.count for stage in stages)
    if not people or len(people) > MOST_NAMED or len(people) < needed:
        return people_in_words(stages)
    names = [user_display_name(person) for person in people]
    if needed == 1:
        return joined_names(names, _("or"))
    everyone = joined_names(names, _("and"))
    if needed == len(names):
        return everyone
    return _("%(count)s of %(people)s") % {"count": needed, "people": everyone}


def joined_names(names: Sequence[str], word: str) -> str:
    return f" {word} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
