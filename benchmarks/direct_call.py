"""`direct_call_ms`: POST of one safe call to a real server, answered with its result."""

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
