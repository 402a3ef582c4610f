"""How often the tests of races and faults do what they do: in full for `make chaos`, a tenth or less otherwise.

Every count that differs between the two is made here; what was done is printed at the end of the run, one JSON line a
scenario, with the seed that makes it repeatable (TOOLGATE_CHAOS_SEED).
"""

import json
import os
import random
import secrets
from collections.abc import Callable, Iterable
from typing import Any

FULL = os.environ.get("TOOLGATE_CHAOS", "") == "full"
PROPERTY = "chaos"

Report = Callable[[str, object], None]


def count(full: int, share: int = 10) -> int:
    """Return `full` under `make chaos`, else its `share`-th part, at least 1."""
    return full if FULL else max(1, full // share)


def seconds(full: float, otherwise: float = 300) -> float:
    """Return how long a test may take before it is ended."""
    return full if FULL else otherwise


def seed() -> int:
    """Return the run's seed, TOOLGATE_CHAOS_SEED or a new one; print it: a test that fails shows it."""
    number = int(os.environ.get("TOOLGATE_CHAOS_SEED", "0")) or secrets.randbelow(10**6) + 1
    print(f"TOOLGATE_CHAOS_SEED={number}")  # noqa: T201
    return number


def dice(number: int) -> random.Random:
    """Return the source of chance that a seed stands for."""
    return random.Random(number)  # noqa: S311 (no secret)


def tell(write_line: Callable[[str], None], reports: Iterable[Any], *, passed: bool) -> None:
    """Print what each scenario of these reports did, one JSON object a line."""
    for each in reports:
        for name, line in each.user_properties:
            if name == PROPERTY and each.when == "call":
                write_line(json.dumps({"passed": passed, **json.loads(line), "seconds": round(each.duration, 1)}))


def report(record: Report, scenario: str, **counts: object) -> None:
    """Keep what a scenario did, as the line that the end of the run prints."""
    record(PROPERTY, json.dumps({"scenario": scenario, **counts}))
