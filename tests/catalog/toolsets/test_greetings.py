"""Greeting: one gram specification, two implementations that both serve it."""

import pytest

from catalog.gram import ToolSpecification
from catalog.models import Implementation
from catalog.testing import invoke
from catalog.tools.registry import get_tool, loaded_variants
from catalog.toolsets.greetings import GREETINGS, SAY_HELLO

PLAIN, WARM = ("catalog.toolsets.greetings:plain_greeting", "catalog.toolsets.greetings:warm_greeting")

pytestmark = pytest.mark.usefixtures("catalog")


def test_the_specification_survives_gram_and_binds():
    again = ToolSpecification.from_gram(SAY_HELLO.to_gram())

    assert GREETINGS.bind(again) is get_tool("say_hello")


@pytest.mark.parametrize(("reference", "said"), [(PLAIN, "Hello, Ada!"), (WARM, "Hello, Ada! Nice to meet you.")])
def test_each_implementation_serves_the_one_specification(reference, said):
    code = loaded_variants(GREETINGS.tools["say_hello"])[reference]

    assert code.input_schema == SAY_HELLO.schema
    assert invoke(code, {"name": "Ada"}).value == said


def test_the_catalog_offers_one_tool_with_both_implementations():
    rows = Implementation.objects.filter(tool__name="say_hello", enabled=True)

    assert set(rows.values_list("reference", flat=True)) == {PLAIN, WARM}


@pytest.mark.parametrize("arguments", [{}, {"name": 1}, {"name": "Ada", "mood": "warm"}])
def test_what_the_specification_does_not_say_is_refused(arguments):
    assert not invoke("say_hello", arguments).success
