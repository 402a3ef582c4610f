"""The checkpoint file: concurrent appending, and lines that are ignored."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from approvals.audit.checkpoint_file import Checkpoint, append_checkpoint, newest_checkpoint, read_checkpoints

OURS, OTHERS = "inst_ours", "inst_others"


def at(seq: int, *, epoch: int = 1, instance: str = OURS) -> Checkpoint:
    """Return a checkpoint of this entry."""
    return Checkpoint(instance, epoch, seq, f"{seq:064x}", "2026-01-01T00:00:00.000000Z")


def seqs(instance: str = OURS) -> list[int]:
    """Return the entry numbers of the checkpoints in the file."""
    return [line.checkpoint.seq for line in read_checkpoints(instance)]


def test_missing_file_has_no_checkpoints(checkpoints):
    assert newest_checkpoint(OURS) is None and seqs() == []


def test_newest_checkpoint_ignores_other_installations(checkpoints):
    assert all(append_checkpoint(each) for each in (at(1), at(3), at(9, instance=OTHERS)))
    assert newest_checkpoint(OURS) == at(3) and newest_checkpoint(OTHERS) == at(9, instance=OTHERS)


def test_older_or_equal_checkpoint_is_not_written(checkpoints):
    assert append_checkpoint(at(5)) and not append_checkpoint(at(5)) and not append_checkpoint(at(4))
    assert append_checkpoint(at(2, epoch=2)) and not append_checkpoint(at(9))
    assert seqs() == [5, 2]


def test_file_is_readable_by_its_owner_only(checkpoints):
    append_checkpoint(at(1))
    assert checkpoints.stat().st_mode & 0o777 == 0o600


def test_truncated_line_does_not_damage_the_next(checkpoints):
    """A full disk or a crashed host can leave half a line."""
    append_checkpoint(at(1))
    with checkpoints.open("ab") as file:
        file.write(b'{"instance": "inst_ours", "epoch": 1, "se')
    assert newest_checkpoint(OURS) == at(1)
    append_checkpoint(at(2))
    assert seqs() == [1, 2]


def test_forged_line_is_detected(checkpoints, settings):
    append_checkpoint(at(1))
    forged = at(7).document() | {"seq": 8}
    with checkpoints.open("a") as file:
        file.write(json.dumps(forged) + "\n")
    assert newest_checkpoint(OURS) == at(1)
    assert [line.forged for line in read_checkpoints(OURS)] == [False, True]
    settings.TOOLGATE_AUDIT_KEY = "another key of at least 32 characters"
    assert newest_checkpoint(OURS) is None


def test_malformed_checkpoints_are_ignored(checkpoints):
    append_checkpoint(at(1))
    texts = ["", "inst_ours", "[]", "null", '"inst_ours"', '{"instance": "inst_ours"}', "inst_ours" + "x" * 5000]
    changes: list[dict[str, object]] = [{"more": 1}, {"seq": "3"}, {"head": 3}, {"epoch": True}]
    for text in [*texts, *(json.dumps(at(3).document() | change) for change in changes)]:
        with checkpoints.open("a") as file:
            file.write(text + "\n")
        assert newest_checkpoint(OURS) == at(1) and seqs() == [1], text


def test_newest_checkpoint_is_found_beyond_one_block(checkpoints):
    append_checkpoint(at(1))
    lines = "".join(json.dumps(at(n, instance=OTHERS).document()) + "\n" for n in range(700))
    with checkpoints.open("a") as file:
        file.write(lines)
    assert len(lines) > 2 * 64 * 1024
    assert newest_checkpoint(OURS) == at(1)


def test_concurrent_writers_do_not_mix_lines(checkpoints):
    with ThreadPoolExecutor(8) as pool:
        written = list(pool.map(lambda seq: append_checkpoint(at(seq)), range(1, 101)))
    assert seqs() == sorted(seqs()) and len(seqs()) == sum(written)
    assert newest_checkpoint(OURS) == at(100)


def test_unreadable_file_raises_an_error(checkpoints):
    checkpoints.mkdir()
    with pytest.raises(OSError):
        newest_checkpoint(OURS)
    with pytest.raises(OSError):
        list(read_checkpoints(OURS))
    assert list(checkpoints.iterdir()) == []
