"""Lenient JSON of answers: what is nested too deeply is refused, or kept as text."""

import json

import pytest

from catalog.core.lenient_json import read_lenient_json
from catalog.errors import MalformedJSON

DEEP = "[" * 300 + "7" + "]" * 300


def test_deep_json_is_refused_or_kept_as_text():
    with pytest.raises(MalformedJSON):
        read_lenient_json(DEEP)
    value = read_lenient_json(DEEP, keep_below=150)
    for _ in range(150):
        [value] = value
    assert json.loads(value) == json.loads("[" * 150 + "7" + "]" * 150)


def test_digits_beyond_what_python_reads_stay_text():
    longest = "9" * 4_300
    assert read_lenient_json(f"[{longest}, -{longest}, 1{longest}]") == [int(longest), -int(longest), f"1{longest}"]
