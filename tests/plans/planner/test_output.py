"""Reading of the planner's answer from a model's text."""

import pytest

from plans.llm.client import Answer
from plans.llm.failures import AnswerUnreadable
from plans.planner.output import read_output


@pytest.mark.parametrize(
    "text",
    [
        '{"intent": "greet"}',
        '```json\n{"intent": "greet"}\n```',
        'Here you are:\n```\n{"intent": "greet"}\n```\nAnything else?',
        'I choose {"intent": "greet"}.',
    ],
)
def test_json_is_read_alone_between_fences_and_after_words(text):
    assert read_output(Answer(text)).intent == "greet"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello.", "JSON object"),
        ('{"intent": "greet"', "not valid JSON"),
        ('{"intent": "greet", "intent": "leave"}', "not valid JSON"),
        ('{"colour": "blue"}', "colour: Extra inputs are not permitted"),
        ("[1]", "JSON object"),
        ("", "JSON object"),
    ],
)
def test_unreadable_answer_has_a_reason(text, words):
    with pytest.raises(AnswerUnreadable, match=words) as caught:
        read_output(Answer(text, input_tokens=2, output_tokens=1))
    assert (caught.value.text, caught.value.tokens) == (text, 3)
