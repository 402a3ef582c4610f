"""Context of a call: deadlines, resources, immutability."""

import dataclasses
from collections.abc import Generator
from datetime import timedelta

import pytest

from catalog.context import Budget, Deadline, Resources, ToolContext, UndoResult
from catalog.core import clock
from catalog.core.workspace_files import Filesystem


class Closing:
    closed = 0

    def close(self) -> None:
        self.closed += 1


class FailsToClose:
    def close(self) -> None:
        raise RuntimeError


def test_a_deadline_counts_down_to_zero():
    assert 9 < Deadline.after(10).remaining() <= 10
    assert not Deadline.after(10).expired()

    past = Deadline(clock.now() - timedelta(seconds=1))
    assert past.expired() and past.remaining() == 0


def test_resources_are_made_once_when_asked_for_and_closed_at_the_end():
    resources = Resources(makers={Closing: Closing})

    made = resources.get(Closing)

    assert resources.get(Closing) is made and made.closed == 0
    resources.close()
    assert made.closed == 1


def test_a_missing_resource_is_none_or_an_error():
    assert Resources().get_optional(Closing) is None
    with pytest.raises(LookupError, match="Closing"):
        Resources().get(Closing)


def test_a_resource_is_found_by_a_type_it_extends():
    class Special(Closing):
        pass

    special = Special()
    assert Resources([special]).get(Closing) is special


def test_one_resource_that_fails_to_close_does_not_stop_the_others():
    closing = Closing()

    Resources([closing, FailsToClose()]).close()

    assert closing.closed == 1


def test_the_workspace_is_opened_only_when_used(settings, tmp_path):
    settings.TOOLGATE_WORKSPACE = tmp_path / "later"
    context = ToolContext()

    assert not (tmp_path / "later").exists()
    assert context.filesystem is not None
    assert context.filesystem is context.resources.get(Filesystem)
    assert context.filesystem.list() == [] and (tmp_path / "later").is_dir()


def test_a_context_and_its_memory_cannot_be_changed():
    context = ToolContext(call_id="call_1", memory={"a": 1}, budget=Budget(seconds=5))

    with pytest.raises(dataclasses.FrozenInstanceError):
        context.call_id = "call_2"  # type: ignore[misc]
    with pytest.raises(TypeError):
        context.memory["b"] = 2  # type: ignore[index]


class Ledger:
    """A resource that can be put back to what it was."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)

    def snapshot(self) -> list[str]:
        return self.lines.copy()

    def restore(self, taken: list[str]) -> None:
        self.lines = taken


class Stubborn(Ledger):
    """One that cannot."""

    def restore(self, taken: list[str]) -> None:
        raise RuntimeError("hunter2")


class OwnRecord:
    """A resource that knows itself what it changed, and whether all of it is undone."""

    def __init__(self, *, undoes: bool = True, changed: bool = True) -> None:
        self.undoes, self.changed = undoes, changed

    def restore(self) -> bool:
        return self.undoes


def test_a_resource_is_restored_to_its_snapshot_of_when_the_call_got_it():
    resources = Resources([Ledger("before")])
    resources.get(Ledger).lines.append("half")

    assert resources.restore() == UndoResult(some=True) and resources.restore().all
    assert resources.get(Ledger).lines == ["before"]


def test_a_resource_that_is_made_late_is_snapshot_when_it_is_made():
    resources = Resources(makers={Ledger: lambda: iter_of(Ledger("made"))})
    resources.get(Ledger).lines.append("half")

    assert resources.restore().all
    assert resources.get(Ledger).lines == ["made"]


def iter_of(resource: Ledger) -> Generator[Ledger]:
    yield resource


def test_one_resource_that_cannot_be_restored_is_named_and_does_not_stop_the_others(caplog):
    first, last = Ledger("before"), OwnRecord(undoes=False)
    resources = Resources([first, Stubborn(), last, Closing()])
    first.lines.append("half")

    assert resources.restore() == UndoResult(some=True, failed=("OwnRecord", "Stubborn"))
    assert first.lines == ["before"]
    assert ("Stubborn" in caplog.text, "hunter2" in caplog.text) == (True, False)


def test_where_nothing_changed_there_is_nothing_to_undo():
    undone = Resources([OwnRecord(changed=False), Closing()]).restore()

    assert (undone.some, undone.all, undone.failed) == (False, False, ())
