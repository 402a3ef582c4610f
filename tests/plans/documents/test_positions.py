"""Line numbers of paths in a JSON text, in any layout."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plans.documents.positions import find_lines

TEXT = """{
  "goal": "a, \\"b\\": {[",
  "steps": [
    {"step_id": 1, "tool": "x",
     "dependencies": [1,
        9]},
    {
      "na\\u006de": null
    }
  ]
}"""


LINES = [
    ("", 1),
    ("goal", 2),
    ("steps", 3),
    ("steps.0", 4),
    ("steps.0.tool", 4),
    ("steps.0.dependencies", 5),
    ("steps.0.dependencies.0", 5),
    ("steps.0.dependencies.1", 6),
    ("steps.1", 7),
    ("steps.1.name", 8),
    ("steps.1.missing", 7),
    ("steps.5.missing", 3),
    ("missing", 1),
]


def test_a_path_is_found_on_its_line():
    assert {path: find_lines(TEXT, {path}) for path, _ in LINES} == {path: {path: line} for path, line in LINES}


def test_invalid_json_gives_some_line() -> None:
    for text in ("", "}", "]]", '"', "{{{", '{"a"', ":,:", "[1 2", '{"\\x": 1}'):
        assert find_lines(text, {"a.b"}) == {"a.b": 1}, text


def test_long_runs_of_one_part_are_read_to_their_end() -> None:
    for part in ('"', '\\"', "[", "{", '{"a":', "1", ",", '"\\'):
        find_lines(part * (100_000 // len(part)), {"a"})


def lines_of(value: Any, path: str, line: int, found: dict[str, int]) -> int:
    """Record the line of every value as laid out by json.dumps(indent=0); return the last line."""
    found.setdefault(path, line)
    if not isinstance(value, dict | list) or not value:
        return line
    for step, child in value.items() if isinstance(value, dict) else enumerate(value):
        line = lines_of(child, f"{path}.{step}" if path else str(step), line + 1, found)
    return line + 1


@given(
    st.recursive(
        st.none() | st.text() | st.floats(allow_nan=False),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='ab"\\{[:,', min_size=1), inner),
    )
)
def test_every_value_is_found(value: Any) -> None:
    expected: dict[str, int] = {}
    lines_of(value, "", 1, expected)
    text = json.dumps(value, indent=0)
    assert find_lines(text, set(expected)) == expected
    for path in list(expected)[:3]:  # what no path leads to is not read
        assert find_lines(text, {path}) == {path: expected[path]}
