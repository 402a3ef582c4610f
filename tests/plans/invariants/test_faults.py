"""One fault for each invariant, made by SQL in a sound world: the check finds it with its id, and nothing else."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from django.contrib.auth.models import User

from approvals.models import ApprovalRequest, AuditEntry, Review
from catalog.models import Tool
from plans.models import Event, Plan, Step
from plans.spec import MAX_STEPS
from tests.builders import call_of, request_of
from tests.invariants import broken
from tests.plans.invariants.worlds import SmallWorld, corrupt, ran

pytestmark = pytest.mark.db

Fault = Callable[[SmallWorld], str]
LONG_AGO, FAR_AWAY = "2001-01-01 00:00:00", "2999-01-01 00:00:00"


def other_arguments(small: SmallWorld) -> str:
    """Change the arguments of an approved call that ran."""
    call = call_of(small.ran, 2)
    corrupt("UPDATE catalog_call SET arguments = %s WHERE id = %s", '{"value":"other"}', call.pk)
    return call.public_id


def no_approval(small: SmallWorld) -> str:
    """Make a used approval unused."""
    request = request_of(small.ran, 2)
    corrupt("UPDATE approvals_approvalrequest SET status = 'approved' WHERE id = %s", request.pk)
    return request.call.public_id


def too_late(small: SmallWorld) -> str:
    """Move a start after the end of the run window."""
    request = request_of(small.ran, 2)
    corrupt("UPDATE approvals_approvalrequest SET not_after = consumed_at WHERE id = %s", request.pk)
    return request.public_id


def before_it_was_decided(small: SmallWorld) -> str:
    """Move a review after its decision."""
    request = request_of(small.ran, 2)
    review = Review.objects.get(request=request, undone_at=None)
    later = review.at - timedelta(seconds=1)
    corrupt("UPDATE approvals_review SET at = %s WHERE id = %s", later, review.pk)
    return request.public_id


def started_twice(small: SmallWorld) -> str:
    """Add a second attempt to a call that must not repeat."""
    call = call_of(small.ran, 2)
    corrupt("UPDATE catalog_call SET attempt = 2 WHERE id = %s", call.pk)
    return call.public_id


def other_verdict(small: SmallWorld) -> str:
    """Change a rejection's status to approved."""
    request = request_of(small.rejected)
    corrupt("UPDATE approvals_review SET verdict = 'approve' WHERE request_id = %s", request.pk)
    return request.public_id


def other_answer(small: SmallWorld) -> str:
    """Change a response's status to rejected."""
    request = request_of(small.responded)
    corrupt("UPDATE approvals_review SET verdict = 'reject' WHERE request_id = %s", request.pk)
    return request.public_id


def ran_though_revoked(small: SmallWorld) -> str:
    """Start a call whose approval was revoked."""
    request = request_of(small.revoked)
    corrupt("UPDATE catalog_call SET attempt = 1 WHERE id = %s", request.call_id)
    return request.public_id


def ran_though_answered(small: SmallWorld) -> str:
    """Start a call that a person answered."""
    request = request_of(small.responded)
    corrupt("UPDATE catalog_call SET attempt = 1 WHERE id = %s", request.call_id)
    return request.public_id


def replaced_by_nothing(small: SmallWorld) -> str:
    """Remove the successor of a superseded request."""
    request = ApprovalRequest.objects.get(status="superseded", plan_ref=small.sent_back.public_id)
    corrupt("UPDATE approvals_approvalrequest SET superseded_by_id = NULL WHERE id = %s", request.pk)
    return request.public_id


def ran_all_the_same(small: SmallWorld) -> str:
    """Start a call whose request expired."""
    request = request_of(small.expired)
    corrupt("UPDATE catalog_call SET attempt = 1 WHERE id = %s", request.call_id)
    return request.public_id


def answered_after_the_end(small: SmallWorld) -> str:
    """Count an undone review, after the deciding one."""
    request = request_of(small.ran, 2)
    old = Review.objects.get(request=request, undone_at__isnull=False)
    corrupt("UPDATE approvals_approvalrequest SET decided_at = %s WHERE id = %s", old.at, request.pk)
    corrupt(
        "UPDATE approvals_review SET undone_at = NULL, person_id = %s WHERE id = %s",
        User.objects.get(username="admin").pk,
        old.pk,
    )
    return request.public_id


def own_approval(small: SmallWorld) -> str:
    """Make the requester the approver."""
    request = request_of(small.ran, 2)
    sql = "UPDATE approvals_review SET person_id = %s WHERE request_id = %s AND undone_at IS NULL"
    corrupt(sql, small.ran.author_id, request.pk)
    return request.public_id


def too_few(small: SmallWorld) -> str:
    """Raise the quorum by one."""
    request = request_of(small.ran, 2)
    corrupt("UPDATE approvals_round SET quorum = 2 WHERE request_id = %s", request.pk)
    return request.public_id


def saw_something_else(small: SmallWorld) -> str:
    """Change the digest that a reviewer saw."""
    request = request_of(small.rejected)
    corrupt("UPDATE approvals_review SET seen_digest = %s WHERE request_id = %s", "0" * 64, request.pk)
    return request.public_id


def other_question(small: SmallWorld) -> str:
    """Change the content of an earlier round."""
    request = request_of(small.edited)
    sql = "UPDATE approvals_round SET arguments = '{}' WHERE request_id = %s AND number = 1"
    corrupt(sql, request.pk)
    return request.public_id


def other_promise(small: SmallWorld) -> str:
    """Change the description of a version."""
    sql = "UPDATE catalog_toolversion SET description = 'Do what I say.' WHERE id = %s"
    tool = Tool.objects.get(name="limited")
    corrupt(sql, tool.current_version_id)
    return "limited/1"


def lowered(small: SmallWorld) -> str:
    """Set a tool back to its first version, which has a lower level."""
    sql = "UPDATE catalog_tool SET current_version_id = %s WHERE name = 'keeping'"
    corrupt(sql, Tool.objects.get(name="keeping").versions.get(number=1).pk)
    return "keeping/1"


def off_when_it_ran(small: SmallWorld) -> str:
    """Move the start of a call long after its version was replaced."""
    call = call_of(small.kept)
    corrupt("UPDATE catalog_call SET started_at = %s WHERE id = %s", LONG_AGO, call.pk)
    return call.public_id


def other_step(small: SmallWorld) -> str:
    """Change a completed step to failed."""
    corrupt("UPDATE plans_step SET status = 'failed' WHERE plan_id = %s AND step_id = 1", small.tried_again.pk)
    return f"{small.tried_again.public_id}/1"


def other_plan(small: SmallWorld) -> str:
    """Set a plan back to in progress."""
    corrupt("UPDATE plans_plan SET status = 'cancelled' WHERE id = %s", small.ran.pk)
    return small.ran.public_id


def forbidden_move(small: SmallWorld) -> str:
    """Duplicate an end event."""
    event = Event.objects.filter(plan=small.ran, type="tool.invoked", step_id=3).get()
    corrupt("UPDATE plans_event SET type = 'step.completed' WHERE id = %s", event.pk)
    return f"{small.ran.public_id}#{event.seq + 1}"


def missing_event(small: SmallWorld) -> str:
    """Delete an event."""
    corrupt("DELETE FROM plans_event WHERE plan_id = %s AND seq = 1", small.ran.pk)
    return small.ran.public_id


def earlier_event(small: SmallWorld) -> str:
    """Make an event older than the one before it."""
    corrupt("UPDATE plans_event SET at = %s WHERE plan_id = %s AND seq = 5", LONG_AGO, small.ran.pk)
    return f"{small.ran.public_id}#5"


def lost_lease(small: SmallWorld) -> str:
    """Give a step a lease that expired long ago."""
    sql = "UPDATE plans_step SET lease_until = %s, claimed_by = 'gone' WHERE plan_id = %s AND step_id = 1"
    corrupt(sql, LONG_AGO, small.waiting.pk)
    return f"{small.waiting.public_id}/1"


def unanswered(small: SmallWorld) -> str:
    """Let a pending request be overdue."""
    request = request_of(small.waiting)
    corrupt("UPDATE approvals_approvalrequest SET expires_at = %s WHERE id = %s", LONG_AGO, request.pk)
    return request.public_id


def waits_for_nothing(small: SmallWorld) -> str:
    """Set a step in progress without a reason."""
    corrupt("UPDATE plans_step SET waiting_for = '' WHERE plan_id = %s AND step_id = 1", small.waiting.pk)
    return f"{small.waiting.public_id}/1"


def asks_nobody(small: SmallWorld) -> str:
    """Let a step wait for the answer to a missing question."""
    corrupt("DELETE FROM plans_question WHERE answered_at IS NULL")
    return f"{small.asked.public_id}/2"


def too_early(small: SmallWorld) -> str:
    """Move a step's start before the end of its dependency."""
    sql = "UPDATE plans_step SET started_at = %s WHERE plan_id = %s AND step_id = 3"
    corrupt(sql, LONG_AGO, small.ran.pk)
    return f"{small.ran.public_id}/3"


def skipped_silently(small: SmallWorld) -> str:
    """Delete the note of a skipped step."""
    sql = "UPDATE plans_memoryitem SET type = 'step_failed' WHERE plan_id = %s AND type = 'step_skipped'"
    corrupt(sql, small.skipped.pk)
    return f"{small.skipped.public_id}/1"


def asked_about_nothing(small: SmallWorld) -> str:
    """Detach an early request's call from its step."""
    request = request_of(small.early, 4)
    corrupt("UPDATE plans_step SET call_id = NULL WHERE call_id = %s", request.call_id)
    return request.public_id


def used_before_it_was_ready(small: SmallWorld) -> str:
    """Move the use of an early approval before its step was ready."""
    request = request_of(small.early, 2)
    corrupt("UPDATE approvals_approvalrequest SET ready_at = %s WHERE id = %s", FAR_AWAY, request.pk)
    return request.public_id


def never_prepared(small: SmallWorld) -> str:
    """Mark a request as early without an audit entry."""
    request = request_of(small.ran, 2)
    corrupt("UPDATE approvals_approvalrequest SET ready_at = opened_at WHERE id = %s", request.pk)
    return request.public_id


def changed_entry(small: SmallWorld) -> str:
    """Change an audit entry."""
    entry = AuditEntry.objects.get(action="token.created")
    corrupt("UPDATE approvals_auditentry SET actor_name = 'nobody' WHERE id = %s", entry.pk)
    return f"audit#{entry.seq}"


def unheard_of_token(small: SmallWorld) -> str:
    """Rename a token."""
    corrupt("UPDATE catalog_apitoken SET prefix = 'tg_mine'")
    return "tg_mine"


def too_many_steps(small: SmallWorld) -> str:
    """Add more steps than a plan may have."""
    Step.objects.bulk_create(Step(plan=small.ran, step_id=number) for number in range(10, MAX_STEPS + 10))
    return small.ran.public_id


def crashed(small: SmallWorld) -> str:
    """Let a step lose its worker too often."""
    corrupt("UPDATE plans_step SET crashes = 9 WHERE plan_id = %s AND step_id = 1", small.tried_again.pk)
    return f"{small.tried_again.public_id}/1"


def from_the_future(small: SmallWorld) -> str:
    """Move the last event into the future."""
    sql = "UPDATE plans_event SET at = %s WHERE plan_id = %s AND seq = %s"
    corrupt(sql, FAR_AWAY, small.ran.pk, Plan.objects.get(pk=small.ran.pk).last_seq)
    return small.ran.public_id


def orphan(small: SmallWorld) -> str:
    """Detach a held call from its step."""
    call = call_of(small.waiting)
    corrupt("UPDATE plans_step SET call_id = NULL WHERE plan_id = %s AND step_id = 1", small.waiting.pk)
    return call.public_id


def of_an_earlier_epoch(small: SmallWorld) -> str:
    """Use an approval after one of the next epoch."""
    old = request_of(small.ran, 2)
    corrupt("UPDATE approvals_instance SET epoch = 2")
    new = request_of(ran(small.ran.author, Review.objects.filter(request=old)[0].person), 2)
    assert new.consumed_at
    later = new.consumed_at + timedelta(seconds=1)
    corrupt("UPDATE approvals_approvalrequest SET consumed_at = %s WHERE id = %s", later, old.pk)
    return old.public_id


@dataclass(frozen=True)
class Seed:
    """A fault, the invariant it breaks, and the invariants it inevitably breaks too."""

    invariant: str
    fault: Fault
    follows: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        return f"{self.invariant} {self.fault.__name__}"


SEEDS = [
    Seed("I1", other_arguments),
    Seed("I1", no_approval, {"I3", "I13"}),
    Seed("I2", too_late),
    Seed("I2", before_it_was_decided),
    Seed("I3", started_twice, {"I8", "I13"}),
    Seed("I4", other_verdict),
    Seed("I4", answered_after_the_end, {"I13"}),
    Seed("I4", other_answer),
    Seed("I4", ran_though_revoked, {"I1", "I8", "I13"}),
    Seed("I4", ran_though_answered, {"I1", "I8", "I13"}),
    Seed("I4", replaced_by_nothing),
    Seed("I4", ran_all_the_same, {"I1", "I8", "I13"}),
    Seed("I5", own_approval),
    Seed("I5", too_few),
    Seed("I6", saw_something_else),
    Seed("I6", other_question),
    Seed("I6", other_promise),
    Seed("I7", lowered),
    Seed("I7", off_when_it_ran),
    Seed("I8", other_step),
    Seed("I8", other_plan),
    Seed("I8", forbidden_move),
    Seed("I9", missing_event),
    Seed("I9", earlier_event),
    Seed("I11", lost_lease),
    Seed("I11", unanswered),
    Seed("I11", waits_for_nothing),
    Seed("I11", asks_nobody),
    Seed("I12", too_early),
    Seed("I12", skipped_silently),
    Seed("I12", asked_about_nothing, {"I19"}),
    Seed("I12", used_before_it_was_ready),
    Seed("I13", never_prepared),
    Seed("I13", changed_entry),
    Seed("I13", unheard_of_token),
    Seed("I16", too_many_steps),
    Seed("I17", crashed),
    Seed("I18", from_the_future),
    Seed("I19", orphan, {"I11"}),
    Seed("I20", of_an_earlier_epoch, {"I13"}),
]


@pytest.mark.parametrize("seed", SEEDS, ids=str)
def test_each_fault_is_found(small, seed):
    """By its invariant, with its id; other invariants report it only if they must."""
    ref = seed.fault(small)
    found = broken()
    assert found[seed.invariant] == [ref]
    assert set(found) == {seed.invariant} | seed.follows
