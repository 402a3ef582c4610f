"""`request_page_ms` and `request_page_kb`: the page of a request with 200 kB of arguments, open and decided."""

from time import perf_counter

from django.conf import settings
from django.test import Client

from approvals.models import ApprovalRequest
from approvals.reviews.decisions import Decision, decide
from approvals.states import ReviewVerdict
from benchmarks.ground import person, prepare
from plans.actions.create import create_plan
from plans.engine.loop import TimeSlice, advance, claim_work
from plans.executor.lifecycle import tune_garbage_collector
from plans.models import Plan
from plans.spec import PlanDocument
from plans.store.requesters import Requester

ARGUMENT_BYTES = 200_000
PAGES = 10


def measure(runs: int) -> list[float]:
    """Return the milliseconds of each page."""
    client, addresses = _prepare_pages()
    return [_open(client, address)[0] for _ in range(runs * PAGES) for address in addresses]


def measure_size(runs: int) -> list[float]:
    """Return the compressed size of each page in kilobytes."""
    client, addresses = _prepare_pages()
    return [_open(client, address)[1] for _ in range(runs) for address in addresses]


def _prepare_pages() -> tuple[Client, list[str]]:
    user, reviewer = prepare(), person("reviewer")
    lines: list[str] = []
    size = 0
    while size < ARGUMENT_BYTES:
        number = len(lines) + 1
        lines.append(f"{number},Customer {number * 7919 % 10007},{number * 31 % 977}.{number % 100:02d},open\n")
        size += len(lines[-1])
    requests = [_ask(Requester(user, via="shell"), f"data/export-{name}.csv", "".join(lines)) for name in ("a", "b")]
    decide(requests[1], by=reviewer, decision=Decision(ReviewVerdict.APPROVE, requests[1].digest))
    _work_off(Plan.objects.get(public_id=requests[1].plan_ref))
    settings.ALLOWED_HOSTS = ["testserver"]
    client = Client(headers={"Accept-Encoding": "gzip"})
    client.force_login(reviewer)
    addresses = [f"/approvals/?item={request.public_id}" for request in requests]
    for address in addresses:
        _open(client, address)
    tune_garbage_collector()
    return client, addresses


def _ask(by: Requester, path: str, content: str) -> ApprovalRequest:
    parameters = {"path": path, "content": content}
    step = {"step_id": 1, "description": "Export", "tool": "write_file", "parameters": parameters}
    plan = create_plan(PlanDocument.model_validate({"goal": "Measure", "steps": [step]}), by=by)
    _work_off(plan)
    return ApprovalRequest.objects.get(plan_ref=plan.public_id)


def _work_off(plan: Plan) -> None:
    work = claim_work(plan.pk, owner="bench")
    while work is not None:
        work = advance(work, TimeSlice("bench", until=float("inf"), steps_left=10))


def _open(client: Client, address: str) -> tuple[float, float]:
    started = perf_counter()
    response = client.get(address)
    milliseconds = (perf_counter() - started) * 1000
    if response.status_code != 200:
        raise RuntimeError(f"{address} answered {response.status_code}.")
    return milliseconds, len(response.content) / 1000
