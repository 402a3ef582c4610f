"""Repository hygiene: no local paths, no registry addresses, no unfinished work."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.house.source import ROOT, files, where, write

TEXT = {".py", ".html", ".css", ".js", ".md", ".toml", ".lock", ".json", ".yml", ".yaml", ".sh", ".txt", ""}
LOCKS = ("requirements.lock", "requirements-dev.lock")
LEFT_OVER = re.compile(r"/(?:work|root)/|/home/\w|\bTODO\b|\bFIXME\b|\bNotImplementedError\b|\b[Ii]ssue #?\d")
SPELLS_THEM_OUT = "tests/house/test_repository.py"
PINNED = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)


def left_over(root: Path) -> list[str]:
    """Return every line that names a path of one machine, or work put off."""
    found = []
    for path in files(root):
        if path.suffix not in TEXT or path.name == ".env" or path == root / SPELLS_THEM_OUT:
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        found += [where(root, path, number) for number, line in enumerate(lines, 1) if LEFT_OVER.search(line)]
    return found


def addresses_in_locks(root: Path) -> list[str]:
    """Return the lines of the locks that name where packages came from: hashes are enough."""
    found = []
    for name in LOCKS:
        lines = (root / name).read_text(encoding="utf-8").splitlines()
        found += [f"{name}:{n}" for n, line in enumerate(lines, 1) if "://" in line or line.startswith("-")]
    return found + [where(root, path) for path in files(root, "uv.lock")]


def bare(requirement: str) -> str:
    """Return the name alone of a requirement such as `channels[daphne]>=4`."""
    return re.split(r"[^a-z0-9-]", requirement)[0]


RULES = [left_over, addresses_in_locks]


@pytest.mark.parametrize("rule", RULES)
def test_the_repository_keeps(rule) -> None:
    assert rule(ROOT) == []


def test_locks_agree_and_pin_every_dependency() -> None:
    runtime, development = (dict(PINNED.findall((ROOT / name).read_text(encoding="utf-8"))) for name in LOCKS)
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert runtime.items() <= development.items()
    assert set(map(bare, declared["project"]["dependencies"])) <= runtime.keys()
    assert set(map(bare, declared["dependency-groups"]["dev"])) <= development.keys()


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (left_over, "docs/a.md", "see /" + "work/main"),
        (left_over, "Makefile", "cp a /home/ada"),
        (left_over, "plans/a.py", "# TODO: later"),
        (left_over, "README.md", "as issue 12 says"),
        (addresses_in_locks, "requirements.lock", "--index-url https://example.org/simple"),
        (addresses_in_locks, "requirements-dev.lock", "a @ https://example.org/a.whl"),
        (addresses_in_locks, "uv.lock", ""),
    ],
)
def test_a_breach_is_found(tmp_path: Path, rule, path: str, text: str) -> None:
    for name in LOCKS:
        write(tmp_path, name, "")
    assert rule(tmp_path) == []
    write(tmp_path, path, text)
    assert len(rule(tmp_path)) == 1
