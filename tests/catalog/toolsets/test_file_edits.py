"""propose_file_edit: hunks in the preview, and refusal of stale originals."""

import pytest

from catalog.errors import ToolError
from catalog.testing import invoke, make_context
from catalog.toolsets.workspace import propose_file_edit

EDIT = {"path": "draft.md", "original": "Old line\n", "modified": "New line\n", "description": "Newer"}


@pytest.fixture(autouse=True)
def draft(settings, tmp_path):
    settings.TOOLGATE_WORKSPACE = tmp_path
    (tmp_path / "draft.md").write_text("Old line\n")
    return tmp_path / "draft.md"


def test_an_edit_is_dangerous_and_is_reviewed_in_hunks():
    assert (propose_file_edit.safety_level, propose_file_edit.reversibility) == ("dangerous", "restorable")
    assert propose_file_edit.input_schema["required"] == ["path", "original", "modified", "description"]
    assert propose_file_edit.hunks == "modified"


def test_the_preview_is_a_diff_with_its_hunks():
    preview = propose_file_edit.preview_for(EDIT, make_context())
    assert preview is not None
    assert (preview.summary, preview.kind, preview.before, preview.after) == (
        "Edit draft.md",
        "diff",
        "Old line\n",
        "New line\n",
    )
    assert [row["text"] for row in preview.rows] == ["@@ -1,1 +1,1 @@\n-Old line\n+New line"]
    assert preview.state_token is not None and preview.state_token.startswith("sha256:")


def test_an_accepted_edit_is_applied_in_the_contracts_words(draft):
    result = invoke(propose_file_edit, EDIT)
    assert (result.success, result.message) == (True, "✓ Changes accepted and applied to draft.md")
    assert draft.read_text() == "New line\n"


def test_a_new_file_is_an_edit_of_nothing(draft):
    assert invoke(propose_file_edit, EDIT | {"path": "new/note.md", "original": ""}).success
    assert (draft.parent / "new" / "note.md").read_text() == "New line\n"


@pytest.mark.parametrize("original", ["", "Old line", "Older line\n"])
def test_a_stale_original_is_refused_and_nothing_changes(draft, original):
    with pytest.raises(ToolError, match="propose the edit again"):
        propose_file_edit.preview_for(EDIT | {"original": original}, make_context())
    assert "propose the edit again" in invoke(propose_file_edit, EDIT | {"original": original}).message
    assert draft.read_text() == "Old line\n"


def test_an_edit_that_changes_nothing_is_refused():
    assert "changes nothing" in invoke(propose_file_edit, EDIT | {"modified": "Old line\n"}).message


def test_a_rejection_tells_the_model_to_stop():
    told = propose_file_edit.rejection_message(EDIT)
    assert told.startswith(
        "REJECTED: the changes to draft.md were not applied. STOP: Do NOT retry or propose alternative"
    )
