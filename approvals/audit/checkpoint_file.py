"""Checkpoints: signed positions of the audit log, stored in a file outside of the database.

The hash chain stays valid if the log is truncated or restored together with its head, or rewritten by someone with the
key. A checkpoint stored elsewhere reveals that. The file is append-only: one JSON object with a MAC per line, in the
order of the log. Several processes and several installations may append to the same file.
"""

import errno
import fcntl
import hashlib
import hmac
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from django.conf import settings

from catalog.core.canonical_json import canonical_text

PURPOSE = b"toolgate checkpoint v1"
READ_BLOCK_BYTES = 64 * 1024
MAX_LINE_BYTES = 4096
"""Longer lines are ignored; a checkpoint needs about a tenth."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Head of one installation's log at one time: epoch, and number and hash of the last entry."""

    instance: str
    epoch: int
    seq: int
    head: str
    at: str

    @property
    def place(self) -> tuple[int, int]:
        """Sort key of the checkpoints of one installation."""
        return self.epoch, self.seq

    def mac(self) -> str:
        """Return the MAC over all fields, under a key derived from TOOLGATE_AUDIT_KEY for this purpose only."""
        key = hmac.digest(settings.TOOLGATE_AUDIT_KEY.encode(), PURPOSE, hashlib.sha256)
        return hmac.new(key, canonical_text(asdict(self)).encode(), hashlib.sha256).hexdigest()

    def document(self) -> dict[str, Any]:
        """Return the checkpoint with its MAC, for the file and the log."""
        return asdict(self) | {"mac": self.mac()}


@dataclass(frozen=True, slots=True)
class CheckpointLine:
    """A line of the checkpoint file that belongs to this installation; `forged` is True if its MAC is wrong."""

    checkpoint: Checkpoint
    forged: bool


def read_checkpoints(instance: str) -> Iterator[CheckpointLine]:
    """Yield the checkpoints of an installation, oldest first. Raises OSError if the file cannot be read."""
    try:
        with _path().open("rb") as file:
            for text in file:
                if (line := _parse_line(text, instance)) is not None:
                    yield line
    except FileNotFoundError:
        return


def newest_checkpoint(instance: str) -> Checkpoint | None:
    """Return an installation's last checkpoint, read from the end of the file, or None. Raises OSError."""
    try:
        with _path().open("rb") as file:
            return _find_newest(file, instance)
    except FileNotFoundError:
        return None


def append_checkpoint(checkpoint: Checkpoint) -> bool:
    """Append a checkpoint and fsync; return False if the file already has this or a newer one. Raises OSError."""
    with _locked() as file:
        known = _find_newest(file, checkpoint.instance)
        if known is not None and known.place >= checkpoint.place:
            return False
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # a full disk cut off the last line; appended to it, this one would be lost
                file.write(b"\n")
        file.write(canonical_text(checkpoint.document()).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return True


def check_writable() -> None:
    """Raise OSError if no further line could be written to the file. Writes nothing."""
    path = _path()
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
    except FileNotFoundError:
        folder = next(folder for folder in path.absolute().parents if folder.exists())
        if not os.access(folder, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, "its directory is not writable") from None
        _check_space(os.statvfs(folder))
        return
    try:
        _check_space(os.fstatvfs(descriptor))
    finally:
        os.close(descriptor)


def is_disk_full(disk: os.statvfs_result) -> bool:
    return disk.f_bavail * disk.f_frsize < READ_BLOCK_BYTES


def _check_space(disk: os.statvfs_result) -> None:
    if is_disk_full(disk):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _path() -> Path:
    return Path(settings.TOOLGATE_AUDIT_CHECKPOINTS)


@contextmanager
def _locked() -> Iterator[IO[bytes]]:
    """Open the file for appending under an exclusive lock; a new file is readable by its owner only."""
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    with os.fdopen(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600), "a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if is_new:
            descriptor = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        yield file


def _find_newest(file: IO[bytes], instance: str) -> Checkpoint | None:
    """Return the last valid checkpoint of this installation, reading the file backwards in blocks."""
    end = file.seek(0, os.SEEK_END)
    rest = b""
    while end > 0:
        start = max(0, end - READ_BLOCK_BYTES)
        file.seek(start)
        lines = (file.read(end - start) + rest).split(b"\n")
        rest = lines.pop(0)[:MAX_LINE_BYTES] if start else b""
        for text in reversed(lines):
            line = _parse_line(text, instance)
            if line is not None and not line.forged:
                return line.checkpoint
        end = start
    return None


def _parse_line(text: bytes, instance: str) -> CheckpointLine | None:
    """Parse one line; return None for other installations, truncated lines, and text that is not a checkpoint."""
    if instance.encode() not in text or len(text) > MAX_LINE_BYTES:
        return None
    try:
        data = json.loads(text)
        mac = str(data.pop("mac"))
        checkpoint = Checkpoint(**data)
    except (ValueError, TypeError, AttributeError, KeyError):
        return None
    is_well_formed = all(type(value) is int for value in checkpoint.place) and type(checkpoint.head) is str
    if checkpoint.instance != instance or not is_well_formed:
        return None
    return CheckpointLine(checkpoint, forged=not hmac.compare_digest(mac.encode(), checkpoint.mac().encode()))
