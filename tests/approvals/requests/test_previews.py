"""Previews are stored unchanged, or dropped if they cannot be stored."""

import pytest

from approvals.requests.queries import current_round
from catalog.dispatch import pipeline
from catalog.dispatch.arguments import CallArguments
from catalog.results import Preview
from catalog.testing import clean_registry, make_context
from catalog.tools import tool
from tests.approvals.factories import ask


def preview_of(shown: object) -> Preview | None:
    """Return the pipeline's preview for a hook's result."""
    with clean_registry():

        @tool(safety_level="dangerous")
        def touch() -> str:
            """Touch it."""
            return "touched"

        @touch.preview
        def _() -> object:
            return shown

        return pipeline.preview_call(touch, CallArguments({}), make_context())


UNFIT: list[object] = [
    Preview("Half of a \ud800 pair", "text"),
    Preview("Rows", "rows", rows=({"amount": float("nan")},)),
    Preview("Rows", "rows", rows=({"what": object()},)),
    "not a preview",
]


def test_preview_that_cannot_be_stored_is_dropped():
    for preview in map(preview_of, UNFIT):
        assert preview is not None
        assert (preview.kind, preview.before, preview.after, preview.rows) == ("none", None, None, ())
        assert preview.summary.startswith("Run touch")


def test_state_token_must_be_short_text():
    for token in ("x" * 256, "a\x00b"):
        with pytest.raises(ValueError, match="255"):
            Preview("Write", "diff", state_token=token)


def test_hostile_text_is_stored_unchanged(ada):
    text = "\x00\x1b[31m<script>\u202e\U000e0041"
    preview = preview_of(Preview(text, "diff", before=text, after=None, rows=({text: 1},), state_token="y" * 255))
    stored = current_round(ask(ada, preview=preview)).preview_json
    assert stored == {
        "summary": text,
        "kind": "diff",
        "before": text,
        "after": None,
        "rows": [{text: 1}],
        "state_token": "y" * 255,
    }
