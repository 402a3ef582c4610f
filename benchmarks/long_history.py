"""A database with a long history: completed plans in the form that the services leave them, written in bulk.

Each plan is a chain of twenty steps; the last one is dangerous and was approved by a person.
"""

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from approvals.audit.log import entry_hash
from approvals.models import ApprovalRequest, AuditEntry, Instance, PolicyRevision, Review, Round
from approvals.policies.rulebook import Rule, rule_from_revision
from approvals.requests.digests import ApprovalBinding, action_digest, current_origin, intent_digest
from benchmarks.ground import person
from catalog.core import clock
from catalog.models import Call, CallRequester, Tool
from plans.models import Event, Plan, Step, StepDependency

STEPS = 20
EVENTS_EACH = 3 + 5 * (STEPS - 1) + 10
PLANS_AT_ONCE = 40
RAN = ("call.started", "call.succeeded", "tool.invoked", "step.completed")
DECIDED = ("approval.reviewed", "approval.decided")
LOGGED = ("approval.opened", *DECIDED, "call.released", "approval.consumed", "call.started", "call.succeeded")
SOON = timedelta(milliseconds=1)


@dataclass(slots=True)
class Rows:
    """Rows of several plans, stored together; the fields are in the order of their foreign keys."""

    plans: list[Plan] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    needs: list[StepDependency] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    requests: list[ApprovalRequest] = field(default_factory=list)
    requesters: list[CallRequester] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    reviews: list[Review] = field(default_factory=list)
    entries: list[AuditEntry] = field(default_factory=list)

    def store(self) -> None:
        of_plans: list[list[Any]] = [self.plans, self.calls, self.steps, self.needs, self.events]
        of_requests: list[list[Any]] = [self.requests, self.requesters, self.rounds, self.reviews, self.entries]
        for rows in of_plans + of_requests:
            type(rows[0]).objects.bulk_create(rows)


class Scribe:
    """Writes plans of one author, approved by one reviewer."""

    def __init__(self, author: User, reviewer: User) -> None:
        self.author, self.reviewer = author, reviewer
        self.instance, self.origin = Instance.objects.get(pk=1), current_origin()
        revision = PolicyRevision.objects.select_related("policy").get(safety_level="dangerous")
        self.rule: Rule = rule_from_revision(revision)
        related = Tool.objects.select_related("current_version")
        self.tools = {tool.name: tool for tool in related.filter(name__in=("bench_noop", "bench_moment"))}
        self.codes = {name: tool.implementations.get() for name, tool in self.tools.items()}
        self.rows, self.moment = Rows(), clock.now() - timedelta(days=30)

    def plan(self) -> None:
        """Write one completed plan."""
        at = self.moment = self.moment + SOON
        times = {"created_at": at, "started_at": at, "completed_at": at + 9 * SOON}
        plan = Plan(goal="Ran", author=self.author, status="completed", last_seq=EVENTS_EACH, **times)
        self.rows.plans.append(plan)
        self._events(plan, at, None, "plan.created", "plan.started")
        before: Step | None = None
        for number in range(1, STEPS + 1):
            before = self._step(plan, number, before)
        self._events(plan, at + 9 * SOON, None, "plan.completed")
        for seq, event in enumerate(self.rows.events[-EVENTS_EACH:], 1):
            event.seq = seq

    def _step(self, plan: Plan, number: int, before: Step | None) -> Step:
        at, dangerous = plan.created_at, number == STEPS
        call = self._call(plan, number, "bench_moment" if dangerous else "bench_noop")
        times = {"started_at": at, "completed_at": at + 8 * SOON if dangerous else at}
        step = Step(plan=plan, step_id=number, tool=call.tool_name, status="completed", call=call, attempt=1, **times)
        self.rows.steps.append(step)
        if before is not None:
            self.rows.needs.append(StepDependency(step=step, needs=before))
        if dangerous:
            step.attempt = 2
            self._events(plan, at, call, "step.started", "approval.opened", "step.waiting", *DECIDED)
            self._approve(call)
            at += 8 * SOON
        self._events(plan, at, call, "step.started", *RAN)
        return step

    def _call(self, plan: Plan, number: int, tool: str) -> Call:
        at = plan.created_at
        call = Call(
            tool_name=tool, version=self.tools[tool].current_version, implementation=self.codes[tool],
            arguments=f'{{"number":{number}}}', status="completed", response='{"results":[],"success":true}',
            requested_by=self.author, plan_ref=plan.public_id, step_ref=str(number), attempt=1, fence=1, created_at=at,
            started_at=at + 8 * SOON if number == STEPS else at, finished_at=at + 8 * SOON,
        )  # fmt: skip
        self.rows.calls.append(call)
        return call

    def _events(self, plan: Plan, at: datetime, call: Call | None, *kinds: str) -> None:
        step_id = int(call.step_ref) if call else None
        data = json.dumps({"call": call.public_id}) if call else "{}"
        self.rows.events += [Event(plan=plan, seq=0, type=kind, at=at, step_id=step_id, data=data) for kind in kinds]

    def _approve(self, call: Call) -> None:
        """Write the request of a call, with an approval that was used."""
        at, version = call.created_at, call.version
        binding = ApprovalBinding(version.fingerprint, self.codes[call.tool_name].digest, call.arguments, "")
        digest, decided = action_digest(call, binding, self.rule, self.origin), at + SOON
        request = ApprovalRequest(
            call=call, status="consumed", digest=digest, intent_digest=intent_digest(call),
            policy_revision_id=self.rule.revision_id, tool_version=version, plan_ref=call.plan_ref, opened_at=at,
            expires_at=at + timedelta(days=1), decided_at=decided, effective_at=decided, applied_at=decided,
            not_after=decided + timedelta(minutes=15), consumed_at=at + 8 * SOON,
        )  # fmt: skip
        terms = {"policy_revision_id": self.rule.revision_id, "created_at": at}
        round_ = Round(request=request, number=1, arguments=call.arguments, digest=digest, **terms)
        review = {"verdict": "approve", "seen_digest": digest, "channel": "rest", "at": decided}
        self.rows.requests.append(request)
        self.rows.requesters.append(CallRequester(call=call, user=self.author))
        self.rows.rounds.append(round_)
        self.rows.reviews.append(Review(round=round_, request=request, person=self.reviewer, **review))
        for action in LOGGED:
            ref = request.public_id if "approval" in action or "released" in action else call.public_id
            self._log(action, ref, call, digest)

    def _log(self, action: str, ref: str, call: Call, digest: str) -> None:
        entry = AuditEntry(
            seq=self.instance.audit_seq + 1, at=self.moment, actor=None, actor_name="bench", action=action,
            object_ref=ref, tool_name=call.tool_name, plan_ref=call.plan_ref, digest=digest, details="{}",
            prev_hash=self.instance.audit_head,
        )  # fmt: skip
        entry.hash = entry_hash(entry, self.instance.name)
        self.instance.audit_seq, self.instance.audit_head = entry.seq, entry.hash
        self.rows.entries.append(entry)

    def store(self) -> None:
        """Store the rows written so far, and the head of the audit log."""
        with transaction.atomic():
            self.rows.store()
            head = {"audit_seq": self.instance.audit_seq, "audit_head": self.instance.audit_head}
            Instance.objects.filter(pk=1).update(**head)
        self.rows = Rows()


def write(events: int) -> int:
    """Write completed plans until they have this many events; return their number. The database must be migrated."""
    scribe, plans = Scribe(person("operator"), person("reviewer")), -(-events // EVENTS_EACH)
    for number in range(1, plans + 1):
        scribe.plan()
        if number % PLANS_AT_ONCE == 0 or number == plans:
            scribe.store()
    return plans * EVENTS_EACH
