"""Mutations between approval and start: no changed call may start."""

import random
import string
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ObjectDoesNotExist
from django.db import connection, models, transaction

from approvals.errors import ApprovalExpired, Invalidated
from approvals.grants import coverage
from approvals.models import ApprovalRequest, Delegation, Grant, Instance, PolicyRevision, Review, Round
from approvals.policies.rulebook import rule_from_revision
from approvals.requests.queries import request_for
from approvals.requests.start_check import consume
from approvals.reviews.decisions import decide
from catalog.core import clock
from catalog.errors import Conflict
from catalog.models import Call, Implementation, Tool, ToolVersion
from plans.engine import calls, grants
from plans.engine.work import snapshot_of
from tests import counts
from tests.approvals.factories import approval, ask, binding_of, grant, hand, let_be_granted
from tests.builders import act, make_plan

pytestmark = [pytest.mark.django_db, pytest.mark.timeout(counts.seconds(1800))]
MUTATIONS = counts.count(10_000, 100)
LONG = 32
"""Texts of this length fill their column."""


def other_text(dice: random.Random, old: str) -> str:
    """Change, drop, add or move one character."""
    place, letter = dice.randrange(len(old) + 1), dice.choice(string.ascii_letters + string.digits)
    cut = min(place, max(0, len(old) - 1))
    longer = [old[:place] + letter + old[place:]] if len(old) < LONG else []
    ways = [*longer, old[:cut] + old[cut + 1 :], old[:cut] + letter + old[cut + 1 :]]
    found = [text for text in ways if text != old]
    return dice.choice(found)


def other_number(dice: random.Random, old: int) -> int:
    """Return a larger number."""
    return old + dice.randrange(1, 100_000)


Change = Callable[[random.Random, Any], Any]
TEXTS: list[tuple[type[models.Model], str]] = [
    *((Call, name) for name in ("public_id", "tool_name", "plan_ref", "step_ref", "arguments")),
    *((Round, name) for name in ("arguments", "digest", "state_token")),
    *((ApprovalRequest, name) for name in ("digest", "status")),
    (ToolVersion, "fingerprint"),
    (Implementation, "digest"),
    (Instance, "name"),
    (Review, "verdict"),
]
NUMBERS: list[tuple[type[models.Model], str]] = [
    (Instance, "epoch"),
    (ApprovalRequest, "round_number"),
    (Round, "number"),
]
FIELDS: list[tuple[type[models.Model], str, Change]] = [
    *((model, name, other_text) for model, name in TEXTS),
    *((model, name, other_number) for model, name in NUMBERS),
    (Tool, "enabled", lambda dice, old: False),
    (Review, "undone_at", lambda dice, old: ApprovalRequest.objects.get().opened_at),
    (ApprovalRequest, "applied_at", lambda dice, old: None),
    (ApprovalRequest, "not_after", lambda dice, old: ApprovalRequest.objects.get().opened_at),
]


@contextmanager
def mutated(model: type[models.Model], name: str, value: Any) -> Iterator[None]:
    """Temporarily change one field."""
    with transaction.atomic():
        model._default_manager.update(**{name: value})
        yield
        transaction.set_rollback(True)


def started(pk: int) -> bool:
    """Try to start the call like a worker, which computes the binding from the current rows."""
    call = Call.objects.get(pk=pk)
    try:
        with transaction.atomic():
            consume(call, binding_of(call))
    except (Invalidated, ApprovalExpired, Conflict, ObjectDoesNotExist, StopIteration):
        return False
    return True


@pytest.fixture
def approved(ada, rosa, read_anew) -> ApprovalRequest:
    """An approved request whose call is ready."""
    request = ask(ada)
    return decide(request, by=rosa, decision=approval(request))


@pytest.fixture
def handed(ada, rosa, vera, read_anew) -> ApprovalRequest:
    """A request that Vera approved on behalf of Rosa, and whose call is ready."""
    request = hand(ask(ada), rosa, vera)
    return decide(request_for(vera, request.public_id), by=vera, decision=approval(request))


@pytest.mark.parametrize(
    ("model", "name"), [(Review, "on_behalf_of"), (Review, "person"), (Delegation, "by"), (Delegation, "to")]
)
def test_delegated_vote_belongs_to_the_delegator(model, name, handed, tomas, admin):
    old = getattr(model._default_manager.get(), name)
    others = [each for each in User.objects.order_by("pk") if each != old]
    assert {tomas, admin} <= set(others)
    for person in [*others, None] if name == "on_behalf_of" else others:
        with mutated(model, name, person):
            assert not started(handed.call_id), (model.__name__, name, person)
    assert started(handed.call_id)


GRANTED: dict[str, list[Change]] = {
    "fingerprint": [other_text],
    "implementation_digests": [lambda dice, old: [other_text(dice, old[0])], lambda dice, old: []],
    "conditions": [
        lambda dice, old: [old[0] | {"value": other_text(dice, old[0]["value"])}],
        lambda dice, old: [old[0] | {"path": other_text(dice, old[0]["path"])}],
        lambda dice, old: [*old, {"path": "value", "operator": "missing"}],
        lambda dice, old: [],
    ],
    "scope": [lambda dice, old: dice.choice(["session", "requester"])],
    "scope_ref": [other_text],
    "epoch": [other_number, lambda dice, old: old - 1],
    "expires_at": [lambda dice, old: old - timedelta(hours=dice.randrange(9, 90))],
    "max_uses": [lambda dice, old: 0],
    "uses": [lambda dice, old: 20 + other_number(dice, old)],
    "revoked_at": [lambda dice, old: clock.now()],
    "created_by": [lambda dice, old: dice.choice(User.objects.filter(username__in=("ada", "vera")))],
}


@pytest.fixture
def grantable(stage, vera, admin, settings, monkeypatch) -> None:
    """The stage with a grantable dangerous tool, and Vera, who may not decide."""
    let_be_granted(admin, settings, monkeypatch)


@pytest.mark.usefixtures("grantable")
def test_mutated_call_is_not_covered_by_a_grant(ada, admin):
    plan, dice = make_plan(ada, act(1, "x", "dangerous"), start=False), counts.dice(counts.seed())
    grant(admin, plan.public_id, "plan", [{"path": "value", "operator": "equals", "value": "x"}])
    order = calls.prepare_call("dangerous", {"value": "x"}, plan_ref=plan.public_id)
    call = grants.grant_query(snapshot_of(plan), order, {ada.pk})
    rule = rule_from_revision(PolicyRevision.objects.select_related("policy").get(safety_level="dangerous"))

    def is_let_start() -> bool:
        with transaction.atomic():
            used = coverage.consume_use(call, rule, now=clock.now())
            transaction.set_rollback(True)
        return used is not None

    for name, changes in GRANTED.items():
        for change in changes * counts.count(20, 10):
            value = change(dice, getattr(Grant.objects.get(), name))
            with mutated(Grant, name, value):
                assert not is_let_start(), (name, value)
    assert is_let_start()


def test_mutated_call_does_not_run(approved, record_property):
    seed = counts.seed()
    dice = counts.dice(seed)
    for number in range(MUTATIONS):
        model, name, change = FIELDS[number % len(FIELDS)]
        old = getattr(model._default_manager.get(), name)
        value = change(dice, old)
        with mutated(model, name, value):
            assert not started(approved.call_id), (model.__name__, name, value, seed)
    counts.report(record_property, "mutations before the start", rounds=MUTATIONS, fields=len(FIELDS), seed=seed)
    assert started(approved.call_id)
    assert not connection.needs_rollback
