"""Consumption of approvals: bound fields, tool, policy, run window, and single use."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User

from approvals.errors import ApprovalExpired, Drift, Invalidated
from approvals.models import ApprovalRequest, AuditEntry, Instance, PolicyRevision
from approvals.policies.rulebook import rule_from_revision
from approvals.requests.digests import action_digest, intent_digest
from approvals.requests.start_check import consume
from approvals.reviews.decisions import decide
from catalog.core import clock
from catalog.errors import Conflict
from catalog.models import Call, Tool, ToolVersion
from tests.approvals.factories import approval, ask, binding_of, held_call, set_rule

BOUND_BY_CALL = ("plan_ref", "step_ref", "public_id", "tool_name")
BOUND_BY_BINDING = {
    "fingerprint": Drift.DEFINITION,
    "implementation_digest": Drift.CODE,
    "arguments": Drift.ARGUMENTS,
    "state_token": Drift.STATE,
}

pytestmark = [pytest.mark.django_db, pytest.mark.db]


@pytest.fixture
def approved(ada, rosa, read_anew) -> ApprovalRequest:
    """An approved request whose call is ready, without the cache of policies."""
    request = ask(ada)
    return decide(request, by=rosa, decision=approval(request))


def refused(request: ApprovalRequest) -> Drift:
    """Return the drift that keeps the approved call from starting."""
    call = Call.objects.get(pk=request.call_id)
    with pytest.raises(Invalidated) as reason:
        consume(call, binding_of(call))
    request.refresh_from_db()
    assert request.status == "approved"
    return reason.value.what


def test_approval_is_consumed_once(approved):
    binding = binding_of(approved.call)
    assert consume(approved.call, binding).state_token == "state-1"
    with pytest.raises(Conflict):
        consume(approved.call, binding)
    approved.refresh_from_db()
    assert (approved.status, approved.consumed_at is not None) == ("consumed", True)
    assert AuditEntry.objects.get(action="approval.consumed").digest == approved.digest


@pytest.mark.parametrize("field", BOUND_BY_BINDING)
def test_changed_call_does_not_start(approved, field):
    binding = replace(binding_of(approved.call), **{field: "something else"})
    with pytest.raises(Invalidated) as reason:
        consume(approved.call, binding)
    assert reason.value.what == BOUND_BY_BINDING[field]
    approved.refresh_from_db()
    assert approved.status == "approved"


@pytest.mark.parametrize("field", ["step_ref", "public_id", "tool_name"])
def test_approval_is_not_valid_for_another_call(approved, field):
    Call.objects.filter(pk=approved.call_id).update(**{field: "other"})
    assert refused(approved) == Drift.CODE


@pytest.mark.parametrize("change", [{"name": "inst_clone"}, {"epoch": 2}])
def test_approval_is_not_valid_for_another_installation(approved, change):
    Instance.objects.update(**change)
    assert refused(approved) == Drift.CODE


def test_every_bound_field_changes_the_digest(ada):
    call, rule = held_call(ada), rule_from_revision(set_rule())
    binding = binding_of(call)
    digests = [action_digest(call, binding, rule)]
    digests += [action_digest(call, replace(binding, **{field: "x"}), rule) for field in BOUND_BY_BINDING]
    others = (replace(rule, revision_id=99), replace(rule, number=99))
    digests += [action_digest(call, binding, other) for other in others]
    for field in BOUND_BY_CALL:
        other = Call.objects.get(pk=call.pk)
        setattr(other, field, "x")
        digests.append(action_digest(other, binding, rule))
    for change in ({"name": "inst_other"}, {"epoch": 7}):
        Instance.objects.update(**change)
        digests.append(action_digest(call, binding, rule))
    assert len(set(digests)) == len(digests) == 13


def test_fields_are_length_prefixed(ada):
    one, other = held_call(ada), held_call(ada)
    one.plan_ref, one.step_ref, other.plan_ref, other.step_ref = "plan_1", "2", "plan_", "12"
    one.public_id = other.public_id
    rule = rule_from_revision(set_rule())
    assert action_digest(one, binding_of(one), rule) != action_digest(other, binding_of(other), rule)


def test_intent_digest_does_not_depend_on_the_requester(ada, ben):
    one, same, other = held_call(ada), held_call(ben), held_call(ada)
    other.plan_ref = "plan_2"
    assert intent_digest(one) == intent_digest(same) != intent_digest(other)


def test_disabled_tool_does_not_start(approved):
    Tool.objects.update(enabled=False)
    assert refused(approved) == Drift.TOOL


def test_newer_version_does_not_start_on_the_old_approval(approved):
    tool = approved.tool_version.tool
    fields = {"tool": tool, "number": 2, "fingerprint": "e" * 64, "input_schema": {}, "safety_level": "dangerous"}
    tool.current_version = ToolVersion.objects.create(**fields, retry_safe=False, timeout=1)
    tool.save()
    assert refused(approved) == Drift.DEFINITION


@pytest.mark.parametrize(
    ("terms", "what"),
    [
        ({"effect": "deny", "message": "Not today."}, Drift.POLICY),
        ({"stages": [{"group": "reviewer", "count": 2}]}, Drift.POLICY),
        ({"effect": "allow"}, Drift.POLICY),
    ],
)
def test_stricter_policy_blocks_the_start(approved, terms, what):
    set_rule(**terms)
    assert refused(approved) == what


def revise(**terms: object) -> None:
    """Activate a new revision of the default policy for dangerous calls; the request keeps the old one."""
    policy = set_rule().policy
    new = set_rule()
    new.pk, new.number = None, new.number + 1
    new._state.adding = True
    for name, value in terms.items():
        setattr(new, name, value)
    new.save()
    policy.revision = new
    policy.save()


@pytest.mark.parametrize(
    "terms",
    [
        {"stages": [{"group": "reviewer", "count": 2}]},
        {"stages": [{"group": "administrator", "count": 1}]},
        {"stages": [{"group": "reviewer", "count": 1}, {"group": "administrator", "count": 1}]},
    ],
)
def test_revision_with_other_approvers_blocks_the_start(approved, terms):
    revise(**terms)
    assert refused(approved) == Drift.POLICY


def test_revision_without_self_review_blocks_the_start(ada, read_anew):
    ada.groups.add(Group.objects.get(name="reviewer"))
    set_rule(allow_self_review=True)
    request = ask(ada)
    own = decide(request, by=User.objects.get(pk=ada.pk), decision=approval(request))
    revise(allow_self_review=False)
    assert refused(own) == Drift.POLICY


def test_satisfied_revision_does_not_block_the_start(approved):
    revise(stages=[{"group": "administrator", "count": 0}, {"group": "reviewer", "count": 1}])
    assert consume(approved.call, binding_of(approved.call)).number == 1


def test_unrelated_policy_change_does_not_block_the_start(approved):
    PolicyRevision.objects.filter(safety_level="safe").update(effect="deny")
    set_rule(expires_seconds=60)
    assert consume(approved.call, binding_of(approved.call)).number == 1


def test_expired_run_window_blocks_the_start(approved):
    ApprovalRequest.objects.update(not_after=clock.now() - timedelta(microseconds=1))
    with pytest.raises(ApprovalExpired):
        consume(approved.call, binding_of(approved.call))


def test_nothing_starts_before_the_undo_window_ends(ada, rosa):
    request = ask(ada)
    for _ in range(2):
        with pytest.raises(Conflict):
            consume(request.call, binding_of(request.call))
        if request.status == "pending":
            request = decide(request, by=rosa, decision=approval(request, channel="page"))


def test_undone_approval_does_not_count(approved):
    approved.reviews.update(undone_at=clock.now())
    assert refused(approved) == Drift.REVIEWERS
