"""Between approval and start one field changes, any of those that an approval is bound to: nothing starts."""

import random
import string
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core.exceptions import ObjectDoesNotExist
from django.db import connection, models, transaction

from approvals import gate
from approvals.decisions import decide
from approvals.errors import ApprovalExpired, Invalidated
from approvals.models import ApprovalRequest, Instance, Review, Round
from approvals.starts import consume
from catalog.errors import Conflict
from catalog.models import Call, Implementation, Tool, ToolVersion
from tests import counts
from tests.approvals.builders import approval, ask, binding_of

pytestmark = [pytest.mark.django_db, pytest.mark.timeout(counts.seconds(1800))]
MUTATIONS = counts.count(10_000)
LONG = 32
"""From this many characters on a text is as long as its column may be."""


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
    """Let one field have another value, for a while."""
    with transaction.atomic():
        model._default_manager.update(**{name: value})
        yield
        transaction.set_rollback(True)


def started(pk: int) -> bool:
    """Try to start the call as a worker does that computes what would run from the rows as they are."""
    call = Call.objects.get(pk=pk)
    try:
        with transaction.atomic():
            consume(call, binding_of(call))
    except (Invalidated, ApprovalExpired, Conflict, ObjectDoesNotExist, StopIteration):
        return False
    return True


@pytest.fixture
def approved(ada, rosa, monkeypatch) -> ApprovalRequest:
    """An approved request whose call is ready."""
    monkeypatch.setattr(gate, "SECONDS_TRUSTED", 0.0)
    request = ask(ada)
    return decide(request, by=rosa, decision=approval(request))


def test_nothing_runs_after_any_single_change(approved, record_property):
    """Whatever field it is, and whatever became of it."""
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
