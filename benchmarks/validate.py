"""`validate_us`: validation of typical arguments, with all checks of a call; `validator_us`: by the schema alone."""

from collections.abc import Callable
from time import perf_counter
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from catalog.dispatch.arguments import prepare_arguments
from catalog.tools import Tool

BATCHES = 40
CALLS = 250
ARGUMENTS: dict[str, Any] = {
    "customer": "ACME-0042",
    "lines": [{"article": "A-17", "count": 3, "price": 12.5}, {"article": "B-2", "count": 1, "price": 99.0}],
    "currency": "EUR",
    "note": None,
    "express": True,
}


class Line(TypedDict):
    """One line of an order."""

    article: str
    count: int
    price: float


def order(
    customer: Annotated[str, Field(pattern="^[A-Z]+-[0-9]+$", max_length=20)],
    lines: Annotated[list[Line], Field(min_length=1, max_length=100)],
    currency: Literal["EUR", "USD", "GBP"] = "EUR",
    note: Annotated[str, Field(max_length=500)] | None = None,
    *,
    express: bool = False,
) -> None:
    """Take an order."""


def measure(runs: int) -> list[float]:
    """Return the microseconds of all checks of a call's arguments, each the mean of a batch."""
    tool = Tool[Any, Any](name="bench_typical", description="Take an order.", handler=order)
    return _timed(lambda: prepare_arguments(tool, ARGUMENTS), runs)


def measure_validator(runs: int) -> list[float]:
    """Return the microseconds of the validation by the schema alone."""
    tool = Tool[Any, Any](name="bench_typical", description="Take an order.", handler=order)
    return _timed(lambda: tool.validator.problems(ARGUMENTS), runs)


def _timed(once: Callable[[], object], runs: int) -> list[float]:
    return [_batch(once) for _ in range(runs * BATCHES)]


def _batch(once: Callable[[], object]) -> float:
    started = perf_counter()
    for _ in range(CALLS):
        once()
    return (perf_counter() - started) * 1_000_000 / CALLS
