"""`decide_to_start_ms`: from an approval over REST until the handler is entered, while 1,000 requests wait."""

from collections.abc import Callable
from time import monotonic, sleep

from approvals.models import ApprovalRequest
from approvals.states import RequestStatus
from benchmarks.client import Client
from benchmarks.ground import SECONDS, person, prepare, serving, step, token_for
from catalog.models import Call
from catalog.states import CallStatus

WAITING = 1000
STEPS = 100
DECISIONS = 40
HOLD_SECONDS = 0.05
"""Time limit of one held call on a slow machine; it is not part of the measurement."""


def measure(runs: int) -> list[float]:
    """Return the milliseconds of each decision."""
    asks = token_for(prepare(), "plans:write")
    decides = token_for(person("reviewer"), "approvals:decide")
    with serving() as served:
        let_wait(Client(served.port, asks), WAITING + runs * DECISIONS)
        client = Client(served.port, decides)
        chosen = ApprovalRequest.objects.filter(status=RequestStatus.PENDING).order_by("?")[: runs * DECISIONS]
        return [_decide(client, request) for request in chosen]


def let_wait(client: Client, count: int, *, besides: int = 0) -> None:
    """Post plans with `count` calls that need approval, and return once these and `besides` earlier ones wait."""
    steps = [step(number, tool="bench_moment") for number in range(1, STEPS + 1)]
    for _ in range(-(-count // STEPS)):
        client.post("plans/", {"goal": "Measure", "steps": steps})
    waiting = ApprovalRequest.objects.filter(status=RequestStatus.PENDING)
    _wait(lambda: waiting.count() >= count + besides, seconds=SECONDS + (count + besides) * HOLD_SECONDS)


def _decide(client: Client, request: ApprovalRequest) -> float:
    """Approve one request; return the milliseconds until its handler, which returns that time, was entered."""
    review = {"verdict": "approve", "seen_digest": request.digest}
    started = monotonic()
    client.post(f"approvals/{request.public_id}/reviews/", review)
    completed = Call.objects.filter(pk=request.call_id, status=CallStatus.COMPLETED)
    _wait(completed.exists, 0.02)
    (entered,) = completed.get().response_json["results"]
    return (float(entered) - started) * 1000


def _wait(happened: Callable[[], bool], pause: float = 0.2, seconds: float = SECONDS) -> None:
    ends = monotonic() + seconds
    while not happened():
        if monotonic() > ends:
            raise TimeoutError("The server did not get there in time.")
        sleep(pause)
