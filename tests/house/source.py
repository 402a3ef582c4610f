"""The repository as the house rules see it: its files by kind, and their syntax trees.

Every function takes the root, so that a rule can be tried on a small tree that breaks it.
"""

import ast
import os
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("approvals", "catalog", "config", "plans")
SHIPPED = (*PRODUCT, "toolgate", "toolgate_client")
"""The product's layers, the folders and the command of its installation, and the client, which has its own wheel."""
SETTING = re.compile(r"[A-Z][A-Z0-9_]+")
NOT_OURS = {".git", ".venv", "var", "workspace", "staticfiles", "__pycache__", "build"}
NOT_OURS |= {".mypy_cache", ".ruff_cache", ".import_linter_cache", ".pytest_cache", ".hypothesis"}


def files(root: Path, pattern: str = "*") -> Iterator[Path]:
    """Yield the files under `root` that belong to the repository, in order, folder by folder."""
    for folder, folders, names in os.walk(root):  # what vanishes meanwhile, as tests' folders do, is passed over
        folders[:] = sorted(each for each in folders if each not in NOT_OURS and not each.endswith(".egg-info"))
        found = (Path(folder, name) for name in names if name not in NOT_OURS and fnmatch(name, pattern))
        yield from sorted(path for path in found if path.is_file())


def modules(root: Path, *folders: str) -> Iterator[Path]:
    """Yield the Python files of the named top folders, or of all; migrations are Django's."""
    for path in files(root, "*.py"):
        parts = path.relative_to(root).parts
        if "migrations" not in parts and (not folders or parts[0] in folders):
            yield path


def templates(root: Path) -> Iterator[Path]:
    """Yield every template."""
    yield from files(root / "templates", "*.html")


def parse(path: Path) -> ast.Module:
    """Return the syntax tree of one module."""
    return parse_text(path.read_text(encoding="utf-8"))


@cache
def parse_text(text: str) -> ast.Module:
    """Return the syntax tree of a module's text: most rules look at every module, and each is parsed once."""
    return ast.parse(text)


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function and method."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of every string; what an f-string fills in stands as `{}`."""
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value


def settings_read(root: Path) -> set[str]:
    """Return the names that the settings file reads from the environment: `env.str("NAME")` and its like."""

    def names() -> Iterator[str]:
        for node in ast.walk(parse(root / "config/settings.py")):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("env.") and node.args:
                name = node.args[0]
                if isinstance(name, ast.Constant) and SETTING.fullmatch(str(name.value)):
                    yield str(name.value)

    return set(names())


def where(root: Path, path: Path, line: int = 1) -> str:
    """Return a location as path and line."""
    return f"{path.relative_to(root)}:{line}"


def write(root: Path, path: str, text: str) -> None:
    """Put one file into a sample tree."""
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
