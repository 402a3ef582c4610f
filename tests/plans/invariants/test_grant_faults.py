"""Faults of grants, made by SQL in a sound world: each is found, and a correct use breaks nothing."""

import pytest

from approvals.models import Grant, GrantUse
from tests.approvals.factories import approved, grant, let_be_granted, run, set_rule
from tests.builders import call_of
from tests.invariants import assert_invariants, broken
from tests.plans.invariants.worlds import corrupt

pytestmark = pytest.mark.db


@pytest.fixture
def grantable(stage, admin, settings, monkeypatch):
    """Let the dangerous tool allow grants."""
    let_be_granted(admin, settings, monkeypatch)


@pytest.fixture
def granted(grantable, ada, rosa, admin):
    """A call that ran under a grant, and an approved request that was used."""
    set_rule()
    request = approved(ada, rosa)
    made = grant(admin)
    call = call_of(run(ada))
    assert_invariants()
    return made, call, request


def without_its_use(made, call, request):
    """Delete the use: a dangerous call started without approval."""
    corrupt("DELETE FROM approvals_grantuse WHERE call_id = %s", call.pk)
    return {"I1": [call.public_id], "I3": [made.public_id], "I13": [call.public_id]}


def counted_once_more(made, call, request):
    """Count a use without a call."""
    corrupt("UPDATE approvals_grant SET uses = uses + 1 WHERE id = %s", made.pk)
    return {"I3": [made.public_id]}


def more_than_it_allows(made, call, request):
    """Exceed the grant's limit of uses."""
    corrupt("UPDATE approvals_grant SET max_uses = 0 WHERE id = %s", made.pk)
    return {"I3": [made.public_id]}


def of_another_plan(made, call, request):
    """Let the grant cover another plan."""
    corrupt("UPDATE approvals_grant SET scope = 'plan', scope_ref = 'plan_other' WHERE id = %s", made.pk)
    return {"I1": [call.public_id]}


def after_its_end(made, call, request):
    """Move the use after the grant's end."""
    corrupt("UPDATE approvals_grant SET expires_at = created_at WHERE id = %s", made.pk)
    return {"I1": [call.public_id]}


def approved_as_well(made, call, request):
    """Add a grant's use to an approved call."""
    at = "(SELECT consumed_at FROM approvals_approvalrequest WHERE id = %s)"
    corrupt(
        f"UPDATE approvals_grantuse SET call_id = %s, at = {at} WHERE call_id = %s",  # noqa: S608 (words of ours)
        *(request.call_id, request.pk, call.pk),
    )
    return {"I1": sorted([call.public_id, request.call.public_id]), "I13": None}


def ended_without_a_word(made, call, request):
    """Revoke the grant without an audit entry."""
    corrupt("UPDATE approvals_grant SET revoked_at = created_at WHERE id = %s", made.pk)
    return {"I13": [made.public_id]}


FAULTS = (
    without_its_use,
    counted_once_more,
    more_than_it_allows,
    of_another_plan,
    after_its_end,
    approved_as_well,
    ended_without_a_word,
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_each_fault_is_found(granted, fault):
    """Once, and nothing else."""
    expected = fault(*granted)
    found = broken()
    assert set(found) == set(expected)
    for invariant, ids in expected.items():
        assert ids is None or sorted(set(found[invariant])) == ids
    assert Grant.objects.count() == 1
    assert GrantUse.objects.count() <= 1
