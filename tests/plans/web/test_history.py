"""Tests of sentences in a plan's history."""

import json
from typing import Any

import pytest

from catalog.core import clock
from plans.models import Event
from plans.store.transactions import EVENT_TYPES
from plans.web.plan.history import ENTRY_BUILDERS, event_line


def test_every_event_type_has_a_sentence() -> None:
    assert EVENT_TYPES - set(ENTRY_BUILDERS) == set()


@pytest.mark.parametrize(
    ("kind", "data", "text", "code"),
    [
        ("approval.reminded", {"approval": "apr_1"}, "Step 4: the reviewers were reminded", "apr_1"),
        ("approval.delegated", {"to": "tomas"}, "Step 4: the request was assigned to", "tomas"),
        ("approval.delegated", {"to": None}, "Step 4: the request was unassigned", ""),
    ],
)
def test_sentences_about_requests(kind: str, data: dict[str, Any], text: str, code: str) -> None:
    said = event_line(Event(seq=1, type=kind, at=clock.now(), step_id=4, data=json.dumps(data))).said
    assert (said.text, said.code) == (text, code)
