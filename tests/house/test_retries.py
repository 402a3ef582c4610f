"""Transactions of plans are retried after a deadlock, so that no person sees one."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.source import ROOT, functions, modules, parse, where, write

OPENING = {"plan_transaction", "new_plan_transaction"}
AGAIN = {"retry_on_deadlock", "retry_on_lock"}
ELSEWHERE = {
    "_take_back": "by do_each",
    "_end_overdue": "by do_each",
    "_apply_command": "by who finishes the call that sent a command to its session",
    "_set_up_list": "by who finishes the call that sent a command to its session",
    "record_fact_event": "by who opened the transaction in which the fact was told",
}


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of the functions inside it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef):
            yield node
            yield from own_nodes(node)


def opens(function: ast.AST) -> bool:
    """Return whether a function's body opens a plan transaction."""
    items = [item.context_expr for node in own_nodes(function) if isinstance(node, ast.With) for item in node.items]
    return any(isinstance(item, ast.Call) and getattr(item.func, "id", "") in OPENING for item in items)


def lost(root: Path) -> Iterator[str]:
    """Yield every function that opens a plan transaction and whose transaction is not done again."""
    for path in modules(root, "plans", "approvals"):
        for function in functions(parse(path)):
            decorators = {getattr(each, "id", "") for each in function.decorator_list}
            if opens(function) and not decorators & AGAIN and function.name not in ELSEWHERE:
                yield where(root, path, function.lineno)


def test_every_plan_transaction_is_retried():
    assert list(lost(ROOT)) == []


def test_breach_is_found(tmp_path):
    write(tmp_path, "plans/x.py", "def act():\n    with plan_transaction(1, 'x') as batch:\n        pass\n")
    assert len(list(lost(tmp_path))) == 1
