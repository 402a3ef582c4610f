"""Round counts and seeds of the tests of races and faults.

`make nightly` sets TOOLGATE_NIGHTLY=1, which means full counts and a new seed for each scenario; otherwise counts are
small and the seed is fixed. TOOLGATE_TEST_SEED sets the seed in both cases. At the end of a run each scenario prints
one JSON line with its counts and its seed.
"""

import json
import os
import random
import secrets
from collections.abc import Callable, Iterable
from typing import Any

FULL = os.environ.get("TOOLGATE_NIGHTLY") == "1"
FIXED_SEED = 20260101
PROPERTY = "scenario"

Report = Callable[[str, object], None]


def count(full: int, share: int = 10) -> int:
    """Return `full` under `make nightly`, otherwise `full // share`, at least 1."""
    return full if FULL else max(1, full // share)


def seconds(full: float, otherwise: float = 300) -> float:
    """Return a test's time limit in seconds: `full` under `make nightly`, else `otherwise`."""
    return full if FULL else otherwise


def seed() -> int:
    """Return the seed of a scenario and print it, so that the output of a failed test shows it.

    It is TOOLGATE_TEST_SEED if set, a new number under `make nightly`, otherwise FIXED_SEED.
    """
    chosen = os.environ.get("TOOLGATE_TEST_SEED")
    number = int(chosen) if chosen else secrets.randbelow(10**6) + 1 if FULL else FIXED_SEED
    print(f"TOOLGATE_TEST_SEED={number}")  # noqa: T201
    return number


def dice(number: int) -> random.Random:
    """Return a random generator with this seed."""
    return random.Random(number)  # noqa: S311 (no secret)


def tell(write_line: Callable[[str], None], reports: Iterable[Any], *, passed: bool) -> None:
    """Print the counts of each scenario in these reports, one JSON object a line."""
    for each in reports:
        for name, line in each.user_properties:
            if name == PROPERTY and each.when == "call":
                write_line(json.dumps({"passed": passed, **json.loads(line), "seconds": round(each.duration, 1)}))


def report(record: Report, scenario: str, **counts: object) -> None:
    """Store the counts of a scenario for the summary at the end of the run."""
    record(PROPERTY, json.dumps({"scenario": scenario, **counts}))
