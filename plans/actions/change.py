"""Changes to a plan while it runs: edit or remove steps that have not started, and add others, all or nothing.

The resulting plan is validated as a whole, by the same rules as a new one, before the plan is locked. Under the lock it
is validated again if a step was started, added or changed since. A person who changes a step counts as its requester
and cannot approve it.
"""

import json
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any

from django.db.models import Max, QuerySet
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from catalog.access.roles import user_display_name
from catalog.calls import vault
from catalog.calls.vault import RestoredArguments
from catalog.core.canonical_json import MAX_JSON_BYTES, check_json, json_size
from catalog.core.transactions import retry_on_deadlock
from catalog.errors import Conflict, MalformedJSON
from catalog.secrets.placeholders import PLACEHOLDER_KEY, redact_text, without_macs
from plans import spec
from plans.actions import create
from plans.actions.create import PlanProblems
from plans.documents.reading import Problem, problem_from_error
from plans.engine import early_requests, finishing, hints
from plans.engine.calls import ADDS_STEPS
from plans.engine.refusals import (
    AGENT_OUTSIDE,
    lets_agents_exceed_limits,
    require_plan_within_limits,
)
from plans.models import MemoryItem, Plan, Step, StepDependency
from plans.spec import PlanDocument, StepDocument
from plans.states import PlanStatus, StepStatus
from plans.store.plan_documents import (
    Document,
    agent_calls,
    describe_agent_call,
    redacted_parameters,
    removed_step_numbers,
    require_no_agent_calls,
    step_columns,
    step_documents,
    store_initial_memory,
    store_step_secrets,
    unstarted_steps,
)
from plans.store.requesters import Requester, add_requesters
from plans.store.transactions import PlanTransaction, plan_transaction

OPEN = (PlanStatus.PENDING, PlanStatus.IN_PROGRESS)
NOTHING_CHANGED = "Nothing was changed."
_STEP_PATH = re.compile(r"steps\.(\d+)(.*)")

Steps = Annotated[list[dict[str, Any]], Field(max_length=spec.MAX_STEPS)]


class PlanChange(BaseModel):
    """Requested changes: another goal, steps to add, fields of steps to edit, steps to remove.

    Each edit names its step by `step_id`; null clears a field. `seen_seq` is the last event that the sender has seen:
    a later change by someone else is a conflict.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    goal: str | None = None
    add: Steps = Field(default_factory=list)
    edit: Steps = Field(default_factory=list)
    remove: Annotated[list[int], Field(max_length=spec.MAX_STEPS)] = Field(default_factory=list)
    seen_seq: int | None = Field(default=None, ge=0)


def is_open_to_change(plan: Plan) -> bool:
    return plan.kind != Plan.Kind.CALL and plan.can_modify and plan.status in OPEN


def read_plan_change(body: object) -> PlanChange:
    """Parse a change from a JSON body. Raises PlanProblems if the body has the wrong shape."""
    try:
        change = PlanChange.model_validate(check_json(body))
    except MalformedJSON as malformed:
        raise PlanProblems([_error(malformed.path, malformed.code, malformed.message)]) from None
    except ValidationError as error:
        raise PlanProblems([problem_from_error(each, PlanChange) for each in error.errors(include_url=False)]) from None
    if change.goal is None and not (change.add or change.edit or change.remove):
        raise PlanProblems([_error("", "required", "Name something to change: goal, add, edit or remove.")])
    return change


@dataclass(frozen=True, slots=True)
class JudgedChange:
    """A checked change: the document of the resulting plan, and all problems, with paths into the change.

    `places` has the path into the change for each step of the document; it is empty for an unchanged step.
    """

    document: Document
    places: Sequence[str]
    problems: list[Problem] = field(default_factory=list)


@retry_on_deadlock
def change_plan(plan: Plan, change: PlanChange, *, by: Requester) -> None:
    """Change a plan that may be changed and has not ended.

    Raises Conflict if it is too late for the plan or for a step, OutsideLimits if `by` may not use a tool of the other
    steps, and PlanProblems with all problems of the resulting plan. Nothing is changed then.
    """
    require_plan_within_limits(plan, by.ids, replaced=[*_edited(change), *change.remove])
    standing = _judgement_basis(plan)
    document = _validated(plan, change, by)
    with plan_transaction(plan.pk, plan.public_id) as tx:
        if _judgement_basis(plan) != standing:
            document = _validated(plan, change, by)
        _Change(plan, tx, change, by).apply(document)


def _judgement_basis(plan: Plan) -> tuple[object, ...]:
    """Return the state that a validation depends on. The validation holds until this state changes."""
    status = Plan.objects.values_list("status", flat=True).get(pk=plan.pk)
    changed = plan.events.filter(type="plan.changed").aggregate(last=Max("seq"))["last"]
    free = frozenset(unstarted_steps(plan).values_list("step_id", flat=True))
    return status, changed, plan.steps.count(), free


def _validated(plan: Plan, change: PlanChange, by: Requester) -> PlanDocument:
    before = step_documents(plan, opened=True)
    _judge_state(plan, change, before)
    judged = _judged(plan, change, before, by)
    problems = [problem for problem in judged.problems if problem.severity == "error"]
    problems += _agent_problems(plan, judged, by, {problem.path for problem in problems})
    if problems:
        raise PlanProblems(problems)
    return PlanDocument.model_validate(judged.document)


def _agent_problems(plan: Plan, judged: JudgedChange, by: Requester, known: Set[str]) -> list[Problem]:
    """Return a problem for each new or edited step whose agent could exceed the limits of the changing token."""
    if not lets_agents_exceed_limits(plan, by.ids):
        return []
    steps = zip(judged.document["steps"], judged.places, strict=True)
    places = [place for step, place in steps if place and (step.get("agent") or step.get("tool") in ADDS_STEPS)]
    found = [_error(f"{place}.agent", "outside_limits", AGENT_OUTSIDE) for place in places]
    return [each for each in found if each.path not in known]


def judge_change(plan: Plan, change: PlanChange) -> "JudgedChange":
    """Return the plan that would result from a change now, with its problems; store nothing."""
    return _judged(plan, change, step_documents(plan, opened=True), None)


def _kept_secrets(plan: Plan, change: PlanChange) -> dict[int, RestoredArguments]:
    """Return the parameters of edited steps that have stored secrets, with the secrets restored, by index of the edit.

    An edit keeps a secret by naming it as `{"$secret": name}`.

    An edit without parameters keeps all secrets of its step, and may pass them to another tool.
    """
    texts = dict(plan.steps.filter(parameters__contains=PLACEHOLDER_KEY).values_list("step_id", "parameters"))
    return {
        place: vault.restore_edited_arguments(
            each["parameters"] if "parameters" in each else json.loads(without_macs(texts[each["step_id"]])),
            texts[each["step_id"]],
            plan.public_id,
        )
        for place, each in enumerate(change.edit)
        if type(each.get("step_id")) is int and each["step_id"] in texts
    }


def _judge_state(plan: Plan, change: PlanChange, documents: Mapping[int, Document]) -> None:
    plan.refresh_from_db(fields=["status", "can_modify", "kind", "goal"])
    if plan.kind == Plan.Kind.CALL:
        raise Conflict("This is a single call, which cannot be changed. Withdraw it and call again.")
    if not plan.can_modify:
        raise Conflict("This plan cannot be changed: it was submitted with can_modify false. Clone it instead.")
    if plan.status not in OPEN:
        raise Conflict(f"This plan has ended ({plan.status}), so it cannot be changed. Clone it instead.")
    # An agent's own steps change nothing that people wrote.
    by_others = plan.events.filter(type="plan.changed", step_id=None)
    if change.seen_seq is not None and by_others.filter(seq__gt=change.seen_seq).exists():
        raise Conflict(f"Someone else changed this plan after you loaded it. {NOTHING_CHANGED}")
    lists = [each.get("dependencies") for each in (*change.add, *change.edit)]
    needed = [number for numbers in lists if isinstance(numbers, list) for number in numbers if type(number) is int]
    require_no_agent_calls([*_edited(change), *change.remove, *needed], plan)
    named = {number for number in (*_edited(change), *change.remove) if number in documents}
    started = sorted(named - set(unstarted_steps(plan).values_list("step_id", flat=True)))
    if started:
        several = len(started) > 1
        steps = f"Step{'s' * several} {', '.join(map(str, started))} {'have' if several else 'has'}"
        raise Conflict(f"{steps} started, so {'they' if several else 'it'} cannot be changed. {NOTHING_CHANGED}")


def _edited(change: PlanChange) -> list[int]:
    return [each["step_id"] for each in change.edit if type(each.get("step_id")) is int]


def _judged(plan: Plan, change: PlanChange, documents: Mapping[int, Document], by: Requester | None) -> JudgedChange:
    keys = dict.fromkeys(plan.memory.filter(type=MemoryItem.Type.VALUE).values_list("key", flat=True))
    calls = agent_calls(plan)
    used = {number: f"Step {number} was removed from this plan" for number in removed_step_numbers(plan)}
    used |= {number: describe_agent_call(number, agents) for number, agents in calls.items()}
    found = _numbers(change, documents, used)
    kept = _kept_secrets(plan, change)
    edit = [
        {**each, "parameters": kept[place].arguments} if place in kept else each
        for place, each in enumerate(change.edit)
    ]
    change = change.model_copy(update={"edit": edit})
    result = _changed_plan(change, documents, {"goal": plan.goal, "memory": keys})
    moved = []  # kept secrets that the change would move, or that another tool would store in clear
    for step, whole in zip(result.document["steps"], result.places, strict=True):
        part = kept.get(int(whole.removeprefix("edit."))) if whole.startswith("edit.") else None
        if part is not None:
            redacted = redacted_parameters(step.get("tool"), step.get("parameters"))
            paths = (*part.moved, *part.unredacted_paths(redacted))
            moved += [_error(f"{whole}.parameters.{path}", "secret_moved", vault.MOVED_MESSAGE) for path in paths]
    author = Requester(plan.author, plan.token)
    check = partial(create.check_document, by=author, changing_requester=by)
    standing = check({"goal": plan.goal, "steps": list(documents.values()), "memory": keys})
    known = {_problem_identity(problem, list(documents)) for problem in standing}
    checked = _problems_of_change(check(result.document), result, known, change)
    found += moved + [each for each in checked if each.path not in {one.path for one in moved}]
    if json_size(result.document["steps"]) > MAX_JSON_BYTES:
        found.append(_error("", "too_large", f"The plan would have more than {MAX_JSON_BYTES:,} bytes."))
    if calls and len(result.document["steps"]) + len(calls) > spec.MAX_STEPS:
        message = f"The plan would have more than {spec.MAX_STEPS} steps, including {len(calls)} made by its agents."
        found.append(_error("add", "too_many", message))
    return replace(result, problems=found)


def _numbers(change: PlanChange, documents: Mapping[int, Document], used: Mapping[int, str]) -> list[Problem]:
    """Return problems with the step ids in the change; `used` maps each taken id to the reason."""
    found, named = [], set[int]()
    places = [(f"edit.{place}.step_id", each.get("step_id")) for place, each in enumerate(change.edit)]
    places += [(f"remove.{place}", number) for place, number in enumerate(change.remove)]
    for path, number in places:
        if type(number) is not int:
            found.append(_error(path, "required", "Give the number of the step."))
        elif number not in documents:
            found.append(_error(path, "unknown_step", f"This plan has no step {number}."))
        elif number in named:
            found.append(_error(path, "duplicate_step_id", f"Step {number} is named twice. Change each step once."))
        else:
            named.add(number)
    for place, step in enumerate(change.add):
        if step.get("step_id") in used:
            message = f"{used[step['step_id']]}. Numbers are not reused; choose another."
            found.append(_error(f"add.{place}.step_id", "step_id_used", message))
    return found


def _changed_plan(change: PlanChange, documents: Mapping[int, Document], rest: Document) -> JudgedChange:
    steps, places = [], []
    edits = {each.get("step_id"): (place, each) for place, each in reversed(list(enumerate(change.edit)))}
    for number, document in documents.items():
        if number in change.remove:
            continue
        place, edit = edits.get(number, (None, {}))
        steps.append({**document, **edit})
        places.append("" if place is None else f"edit.{place}")
    steps += change.add
    places += [f"add.{place}" for place in range(len(change.add))]
    goal = rest["goal"] if change.goal is None else change.goal
    return JudgedChange({**rest, "goal": goal, "steps": steps}, places)


def _problem_identity(problem: Problem, numbers: Sequence[int]) -> tuple[int, str, str] | None:
    """Return step, field and code of a problem, to recognise problems that the plan had before the change."""
    place = _STEP_PATH.fullmatch(problem.path)
    return (numbers[int(place[1])], place[2], problem.code) if place else None


def _problems_of_change(
    problems: Sequence[Problem], judged: JudgedChange, known: set[tuple[int, str, str] | None], change: PlanChange
) -> list[Problem]:
    """Return the problems with paths into the change. Of unchanged steps, return only problems that are new."""
    numbers = [step.get("step_id", 0) for step in judged.document["steps"]]
    found = []
    for problem in problems:
        place = _STEP_PATH.fullmatch(problem.path)
        if place is None:
            if not problem.path.startswith("memory"):
                # A problem with the number of steps is one with those added or removed.
                number_of_steps = "add" if change.add else "remove"
                path = number_of_steps if problem.path == "steps" else problem.path
                found.append(replace(problem, path=path))
        elif judged.places[int(place[1])]:
            found.append(replace(problem, path=judged.places[int(place[1])] + place[2]))
        elif problem.severity == "error" and _problem_identity(problem, numbers) not in known:
            found.append(_problem_of_unchanged_step(problem, judged, place, change))
    return found


def _problem_of_unchanged_step(
    problem: Problem, judged: JudgedChange, place: "re.Match[str]", change: PlanChange
) -> Problem:
    """Return a problem of an unchanged step, with the path of the removal that causes it."""
    step = judged.document["steps"][int(place[1])]
    _, name, *index = place[2].split(".")
    needed = step["dependencies"][int(index[0])] if name == "dependencies" and index else None
    if needed in change.remove:
        message = f"Step {step['step_id']} depends on step {needed}. Remove both, or change its dependencies."
        return replace(problem, path=f"remove.{change.remove.index(needed)}", message=message, suggestion=None)
    return replace(problem, path="", message=f"Step {step['step_id']}: {problem.message}")


def _error(path: str, code: str, message: str) -> Problem:
    return Problem(path, code, "error", message)


@dataclass(frozen=True, slots=True)
class _Change:
    plan: Plan
    tx: PlanTransaction
    change: PlanChange
    by: Requester

    def apply(self, document: PlanDocument) -> None:
        named = self._rows([*_edited(self.change), *self.change.remove]).exclude(call=None)
        early_calls = early_requests.early_calls(named)
        early_requests.withdraw_early_requests(early_calls, "The step was changed.", by=self.by.user)
        gone = list(self._rows(self.change.remove).values_list("pk", flat=True))
        if len(gone) != len(self.change.remove):
            raise Conflict(f"A step to be removed has started. {NOTHING_CHANGED}")
        Step.objects.filter(pk__in=gone).delete()
        edited, added = set(_edited(self.change)), {each["step_id"] for each in self.change.add}
        touched = [step for step in document.steps if step.step_id in edited | added]
        Step.objects.bulk_create(
            Step(plan=self.plan, step_id=step.step_id, **step_columns(step))
            for step in touched
            if step.step_id in added
        )
        for step in touched:
            if step.step_id in edited and not self._rows([step.step_id]).update(
                call=None, given_arguments="", **step_columns(step)
            ):
                raise Conflict(f"Step {step.step_id} has started. {NOTHING_CHANGED}")
        store_step_secrets(self.plan.public_id, touched)
        self._connect(touched)
        store_initial_memory(self.plan, touched)
        add_requesters(self.plan, [step.step_id for step in touched], by=self.by)
        details: dict[str, Any] = {
            "added": sorted(added),
            "edited": sorted(edited),
            "removed": sorted(self.change.remove),
        }
        if document.goal != self.plan.goal:
            Plan.objects.filter(pk=self.plan.pk).update(goal=redact_text(document.goal))
            details["goal"] = True
        details = {name: value for name, value in details.items() if value}
        self.tx.record("plan.changed", by=user_display_name(self.by.user), **details)
        hints.hint(self.plan.pk, self._make_ready([step.step_id for step in touched]))
        finishing.settle_plan(self.tx)

    def _rows(self, numbers: Sequence[int]) -> QuerySet[Step]:
        return unstarted_steps(self.plan).filter(step_id__in=numbers)

    def _connect(self, documents: Sequence[StepDocument]) -> None:
        pks = dict(self.plan.steps.values_list("step_id", "pk"))
        StepDependency.objects.filter(step__in=[pks[step.step_id] for step in documents]).delete()
        StepDependency.objects.bulk_create(
            StepDependency(step_id=pks[step.step_id], needs_id=pks[needed])
            for step in documents
            for needed in step.dependencies
        )

    def _make_ready(self, numbers: Sequence[int]) -> int:
        """Count and store the unfinished dependencies of each changed step; return how many steps are ready."""
        left = dict.fromkeys(numbers, 0)
        waits = StepDependency.objects.filter(step__plan=self.plan, step__step_id__in=numbers)
        for number in waits.exclude(needs__status=StepStatus.COMPLETED).values_list("step__step_id", flat=True):
            left[number] += 1
        goes_on = self.plan.status == PlanStatus.IN_PROGRESS
        for count in sorted(set(left.values())):
            ready_at = self.tx.now if goes_on and not count else None
            those = self._rows([number for number in left if left[number] == count])
            those.update(dependencies_left=count, ready_at=ready_at)
        return list(left.values()).count(0) if goes_on else 0
