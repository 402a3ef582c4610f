"""Evidence files: effects, a client's history, captures, and invalid files."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from catalog.models import Call
from plans.invariants.base import CannotCheck
from plans.models import Event
from tests.builders import call_of, request_of
from tests.invariants import assert_invariants, broken
from tests.plans.invariants.worlds import SmallWorld, corrupt

pytestmark = pytest.mark.db

CANARY = "Ms <Canary> of 12 Wharf Lane"


def file_of(folder: Path, *lines: str) -> Path:
    """Return a file with these lines."""
    path = folder / "lines"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def whole(call: Call, *, digest: str = "") -> list[str]:
    """Return the lines of an effect from start to end."""
    return [f"{call.public_id} {call.attempt} {word}{digest}" for word in ("began", "ended")]


def told(kind: str, action: str, **more: object) -> str:
    """Return a line of a client's history."""
    return json.dumps({"type": kind, "f": action, **more})


@pytest.fixture
def effects(small: SmallWorld) -> list[str]:
    """The effects of the dangerous calls: three ran, one is unknown, one was settled without an end."""
    ran = call_of(small.ran, 2)
    digest = f" {hashlib.sha256(ran.arguments.encode()).hexdigest()}"
    left = [f"{call_of(plan).public_id} 1 began" for plan in (small.unknown, small.settled)]
    early = [line for number in (1, 2) for line in whole(call_of(small.early, number))]
    return [*whole(ran, digest=digest), *left, *early]


def test_effects_that_match(small, effects, tmp_path):
    """An effect without an end has an unknown outcome or was settled."""
    assert_invariants(effects=file_of(tmp_path, *effects))


@pytest.mark.parametrize(
    ("plan", "line"),
    [
        ("ran", "{call} 1 began"),
        ("ran", "{call} 2 began"),
        ("rejected", "{call} 1 began"),
        ("waiting", "{call} 1 began"),
        ("unknown", "{call} 1 began " + "0" * 64),
        ("unknown", "call_gone 1 began"),
    ],
)
def test_effects_that_do_not_match(small, effects, tmp_path, plan, line):
    """Repeated, not started, refused, held, with other arguments, or of a missing call."""
    step_id = 2 if plan == "ran" else 1
    line = line.format(call=call_of(getattr(small, plan), step_id).public_id)
    assert broken(effects=file_of(tmp_path, *effects, line)) == {"I10": [line.split()[0]]}


def test_a_call_without_an_effect(small, effects, tmp_path):
    """It is completed, but the file has only other calls of its tool, or not its end."""
    ref = call_of(small.ran, 2).public_id
    assert broken(effects=file_of(tmp_path, *effects[2:])) == {"I10": [ref]}
    assert broken(effects=file_of(tmp_path, effects[0], *effects[2:])) == {"I10": [ref]}


def test_history_that_matches(small, tmp_path):
    """One resource per key; refused ones do not exist; unanswered ones may."""
    request = request_of(small.ran, 2)
    lines = [
        told("invoke", "plan", key="k1"),
        told("ok", "plan", key="k1", id=small.ran.public_id),
        told("ok", "plan", key="k1", id=small.ran.public_id),
        told("ok", "review", key="k2", id=request.public_id, digest=request.digest),
        told("fail", "plan", key="k3", status="422"),
        told("info", "plan", key="k4"),
        json.dumps({"op": "call", "status": "ok", "id": "7", "resource": small.direct.public_id}),
    ]
    assert_invariants(history=file_of(tmp_path, *lines))


def test_history_that_does_not_match(small, tmp_path):
    """Lost, changed, duplicated, or existing although refused."""
    refs = [small.ran.public_id, small.rejected.public_id, small.direct.public_id]
    lines = [
        told("ok", "plan", key="k0", id="plan_gone"),
        told("ok", "call", key="k1", id=refs[2], digest="0" * 64),
        told("ok", "plan", key="k2", id=refs[0]),
        told("ok", "plan", key="k2", id=refs[1]),
        told("fail", "plan", key="k3", id=refs[0]),
    ]
    assert broken(history=file_of(tmp_path, *lines)) == {"I14": ["plan_gone", refs[2], refs[1], refs[0]]}


def test_a_leak_is_found(small, tmp_path):
    """In an event and in a file, in any encoding; not in payload columns."""
    corrupt("UPDATE plans_memoryitem SET value = %s WHERE plan_id = %s AND type = 'value'", CANARY, small.skipped.pk)
    (tmp_path / "clean").write_text("nothing here")
    given: dict[str, Any] = {"captures": [tmp_path], "canaries": ["nowhere at all", CANARY]}
    assert_invariants(**given)
    event = Event.objects.get(plan=small.ran, seq=1)
    corrupt("UPDATE plans_event SET data = %s WHERE id = %s", json.dumps({"goal": CANARY}), event.pk)
    (tmp_path / "page").write_text("<p>Ms &lt;Canary&gt; of 12 Wharf Lane</p>")
    assert broken(**given) == {"I15": [str(tmp_path / "page"), f"plans_event.data:{event.pk}"]}


def test_secret_is_found_anywhere(small, tmp_path):
    """Also in payload columns."""
    corrupt("UPDATE plans_memoryitem SET value = %s WHERE plan_id = %s AND type = 'value'", CANARY, small.skipped.pk)
    [place] = broken(secrets=[CANARY])["I15"]
    assert place.startswith("plans_memoryitem.value:")


ODD_FILES: list[tuple[str, bytes | None, str]] = [
    ("effects", b"call_x one began\n", "line 1: a line is"),
    ("effects", b"\xff\xfe\n", "line 1: this is not UTF-8"),
    ("effects", b"x" * 70_000, "line 1: a line has at most"),
    ("history", b'{"type": "ok", "f": "plan"}\n[1]\n', "line 2: this is not a JSON object"),
    ("history", b"{\n", "line 1: this is not JSON"),
    ("history", b"[" * 50_000, "line 1: this is not JSON"),
    ("history", b'{"type": "perhaps", "f": "plan"}\n', "line 1: `type` must be one of"),
    ("history", b'{"type": "ok"}\n', "line 1: `type` must be one of"),
    ("history", b'{"type": "ok", "f": "plan", "id": "plan_\\ud800"}\n', "line 1: this contains characters"),
    ("history", b'{"type": "ok", "f": "plan", "id": "plan_\\u0000"}\n', "line 1: this contains characters"),
    ("effects", b"call_\x00 1 began\n", "line 1: a line is"),
    ("history", None, "cannot be read"),
]


def test_invalid_files_are_refused(db, tmp_path):
    """With the line number, without the content."""
    told = []
    for number, (option, content, _) in enumerate(ODD_FILES):
        path = tmp_path / str(number)
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(CannotCheck) as refused:
            broken(**{option: path})
        told.append(str(refused.value))
    assert [text for text, (*_, why) in zip(told, ODD_FILES, strict=True) if why not in text] == []
