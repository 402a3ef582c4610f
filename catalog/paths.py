"""Paths inside the workspace: what a path may look like, and how to reach it without ever leaving the root.

A path is walked one component at a time through directory descriptors that refuse symlinks, so a link
swapped in between two looks changes nothing. Never resolve a path and open the answer.
"""

import errno
import os
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from catalog.errors import FilesystemError

MAX_NAME_BYTES = 255
MAX_PATH_CHARACTERS = 1024
MAX_PARTS = 32
TEMPORARY = ".toolgate-tmp-"

_DEVICES = frozenset({"con", "prn", "aux", "nul", "conin$", "conout$", "clock$"}) | {
    f"{port}{number}" for port in ("com", "lpt") for number in "123456789¹²³"
}
_FORBIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Parts = tuple[str, ...]


def split_path(path: object) -> Parts:
    """Return the components of a workspace path; raise FilesystemError with the remedy."""
    if not isinstance(path, str) or not path:
        raise FilesystemError("A path is needed, such as 'reports/summary.md'.")
    if len(path) > MAX_PATH_CHARACTERS:
        raise FilesystemError(f"A path may have at most {MAX_PATH_CHARACTERS} characters.")
    if any(unicodedata.category(character) in _FORBIDDEN_CATEGORIES for character in path):
        raise FilesystemError(f"The path {path!r} holds control or invisible characters; leave them out.")
    if path.startswith("/"):
        raise FilesystemError(f"The path {path!r} is absolute; write it relative to the workspace.")
    if "\\" in path:
        raise FilesystemError(f"The path {path!r} holds a backslash; separate folders with '/'.")
    parts = tuple(path.split("/"))
    if len(parts) > MAX_PARTS:
        raise FilesystemError(f"The path {path!r} goes through more than {MAX_PARTS} folders.")
    for part in parts:
        _judge_part(part, path)
    return parts


def is_plain_name(name: str) -> bool:
    """Say whether a name found on disk is one that a path could be written with."""
    try:
        return split_path(name) == (name,)
    except FilesystemError:
        return False


def _judge_part(part: str, path: str) -> None:
    if part == "..":
        raise FilesystemError(f"The path {path!r} leads out of its folder with '..'; name the file from the root.")
    if part in ("", "."):
        raise FilesystemError(f"The path {path!r} has an empty part; write each folder once, without '.' or '//'.")
    if len(part.encode()) > MAX_NAME_BYTES:
        raise FilesystemError(f"The name {part[:40]!r}… is longer than {MAX_NAME_BYTES} bytes.")
    if part.partition(".")[0].rstrip().lower() in _DEVICES:
        raise FilesystemError(f"The path {path!r} names a device ({part}); choose another name.")
    if ":" in part or part != part.strip() or part.endswith("."):
        raise FilesystemError(f"The name {part!r} has a colon, a space at an end or a final dot; choose another name.")
    if part.startswith(TEMPORARY):
        raise FilesystemError(f"Names that begin with {TEMPORARY!r} are the workspace's own.")


@contextmanager
def opened_root(root: Path) -> Iterator[int]:
    """Open the root folder, making it when it is missing."""
    root.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_folder(root: Path, parts: Parts, *, made: list[Parts] | None = None) -> Iterator[int]:
    """Open a folder below the root, following no link; `made` notes the folders it may make."""
    with opened_root(root) as start:
        current = os.dup(start)
        try:
            for depth, part in enumerate(parts, start=1):
                current = _step_into(current, parts[:depth], part, made)
            yield current
        finally:
            os.close(current)


def open_file(folder: int, parts: Parts) -> int:
    """Open a regular file in an open folder; raise FilesystemError for links, devices and folders."""
    try:
        _judge_kind(os.stat(parts[-1], dir_fd=folder, follow_symlinks=False), parts)
        descriptor = os.open(parts[-1], _FILE, dir_fd=folder)
    except OSError as error:
        refuse(error, parts)
    try:
        _judge_kind(os.fstat(descriptor), parts)
    except FilesystemError:
        os.close(descriptor)
        raise
    return descriptor


def refuse(error: OSError, parts: Parts) -> NoReturn:
    """Raise the FilesystemError that says what this system error means for this path."""
    path = "/".join(parts)
    if error.errno == errno.ENOENT:
        message = f"There is no {path!r} in the workspace; list the files to see what there is."
        raise FilesystemError(message, {"missing": True}) from None
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        message = f"{path!r} goes through a link or a file where a folder is needed; name a real folder."
        raise FilesystemError(message) from None
    raise FilesystemError(f"{path!r} cannot be used: {os.strerror(error.errno or 0)}.") from None


def _step_into(current: int, parts: Parts, part: str, made: list[Parts] | None) -> int:
    """Exchange a folder's descriptor for that of a folder in it; the first is closed only if that worked."""
    try:
        if made is not None:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=current)
                made.append(parts)
        inner = os.open(part, _DIRECTORY, dir_fd=current)
    except OSError as error:
        refuse(error, parts)
    os.close(current)
    return inner


def _judge_kind(status: os.stat_result, parts: Parts) -> None:
    path = "/".join(parts)
    if stat.S_ISLNK(status.st_mode):
        raise FilesystemError(f"{path!r} is a symbolic link, which the workspace never follows.")
    if stat.S_ISDIR(status.st_mode):
        raise FilesystemError(f"{path!r} is a folder; name a file in it.")
    if not stat.S_ISREG(status.st_mode):
        raise FilesystemError(f"{path!r} is not a regular file.")
