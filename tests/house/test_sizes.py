"""Nothing grows past what one can read at a glance. A file that would is split by noun."""

from pathlib import Path

import pytest

from tests.house.source import ROOT, functions, modules, parse, templates, where, write

FILE_LINES = 400
FUNCTION_LINES = 40
VIEW_LINES = 15
TEST_LINES = 25
TEMPLATE_LINES = 80


def line_count(path: Path) -> int:
    """Return how many lines a file has."""
    return len(path.read_text(encoding="utf-8").splitlines())


def limit_for(path: Path, name: str) -> int:
    """Return how long the function of this name may be in this file."""
    if name.startswith("test_"):
        return TEST_LINES
    return VIEW_LINES if path.stem == "views" or path.parent.name == "views" else FUNCTION_LINES


def too_long(root: Path) -> list[str]:
    """Return every file, template, function, view and test over its limit."""
    found = [where(root, path) for path in modules(root) if line_count(path) > FILE_LINES]
    found += [where(root, path) for path in templates(root) if line_count(path) > TEMPLATE_LINES]
    for path in modules(root):
        for function in functions(parse(path)):
            length = (function.end_lineno or function.lineno) - function.lineno + 1
            if length > limit_for(path, function.name):
                found.append(f"{where(root, path, function.lineno)} {function.name}: {length} lines")
    return found


def test_everything_is_short() -> None:
    """The sizes hold."""
    assert too_long(ROOT) == []


def body(name: str, lines: int) -> str:
    """Return a function of so many lines."""
    return f"def {name}():\n" + "    x = 1\n" * (lines - 1)


@pytest.mark.parametrize(
    ("path", "limit", "name"),
    [
        ("plans/engine.py", FUNCTION_LINES, "advance"),
        ("plans/views.py", VIEW_LINES, "page"),
        ("plans/views/pages.py", VIEW_LINES, "page"),
        ("tests/test_it.py", TEST_LINES, "test_it"),
        ("tests/builders.py", FUNCTION_LINES, "build"),
    ],
)
def test_a_function_may_reach_its_limit_and_no_more(tmp_path: Path, path: str, limit: int, name: str) -> None:
    """The rule can fail, one line past the limit."""
    write(tmp_path, path, body(name, limit))
    assert too_long(tmp_path) == []
    write(tmp_path, path, body(name, limit + 1))
    assert len(too_long(tmp_path)) == 1


@pytest.mark.parametrize(("path", "limit"), [("catalog/a.py", FILE_LINES), ("templates/a.html", TEMPLATE_LINES)])
def test_a_file_may_reach_its_limit_and_no_more(tmp_path: Path, path: str, limit: int) -> None:
    """The rule can fail for files, and leaves migrations alone."""
    write(tmp_path, path, "#\n" * limit)
    write(tmp_path, "catalog/migrations/0001_initial.py", "#\n" * 2 * limit)
    assert too_long(tmp_path) == []
    write(tmp_path, path, "#\n" * (limit + 1))
    assert too_long(tmp_path) == [f"{path}:1"]
