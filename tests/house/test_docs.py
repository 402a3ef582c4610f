"""The documentation has every setting, every event type and only renewable pictures; decisions name what exists."""

import ast
import posixpath
import re
from pathlib import Path

import pytest

from plans.store.transactions import EVENT_TYPES
from tests.browser.screenshots import IN_DOCUMENTS
from tests.house.source import ROOT, files, modules, parse, settings_read, write


def documents(root: Path) -> str:
    """Return the text of README and docs."""
    found = [path for path in (root / "README.md", *files(root / "docs", "*.md")) if path.exists()]
    return "\n".join(path.read_text(encoding="utf-8") for path in found)


def undocumented(names: set[str], text: str) -> list[str]:
    """Return the names that stand nowhere in the documents as whole words."""
    return sorted(name for name in names if not re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", text))


@pytest.mark.parametrize(
    ("names", "known"),
    [(settings_read(ROOT), {"SECRET_KEY", "TOOLGATE_WORKSPACE"}), (set(EVENT_TYPES), {"plan.created"})],
    ids=["settings", "events"],
)
def test_every_name_is_documented(names: set[str], known: set[str]) -> None:
    """Operators rely on documented settings, clients on documented event types."""
    assert known <= names
    assert undocumented(names, documents(ROOT)) == []


def test_settings_are_taken_from_the_code(tmp_path: Path) -> None:
    code = "A_KEY = env.str('A_KEY', '')\nB = env.int('OTHER_KEY', 3)\nenv.read_env('.env')"
    write(tmp_path, "config/settings.py", code)
    assert settings_read(tmp_path) == {"A_KEY", "OTHER_KEY"}


def test_a_missing_name_is_found(tmp_path: Path) -> None:
    write(tmp_path, "README.md", "`OTHER_KEY` and plan.created")
    write(tmp_path, "docs/events.md", "step.outcome_unknown")
    text = documents(tmp_path)
    assert undocumented({"OTHER_KEY", "plan.created", "step.outcome_unknown"}, text) == []
    assert undocumented({"KEY", "plan.create", "A_KEY"}, text) == ["A_KEY", "KEY", "plan.create"]


PICTURE = re.compile(r"\]\((?P<target>\S+\.(?:png|jpe?g|gif|svg|webp))\)", re.IGNORECASE)


def pictures_shown(root: Path) -> set[str]:
    """Return the paths of all pictures that documents show or link."""
    return {
        posixpath.normpath((path.parent / match["target"]).relative_to(root).as_posix())
        for path in files(root, "*.md")
        for match in PICTURE.finditer(path.read_text(encoding="utf-8"))
    }


def test_documents_show_what_make_screenshots_renews() -> None:
    """A picture made by hand would stay as it is when the page changes."""
    renewed = {f"docs/screenshots/{name}" for name in IN_DOCUMENTS}
    assert pictures_shown(ROOT) == renewed
    assert {path.relative_to(ROOT).as_posix() for path in files(ROOT / "docs/screenshots")} == renewed


def test_a_picture_in_a_document_is_found(tmp_path: Path) -> None:
    write(tmp_path, "README.md", "![A page](docs/screenshots/page.png)\nand [another](other.SVG), see `third.png`")
    write(tmp_path, "docs/connect/README.md", "![A page](../screenshots/connect.png)")
    assert pictures_shown(tmp_path) == {"docs/screenshots/page.png", "other.SVG", "docs/screenshots/connect.png"}


NAME = re.compile(r"`(?:(?P<file>[\w/]+\.py)|(?P<name>[A-Za-z_][\w.]*)(?:\(\))?)`")
FOREIGN_NAMES = {"query_only"}
"""Names in decisions that are SQLite's."""


def names_in_code(root: Path) -> set[str]:
    """Return the names of modules, classes, functions, attributes, variables and arguments."""
    found: set[str] = set()
    for path in modules(root):
        found.add(path.stem)
        for node in ast.walk(parse(path)):
            named = [getattr(node, field, None) for field in ("name", "id", "attr", "arg", "module")]
            found.update(part for name in named if isinstance(name, str) for part in name.split("."))
    return found


def missing_names(root: Path) -> list[str]:
    """Return the files, and the names that look like Python's, that decisions mention and the code does not have."""
    known, paths = names_in_code(root) | FOREIGN_NAMES, {f"/{path.relative_to(root)}" for path in files(root, "*.py")}
    missing = []
    for path in files(root / "docs/decisions", "*.md"):
        for match in NAME.finditer(path.read_text(encoding="utf-8")):
            file, name = match["file"], match["name"] or ""
            is_python = "_" in name or "." in name or re.search("[a-z][A-Z]", name) or match[0].endswith("()`")
            if file and not any(each.endswith(f"/{file}") for each in paths):
                missing.append(f"{path.name}: {file}")
            elif is_python and not name.isupper() and name.rpartition(".")[2] not in known:
                missing.append(f"{path.name}: {name}")
    return missing


def test_decisions_name_what_exists() -> None:
    assert missing_names(ROOT) == []


def test_a_name_that_does_not_exist_is_found(tmp_path: Path) -> None:
    write(
        tmp_path, "plans/store/rows.py", "class ReadRow:\n    def read(self, row_pk):\n        return self.key_text\n"
    )
    text = "`plans/store/rows.py` `rows.py` `ReadRow.read()` `row_pk` `TOOLGATE_X` `key`"
    text = f"{text} `plans/rows.py` `WriteRow` `rows.write`"
    write(tmp_path, "docs/decisions/0001-rows.md", text)
    assert missing_names(tmp_path) == [f"0001-rows.md: {name}" for name in ("plans/rows.py", "WriteRow", "rows.write")]
