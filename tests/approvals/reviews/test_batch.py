"""Batch decisions."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group

from approvals.models import ApprovalRequest, AuditEntry, Review, Snooze
from approvals.reviews.batch import MAX_BATCH_ITEMS, BatchItem, batch_objection, decide_many, snooze_many
from approvals.reviews.decisions import undo_decision
from catalog.core import clock
from catalog.models import Call
from tests.approvals.factories import ask, make_tool, refusal_at, set_rule
from tests.racing import at_once

LATER = timedelta(hours=1)


@pytest.fixture
def batchable(db):
    """A rule that allows batch approval."""
    return set_rule(batchable=True)


def items_of(*requests: ApprovalRequest) -> list[BatchItem]:
    """Return batch items with the current digests."""
    return [BatchItem(request.public_id, request.digest) for request in requests]


def statuses(results) -> list[str]:
    """Return the result of each item."""
    return [result.status for result in results]


def test_each_request_gets_its_own_review(batchable, ada, rosa, settings):
    settings.TOOLGATE_UNDO_SECONDS = 60
    requests = [ask(ada) for _ in range(3)]
    results = decide_many(rosa, "approve", "Fine.", items_of(*requests), "page")
    assert [(each.id, each.status, each.detail) for each in results] == [
        (request.public_id, "approved", "") for request in requests
    ]
    assert Review.objects.filter(person=rosa, comment="Fine.").count() == 3
    assert AuditEntry.objects.filter(action="approval.decided").count() == 3
    assert undo_decision(requests[1], by=rosa).status == "pending"
    assert sorted(ApprovalRequest.objects.values_list("status", flat=True)) == ["approved", "approved", "pending"]


def test_failed_item_does_not_affect_others(batchable, ada, ben, rosa, tomas):
    ben.groups.add(Group.objects.get(name="reviewer"))
    fine, answered, moved, own = ask(ada), ask(ada), ask(ada), ask(ben)
    decide_many(tomas, "reject", "No.", items_of(answered))
    items = [
        *items_of(fine, answered),
        BatchItem(moved.public_id, "0" * 64),
        *items_of(own),
        BatchItem("apr_none", "0"),
    ]
    results = decide_many(ben, "approve", "", items)
    assert statuses(results) == ["approved", "conflict", "conflict", "forbidden", "not_found"]
    assert [bool(each.detail) for each in results] == [False, True, True, True, True]


def test_missing_reason_is_reported_per_item(ada, rosa):
    plain, final = ask(ada), ask(ada, make_tool("wipe", reversibility="irreversible"))
    assert statuses(decide_many(rosa, "reject", "", items_of(plain, final))) == ["rejected", "invalid"]
    assert statuses(decide_many(rosa, "reject", "No.", items_of(final))) == ["rejected"]
    assert set(Call.objects.values_list("status", flat=True)) == {"failed"}


def test_incomplete_quorum_stays_pending(batchable, ada, rosa):
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    request = ask(ada)
    (result,) = decide_many(rosa, "approve", "", items_of(request))
    assert (result.status, result.detail, request.reviews.count()) == ("pending", "", 1)


@pytest.mark.parametrize(
    ("terms", "reversibility", "together"),
    [
        ({"batchable": False}, "restorable", False),
        ({"batchable": True}, "irreversible", False),
        ({"batchable": True, "tool": "write_*"}, "irreversible", False),
        ({"batchable": True, "tool": "write_note"}, "irreversible", True),
        ({"batchable": True}, "restorable", True),
        ({"batchable": True, "typed_target": True}, "restorable", False),
        ({"batchable": True, "min_review_seconds": 5}, "restorable", False),
    ],
)
def test_batch_approval_follows_the_rule(ada, rosa, terms, reversibility, together):
    tool = make_tool(reversibility=reversibility)
    set_rule(**terms)
    request = ask(ada, tool)
    assert (batch_objection([request], "approve") is None) == together
    assert batch_objection([request], "reject") is None
    if together:
        assert statuses(decide_many(rosa, "approve", "", items_of(request))) == ["approved"]
    else:
        with refusal_at("items", "not_together"):
            decide_many(rosa, "approve", "", items_of(request))
        assert not Review.objects.exists()


def test_batch_approval_needs_a_single_tool(batchable, ada, rosa):
    requests = [ask(ada), ask(ada, make_tool("delete_note"))]
    with refusal_at("items", "not_together"):
        decide_many(rosa, "approve", "", items_of(*requests))
    assert not Review.objects.exists()


def test_batch_size_and_duplicates_are_checked(rosa):
    for count, code in ((0, "required"), (MAX_BATCH_ITEMS + 1, "too_many")):
        with refusal_at("items", code):
            decide_many(rosa, "reject", "No.", [BatchItem(f"apr_{number}") for number in range(count)])
    with refusal_at("items", "duplicate"):
        decide_many(rosa, "reject", "No.", [BatchItem("apr_1"), BatchItem("apr_2"), BatchItem("apr_1")])


def test_snooze_many(ada, rosa):
    requests = [ask(ada), ask(ada)]
    ApprovalRequest.objects.filter(pk=requests[1].pk).update(expires_at=clock.now() + LATER / 2)
    results = snooze_many(rosa, clock.now() + LATER, items_of(*requests))
    assert statuses(results) == ["pending", "invalid"]
    assert [snooze.request for snooze in Snooze.objects.all()] == [requests[0]]


@pytest.mark.slow
@pytest.mark.db
def test_concurrent_batches_decide_each_request_once(transactional_db, ada, rosa, tomas):
    set_rule(batchable=True)
    requests = [ask(ada) for _ in range(8)]
    first, second = at_once(
        lambda: decide_many(rosa, "approve", "", items_of(*requests)),
        lambda: decide_many(tomas, "reject", "No.", items_of(*reversed(requests))),
    )
    won = [each.id for each in first if each.status == "approved"]
    won += [each.id for each in second if each.status == "rejected"]
    assert sorted(won) == sorted(request.public_id for request in requests)
    assert Review.objects.count() == len(requests)
