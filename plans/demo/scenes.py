"""The demo's plans and their files. A plan is created again if no plan of its scene is in the expected state.

A plan that waits for a person is replaced once it no longer waits; other plans are created once.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

import yaml
from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Q

from approvals.requests.deadlines import expire_due
from catalog.core import clock
from catalog.models import ApiToken
from plans.actions.create import create_plan
from plans.executor.lifecycle import run_executor
from plans.models import Plan, Step
from plans.spec import PlanDocument
from plans.states import PlanStatus, WaitingFor
from plans.store.requesters import Requester

HERE = Path(__file__).parent
DRAFT = "reports/aapl-msft-fy2022.md"
"""File that the brief replaces; restored whenever the brief is created again."""
SECONDS = 60.0
POLL_SECONDS = 0.05
FOR_PEOPLE = (WaitingFor.APPROVAL, WaitingFor.OUTCOME)


@dataclass(frozen=True, slots=True)
class Scene:
    document: str
    username: str
    rests: PlanStatus
    by_agent: bool = False

    @property
    def plan(self) -> PlanDocument:
        text = (HERE / "documents" / f"{self.document}.yaml").read_text("utf-8")
        return PlanDocument.model_validate(yaml.safe_load(text))

    def stands(self) -> bool:
        """Return whether a plan of this scene exists in the expected state."""
        return Plan.objects.filter(kind=Plan.Kind.PLAN, goal=self.plan.goal, status=self.rests).exists()


SCENES = (
    Scene("margins", "ben", PlanStatus.COMPLETED),
    Scene("known", "ada", PlanStatus.COMPLETED),
    Scene("mistake", "ben", PlanStatus.FAILED),
    Scene("brief", "ada", PlanStatus.IN_PROGRESS, by_agent=True),
)


def make_plans(agent_token: ApiToken) -> list[Plan]:
    """Create missing plans, run each until it ends or waits for a person; return them. Raises TimeoutError."""
    expire_due(clock.now())
    missing = [scene for scene in SCENES if not scene.stands()]
    lay_out_files(replace={DRAFT} if any(scene.by_agent for scene in missing) else set())
    with run_executor():
        made = []
        for scene in missing:
            author = User.objects.get(username=scene.username)
            by = Requester(author, agent_token if scene.by_agent else None, via="shell")
            made.append(create_plan(scene.plan, by=by))
        wait_until_at_rest(made)
    return made


def lay_out_files(*, replace: Iterable[str]) -> None:
    """Copy the demo's files to the workspace; existing files are kept unless named in `replace`."""
    for source in sorted((HERE / "files").rglob("*.md")):
        path = source.relative_to(HERE / "files")
        target = settings.TOOLGATE_WORKSPACE / path
        if not target.exists() or path.as_posix() in replace:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())


def wait_until_at_rest(plans: list[Plan]) -> None:
    """Wait until every plan has ended or waits for a person. Raises TimeoutError."""
    ends = monotonic() + SECONDS
    while any(not is_at_rest(plan) for plan in plans):
        if monotonic() > ends:
            raise TimeoutError(f"The demo's plans neither ended nor waited within {SECONDS:.0f} s.")
        sleep(POLL_SECONDS)


def is_at_rest(plan: Plan) -> bool:
    """Return whether the plan makes no further progress without a person."""
    plan.refresh_from_db(fields=["status"])
    if plan.status != PlanStatus.IN_PROGRESS:
        return True
    steps = Step.objects.filter(plan=plan)
    moving = steps.filter(Q(ready_at__isnull=False) | Q(lease_until__isnull=False)).exists()
    return not moving and steps.filter(waiting_for__in=FOR_PEOPLE).exists()
