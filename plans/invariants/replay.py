"""I8: replaying the events leads to the stored state.

Every move of a plan or step has an event. Calls have events for starts, ends and retries, but not for being released,
refused or cancelled while held; those are in the request and the audit log. Such moves are assumed to have happened
between two events if the table of moves allows them.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from catalog.core.transactions import StatusMoves
from catalog.states import MOVES as CALL_MOVES
from catalog.states import CallStatus
from plans.engine.retries import UNSTARTED_REASONS
from plans.invariants.base import CheckInput, Finding, RowsByPlan, invariant, rows
from plans.states import PLAN_MOVES, STEP_MOVES, PlanStatus, StepStatus

PLANS = "SELECT id, public_id, status FROM plans_plan ORDER BY id"
EVENTS = "SELECT plan_id, seq, type, step_id, data FROM plans_event ORDER BY plan_id, seq"
STEPS = "SELECT plan_id, step_id, status, skipped, attempt FROM plans_step ORDER BY plan_id, step_id"
CALLS = """
    SELECT p.id, c.public_id, c.status, c.attempt FROM catalog_call c
    JOIN plans_plan p ON p.public_id = c.plan_ref ORDER BY p.id
"""

PLAN_STATES: dict[str, str] = {
    "plan.started": PlanStatus.IN_PROGRESS,
    "plan.completed": PlanStatus.COMPLETED,
    "plan.failed": PlanStatus.FAILED,
    "plan.cancelled": PlanStatus.CANCELLED,
}
STEP_STATES: dict[str, str] = {
    "step.started": StepStatus.IN_PROGRESS,
    "step.waiting": StepStatus.IN_PROGRESS,
    "step.retrying": StepStatus.IN_PROGRESS,
    "step.outcome_unknown": StepStatus.IN_PROGRESS,
    "step.skipped": StepStatus.COMPLETED,
    "step.completed": StepStatus.COMPLETED,
    "step.failed": StepStatus.FAILED,
    "step.cancelled": StepStatus.CANCELLED,
}
CALL_STATES: dict[str, str] = {
    "approval.opened": CallStatus.HELD,
    "call.started": CallStatus.RUNNING,
    "call.succeeded": CallStatus.COMPLETED,
    "call.failed": CallStatus.FAILED,
    "step.outcome_unknown": CallStatus.OUTCOME_UNKNOWN,
    "step.retrying": CallStatus.READY,
}
STATES_WITH_EVENT = {CallStatus.RUNNING, CallStatus.OUTCOME_UNKNOWN}
"""Statuses that a call enters only with an event, and leaves only with an event unless it is cancelled."""
FIRST_STATES = (CallStatus.CREATED, CallStatus.RUNNING, CallStatus.HELD)


@cache
def reached_silently(status: str) -> frozenset[str]:
    """Return the statuses that a call with this status can reach without an event."""
    found, new = {status}, [status]
    while new:
        source = new.pop()
        more = set(CALL_MOVES[source]) - STATES_WITH_EVENT - found
        if source in STATES_WITH_EVENT:
            more &= {CallStatus.CANCELLED}
        found |= more
        new += more
    return frozenset(found)


@cache
def can_become(source: str, target: str) -> bool:
    """Return whether a call in status `source` may next have an event that moves it to `target`."""
    return any(target in CALL_MOVES[each] for each in reached_silently(source))


@dataclass(slots=True)
class Replay:
    """The state of one plan after replaying its events; `skipped` has the steps skipped by events."""

    plan: str = PlanStatus.PENDING
    steps: dict[int, str] = field(default_factory=dict)
    calls: dict[str, str] = field(default_factory=dict)
    skipped: set[int] = field(default_factory=set)
    claims: Counter[int] = field(default_factory=Counter)
    starts: Counter[str] = field(default_factory=Counter)

    def carry_out(self, events: Iterable[tuple[Any, ...]]) -> Iterator[tuple[int, str]]:
        """Replay events in order; yield the number of each event with a forbidden move, and the reason."""
        for _, seq, kind, step_id, data in events:
            if step_id is None:
                if not self._move_plan(kind):
                    yield seq, "The plan may not make this move."
                continue
            if kind in STEP_STATES and not self._move_step(kind, step_id):
                yield seq, "The step may not make this move."
            if kind in CALL_STATES and '"call"' in data and not self._move_call(kind, json.loads(data)):
                yield seq, "The call may not make this move."

    def _move_plan(self, kind: str) -> bool:
        to = PLAN_STATES.get(kind)
        if kind == "plan.resumed" and self.plan == PlanStatus.FAILED:
            to = PlanStatus.IN_PROGRESS
        if to is None:
            return True
        before, self.plan = self.plan, to
        return _allows(PLAN_MOVES, before, to)

    def _move_step(self, kind: str, step_id: int) -> bool:
        before, to = self.steps.get(step_id, StepStatus.PENDING), STEP_STATES[kind]
        if kind == "step.retrying" and before in (StepStatus.FAILED, StepStatus.CANCELLED):  # by a person
            to = StepStatus.PENDING
        self.steps[step_id] = to
        if kind == "step.started":
            self.claims[step_id] += 1
        elif kind == "step.skipped":
            self.skipped.add(step_id)
        # A step that cannot begin is claimed and failed in one transaction, with an event for the failure only.
        return _allows(STEP_MOVES, before, to) or (before, to) == (StepStatus.PENDING, StepStatus.FAILED)

    def _move_call(self, kind: str, data: dict[str, Any]) -> bool:
        call, to = str(data["call"]), CALL_STATES[kind]
        before = self.calls.get(call)
        if kind == "step.retrying":
            if before != CallStatus.RUNNING:  # the call ended otherwise, and only the step is retried
                return True
            self.starts[call] -= data.get("error") in UNSTARTED_REASONS  # the handler had not begun
        elif kind == "call.started":
            self.starts[call] += 1
        self.calls[call] = to
        if before is None:
            return to in FIRST_STATES or bool(data.get("responded"))  # an early request holds its call without an event
        return can_become(before, to)

    def differences(
        self, steps: Iterable[tuple[Any, ...]], calls: Iterable[tuple[Any, ...]]
    ) -> Iterator[tuple[str, str]]:
        """Yield the differences to the stored state: a step's number or a call's id, and the reason."""
        left = dict(self.steps)
        for _, step_id, status, skipped, attempt in steps:
            if left.pop(step_id, StepStatus.PENDING) != status:
                yield str(step_id), "The status of the step does not follow from its events."
            if bool(skipped) != (step_id in self.skipped and status == StepStatus.COMPLETED):
                yield str(step_id), "The step's `skipped` flag contradicts its events."
            if self.claims[step_id] > attempt:
                yield str(step_id), "The step was started more often than claimed."
        yield from ((str(step_id), "Events refer to a step that does not exist.") for step_id in left)
        calls_left = set(self.calls)
        for _, call, status, attempt in calls:
            calls_left.discard(call)
            before = self.calls.get(call, CallStatus.CREATED)
            if status not in reached_silently(before):
                yield call, "The status of the call does not follow from its events."
            if self.starts[call] != attempt:
                yield call, "The call's attempts differ from the starts in its events."
        yield from ((call, "Events refer to a call that does not exist.") for call in sorted(calls_left))


def _allows(moves: StatusMoves, source: str, target: str) -> bool:
    return target in moves[source]


@invariant(8, "Plans, steps and calls made allowed moves only, and their events lead to the stored state.")
def events_replay_to_stored_state(check: CheckInput) -> Iterator[Finding]:
    events, steps, calls = RowsByPlan(rows(EVENTS)), RowsByPlan(rows(STEPS)), RowsByPlan(rows(CALLS))
    for plan_pk, plan, status in rows(PLANS):
        replay = Replay()
        for seq, why in replay.carry_out(events.take(plan_pk)):
            yield Finding(f"{plan}#{seq}", why)
        if replay.plan != status:
            yield Finding(plan, "The status of the plan does not follow from its events.")
        for what, why in replay.differences(steps.take(plan_pk), calls.take(plan_pk)):
            yield Finding(f"{plan}/{what}" if what.isdigit() else what, why)
