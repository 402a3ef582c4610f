"""`queue_page_ms`: the queue of a reviewer with 10,000 waiting requests: its page, its views, its lists over REST."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from time import perf_counter

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client

from approvals.models import ApprovalRequest, PolicyRevision, Review, Round, Snooze
from benchmarks.ground import person, prepare, token_for
from catalog.core import clock
from catalog.core.canonical_json import canonical_text
from catalog.models import Call, CallRequester, Tool
from catalog.states import CallStatus
from plans.executor.lifecycle import tune_garbage_collector
from plans.models import Plan, Step
from plans.states import PlanStatus, StepStatus, WaitingFor

WAITING = 10_000
DECIDED = 20_000
PER_PLAN = 10
AT_ONCE = 1000
TOOL = "write_file"
PAGES = ("", "?status=needs_me", "?status=others", "?status=snoozed", "?status=decided")
LISTS = ("?status=pending", "?status=needs_me&page_size=100", "?status=waiting&order=risk", "?tool=write_file")


def measure(runs: int) -> list[float]:
    """Return the milliseconds of each response."""
    asker, reviewer = prepare(), person("reviewer")
    with transaction.atomic():
        fill_queue(asker, reviewer)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")  # as autovacuum does within a minute, and as a queue that grew slowly has long had
    settings.ALLOWED_HOSTS = ["testserver"]
    pages, rest = Client(), Client(headers={"Authorization": f"Bearer {token_for(reviewer, 'approvals:read')}"})
    pages.force_login(reviewer)
    asked = [(pages, f"/approvals/{page}") for page in PAGES]
    asked += [(rest, f"/api/v1/approvals/{query}") for query in LISTS]
    for client, address in asked:
        _open(client, address)
    tune_garbage_collector()
    return [_open(client, address) for _ in range(runs) for client, address in asked]


def _open(client: Client, address: str) -> float:
    started = perf_counter()
    response = client.get(address)
    milliseconds = (perf_counter() - started) * 1000
    if response.status_code != 200:
        raise RuntimeError(f"{address} answered {response.status_code}.")
    return milliseconds


def fill_queue(asker: User, reviewer: User, *, waiting: int = WAITING, decided: int = DECIDED) -> None:
    """Store requests in bulk, as the engine would; a third are claimed by others, snoozed or partly approved."""
    now, revision = clock.now(), PolicyRevision.objects.get(safety_level="dangerous")
    PolicyRevision.objects.filter(pk=revision.pk).update(stages=[{"group": "reviewer", "count": 2}])
    total = waiting + decided
    plans = Plan.objects.bulk_create(_plans(asker, now, total // PER_PLAN), AT_ONCE)
    calls = Call.objects.bulk_create(_calls(asker, now, plans, decided), AT_ONCE)
    steps = (
        Step(
            plan=plans[number // PER_PLAN],
            step_id=number % PER_PLAN + 1,
            description="Write",
            tool=TOOL,
            parameters=call.arguments,
            status=StepStatus.IN_PROGRESS,
            waiting_for=WaitingFor.APPROVAL,
            call=call,
        )
        for number, call in enumerate(calls)
    )
    Step.objects.bulk_create(steps, AT_ONCE)
    CallRequester.objects.bulk_create((CallRequester(call=call, user=asker) for call in calls), AT_ONCE)
    requests = ApprovalRequest.objects.bulk_create(_requests(calls, revision, now, decided), AT_ONCE)
    rounds = Round.objects.bulk_create(_rounds(requests), AT_ONCE)
    _lay_over(requests[decided:], rounds[decided:], asker, reviewer)


def _plans(asker: User, now: datetime, count: int) -> Iterator[Plan]:
    for number in range(count):
        yield Plan(goal=f"Plan {number}", author=asker, created_at=now, status=PlanStatus.IN_PROGRESS)


def _calls(asker: User, now: datetime, plans: list[Plan], decided: int) -> Iterator[Call]:
    tool = Tool.objects.select_related("current_version").get(name=TOOL)
    if tool.current_version is None:
        raise RuntimeError(f"{TOOL} has no version.")
    for number in range(len(plans) * PER_PLAN):
        yield Call(
            tool_name=TOOL,
            version=tool.current_version,
            arguments=canonical_text({"path": f"reports/{number % 3000}.txt", "content": "x" * 300}),
            status=CallStatus.FAILED if number < decided else CallStatus.HELD,
            requested_by=asker,
            plan_ref=plans[number // PER_PLAN].public_id,
            step_ref=str(number % PER_PLAN + 1),
            created_at=now,
        )


def _requests(calls: list[Call], revision: PolicyRevision, now: datetime, decided: int) -> Iterator[ApprovalRequest]:
    for number, call in enumerate(calls):
        opened = now - timedelta(seconds=len(calls) - number)
        yield ApprovalRequest(
            call=call,
            status="rejected" if number < decided else "pending",
            digest=f"{number:064x}",
            intent_digest=f"{number:064x}",
            likeness=f"{number % 3000:064x}",
            policy_revision=revision,
            tool_version=call.version,
            plan_ref=call.plan_ref,
            opened_at=opened,
            expires_at=now + timedelta(days=1),
            decided_at=opened if number < decided else None,
        )


def _rounds(requests: list[ApprovalRequest]) -> Iterator[Round]:
    for request in requests:
        yield Round(
            request=request,
            number=1,
            arguments=request.call.arguments,
            digest=request.digest,
            preview=json.dumps({"summary": "Write a report", "kind": "diff", "before": "", "after": "x" * 300}),
            policy_revision_id=request.policy_revision_id,
            quorum=2,
            created_at=request.opened_at,
        )


def _lay_over(requests: list[ApprovalRequest], rounds: list[Round], asker: User, reviewer: User) -> None:
    until = clock.now() + timedelta(hours=1)
    Snooze.objects.bulk_create(Snooze(request=each, person=reviewer, until=until) for each in requests[::10])
    claimed = [each.pk for each in requests[1::10]]
    ApprovalRequest.objects.filter(pk__in=claimed).update(claimed_by=asker, claimed_until=until)
    reviews = (
        Review(
            round=rounds[place],
            request=requests[place],
            person=reviewer,
            verdict="approve",
            seen_digest=requests[place].digest,
            channel="rest",
            at=clock.now(),
        )
        for place in range(2, len(requests), 10)
    )
    Review.objects.bulk_create(reviews, AT_ONCE)
