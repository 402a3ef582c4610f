"""The conditions that hold after any fault, checked on the sink, the client's history and the rows."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from django.db.models import Q

from approvals.audit.verification import verify
from approvals.models import ApprovalRequest, Review
from approvals.states import RequestStatus
from catalog.models import Call
from catalog.states import CallStatus
from plans.models import Event, Plan, Step
from plans.states import PlanStatus, StepStatus, WaitingFor
from tests.chaos.history import History
from tests.chaos.serving import marks_in
from tests.chaos.tools import AT_MOST_ONCE
from tests.invariants import assert_invariants

OVER = (PlanStatus.COMPLETED, PlanStatus.FAILED, PlanStatus.CANCELLED)
NAMED = (WaitingFor.APPROVAL, WaitingFor.INPUT, WaitingFor.OUTCOME)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The folder of the sink and the history of a run."""

    effects: Path
    history: History

    @contextmanager
    def kept(self, scenario: str, seed: int) -> Iterator[None]:
        """Store the sink, the history, the logs and the rows of a scenario if it fails."""
        try:
            yield
        except BaseException:
            place = settings.VAR_DIR / "chaos" / f"{scenario.replace(', ', '-').replace(' ', '-')}-{seed}"
            shutil.copytree(self.effects, place, dirs_exist_ok=True)
            call_command("dumpdata", "plans", "approvals", "catalog.call", output=str(place / "rows.json"))
            print(f"The traces of the failure are in {place}")  # noqa: T201
            raise

    def summary(self) -> dict[str, int]:
        """Return the counts of the run."""
        marks, calls = marks_in(self.effects), Call.objects.all()
        return {
            "plans": Plan.objects.count(),
            "plans_over": Plan.objects.filter(status__in=OVER).count(),
            "effects": sum(number for (_, word), number in marks.items() if word == "began"),
            "effects_once_only": sum(
                marks[ref, "began"]
                for ref in calls.filter(tool_name__in=AT_MOST_ONCE).values_list("public_id", flat=True)
            ),
            "unknown_outcomes": Event.objects.filter(type="step.outcome_unknown").count(),
            "unknown_still_waiting": Step.objects.filter(waiting_for=WaitingFor.OUTCOME).count(),
            "answers_lost": self.history.count("info"),
            "acknowledged": self.history.count("ok"),
        }


def unsettled() -> list[str]:
    """Return the plans that have not ended and do not merely wait for a known reason."""
    moving = Q(steps__ready_at__isnull=False) | Q(steps__lease_until__isnull=False)
    going = Plan.objects.exclude(status__in=OVER)
    held = going.filter(steps__status=StepStatus.IN_PROGRESS, steps__waiting_for__in=NAMED).exclude(moving)
    return sorted(set(going.values_list("public_id", flat=True)) - set(held.values_list("public_id", flat=True)))


def violations(evidence: Evidence) -> list[str]:
    """Return all violations as sentences."""
    found = [*_wrong_effects(evidence.effects), *_lost_writes(evidence.history), *_torn_rows()]
    if not verify().intact:
        found.append("the audit chain is broken")
    return found


def _wrong_effects(effects: Path) -> list[str]:
    marks, found = marks_in(effects), []
    attempts = Counter(tuple(line.split()) for line in _lines(effects / "sink"))
    found += [f"the sink has {number} times: {each}" for each, number in attempts.items() if number > 1]
    known = set()
    for call in Call.objects.all():
        known.add(call.public_id)
        began, ended = marks[call.public_id, "began"], marks[call.public_id, "ended"]
        if began > (1 if call.tool_name in AT_MOST_ONCE else call.attempt):
            found.append(f"{call.public_id} of {call.tool_name} began {began} times")
        if call.status == CallStatus.COMPLETED and "settled" not in (call.response_json or {}) and not ended:
            found.append(f"{call.public_id} is completed without an effect")
        if call.tool_name == "dangerous_work" and began and not _was_consumed(call):
            found.append(f"{call.public_id} ran without an approval")
    return found + [f"{ref} ran and is not in the database" for ref, _ in marks if ref not in known]


def _was_consumed(call: Call) -> bool:
    return ApprovalRequest.objects.filter(call=call, status=RequestStatus.CONSUMED).exists()


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _lost_writes(history: History) -> list[str]:
    stored = list(Plan.objects.values_list("goal", "public_id"))
    found = [f"the key {goal} made {n} plans" for goal, n in Counter(goal for goal, _ in stored).items() if n > 1]
    found += [
        f"the plan {ref} was acknowledged and is lost"
        for key, ref in history.acknowledged("plan").items()
        if (key, ref) not in stored
    ]
    found += [f"the plan {key} was refused and is there" for key in history.refused("plan") & {g for g, _ in stored}]
    reviewed = set(Review.objects.values_list("request__public_id", flat=True))
    acknowledged = set(history.acknowledged("review").values())
    return found + [f"the review of {ref} was acknowledged and is lost" for ref in acknowledged - reviewed]


def _torn_rows() -> list[str]:
    held = Step.objects.exclude(lease_until=None, claimed_by="", ready_at=None)
    found = [f"step {step} is still claimed or ready" for step in held]
    for plan in Plan.objects.all():
        numbers = list(plan.events.order_by("seq").values_list("seq", flat=True))
        if numbers != list(range(1, plan.last_seq + 1)):
            found.append(f"the events of {plan.public_id} have gaps")
    return found


def assert_nothing_is_wrong(evidence: Evidence) -> None:
    """Fail with all violations and all plans in limbo."""
    found = [*violations(evidence), *(f"{ref} is in limbo" for ref in unsettled())]
    assert not found, json.dumps(found[:40], indent=1)
    sink = evidence.effects / "sink"
    sink.touch()
    evidence.history.path.touch()
    assert_invariants(effects=sink, history=evidence.history.path)
