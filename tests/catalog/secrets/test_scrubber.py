"""Scrubbing of secrets in a tool's output, in any encoding."""

import base64
import json
from urllib.parse import quote

import pytest

from catalog.secrets.placeholders import PLACEHOLDER_KEY, Secret
from catalog.secrets.scrubber import Scrubber

VALUE = 'pa"ss wörd/42'
NAMED = f'{{"{PLACEHOLDER_KEY}":"password"}}'


@pytest.fixture
def scrub():
    """A scrubber for one password."""
    return Scrubber([Secret("password", "password", VALUE, "")])


@pytest.mark.parametrize(
    "written",
    [
        VALUE,
        json.dumps(VALUE),
        json.dumps(VALUE, ensure_ascii=False),
        quote(VALUE, safe=""),
        base64.b64encode(VALUE.encode()).decode(),
        base64.b64encode(f"user:{VALUE}".encode()).decode(),
        base64.b64encode(f"me:{VALUE}".encode()).decode(),
        base64.urlsafe_b64encode(VALUE.encode()).decode(),
    ],
)
def test_a_secret_is_replaced_in_every_writing(scrub, written):
    text = scrub.text(f"before {written} after")
    assert NAMED in text
    assert written[4:-6] not in text


def test_values_and_names_of_a_result_are_replaced(scrub):
    assert scrub.value({"a": [VALUE, {"b": f"x{VALUE}"}], VALUE: 1, "n": None, "ok": True}) == {
        "a": [{PLACEHOLDER_KEY: "password"}, {"b": f"x{NAMED}"}],
        NAMED: 1,
        "n": None,
        "ok": True,
    }


def test_numbers_are_replaced_as_numbers_and_in_texts():
    scrub = Scrubber([Secret("pin", "pin", 48151623, "")])
    assert scrub.value([48151623, 4815, "pin 48151623"]) == [
        {PLACEHOLDER_KEY: "pin"},
        4815,
        f'pin {{"{PLACEHOLDER_KEY}":"pin"}}',
    ]


def test_short_values_stay():
    assert Scrubber([Secret("pin", "pin", "abc", "")]).value("abc abc") == "abc abc"


def test_every_part_of_a_secret_object_is_replaced():
    scrub = Scrubber([Secret("auth", "auth", {"a": ["first-part"], "b": "other-part"}, "")])
    assert scrub.text("first-part, other-part") == f'{{"{PLACEHOLDER_KEY}":"auth"}}, {{"{PLACEHOLDER_KEY}":"auth"}}'
