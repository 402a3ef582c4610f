"""A plan's history is said in sentences."""

import json
from typing import Any

import pytest

from catalog.core import clock
from plans.models import Event
from plans.store.transactions import EVENT_TYPES
from plans.web.plan.history import ENTRY_BUILDERS, event_line


def test_every_kind_of_event_has_its_sentence() -> None:
    """Else its name would stand on the page."""
    assert EVENT_TYPES - set(ENTRY_BUILDERS) == set()


@pytest.mark.parametrize(
    ("kind", "data", "text", "code"),
    [
        ("approval.reminded", {"approval": "apr_1"}, "Step 4: whoever may answer was reminded", "apr_1"),
        ("approval.delegated", {"to": "tomas"}, "Step 4: the request was handed to", "tomas"),
        ("approval.delegated", {"to": None}, "Step 4: the request is nobody's in particular any more", ""),
    ],
)
def test_what_happens_to_a_request_is_said(kind: str, data: dict[str, Any], text: str, code: str) -> None:
    """Also what decides nothing."""
    said = event_line(Event(seq=1, type=kind, at=clock.now(), step_id=4, data=json.dumps(data))).said
    assert (said.text, said.code) == (text, code)
