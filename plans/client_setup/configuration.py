"""Changes of a client's configuration files: shown first, written together or not at all, and taken back.

A file that is changed keeps a copy beside it, `NAME.before-toolgate`, as it was before Toolgate's first entry. A text
that holds entries of Toolgate is never kept: the undo would put them back.
"""

import difflib
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COPY_SUFFIX = ".before-toolgate"
PRIVATE = 0o600
MAX_BYTES = 64 * 1024 * 1024
TOKEN = re.compile(r"\btg_[\w-]+")
Json = dict[str, Any]


class NotChanged(Exception):
    """A file cannot be changed, and so none was; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """The bytes of a file before and after; None where it does not exist.

    `mode` is set on the file, which else keeps its own. The text of a `secret` file is not shown, nor that of one which
    `is_own`: Toolgate's alone. With `keeps_copy`, the first change keeps `before`; with `drops_copy`, the copy goes.
    """

    path: Path
    before: bytes | None
    after: bytes | None
    mode: int | None = None
    secret: bool = False
    is_own: bool = False
    keeps_copy: bool = False
    drops_copy: bool = False

    @property
    def is_none(self) -> bool:
        same_mode = self.mode is None or self.before is None or stat.S_IMODE(self.path.stat().st_mode) == self.mode
        return self.before == self.after and same_mode

    @property
    def copy(self) -> Path:
        return self.path.with_name(self.path.name + COPY_SUFFIX)

    def difference(self, hide: Iterable[str] = ()) -> str:
        """Return a unified diff for people, or one line for a secret file.

        It shows no token of Toolgate, of whatever time, and none of the texts in `hide`.
        """
        verb = "Creates" if self.before is None else "Removes" if self.after is None else "Changes"
        mode = f" (mode {self.mode:o})" if self.mode is not None and self.after is not None else ""
        head = f"{verb} {self.path}{mode}\n"
        if self.secret or self.after is None or self.is_own:
            return head
        before, after = ((text or b"").decode("utf-8", "replace").splitlines() for text in (self.before, self.after))
        lines = list(difflib.unified_diff(before, after, lineterm="", n=2))[2:]
        text = head + TOKEN.sub("tg_…", "".join(f"    {line}\n" for line in lines))
        for secret in hide:
            text = text.replace(secret, "tg_…")
        return text


def real_path(path: Path) -> Path:
    """Return the file that a link leads to, so that a link of a dotfiles' folder stays one."""
    return path.resolve() if path.is_symlink() else path


def read_bytes(path: Path) -> bytes | None:
    """Return a file's content, or None if it does not exist. Raises NotChanged if it cannot be read."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotChanged(f"{path} cannot be read ({error.strerror}).") from None
    if len(content) > MAX_BYTES:
        raise NotChanged(f"{path} is larger than {MAX_BYTES // 1024 // 1024} MiB.")
    return content


def parse_settings(path: Path, content: bytes | None) -> Json:
    """Parse a JSON file of settings; an absent or empty one is `{}`. Raises NotChanged if it is not plain JSON."""
    if content is None or not content.strip():
        return {}
    try:
        value = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise NotChanged(
            f"{path} is not plain JSON ({error}). Mend it, or add the entries by hand: --print shows them."
        ) from None
    if not isinstance(value, dict):
        raise NotChanged(f"{path} must hold a JSON object. Mend it, or add the entries by hand: --print shows them.")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is repeated")
    return found


def write_settings(settings: Json, like: bytes | None) -> bytes:
    """Return settings as JSON, indented as the file was."""
    lines = (like or b"").decode("utf-8-sig", "replace").splitlines()
    indented = next((line for line in lines if line[:1] in " \t" and line.strip()), "  ")
    indent = indented[: len(indented) - len(indented.lstrip())]
    return json.dumps(settings, indent=indent, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def _edited(settings: Json, edit: Callable[[Json], None]) -> Json:
    """Return what `edit`, which changes settings in place, makes of them."""
    copy: Json = json.loads(json.dumps(settings))
    edit(copy)
    return copy


def _is_same(first: Json, second: Json) -> bool:
    """Return whether two settings are the same JSON, in whatever order their keys stand."""
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


def change_settings(
    path: Path, add: Callable[[Json], None], remove: Callable[[Json], None], *, mode: int | None = None
) -> FileChange:
    """Return the change that adds Toolgate's entries to a JSON file of settings; `remove` takes them out again.

    Both edit in place. A file that has the entries stays, byte by byte.
    """
    path = real_path(path)
    before = read_bytes(path)
    settings = parse_settings(path, before)
    added = _edited(settings, add)
    after = before if _is_same(settings, added) else write_settings(added, before)
    is_without = _is_same(settings, _edited(settings, remove))
    return FileChange(path, before, after, mode if after is not None else None, keeps_copy=is_without)


def take_back_settings(path: Path, remove: Callable[[Json], None], add: Callable[[Json], None]) -> FileChange:
    """Return the change that removes Toolgate's entries from a JSON file.

    If nothing but those entries was changed since, the file becomes the copy again, byte by byte. A file that held
    nothing else is removed.
    """
    path = real_path(path)
    before = read_bytes(path)
    settings = parse_settings(path, before)
    copy = read_bytes(path.with_name(path.name + COPY_SUFFIX))
    holds_entries = False  # as copies of earlier versions may
    if copy is not None:
        kept = parse_settings(path, copy)
        original = _edited(kept, remove)
        holds_entries = not _is_same(kept, original)
        if not holds_entries and _is_same(_edited(original, add), settings):
            return FileChange(path, before, copy)
    without = _edited(settings, remove)
    if _is_same(settings, without):
        return FileChange(path, before, before, drops_copy=holds_entries)
    after = write_settings(without, before) if without else None
    return FileChange(path, before, after, drops_copy=holds_entries)


def removed_copies(changes: Iterable[FileChange]) -> list[FileChange]:
    """Return the removals of the copies that are as their files will be, or that hold entries of Toolgate.

    Any other copy stays for its owner.
    """
    copies = [(change, read_bytes(change.copy)) for change in changes if not change.is_own]
    return [
        FileChange(change.copy, copy, None)
        for change, copy in copies
        if copy is not None and (copy == change.after or change.drops_copy)
    ]


def check_writable(changes: Sequence[FileChange]) -> None:
    """Raise NotChanged if a file cannot be written: read-only, in a read-only folder, not a file."""
    for change in changes:
        path, folder = change.path, change.path.parent
        while not folder.exists():
            folder = folder.parent
        if path.exists() and not path.is_file():
            raise NotChanged(f"{path} is not a file.")
        if path.exists() and not os.access(path, os.W_OK):
            raise NotChanged(f"{path} is read-only: another program or person manages it. Nothing was changed.")
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise NotChanged(f"{folder} is not a folder that you may write to. Nothing was changed.")


def apply_changes(changes: Sequence[FileChange]) -> None:
    """Write all files, each at once, or none. Raises NotChanged if a file changed meanwhile or cannot be written."""
    changes = [change for change in changes if not change.is_none]
    check_writable(changes)
    for change in changes:
        if read_bytes(change.path) != change.before:
            raise NotChanged(f"{change.path} was changed meanwhile. Nothing was changed; run the command again.")
    done: list[FileChange] = []
    try:
        for change in changes:
            done.append(change)
            _keep_copy(change)
            _write(change.path, change.after, change.mode)
    except OSError as error:
        for change in reversed(done):
            _write(change.path, change.before, None)
        raise NotChanged(f"{error.filename or change.path}: {error.strerror}. Nothing was changed.") from None


def _keep_copy(change: FileChange) -> None:
    if change.keeps_copy and change.before is not None and change.after is not None and not change.copy.exists():
        _write(change.copy, change.before, stat.S_IMODE(change.path.stat().st_mode))


def _write(path: Path, content: bytes | None, mode: int | None) -> None:
    """Replace a file in one step; it is never seen half written, nor with a wider mode."""
    if content is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if mode is None:
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
