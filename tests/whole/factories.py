"""Tools of the example module with the arguments and result of a call of each."""

from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


CALLS: dict[str, dict[str, Any]] = {
    "count_words": {"text": "one two"},
    "lookup_entity": {"entity_id": "abc-123"},
    "opening_hours": {"room": "Hall 1"},
    "shout_text": {"text": "hello", "marks": 2},
    "area_of": {"query_type": "rectangle", "parameters": {"width": 2.0, "height": 3.0}},
    "repeat_text": {"text": "ab"},
}


RESULTS: dict[str, list[Any]] = {
    "count_words": [2],
    "lookup_entity": [{"entity_id": "abc-123", "url": "https://example.org/abc-123"}],
    "opening_hours": [{"room": "Hall 1", "opens": "09:00", "closes": "18:00"}],
    "shout_text": ["HELLO!!"],
    "area_of": [6.0],
    "repeat_text": ["abab"],
}
