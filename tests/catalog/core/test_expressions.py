"""The cost of an expression is charged before its operations run."""

from typing import NoReturn

import pytest

from catalog.core.expressions import MAX_COST, Budget, CostExceeded, ExpressionError, evaluate

NUMBERS = list(range(120_000))


class Untouchable(list[int]):
    """A list that must be neither formatted nor compared nor copied."""

    def _touched(self, *_: object) -> NoReturn:
        pytest.fail("an operation ran before its cost was charged")

    __repr__ = __str__ = __eq__ = __lt__ = __add__ = __getitem__ = _touched
    __hash__ = None


COSTLY = [
    f"str([{','.join(['l'] * 160)}]) == 'x'",
    "[l, l, l] == [l, l, l]",
    "[l, l, l] < [l, l, l]",
    "[[0]] in [l, l, l]",
    "sorted([l, l]) == 1",
    "max([l, l, l], [l, l, l]) == 1",
    "sum(l) + sum(l) + sum(l) > 0",
    "any(zeros) or any(zeros) or any(zeros)",
    "zeros[1:] == 1 or zeros[1:] == 1 or zeros[1:] == 1",
    "zeros + [1] == 1 or zeros + [2] == 1 or zeros + [3] == 1",
    "-1 in zeros or -1 in zeros or -1 in zeros",
    " or ".join(["'z'in t"] * 40),
    "str([text, text, text, text, text]) == 1",
]


@pytest.mark.parametrize("expression", COSTLY)
def test_costly_operation_is_refused_before_it_runs(expression: str) -> None:
    names = {"l": Untouchable(NUMBERS), "zeros": [0] * 120_000, "text": "a" * 240_000, "t": "a" * 240_000}

    with pytest.raises(ExpressionError, match=r"more than 250,000 values|too large"):
        evaluate(expression, names)


def test_large_values_cost_no_more_than_what_is_done_with_them() -> None:
    names = {"l": NUMBERS, "text": "a" * 240_000}

    assert evaluate("len(l) == 120000 and l[-1] > l[0] and sum(l) > 0 and 7 in l[:9] and not 'b' in text", names)


def test_a_value_that_stands_twice_is_charged_twice() -> None:
    value = [NUMBERS, NUMBERS]
    budget = Budget()

    budget.charge_value(value)

    assert MAX_COST - budget.left > 2 * len(NUMBERS)
    with pytest.raises(CostExceeded):
        budget.charge_value(value)
