"""I8: what events say happened, carried out again, leads to what is stored.

Events tell every move of plans and steps. Of calls they tell what starts, what ends and what is tried again; that a
held call was released, refused or cancelled stands in its request and the audit log. Such a move is taken as having
happened between two events, where the table of moves allows it.
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
"""What no call becomes without an event; nor does one leave them without, except to be cancelled."""
FIRST_STATES = (CallStatus.CREATED, CallStatus.RUNNING, CallStatus.HELD)


def _is_silent(source: str, target: str) -> bool:
    """Say whether a call may have made this move without an event."""
    return target not in STATES_WITH_EVENT and (source not in STATES_WITH_EVENT or target == CallStatus.CANCELLED)


@cache
def reached_silently(status: str) -> frozenset[str]:
    """Return what a call of this status may have become with no event of its own."""
    found, new = {status}, [status]
    while new:
        source = new.pop()
        more = {each for each in CALL_MOVES[source] if _is_silent(source, each)} - found
        found |= more
        new += more
    return frozenset(found)


@cache
def can_become(source: str, target: str) -> bool:
    """Say whether an event that makes a call `target` may follow on one that left it `source`."""
    return any(target in CALL_MOVES[each] for each in reached_silently(source))


@dataclass(slots=True)
class Replay:
    """One plan as far as its events were carried out; `skipped` are the steps that events say were skipped."""

    plan: str = PlanStatus.PENDING
    steps: dict[int, str] = field(default_factory=dict)
    calls: dict[str, str] = field(default_factory=dict)
    skipped: set[int] = field(default_factory=set)
    claims: Counter[int] = field(default_factory=Counter)
    starts: Counter[str] = field(default_factory=Counter)

    def carry_out(self, events: Iterable[tuple[Any, ...]]) -> Iterator[tuple[int, str]]:
        """Carry out events in their order; yield the number of each that the tables of moves do not allow, and why."""
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
        # What cannot even begin is claimed and failed in one transaction, and says that it failed only.
        return _allows(STEP_MOVES, before, to) or (before, to) == (StepStatus.PENDING, StepStatus.FAILED)

    def _move_call(self, kind: str, data: dict[str, Any]) -> bool:
        call, to = str(data["call"]), CALL_STATES[kind]
        before = self.calls.get(call)
        if kind == "step.retrying":
            if before != CallStatus.RUNNING:  # of a step whose call ended otherwise: the step is tried again
                return True
            self.starts[call] -= data.get("error") in UNSTARTED_REASONS  # it had not begun
        elif kind == "call.started":
            self.starts[call] += 1
        self.calls[call] = to
        if before is None:
            return to in FIRST_STATES or bool(data.get("responded"))  # asked early, it is held without an event
        return can_become(before, to)

    def differences(
        self, steps: Iterable[tuple[Any, ...]], calls: Iterable[tuple[Any, ...]]
    ) -> Iterator[tuple[str, str]]:
        """Yield what is stored otherwise: a step's number or a call's id, and how it differs."""
        left = dict(self.steps)
        for _, step_id, status, skipped, attempt in steps:
            if left.pop(step_id, StepStatus.PENDING) != status:
                yield str(step_id), "The step is not what its events lead to."
            if bool(skipped) != (step_id in self.skipped and status == StepStatus.COMPLETED):
                yield str(step_id), "The step says otherwise than its events whether it was skipped."
            if self.claims[step_id] > attempt:
                yield str(step_id), "The step was started more often than it was claimed."
        yield from ((str(step_id), "Events tell of a step that is not there.") for step_id in left)
        yield from self._calls_that_differ(calls)

    def _calls_that_differ(self, calls: Iterable[tuple[Any, ...]]) -> Iterator[tuple[str, str]]:
        left = set(self.calls)
        for _, call, status, attempt in calls:
            left.discard(call)
            before = self.calls.get(call, CallStatus.CREATED)
            if status not in reached_silently(before):
                yield call, "The call is not what its events lead to."
            if self.starts[call] != attempt:
                yield call, "The call's attempts are not the starts that events tell of."
        yield from ((call, "Events tell of a call that is not there.") for call in sorted(left))


def _allows(moves: StatusMoves, source: str, target: str) -> bool:
    return target in moves[source]


@invariant(8, "Every plan, step and call made allowed moves only, and its events lead to exactly what is stored.")
def events_replay_to_stored_state(world: CheckInput) -> Iterator[Finding]:
    """Carry out the events of one plan after another, beside the rows of its steps and calls."""
    events, steps, calls = RowsByPlan(rows(EVENTS)), RowsByPlan(rows(STEPS)), RowsByPlan(rows(CALLS))
    for plan_pk, plan, status in rows(PLANS):
        replay = Replay()
        for seq, why in replay.carry_out(events.take(plan_pk)):
            yield Finding(f"{plan}#{seq}", why)
        if replay.plan != status:
            yield Finding(plan, "The plan is not what its events lead to.")
        for what, why in replay.differences(steps.take(plan_pk), calls.take(plan_pk)):
            yield Finding(f"{plan}/{what}" if what.isdigit() else what, why)
