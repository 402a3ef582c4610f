"""Logged exceptions: type and location only, because the message may contain arguments."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.source import ROOT, SHIPPED, modules, parse, where, write


def spoken_exceptions(root: Path) -> Iterator[str]:
    """Yield where a logger is handed an exception with its message: `.exception(…)`, or `exc_info`."""
    for path in modules(root, *SHIPPED):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Call) and _speaks(node):
                yield where(root, path, node.lineno)


def _speaks(call: ast.Call) -> bool:
    names_it = isinstance(call.func, ast.Attribute) and call.func.attr == "exception"
    return (names_it and not call.keywords and bool(call.args)) or any(each.arg == "exc_info" for each in call.keywords)


def test_no_exception_is_logged_with_its_message() -> None:
    """Use `catalog.core.transactions.log_unexpected`."""
    assert list(spoken_exceptions(ROOT)) == []


def test_such_a_line_is_found(tmp_path: Path) -> None:
    write(tmp_path, "plans/a.py", "log.exception('broke')\nlog.error('broke', exc_info=True)\nlog.error('broke')\n")
    assert list(spoken_exceptions(tmp_path)) == ["plans/a.py:1", "plans/a.py:2"]
