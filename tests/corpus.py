"""One test for a whole corpus of inputs, which still names each input that fails."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

LONGEST = 200


def faults(check: Callable[..., object], cases: Iterable[Any]) -> dict[str, str]:
    """Call `check` with each case, a tuple being its arguments; return the cases that failed, each with its error."""
    found, seen = dict[str, str](), 0
    for seen, case in enumerate(cases, start=1):
        try:
            check(*case) if isinstance(case, tuple) else check(case)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 (whatever is raised is this case's fault)
            found[f"{seen}: {case!r}"[:LONGEST]] = f"{type(error).__name__}: {error}"
    assert seen, "The corpus is empty."
    return found
