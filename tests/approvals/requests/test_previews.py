"""What a tool shows of a call is stored as it is, or, when it cannot be, the call is judged without it."""

import pytest

from approvals.requests.queries import current_round
from catalog.dispatch import pipeline
from catalog.results import Preview
from catalog.testing import clean_registry, make_context
from catalog.tools import tool
from tests.approvals.factories import ask


def preview_of(shown: object) -> Preview | None:
    """Return what the pipeline makes of a hook's answer."""
    with clean_registry():

        @tool(safety_level="dangerous")
        def touch() -> str:
            """Touch it."""
            return "touched"

        @touch.preview
        def _() -> object:
            return shown

        return pipeline.preview_call(touch, {}, make_context())


UNFIT: list[object] = [
    Preview("Half of a \ud800 pair", "text"),
    Preview("Rows", "rows", rows=({"amount": float("nan")},)),
    Preview("Rows", "rows", rows=({"what": object()},)),
    "not a preview",
]


def test_a_preview_that_cannot_be_stored_is_none():
    """It says so, and the request is still made."""
    for preview in map(preview_of, UNFIT):
        assert preview is not None
        assert (preview.kind, preview.before, preview.after, preview.rows) == ("none", None, None, ())
        assert preview.summary.startswith("Run touch")


def test_a_state_token_is_short_text():
    """Its column is."""
    for token in ("x" * 256, "a\x00b"):
        with pytest.raises(ValueError, match="255"):
            Preview("Write", "diff", state_token=token)


def test_hostile_text_is_kept_as_it_is(ada):
    """Pages escape it; the store does not change it."""
    text = "\x00\x1b[31m<script>\u202e\U000e0041"
    shown = preview_of(Preview(text, "diff", before=text, after=None, rows=({text: 1},), state_token="y" * 255))
    stored = current_round(ask(ada, preview=shown)).preview_json
    assert stored == {
        "summary": text,
        "kind": "diff",
        "before": text,
        "after": None,
        "rows": [{text: 1}],
        "state_token": "y" * 255,
    }
