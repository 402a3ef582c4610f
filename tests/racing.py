"""Races between threads: each thread has a connection of its own, and all start from one barrier."""

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
"""About the longest time in seconds that one act of a race takes, its preview included."""


def at_once(*acts: Act) -> list[Any]:
    """Run the acts at the same moment, each on its own thread; return each result or the ToolgateError it raised."""
    return rounds_at_once([acts])[0]


def rounds_at_once(rounds: Sequence[Sequence[Act]]) -> list[list[Any]]:
    """Run rounds of acts on the same threads, each round from a barrier of its own; return the results by round."""
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


def staggered(races: Sequence[list[Act]], seed: int) -> list[list[Act]]:
    """Delay one of the two acts of each race by a random time up to LONGEST, the first and the second in turn."""
    dice = counts.dice(seed)
    delayed = dice.randrange(2)
    made = []
    for number, acts in enumerate(races):
        late = (delayed + number) % 2
        seconds = dice.uniform(0, LONGEST)
        made.append([partial(_after, seconds, act) if lane == late else act for lane, act in enumerate(acts)])
    return made


def in_order(race: Sequence[Act], first: int) -> list[Act]:
    """Let the two acts of a race run one after the other, the one with index `first` before the other one."""
    ended = threading.Event()

    def lead() -> Any:
        try:
            return race[first]()
        finally:
            ended.set()

    def follow() -> Any:
        assert ended.wait(timeout=60), "the first act did not end"
        return race[1 - first]()

    return [lead, follow] if first == 0 else [follow, lead]


def _after(seconds: float, act: Act) -> Any:
    time.sleep(seconds)
    return act()


def _result_of(act: Act) -> Any:
    try:
        return act()
    except ToolgateError as lost:
        return lost
