"""Workspace files below one root, accessed through descriptors, with a journal that can undo a call.

A path is walked through directory descriptors that refuse symlinks. Never resolve a path and then open the result: a
link could be swapped in between.
"""

import errno
import fcntl
import hashlib
import os
import re
import secrets
import stat
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from catalog.errors import FilesystemError

MAX_NAME_BYTES = 255
MAX_PATH_CHARACTERS = 1024
MAX_PARTS = 32
TEMPORARY_PREFIX = ".toolgate-tmp-"

_DEVICES = frozenset({"con", "prn", "aux", "nul", "conin$", "conout$", "clock$"}) | {
    f"{port}{number}" for port in ("com", "lpt") for number in "123456789¹²³"
}
_FORBIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_OPEN_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

PathParts = tuple[str, ...]


def split_path(path: object) -> PathParts:
    """Return the components of a workspace path. Raises FilesystemError that says how to correct it."""
    if not isinstance(path, str) or not path:
        raise FilesystemError("A path is needed, such as 'reports/summary.md'.")
    if len(path) > MAX_PATH_CHARACTERS:
        raise FilesystemError(f"A path may have at most {MAX_PATH_CHARACTERS} characters.")
    if any(unicodedata.category(character) in _FORBIDDEN_CATEGORIES for character in path):
        raise FilesystemError(f"The path {path!r} contains control or invisible characters. Remove them.")
    if path.startswith("/"):
        raise FilesystemError(f"The path {path!r} is absolute. Write it relative to the workspace.")
    if "\\" in path:
        raise FilesystemError(f"The path {path!r} contains a backslash. Separate folders with '/'.")
    parts = tuple(path.split("/"))
    if len(parts) > MAX_PARTS:
        raise FilesystemError(f"The path {path!r} has more than {MAX_PARTS} folders.")
    for part in parts:
        _validate_part(part, path)
    return parts


def is_plain_name(name: str) -> bool:
    """Return whether a name found on disk can be written in a path."""
    try:
        return split_path(name) == (name,)
    except FilesystemError:
        return False


def _validate_part(part: str, path: str) -> None:
    if part == "..":
        raise FilesystemError(f"The path {path!r} leaves its folder with '..'. Write the path from the root.")
    if part in ("", "."):
        raise FilesystemError(f"The path {path!r} has an empty part. Write it without '.' and '//'.")
    if len(part.encode()) > MAX_NAME_BYTES:
        raise FilesystemError(f"The name {part[:40]!r}… is longer than {MAX_NAME_BYTES} bytes.")
    if part.partition(".")[0].rstrip().lower() in _DEVICES:
        raise FilesystemError(f"The path {path!r} names a device ({part}). Choose another name.")
    if ":" in part or part != part.strip() or part.endswith("."):
        raise FilesystemError(f"The name {part!r} has a colon, a space at an end or a final dot. Choose another name.")
    if part.startswith(TEMPORARY_PREFIX):
        raise FilesystemError(f"Names that begin with {TEMPORARY_PREFIX!r} are reserved for the workspace.")


@contextmanager
def open_root(root: Path) -> Iterator[int]:
    root.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def open_folder(root: Path, parts: PathParts, *, made: list[PathParts] | None = None) -> Iterator[int]:
    """Open a folder below the root, following no link; created folders are appended to `made`."""
    with open_root(root) as start:
        current = os.dup(start)
        try:
            for depth, part in enumerate(parts, start=1):
                current = _step_into(current, parts[:depth], part, made)
            yield current
        finally:
            os.close(current)


def open_file(folder: int, parts: PathParts) -> int:
    """Open a regular file in an open folder. Raises FilesystemError for links, devices and folders."""
    try:
        _check_is_folder(os.stat(parts[-1], dir_fd=folder, follow_symlinks=False), parts)
        descriptor = os.open(parts[-1], _OPEN_FILE_FLAGS, dir_fd=folder)
    except OSError as error:
        raise_filesystem_error(error, parts)
    try:
        _check_is_folder(os.fstat(descriptor), parts)
    except FilesystemError:
        os.close(descriptor)
        raise
    return descriptor


def raise_filesystem_error(error: OSError, parts: PathParts) -> NoReturn:
    path = "/".join(parts)
    if error.errno == errno.ENOENT:
        message = f"There is no {path!r} in the workspace. List the files to see which exist."
        raise FilesystemError(message, {"missing": True}) from None
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        message = f"{path!r} contains a link or a file where a folder is needed."
        raise FilesystemError(message) from None
    raise FilesystemError(f"{path!r} cannot be used: {os.strerror(error.errno or 0)}.") from None


def _step_into(current: int, parts: PathParts, part: str, made: list[PathParts] | None) -> int:
    """Exchange a folder's descriptor for that of a subfolder; the first is closed only on success."""
    try:
        if made is not None:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=current)
                made.append(parts)
        inner = os.open(part, _OPEN_DIRECTORY_FLAGS, dir_fd=current)
    except OSError as error:
        raise_filesystem_error(error, parts)
    os.close(current)
    return inner


def _check_is_folder(status: os.stat_result, parts: PathParts) -> None:
    path = "/".join(parts)
    if stat.S_ISLNK(status.st_mode):
        raise FilesystemError(f"{path!r} is a symbolic link, which is never followed.")
    if stat.S_ISDIR(status.st_mode):
        raise FilesystemError(f"{path!r} is a folder. Name a file in it.")
    if not stat.S_ISREG(status.st_mode):
        raise FilesystemError(f"{path!r} is not a regular file.")


MAX_FILE_BYTES = 1024 * 1024
MAX_ENTRIES = 1000
MAX_MATCHES = 200
MAX_SEARCH_BYTES = 64 * MAX_FILE_BYTES
MAX_LINE_LENGTH = 300
KEY_FILES = re.compile(
    r"(?i)(^|/)(\.env([.~_-].*)?|\.envrc|\.netrc|\.npmrc|\.pypirc|\.pgpass|(\.ssh|\.aws|\.gnupg)/.*"
    r"|id_(rsa|dsa|ecdsa|ed25519)|credentials(\.json)?|[^/]*\.(pem|key|p12|pfx|jks|keystore))$"
)
"""Paths of files that hold keys or passwords. Also valid as the pattern of a policy's condition."""
ABSENT_STATE = "absent"


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """One file or folder of a listing; `size` in bytes, 0 for folders."""

    path: str
    kind: str
    size: int


@dataclass(frozen=True, slots=True)
class FileState:
    """The content of a path at one moment: its bytes (None if absent) and their state token."""

    data: bytes | None
    token: str


@dataclass(frozen=True, slots=True)
class LineMatch:
    """One line that matches a search; lines count from 1."""

    path: str
    line: int
    text: str


# Inside the class `list` is a method, so its annotations need names of their own.
Entries = list[FolderEntry]
Matches = list[LineMatch]
Lines = list[str]


@dataclass(slots=True)
class _JournalEntry:
    """The content of a path before this call, and the state tokens that the call may have left there."""

    before: bytes | None
    wrote: frozenset[str] = frozenset()


class Filesystem:
    """Files below `root`; one instance serves one call and remembers how to undo it."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self._changes: dict[PathParts, _JournalEntry] = {}
        self._made: list[PathParts] = []

    def read_bytes(self, path: str) -> bytes:
        """Return a file's bytes. Raises FilesystemError if it is missing, too large or not regular."""
        parts = split_path(path)
        with open_folder(self.root, parts[:-1]) as folder:
            return _read(folder, parts)

    def read_text(self, path: str) -> str:
        try:
            return self.read_bytes(path).decode()
        except UnicodeDecodeError:
            raise FilesystemError(f"{path!r} is not UTF-8 text. Read it as bytes.") from None

    def look(self, path: str) -> FileState:
        """Return the content of a path, read once: bytes and token belong to the same moment."""
        parts = split_path(path)
        try:
            with open_folder(self.root, parts[:-1]) as folder:
                data = _read_if_present(folder, parts)
        except FilesystemError as error:
            if not error.details.get("missing"):
                raise
            data = None
        return FileState(data, _state_token(data))

    def exists(self, path: str) -> bool:
        return self.look(path).data is not None

    def state_token(self, path: str) -> str:
        """Return "sha256:<hex>" of a file's bytes, or "absent"."""
        return self.look(path).token

    def write_text(self, path: str, text: str, *, expect: str | None = None) -> str:
        """Write a text as UTF-8; otherwise like `write_bytes`."""
        return self.write_bytes(path, text.encode(), expect=expect)

    def write_bytes(self, path: str, data: bytes, *, expect: str | None = None) -> str:
        """Replace an entire file, creating its folders; return its state token.

        Raises FilesystemError unless the file still has the state token `expect`.
        """
        if len(data) > MAX_FILE_BYTES:
            raise FilesystemError(
                f"{path!r} would have {len(data):,} bytes; at most {MAX_FILE_BYTES:,} can be written."
            )
        return self._change(path, data, expect)

    def delete(self, path: str, *, expect: str | None = None) -> None:
        """Delete one file. Raises FilesystemError if it no longer has the state token `expect`."""
        if not self.exists(path):
            raise FilesystemError(f"There is no {path!r} in the workspace to delete.")
        self._change(path, None, expect)

    def list(self, path: str = ".", *, recursive: bool = False) -> Entries:
        """Return a folder's entries by name, without links and devices, at most MAX_ENTRIES."""
        entries: Entries = []
        for entry in self._walk(() if path in (".", "") else split_path(path), recursive=recursive):
            if len(entries) == MAX_ENTRIES:
                raise FilesystemError(f"{path!r} has more than {MAX_ENTRIES} entries. List a folder inside it.")
            entries.append(entry)
        return entries

    def search(self, text: str, path: str = ".") -> Matches:
        """Return the lines below a folder that contain the text, ignoring case; at most MAX_MATCHES.

        Files with keys are left out: a policy that protects them sees only which folder is searched, not which files.
        """
        needle = text.casefold()
        if not needle.strip():
            raise FilesystemError("The text to search for is empty.")
        entries = [entry for entry in self.list(path, recursive=True) if not holds_keys(entry.path)]
        if sum(entry.size for entry in entries if entry.size <= MAX_FILE_BYTES) > MAX_SEARCH_BYTES:
            raise FilesystemError(f"{path!r} is too large to search at once. Search a folder inside it.")
        matches: Matches = []
        for entry in entries:
            lines: Lines = []
            if entry.kind == "file" and entry.size <= MAX_FILE_BYTES:
                with suppress(FilesystemError):  # not text, or gone since it was listed
                    lines = self.read_text(entry.path).splitlines()
            for number, line in enumerate(lines, start=1):
                if needle in line.casefold():
                    matches.append(LineMatch(entry.path, number, line[:MAX_LINE_LENGTH]))
                if len(matches) == MAX_MATCHES:
                    return matches
        return matches

    def restore(self, may_undo: Callable[[], bool] = lambda: True) -> bool:
        """Undo this call's changes to files that have not changed since; return whether every change was undone.

        `may_undo` is called for each file while its folder is locked, so that no other writer can act before the undo.
        """
        undone = [self._undo(parts, change, may_undo) for parts, change in reversed(self._changes.items())]
        for parts in reversed(self._made):
            with suppress(OSError, FilesystemError), open_folder(self.root, parts[:-1]) as folder, _folder_lock(folder):
                if may_undo():
                    os.rmdir(parts[-1], dir_fd=folder)  # fails unless the folder is empty
        self._changes.clear()
        self._made.clear()
        return all(undone)

    @property
    def changed(self) -> bool:
        return bool(self._changes or self._made)

    def _change(self, path: str, data: bytes | None, expect: str | None) -> str:
        parts = split_path(path)
        made = None if data is None else self._made
        with open_folder(self.root, parts[:-1], made=made) as folder, _folder_lock(folder):
            before = _read_if_present(folder, parts)
            if expect is not None and _state_token(before) != expect:
                raise FilesystemError(f"{path!r} has changed since the call was approved. Review it again.")
            change, found = self._changes.get(parts), _state_token(before)
            if change is None or found not in change.wrote:  # others wrote there since this call did
                change = self._changes[parts] = _JournalEntry(before)
            else:
                change.wrote = frozenset({found})
            token = _state_token(data)
            change.wrote |= {token}  # recorded first: a step that fails may still have taken effect
            _write_or_remove(folder, parts, data)
            change.wrote = frozenset({token})
        return token

    def _undo(self, parts: PathParts, entry: _JournalEntry, may_undo: Callable[[], bool]) -> bool:
        with suppress(FilesystemError, OSError), open_folder(self.root, parts[:-1]) as folder, _folder_lock(folder):
            if not may_undo():
                return False
            token = _state_token(_read_if_present(folder, parts))
            if token in entry.wrote and token != _state_token(entry.before):
                _write_or_remove(folder, parts, entry.before)
            return token in entry.wrote or token == _state_token(entry.before)
        return False

    def _walk(self, parts: PathParts, *, recursive: bool) -> Iterator[FolderEntry]:
        with open_folder(self.root, parts) as folder:
            names = sorted(filter(is_plain_name, os.listdir(folder)))  # noqa: PTH208 - pathlib does not support descriptors
            found = [(name, status) for name in names if (status := _stat(folder, name)) is not None]
        for name, status in found:
            inner = (*parts, name)
            if stat.S_ISREG(status.st_mode):
                yield FolderEntry("/".join(inner), "file", status.st_size)
            elif stat.S_ISDIR(status.st_mode):
                yield FolderEntry("/".join(inner), "folder", 0)
                if recursive:
                    yield from self._walk(inner, recursive=True)


def holds_keys(path: str) -> bool:
    """Return whether a file's name suggests that the file contains keys or passwords."""
    return KEY_FILES.search(path) is not None


def _read(folder: int, parts: PathParts) -> bytes:
    with os.fdopen(open_file(folder, parts), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        path = "/".join(parts)
        raise FilesystemError(f"{path!r} has {size:,} bytes; the limit is {MAX_FILE_BYTES:,}.")
    return data


def _read_if_present(folder: int, parts: PathParts) -> bytes | None:
    return None if _stat(folder, parts[-1]) is None else _read(folder, parts)


def _stat(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _state_token(data: bytes | None) -> str:
    return ABSENT_STATE if data is None else f"sha256:{hashlib.sha256(data).hexdigest()}"


def _write_or_remove(folder: int, parts: PathParts, data: bytes | None) -> None:
    """Write these bytes under a name, or remove it, in one atomic and durable step."""
    try:
        if data is None:
            os.unlink(parts[-1], dir_fd=folder)
        else:
            name = parts[-1]
            held = _stat(folder, name)
            mode = stat.S_IMODE(held.st_mode) if held else 0o644
            temporary = f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                with os.fdopen(os.open(temporary, flags, mode, dir_fd=folder), "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise
        os.fsync(folder)
    except OSError as error:
        raise_filesystem_error(error, parts)


@contextmanager
def _folder_lock(folder: int) -> Iterator[None]:
    """Hold the folder's lock, against other threads and other processes."""
    fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)
