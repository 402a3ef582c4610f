"""ARCHITECTURE.md lists all packages, no folder is overfull, and tests are where the commands look for them."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.house.source import PRODUCT, ROOT, SHIPPED, modules, parse, where, write

MOST_MODULES = 25
TIERS = {"db", "service", "slow", "layout"}
DJANGO_PACKAGES = {"migrations", "management", "templatetags"}


def packages_of(root: Path, app: str) -> set[str]:
    """Return the packages directly inside an app, without those that Django names."""
    return {path.parent.name for path in (root / app).glob("*/__init__.py")} - DJANGO_PACKAGES


def packages_on_map(text: str, app: str) -> set[str]:
    """Return the packages that the app's table in ARCHITECTURE.md lists in its first column."""
    table = re.search(rf"^\| `{app}/` \|.*\n\| --- \| --- \|\n((?:\|.*\n)+)", text, re.MULTILINE)
    cells = [row.split("|")[1] for row in table[1].splitlines()] if table else []
    return set(re.findall(r"`(\w+)/`", " ".join(cells))) - DJANGO_PACKAGES


def heaps(root: Path) -> list[str]:
    """Return the folders of the product that hold too many modules beside each other."""
    counts = Counter(path.parent.relative_to(root) for path in modules(root, *SHIPPED) if path.name != "__init__.py")
    return [f"{folder} holds {count} modules" for folder, count in counts.items() if count > MOST_MODULES]


def imports_of_tests(root: Path) -> list[str]:
    """Return every import of a test module: what several tests need belongs into a factories module or a conftest."""
    found = []
    for path in modules(root, "tests"):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [*node.module.split("."), *(alias.name for alias in node.names)]
                is_test_module = any(name.startswith("test_") for name in node.module.split("."))
                if is_test_module or (node.module.startswith("tests") and names[-1].startswith("test_")):
                    found.append(f"{where(root, path, node.lineno)} imports {node.module}")
    return found


def markers_elsewhere(root: Path) -> list[str]:
    """Return the modules with markers of tiers where the commands, which look for test files, do not find them."""
    found = []
    for path in modules(root, "tests"):
        words = set(re.findall(r"\bmark\.(\w+)", path.read_text(encoding="utf-8")))
        is_outside = "layout" in words and path.parent != root / "tests" / "browser"
        if is_outside or (words & TIERS and not path.name.startswith("test_")):
            found.append(where(root, path))
    return found


@pytest.mark.parametrize("app", PRODUCT)
def test_the_map_lists_every_package(app: str) -> None:
    assert packages_on_map((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"), app) == packages_of(ROOT, app)


def test_no_folder_is_a_heap() -> None:
    assert heaps(ROOT) == []


def test_no_test_module_is_imported() -> None:
    assert imports_of_tests(ROOT) == []


def test_markers_are_where_the_commands_look() -> None:
    assert markers_elsewhere(ROOT) == []


def test_the_rules_can_fail(tmp_path: Path) -> None:
    for number in range(MOST_MODULES + 1):
        write(tmp_path, f"plans/engine/m{number}.py", "")
    write(tmp_path, "plans/engine/__init__.py", "")
    write(tmp_path, "tests/plans/test_b.py", "from tests.plans.test_a import ask\nfrom tests.plans import test_c")
    for name, marker in (("test_d", "layout"), ("test_e", "db"), ("races", "slow")):
        write(tmp_path, f"tests/plans/{name}.py", f"RACE = pytest.mark.{marker}")
    assert sorted(markers_elsewhere(tmp_path)) == ["tests/plans/races.py:1", "tests/plans/test_d.py:1"]
    assert heaps(tmp_path) == ["plans/engine holds 26 modules"]
    assert len(imports_of_tests(tmp_path)) == 2
    assert packages_of(tmp_path, "plans") == {"engine"}
    assert packages_on_map("| `plans/` | |\n| --- | --- |\n| `api/` | a |\n", "plans") == {"api"}
