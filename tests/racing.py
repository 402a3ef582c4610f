"""Real threads with connections of their own, let go from one starting line."""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django.db import connection

from catalog.errors import ToolgateError
from tests import counts

Act = Callable[[], Any]
LONGEST = 0.03
"""Seconds that one act may take, its preview with it."""


def at_once(*acts: Act) -> list[Any]:
    """Run every act on a thread of its own at the same moment; return results, or what of ours they raised."""
    return rounds_at_once([acts])[0]


def rounds_at_once(rounds: Sequence[Sequence[Act]]) -> list[list[Any]]:
    """Race round after round on the same threads, each round from its own starting line; return their results."""
    lanes = len(rounds[0])
    line, results = threading.Barrier(lanes), [[None] * lanes for _ in rounds]

    def run(lane: int) -> None:
        try:
            for number, acts in enumerate(rounds):
                line.wait(timeout=60)
                results[number][lane] = _result_of(acts[lane])
        except BaseException:
            line.abort()
            raise
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(lane,)) for lane in range(lanes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=counts.seconds(1800))
    return results


def staggered(races: list[list[Act]], seed: int) -> list[list[Act]]:
    """Let in each round one of the two, drawn by chance, begin up to so long after the other as either may take."""
    dice = counts.dice(seed)
    late = [(dice.randrange(2), dice.uniform(0, LONGEST)) for _ in races]
    return [
        [partial(_after, seconds, act) if lane == behind else act for lane, act in enumerate(acts)]
        for acts, (behind, seconds) in zip(races, late, strict=True)
    ]


def _after(seconds: float, act: Act) -> Any:
    time.sleep(seconds)
    return act()


def _result_of(act: Act) -> Any:
    try:
        return act()
    except ToolgateError as lost:
        return lost
