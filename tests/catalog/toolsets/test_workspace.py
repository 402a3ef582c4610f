"""Workspace tools: exact previews, and refusal to change files modified since."""

from typing import Any

import pytest

from catalog.testing import invoke, make_context
from catalog.tools import Tool
from catalog.toolsets.workspace import delete_file, list_files, read_file, search_files, write_file


@pytest.fixture(autouse=True)
def root(settings, tmp_path):
    settings.TOOLGATE_WORKSPACE = tmp_path
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "draft.md").write_text("Old line\n")
    return tmp_path


def value_of(tool: Tool[Any, Any], arguments: dict[str, Any]) -> Any:
    return invoke(tool, arguments).value


def test_the_tools_have_their_levels():
    assert {tool.safety_level.value for tool in (list_files, read_file, search_files)} == {"safe"}
    assert (write_file.safety_level, write_file.reversibility) == ("dangerous", "restorable")
    assert (delete_file.safety_level, delete_file.reversibility) == ("dangerous", "irreversible")


def test_files_are_listed_read_and_searched():
    assert value_of(list_files, {"path": "reports"}) == [{"path": "reports/draft.md", "kind": "file", "size": 9}]
    assert value_of(list_files, {}) == [{"path": "reports", "kind": "folder", "size": 0}]
    assert len(value_of(list_files, {"recursive": True})) == 2
    assert value_of(read_file, {"path": "reports/draft.md"})["text"] == "Old line\n"
    assert value_of(search_files, {"text": "OLD"}) == [{"path": "reports/draft.md", "line": 1, "text": "Old line"}]


def test_missing_or_binary_file_is_refused(root):
    (root / "raw").write_bytes(b"\xff")

    assert "List the files" in invoke(read_file, {"path": "reports/none.md"}).message
    assert "not UTF-8" in invoke(read_file, {"path": "raw"}).message
    assert "to delete" in invoke(delete_file, {"path": "none"}).message
    assert "'..'" in invoke(write_file, {"path": "../x", "content": ""}).message


def test_the_preview_of_a_write_shows_old_and_new_text():
    arguments = {"path": "reports/draft.md", "content": "New line\n"}
    preview = write_file.preview_for(arguments, make_context())

    assert preview is not None
    assert (preview.summary, preview.kind) == ("Replace reports/draft.md", "diff")
    assert (preview.before, preview.after) == ("Old line\n", "New line\n")
    assert preview.state_token is not None and preview.state_token.startswith("sha256:")


def test_the_preview_of_a_new_file_and_of_a_deletion():
    created = write_file.preview_for({"path": "reports/new.md", "content": "x"}, make_context())
    deleted = delete_file.preview_for({"path": "reports/draft.md"}, make_context())

    assert created is not None and deleted is not None
    assert (created.summary, created.before, created.state_token) == ("Create reports/new.md", None, "absent")
    assert (deleted.summary, deleted.before, deleted.after) == ("Delete reports/draft.md", "Old line\n", None)


def test_the_preview_over_bytes_says_that_they_are_no_text(root):
    (root / "raw").write_bytes(b"\xff")
    preview = write_file.preview_for({"path": "raw", "content": "x"}, make_context())

    assert preview is not None and preview.before == "[1 bytes that are not UTF-8 text]\n"


@pytest.mark.parametrize("tool", [write_file, delete_file])
def test_a_file_that_changed_after_the_approval_is_left_alone(root, tool):
    arguments = {"path": "reports/draft.md"} | ({"content": "New"} if tool is write_file else {})
    approved = tool.preview_for(arguments, make_context()).state_token
    (root / "reports" / "draft.md").write_text("Changed meanwhile\n")

    with pytest.raises(Exception, match="changed since the call was approved"):
        tool.call(arguments, make_context(target_state=approved))

    assert (root / "reports" / "draft.md").read_text() == "Changed meanwhile\n"


def test_an_approved_write_and_deletion_do_what_was_shown(root):
    arguments = {"path": "reports/draft.md", "content": "Né\n"}
    preview = write_file.preview_for(arguments, make_context())
    assert preview is not None

    written = write_file.call(arguments, make_context(target_state=preview.state_token))

    assert (root / "reports" / "draft.md").read_text() == "Né\n"
    assert written.message == "Wrote 4 bytes to reports/draft.md."
    assert invoke(delete_file, {"path": "reports/draft.md"}).success
    assert not (root / "reports" / "draft.md").exists()
