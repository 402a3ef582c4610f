"""Races of administrators who change policies: no revision is lost or doubled, and the order stays unique."""

from functools import partial

import pytest
from django.contrib.auth.models import User

from approvals.models import AuditEntry, Policy
from approvals.policies import services
from catalog.errors import Conflict, ParameterError
from tests import counts
from tests.racing import at_once

pytestmark = [
    pytest.mark.db,
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True, serialized_rollback=True),
    pytest.mark.timeout(counts.seconds(600)),
]
ROUNDS = counts.count(100, 33)


def test_changes_of_one_policy(admin: User) -> None:
    """Without a revision both changes apply, one after the other; with a revision the second gets a conflict."""
    policy = Policy.objects.get(order=10)
    change = partial(services.change_policy, policy, by=admin)
    for number in range(ROUNDS):
        both = [partial(change, {"message": f"{number} {side}"}) for side in "ab"]
        assert all(isinstance(each, Policy) for each in at_once(*both))
        read = policy.revisions.count()
        one = [partial(change, {"message": f"{number} {side}", "revision": read}) for side in "cd"]
        assert sorted(isinstance(each, Conflict) for each in at_once(*one)) == [False, True]
    numbers = list(policy.revisions.order_by("number").values_list("number", flat=True))
    assert numbers == list(range(1, 3 * ROUNDS + 2))
    assert AuditEntry.objects.filter(action="policy.changed").count() == 3 * ROUNDS


def test_a_name_is_given_once(admin: User) -> None:
    """The second of two policies with the same name is refused."""
    for number in range(ROUNDS):
        make = partial(services.create_policy, {"name": f"Policy {number}", "effect": "deny"}, by=admin)
        results = at_once(make, make)
        assert [type(each) for each in results if not isinstance(each, Policy)] == [ParameterError]
    assert Policy.objects.filter(name__startswith="Policy ").count() == ROUNDS


def test_policies_that_change_places(admin: User) -> None:
    """Each policy keeps a place of its own."""
    for _ in range(ROUNDS):
        first, second, third = Policy.objects.order_by("order", "pk")
        at_once(
            partial(services.move_policy, third, up=True, by=admin),
            partial(services.move_policy, first, up=False, by=admin),
        )
        orders = list(Policy.objects.order_by("order").values_list("order", flat=True))
        assert len(set(orders)) == 3
        assert second in Policy.objects.all()


def test_ended_while_it_is_changed(admin: User) -> None:
    """An ended policy is not changed afterwards."""
    for number in range(ROUNDS):
        policy = services.create_policy({"name": f"Short {number}", "effect": "deny"}, by=admin)
        ended, changed = at_once(
            partial(services.end_policy, policy, by=admin),
            partial(services.change_policy, policy, {"message": "x"}, by=admin),
        )
        assert isinstance(ended, Policy)
        assert isinstance(changed, Policy | Conflict)
        row = Policy.objects.get(pk=policy.pk)
        assert (row.ended_at is not None, row.enabled) == (True, False)
