"""Mutated calls against an open envelope, through the real gate: exactly those inside run, by a judge written apart."""

import random
from collections.abc import Iterator
from copy import deepcopy
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import EnvelopeItem, EnvelopeUse
from catalog.access.tokens import create_token
from catalog.errors import ToolgateError
from catalog.models import Call
from plans.store.requesters import Requester
from tests import counts
from tests.approvals.factories import call_within, item, open_envelope
from tests.invariants import assert_invariants

pytestmark = [pytest.mark.django_db, pytest.mark.timeout(counts.seconds(7200))]
MUTATIONS = counts.count(10_000, 100)
MOST = Decimal(900)
ROWS = [
    {"path": "value.to", "operator": "in", "value": ["ann", 1, True, None]},
    {"path": "value.run.command", "operator": "equals", "value": "git push"},
    {"path": "value.path", "operator": "starts_with", "value": "reports/"},
    {"path": "value.size", "operator": "less_than", "value": 5},
    {"path": "value.tags.0", "operator": "exists"},
    {"path": "value.cc", "operator": "missing"},
]
VALUES: list[Any] = [
    *("", "ann", "Ann", "ann ", "an\u200bn", "git push", "git  push", "git push; ls", "reports/../x", "reports/x"),
    *(None, True, False, 0, 1, 1.0, -1, -0.0, 4.999, 5, 1e2, 0.1, 1e-18, 1e-19, 2**53 - 1, 1e300, "1", "1e2", "NaN"),
    *([], {}, ["ann"], {"0": "x"}, {"command": "git push"}, [[["x"]]], {"$": 1}),
]
NAMES = [
    "to",
    "run",
    "path",
    "size",
    "tags",
    "cc",
    "amount",
    "Amount",
    "amount ",
    "bcc",
    "command",
    "0",
    "to.0",
    "\uff41mount",
]


def inside(draw: random.Random) -> dict[str, Any]:
    """Return a value that the envelope allows."""
    return {
        "to": draw.choice(["ann", 1, True, None]),
        "run": {"command": "git push"},
        "path": draw.choice(["reports/a", "reports/2026/b.csv"]),
        "size": draw.choice([-3, 0, 4.5]),
        "tags": [draw.choice(["x", {"deep": [1, {}]}, None])],
        "amount": draw.choice([0, 0.01, 0.1]),
    }


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container inside a value with each of its keys."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in list(entries):
        yield value, key
        yield from places(each)


def mutate(value: dict[str, Any], draw: random.Random) -> None:
    """Change one place: another value, a dropped, added, moved or renamed one, or one in a list or an object."""
    container, key = draw.choice(list(places(value)))
    old = container[key]
    way = draw.randrange(6)
    if way == 0:
        container[key] = draw.choice([draw.choice(VALUES), [old], {"x": old}])
    elif way == 1:
        del container[key]
    elif way == 2 and isinstance(container, dict):
        container[draw.choice(NAMES)] = container.pop(key)
    elif way == 3 and isinstance(container, list):
        container.insert(draw.randrange(len(container) + 1), draw.choice(VALUES))
    elif way == 4 and isinstance(old, str) and old:
        place = draw.randrange(len(old))
        container[key] = old[:place] + draw.choice("aA./ ;\u0430") + old[place + draw.randrange(2) :]
    else:
        target = draw.choice([each for each, _ in places(value) if isinstance(each, dict)])
        target[draw.choice(NAMES)] = deepcopy(draw.choice(VALUES))


def amount(value: Any) -> Decimal | None:
    """Return the amount of a value inside the envelope, None for one outside."""
    if not isinstance(value, dict) or set(value) != {"to", "run", "path", "size", "tags", "amount"}:
        return None
    size, number, tags = value["size"], value["amount"], value["tags"]
    numbers = not any(isinstance(each, bool) or not isinstance(each, int | float) for each in (size, number))
    text = value["path"] if isinstance(value["path"], str) else ""
    is_to = value["to"] is None or value["to"] is True or value["to"] == "ann"
    is_to = is_to or (not isinstance(value["to"], bool) and isinstance(value["to"], int | float) and value["to"] == 1)
    first = (isinstance(tags, list) and len(tags) == 1) or (isinstance(tags, dict) and set(tags) == {"0"})
    first = first and all(key != "command" for _, key in places(tags))  # commands are covered by exact bounds alone
    is_path = text.startswith("reports/") and ".." not in text.split("/")
    if not (numbers and size < 5 and is_to and value["run"] == {"command": "git push"} and first and is_path):
        return None
    exact = Decimal(repr(number))
    exponent = exact.as_tuple().exponent
    return exact if 0 <= exact <= MOST and isinstance(exponent, int) and exponent >= -18 else None


@pytest.fixture
def unlimited(stage: Any, settings: Any) -> None:
    """Any number of requests may wait, and decisions take effect at once."""
    for name in ("PLAN", "REQUESTER", "TOKEN"):
        setattr(settings, f"TOOLGATE_MAX_PENDING_PER_{name}", 0)
    settings.TOOLGATE_UNDO_SECONDS = 0


def agent_of(person: User) -> Requester:
    return Requester(person, create_token(user=person, kind="agent", scopes=["calls:create"])[0], "mcp")


@pytest.mark.slow
@pytest.mark.usefixtures("unlimited")
def test_nothing_outside_an_envelope_runs_through_it(ada, ben, rosa, record_property):
    draw = counts.dice(counts.seed())
    mine = agent_of(ada)
    terms = item(rows=ROWS, count=10_000, sum={"path": "value.amount", "at_most": int(MOST)})
    open_envelope(mine, rosa, terms)
    others = [agent_of(ada), agent_of(ben), Requester(ada), Requester(ada, None, "rest", "errand")]
    spent, tally = Decimal(0), {"inside": 0, "outside": 0, "refused": 0}
    for number in range(MUTATIONS):
        value, by, tool = inside(draw), mine, "dangerous"
        way = draw.randrange(20)
        if way == 0:
            by = draw.choice(others)
        elif way == 1:
            tool = "dangerous_hasty"
        else:
            for _ in range(draw.randrange(4)):
                if list(places(value)):
                    mutate(value, draw)
        found = amount(value)
        fits = by is mine and tool == "dangerous" and found is not None and spent + found <= MOST
        try:
            call = call_within(by, value, tool)
        except ToolgateError:
            assert not fits, (number, value)
            tally["refused"] += 1
            continue
        used = EnvelopeUse.objects.filter(call=call).exists()
        assert (used, call.status) == ((True, "completed") if fits else (False, "held")), (number, repr(value))
        spent += found if fits and found is not None else 0
        tally["inside" if fits else "outside"] += 1
    kept = EnvelopeItem.objects.get()
    assert (kept.used, Decimal(kept.sum_used)) == (tally["inside"], spent)
    assert Call.objects.filter(tool_name="dangerous", status="completed").count() == tally["inside"]
    assert tally["inside"] and tally["outside"]
    assert_invariants()
    counts.report(record_property, "mutated calls against an envelope", calls=MUTATIONS, **tally)
