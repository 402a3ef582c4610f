"""What people answered stands in no words of the steps that the planner adds."""

from itertools import product

import pytest

from plans.documents import references
from plans.planner.redaction import Told, without_answers

MAIL = "jo@example.org"


def parameter(value, *told):
    """Return what becomes of one parameter."""
    (step,) = without_answers([{"step_id": 3, "parameters": {"x": value}}], told or [Told(MAIL, "answer")])
    return step["parameters"]["x"]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (MAIL, "${answer}"),
        (f"mailto:{MAIL}, {MAIL}!", "mailto:${answer}, ${answer}!"),
        ([{"to": MAIL}, 5, None], [{"to": "${answer}"}, 5, None]),
        ("${answer} and ${found.jo@example.org}", "${answer} and ${found.jo@example.org}"),
        (f"$${{x}} {MAIL}", "$${x} ${answer}"),
        (f"${MAIL}", f"${MAIL}"),
    ],
)
def test_a_parameter_refers_to_an_answer(said, kept):
    assert parameter(said) == kept


ANSWERS = ["fjord", "a ${b} c", "${answer", "yes", "5$", "two\nlines", "\\1 .*", "$"]
AROUND = ["{}", "<{}>", "x {} yesterday {}", "{0}{0}", "$${{y}}{}"]


def test_parameters_mean_what_they_meant():
    """Whatever the answer looks like, also as part of a reference."""
    faults = {}
    for answer, around in product(ANSWERS, AROUND):
        said, memory = around.format(*[answer.replace("${", "$${")] * 2), {"answer": answer}
        meant = references.resolve(said, memory)
        if (means := references.resolve(parameter(said, Told(answer, "answer")), memory)) != meant:
            faults[answer, around] = means
    assert faults == {}


def test_a_short_answer_is_a_word():
    assert parameter("no notes: no.", Told("no", "answer")) == "${answer} notes: ${answer}."


def test_the_longer_of_two_answers_comes_first():
    told = Told("fjord", "a"), Told("the fjord", "b")
    assert parameter("the fjord, a fjord", *told) == "${b}, a ${a}"


def test_a_description_is_cut_where_it_tells_an_answer():
    """Also a part of it that names somebody, and where nothing keeps the answer."""
    step = {"step_id": 3, "description": f"Mail {MAIL.upper()} about R-20400", "done_check": "x == 'no way'"}
    told = Told(f"It is {MAIL}, R-20400"), Told("no way", "answer")
    assert without_answers([step, 5], told) == [
        {"step_id": 3, "description": "Mail … about …", "done_check": "x == answer"},
        5,
    ]
