"""Workspace: paths stay inside, writes are atomic and undoable, changed files are not overwritten."""

import errno
import fcntl
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.core import workspace_files
from catalog.core.workspace_files import MAX_FILE_BYTES, Filesystem, open_folder, split_path
from catalog.errors import FilesystemError
from tests import counts
from tests.corpus import faults

HOSTILE = [
    "",
    ".",
    "..",
    "../x",
    "a/../../x",
    "a/..",
    "/etc/passwd",
    "//etc/passwd",
    "a//b",
    "./a",
    "a/",
    "a\x00b",
    "a\nb",
    "a\x1b[2J",
    "a\x7f",
    "a\u202egnp.exe",
    "a\u200bb",
    "\ud800",
    "..\\x",
    "C:\\x",
    "C:x",
    "file.txt:stream",
    "CON",
    "con.txt",
    "a/NUL",
    "lpt1.log",
    "COM¹",
    "name.",
    "name ",
    " name",
    "x" * 256,
    "a/" * 40 + "b",
    "x" * 2000,
    ".toolgate-tmp-x",
    None,
    7,
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text("outside")
    inside = tmp_path / "workspace"
    inside.mkdir()
    return inside


@pytest.fixture
def workspace(root: Path) -> Filesystem:
    return Filesystem(root)


def test_a_path_that_is_not_plain_is_refused_everywhere(workspace):
    def check(path):
        for action in (workspace.read_bytes, workspace.exists, workspace.delete, workspace.state_token):
            with pytest.raises(FilesystemError):
                action(path)
        with pytest.raises(FilesystemError):
            workspace.write_text(path, "x")

        assert list(workspace.root.iterdir()) == []

    assert faults(check, HOSTILE) == {}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=counts.count(500, 10))
@given(st.lists(st.sampled_from(["..", ".", "", "a", "/", "\\", "secret.txt", "b.md"]), max_size=6))
def test_no_mix_of_parts_reads_or_writes_outside(workspace, parts):
    path = "/".join(parts)
    try:
        workspace.write_text(path, "inside")
    except FilesystemError:
        pass
    else:
        assert (workspace.root / path).read_text() == "inside"

    assert (workspace.root.parent / "secret.txt").read_text() == "outside"


def test_plain_paths_are_split():
    assert split_path("reports/2022/aapl-msft é.md") == ("reports", "2022", "aapl-msft é.md")


@pytest.mark.parametrize("path", ["link.txt", "folder/secret.txt", "folder/new.txt"])
def test_links_are_never_followed(workspace, root, path):
    (root / "link.txt").symlink_to(root.parent / "secret.txt")
    (root / "folder").symlink_to(root.parent, target_is_directory=True)

    with pytest.raises(FilesystemError, match="link"):
        workspace.read_text(path)
    with pytest.raises(FilesystemError, match="link"):
        workspace.write_text(path, "overwritten")

    assert (root.parent / "secret.txt").read_text() == "outside"
    assert not (root.parent / "new.txt").exists()


def test_a_link_swapped_in_between_two_looks_reaches_nothing_outside(workspace, root):
    victims = root.parent / "victims"
    victims.mkdir()
    (victims / "note.md").write_text("outside")
    stop = threading.Event()
    swaps: list[int] = []
    swapper = threading.Thread(target=_swap, args=(root / "folder", victims, stop, swaps))
    swapper.start()

    seen: set[str] = set()
    try:
        for each in _attempts(workspace, until=lambda: len(swaps) >= (100 if "refused" in seen else 100_000)):
            seen.add(each)
    finally:
        stop.set()
        swapper.join()

    assert "refused" in seen and seen <= {"inside", "refused"}
    assert [path.name for path in victims.iterdir()] == ["note.md"]
    assert (victims / "note.md").read_text() == "outside"


def _swap(folder: Path, victims: Path, stop: threading.Event, swaps: list[int]) -> None:
    """Put a link to outside in the folder's place and take it away again; the writer may make the folder meanwhile."""
    for number in count():
        if stop.is_set():
            return
        with suppress(OSError):
            folder.rename(folder.with_name(f"aside{number}"))
        with suppress(OSError):
            folder.symlink_to(victims, target_is_directory=True)
            swaps.append(1)
        with suppress(OSError):
            folder.unlink()


def _attempts(workspace: Filesystem, until: Callable[[], bool]) -> Iterator[str]:
    while not until():
        try:
            workspace.write_text("folder/note.md", "inside")
            yield workspace.read_text("folder/note.md")
        except FilesystemError:
            yield "refused"


def test_a_folder_exchanged_after_it_was_opened_is_not_the_one_written_to(root):
    (root / "folder").mkdir()
    with open_folder(root, ("folder",)) as folder:
        (root / "folder").rename(root / "aside")
        (root / "folder").symlink_to(root.parent, target_is_directory=True)
        workspace_files._write_or_remove(folder, ("folder", "x"), b"data")

    assert (root / "aside" / "x").read_bytes() == b"data"
    assert not (root.parent / "x").exists()


def test_devices_pipes_and_folders_are_not_files(workspace, root):
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()

    with pytest.raises(FilesystemError, match="regular"):
        workspace.read_text("pipe")
    with pytest.raises(FilesystemError, match="folder"):
        workspace.write_text("folder", "x")


def test_files_over_the_cap_are_refused_with_their_size(workspace, root):
    (root / "big").write_bytes(b"x" * (MAX_FILE_BYTES + 1))

    for action in (workspace.read_bytes, workspace.delete, lambda path: workspace.write_text(path, "x")):
        with pytest.raises(FilesystemError, match="1,048,577"):
            action("big")
    with pytest.raises(FilesystemError, match="1,048,577"):
        workspace.write_bytes("other", b"x" * (MAX_FILE_BYTES + 1))


def test_text_that_is_not_utf8_is_refused_as_text_only(workspace, root):
    (root / "raw").write_bytes(b"\xff")

    assert workspace.read_bytes("raw") == b"\xff"
    with pytest.raises(FilesystemError, match="UTF-8"):
        workspace.read_text("raw")


def test_a_write_makes_folders_and_returns_the_state(workspace, root):
    token = workspace.write_text("a/b/c.md", "é")

    assert (root / "a/b/c.md").read_text() == "é"
    assert token == workspace.state_token("a/b/c.md") and token.startswith("sha256:")
    assert workspace.state_token("a/b/other") == workspace.state_token("no/such/folder") == "absent"


def test_a_write_keeps_the_mode_and_leaves_no_temporary_file(workspace, root):
    (root / "run.sh").write_text("old")
    (root / "run.sh").chmod(0o750)

    workspace.write_text("run.sh", "new")

    assert (root / "run.sh").stat().st_mode & 0o777 == 0o750
    assert [path.name for path in root.iterdir()] == ["run.sh"]


def test_a_write_that_fails_leaves_the_old_file_and_no_temporary_one(workspace, root, monkeypatch):
    (root / "note").write_text("old")

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(FilesystemError):
        workspace.write_text("note", "new")

    assert (root / "note").read_text() == "old"
    assert [path.name for path in root.iterdir()] == ["note"]


def test_a_file_that_changed_since_it_was_seen_is_not_touched(workspace, root):
    (root / "note").write_text("seen")
    token = workspace.state_token("note")
    (root / "note").write_text("changed")

    with pytest.raises(FilesystemError):
        workspace.write_text("note", "mine", expect=token)
    with pytest.raises(FilesystemError):
        workspace.delete("note", expect=token)
    with pytest.raises(FilesystemError):
        workspace.write_text("note", "mine", expect="absent")

    assert (root / "note").read_text() == "changed"


def test_of_two_writers_who_saw_the_same_file_one_wins(root):
    (root / "note").write_text("seen")
    token = Filesystem(root).state_token("note")
    results: list[str] = []

    def write(name: str) -> None:
        try:
            Filesystem(root).write_text("note", name, expect=token)
            results.append(name)
        except FilesystemError:
            pass

    writers = [threading.Thread(target=write, args=(str(number),)) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert results == [(root / "note").read_text()]


def test_restore_puts_back_what_this_call_changed(workspace, root):
    (root / "kept").write_text("old")
    (root / "gone").write_text("was here")
    workspace.write_text("kept", "new")
    workspace.write_text("kept", "newer")
    workspace.delete("gone")
    workspace.write_text("made/inside/new", "x")

    assert workspace.changed and workspace.restore() and not workspace.changed

    assert (root / "kept").read_text() == "old"
    assert (root / "gone").read_text() == "was here"
    assert not (root / "made").exists()


def test_restore_asks_under_the_lock_whether_it_may(workspace, root):
    def may(answer: bool) -> bool:
        with pytest.raises(BlockingIOError), open_folder(root, ()) as folder:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return answer

    workspace.write_text("x", "mine")
    assert not workspace.restore(lambda: may(False)) and (root / "x").read_text() == "mine"
    workspace.write_text("x", "mine again")
    assert workspace.restore(lambda: may(True)) and (root / "x").read_text() == "mine"


def test_restore_leaves_alone_what_someone_else_wrote_since(workspace, root):
    workspace.write_text("made/note", "mine")
    (root / "made" / "note").write_text("theirs")

    assert not workspace.restore()
    assert (root / "made" / "note").read_text() == "theirs"


def fail_once_at(monkeypatch, name: str) -> None:
    """Make the next call of `os.<name>` on a folder fail (replace: any; fsync: only after the file's own)."""
    real = getattr(os, name)
    failed: list[bool] = []

    def fail(*arguments, **options):
        is_file = name == "fsync" and stat.S_ISREG(os.fstat(arguments[0]).st_mode)
        if failed or is_file:
            return real(*arguments, **options)
        failed.append(True)
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(os, name, fail)


@pytest.mark.parametrize("step", ["replace", "fsync"])
@pytest.mark.parametrize("earlier", [None, "mine"])
def test_a_write_that_fails_halfway_is_undone(workspace, root, monkeypatch, step, earlier):
    (root / "note").write_text("old")
    if earlier:
        workspace.write_text("note", earlier)
    with monkeypatch.context() as patch:
        fail_once_at(patch, step)
        with pytest.raises(FilesystemError):
            workspace.write_text("note", "new")

    assert workspace.restore()
    assert (root / "note").read_text() == "old"


@pytest.mark.parametrize("step", ["replace", "fsync"])
def test_what_others_wrote_after_a_write_that_failed_is_theirs(workspace, root, monkeypatch, step):
    with monkeypatch.context() as patch:
        fail_once_at(patch, step)
        with pytest.raises(FilesystemError):
            workspace.write_text("note", "new")
    (root / "note").write_text("theirs")

    assert not workspace.restore()
    assert (root / "note").read_text() == "theirs"


def test_what_others_wrote_between_two_writes_comes_back(workspace, root):
    (root / "note").write_text("old")
    workspace.write_text("note", "mine")
    (root / "note").write_text("theirs")
    workspace.write_text("note", "mine again")

    assert workspace.restore()
    assert (root / "note").read_text() == "theirs"


def test_a_listing_shows_files_and_folders_but_no_links_or_odd_names(workspace, root):
    (root / "b").mkdir()
    (root / "b" / "c.txt").write_text("123")
    (root / "a.txt").write_text("1")
    (root / "link").symlink_to(root.parent)
    (root / "odd\nname").write_text("x")
    (root / os.fsdecode(b"\xff")).write_text("x")

    assert [(entry.path, entry.kind, entry.size) for entry in workspace.list(recursive=True)] == [
        ("a.txt", "file", 1),
        ("b", "folder", 0),
        ("b/c.txt", "file", 3),
    ]
    assert [entry.path for entry in workspace.list("b")] == ["b/c.txt"]


def test_a_folder_with_too_many_entries_says_so(workspace, root, monkeypatch):
    monkeypatch.setattr(workspace_files, "MAX_ENTRIES", 2)
    for name in "abc":
        (root / name).touch()

    with pytest.raises(FilesystemError, match="more than 2"):
        workspace.list()


def test_search_finds_lines_in_text_files_only(workspace, root):
    (root / "a.md").write_text("one\nTwo words\n")
    (root / "raw").write_bytes(b"\xfftwo")

    assert [(match.path, match.line, match.text) for match in workspace.search("two")] == [("a.md", 2, "Two words")]
    with pytest.raises(FilesystemError, match="empty"):
        workspace.search("  ")


def test_search_leaves_out_files_with_keys(workspace, root):
    for name in (".env", ".env.local", "app/.ENV", "server.pem", ".ssh/config", "keys.md", "environment.md"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("password=x")

    assert [match.path for match in workspace.search("=")] == ["environment.md", "keys.md"]
    assert {".env", "server.pem"} <= {entry.path for entry in workspace.list()}


def test_a_search_through_too_much_says_so(workspace, root, monkeypatch):
    monkeypatch.setattr(workspace_files, "MAX_SEARCH_BYTES", 2)
    (root / "a.md").write_text("abc")

    with pytest.raises(FilesystemError):
        workspace.search("b")
