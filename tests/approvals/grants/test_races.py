"""Grants under real threads: concurrent uses, revocations and rejections."""

from functools import partial

import pytest

from approvals.grants.services import GrantTerms, create_grant, grant_status, revoke_grant
from approvals.models import ApprovalRequest, Grant, GrantUse
from catalog.core import clock
from catalog.errors import Conflict
from catalog.inventory.overrides import apply_overrides
from tests import counts
from tests.builders import act, make_plan, reject, work_off
from tests.invariants import assert_invariants
from tests.racing import at_once

pytestmark = [pytest.mark.slow, pytest.mark.db]
ROUNDS = counts.count(100)
ANY = [{"path": "value", "operator": "exists"}]


@pytest.fixture
def grantable(transactional_db, stage, admin):
    """Allow grants of the dangerous tool."""
    apply_overrides("dangerous", {"grantable": {}}, by=admin)


def grant(admin, uses):
    """Return a grant for calls by Ada."""
    terms = GrantTerms(tool="dangerous", rows=ANY, scope="requester", scope_ref="ada", max_uses=uses)
    return create_grant(terms, by=admin)


def plans(ada, number):
    """Return plans of one dangerous step each."""
    return [make_plan(ada, act(1, "x", "dangerous")) for _ in range(number)]


def test_concurrent_calls_never_exceed_the_uses(grantable, ada, admin):
    for _ in range(ROUNDS):
        made, waiting = grant(admin, 2), ApprovalRequest.objects.count()
        racing = plans(ada, 4)
        at_once(*[partial(work_off, plan) for plan in racing])
        made.refresh_from_db()
        assert (made.uses, GrantUse.objects.filter(grant=made).count()) == (2, 2)
        assert ApprovalRequest.objects.count() == waiting + 2
    assert_invariants()


def test_revocation_races_with_use(grantable, ada, admin):
    for _ in range(ROUNDS):
        made, [plan] = grant(admin, 5), plans(ada, 1)
        at_once(partial(work_off, plan), partial(revoke_grant, made, by=admin))
        made.refresh_from_db()
        uses = GrantUse.objects.filter(grant=made).count()
        assert (grant_status(made).word, made.uses) == ("revoked", uses)
        assert ApprovalRequest.objects.filter(plan_ref=plan.public_id).count() == 1 - uses
    assert_invariants()


def test_rejection_races_with_use(grantable, ada, rosa, admin):
    for _ in range(ROUNDS):
        [held] = plans(ada, 1)
        work_off(held)
        made, [plan] = grant(admin, 5), plans(ada, 1)
        results = at_once(partial(work_off, plan), partial(reject, held, rosa))
        assert not any(isinstance(each, Conflict) for each in results)
        made.refresh_from_db()
        assert grant_status(made).word == "ended"
        assert made.uses == GrantUse.objects.filter(grant=made).count() <= 1
    assert not Grant.objects.filter(revoked_at=None, expires_at__gt=clock.now()).exists()
    assert_invariants()
