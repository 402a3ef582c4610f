"""One module asks what time it is: whatever is compared with other processes' moments is the database's time.

Tests too: by their own clock, what they set to be due now may be due a moment later by the product's.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.source import PRODUCT, ROOT, SHIPPED, modules, parse, where, write

ASKS = {"catalog/core/clock.py", "tests/catalog/core/test_clock.py", "tests/conftest.py", "tests/builders.py"}
OWN_CLOCKS = {"timezone.now", "datetime.now", "datetime.utcnow", "datetime.datetime.now", "time.time", "date.today"}


def own_clocks(root: Path) -> Iterator[str]:
    """Yield where a process's own clock is read."""
    for path in modules(root, *SHIPPED, "tests"):
        if path.relative_to(root).as_posix() not in ASKS:
            for node in ast.walk(parse(path)):
                if isinstance(node, ast.Attribute) and ast.unparse(node) in OWN_CLOCKS:
                    yield where(root, path, node.lineno)


def test_nobody_else_reads_a_clock() -> None:
    """Use `catalog.core.clock.now()`."""
    assert list(own_clocks(ROOT)) == []


@pytest.mark.parametrize("code", ["timezone.now()", "datetime.now(UTC)", "time.time()", "default(timezone.now)"])
def test_a_clock_is_found(tmp_path: Path, code: str) -> None:
    write(tmp_path, "plans/a.py", code)
    write(tmp_path, "catalog/core/clock.py", code)
    assert list(own_clocks(tmp_path)) == ["plans/a.py:1"]


def settings_of_the_clock(root: Path) -> Iterator[str]:
    """Yield where the product sets its clock, outside of the demo."""
    for path in modules(root, *PRODUCT):
        if not path.relative_to(root).as_posix().startswith("plans/demo/"):
            for node in ast.walk(parse(path)):
                if isinstance(node, ast.Attribute) and ast.unparse(node) in ("clock.at", "clock.settable"):
                    yield where(root, path, node.lineno)


def test_only_the_demo_sets_the_clock(tmp_path: Path) -> None:
    assert list(settings_of_the_clock(ROOT)) == []
    for name in ("plans/a.py", "plans/demo/a.py"):
        write(tmp_path, name, "with clock.settable(), clock.at(moment): pass")
    assert list(settings_of_the_clock(tmp_path)) == ["plans/a.py:1"] * 2
