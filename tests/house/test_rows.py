"""The document that says which tests show which row of the product: every row is in it, every test is there."""

import re
from pathlib import Path

from tests.house.source import ROOT, write

ROWS = {"A": 9, "B": 12, "C": 8, "D": 5, "E": 5, "F": 20, "G": 7, "H": 6}
LINE = re.compile(r"^\| ([A-H]\d+) \| .+ \| (.+) \|$", re.MULTILINE)


def shown(root: Path) -> dict[str, list[str]]:
    """Return the test files of each row; none for one that is not built."""
    text = (root / "docs/rows.md").read_text(encoding="utf-8")
    return {row: re.findall(r"`([^`]+)`", tests) for row, tests in LINE.findall(text)}


def gone(root: Path) -> list[str]:
    """Return the files that the document names and nobody has."""
    return sorted({path for paths in shown(root).values() for path in paths if not (root / path).is_file()})


def test_every_row_is_in_the_document() -> None:
    """Each once and in order, also those that are not built."""
    assert list(shown(ROOT)) == [f"{letter}{number + 1}" for letter, count in ROWS.items() for number in range(count)]


def test_every_test_that_is_named_exists() -> None:
    """A test that moved takes its name along."""
    assert gone(ROOT) == []


def test_a_missing_test_is_found(tmp_path: Path) -> None:
    """The check can fail."""
    write(tmp_path, "docs/rows.md", "| A1 | words | `tests/none.py` |\n| A2 | words | none yet |\n")
    assert gone(tmp_path) == ["tests/none.py"]
    assert shown(tmp_path) == {"A1": ["tests/none.py"], "A2": []}
