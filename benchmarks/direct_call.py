"""`direct_call_ms`, `calls_per_s`: POST of a safe call to a real server, whose response contains the result.

The rates are those of one, four and sixteen concurrent clients, each with its own connection.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

from benchmarks.client import Client
from benchmarks.ground import prepare, serving, token_for

CALLS = 100
WARM_UP = 50


def measure(runs: int) -> list[float]:
    """Return the milliseconds of each call."""
    token = token_for(prepare(), "calls:create")
    with serving() as served:
        client = Client(served.port, token)
        for number in range(WARM_UP):
            _call(client, number)
        return [_call(client, number) for number in range(runs * CALLS)]


def _call(client: Client, number: int) -> float:
    started = perf_counter()
    answer = client.post("calls/", {"tool": "bench_noop", "arguments": {"number": number}})
    milliseconds = (perf_counter() - started) * 1000
    if answer["status"] != "completed":
        raise RuntimeError(f"The call is {answer['status']}.")
    return milliseconds


def per_second(clients: int) -> Callable[[int], list[float]]:
    """Return a function that measures the calls per second of this many concurrent clients."""

    def measure_rate(runs: int) -> list[float]:
        token = token_for(prepare(), "calls:create")
        with serving() as served, ThreadPoolExecutor(clients) as threads:
            callers = [Client(served.port, token) for _ in range(clients)]
            list(threads.map(_call_often, callers, [WARM_UP] * clients))
            rates = []
            for _ in range(runs):
                started = perf_counter()
                list(threads.map(_call_often, callers, [CALLS] * clients))
                rates.append(clients * CALLS / (perf_counter() - started))
            return rates

    return measure_rate


calls_per_s_1, calls_per_s_4, calls_per_s_16 = per_second(1), per_second(4), per_second(16)


def _call_often(client: Client, count: int) -> None:
    for number in range(count):
        _call(client, number)
