"""`plan_page_ms`: the page of a plan of 500 steps with 5,000 events, for its owner."""

from time import perf_counter

from django.conf import settings
from django.test import Client

from benchmarks.ground import prepare, step
from plans.actions.create import create_plan
from plans.engine.loop import TimeSlice, advance, claim_work
from plans.executor.lifecycle import tune_garbage_collector
from plans.models import Event, Plan
from plans.spec import PlanDocument
from plans.store.requesters import Requester
from plans.store.transactions import plan_transaction

STEPS = 500
EVENTS = 5000
WIDTH = 20
PAGES = 10


def measure(runs: int) -> list[float]:
    """Return the milliseconds of each page."""
    user = prepare()
    plan = _plan(Requester(user, via="shell"))
    settings.ALLOWED_HOSTS = ["testserver"]
    client = Client()
    client.force_login(user)
    _open(client, plan)
    tune_garbage_collector()
    return [_open(client, plan) for _ in range(runs * PAGES)]


def _plan(by: Requester) -> Plan:
    """Run a plan in which each step depends on one of the layer before, and add events up to the wanted number."""
    steps = [step(number, *([number - WIDTH] if number > WIDTH else [])) for number in range(1, STEPS + 1)]
    plan = create_plan(PlanDocument.model_validate({"goal": "Measure", "steps": steps}), by=by)
    work = claim_work(plan.pk, owner="bench")
    while work is not None:
        work = advance(work, TimeSlice("bench", until=float("inf"), steps_left=STEPS + 1))
    with plan_transaction(plan.pk, plan.public_id) as tx:
        for number in range(EVENTS - Event.objects.filter(plan=plan).count()):
            tx.record("memory.written", number % STEPS + 1, key=f"key_{number}")
    return plan


def _open(client: Client, plan: Plan) -> float:
    started = perf_counter()
    response = client.get(f"/plans/{plan.public_id}/")
    milliseconds = (perf_counter() - started) * 1000
    if response.status_code != 200:
        raise RuntimeError(f"The page answered {response.status_code}.")
    return milliseconds
