"""Work of an agent on the card of its step. Only viewers of private values get the model's texts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from catalog.models import Call
from plans.agents.messages import MESSAGES, ToolOutcome, ToolOutcomes, TurnResult
from plans.agents.runs import AWAITED, AgentWork, work_of
from plans.models import AGENT_TURN, AgentRun, Step
from plans.spec import extract_value
from plans.states import StepStatus
from plans.web.plan.overview import PlanOverview, StepOverview

TURNS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class TurnGroup:
    """One turn: the model's text, the calls that were made, and the requested calls that were refused."""

    turn: StepOverview
    said: str
    calls: Sequence[StepOverview]
    refused: Sequence[ToolOutcome] = ()


@dataclass(frozen=True, slots=True)
class AgentActivity:
    """Work of an agent: usage, turns (newest first), number of earlier turns, and the final answer."""

    run: AgentWork
    groups: Sequence[TurnGroup]
    earlier: int
    answer: str

    @property
    def may_speak(self) -> bool:
        """True if its model may be writing now: the newest turn has not ended."""
        return not self.groups or self.groups[0].turn.step.status in (StepStatus.PENDING, StepStatus.IN_PROGRESS)


def load_activity(overview: PlanOverview, number: int, *, may_read: bool) -> AgentActivity | None:
    """Return the work of a step's agent, or None without an agent; `may_read` includes the model's texts."""
    drawn = overview.by_number[number]
    run = work_of(drawn.step)
    if run is None:
        return None
    turns = list(_group_by_turn([each for each in overview.steps if each.parent == number]))
    shown = turns[-TURNS_SHOWN:]
    results = _turn_results([turn for turn, _ in shown]) if may_read else {}
    outcomes: Mapping[str, str] = {}
    if any(turn.number in results and len(results[turn.number].calls) > len(calls) for turn, calls in shown):
        outcomes = _call_outcomes(drawn.step)
    groups = []
    for turn, calls in reversed(shown):
        result = results.get(turn.number, TurnResult())
        # Steps are in the order of the calls they were made for. Calls that a limit prevented are left out; the reason
        # why the agent stopped covers them.
        made = [call.step.tool for call in calls]
        refused = []
        for each in result.calls:
            if not each.problem and made[:1] == [each.tool]:
                made.pop(0)
            elif each.id in outcomes:
                refused.append(ToolOutcome(id=each.id, tool=each.tool, text=outcomes[each.id]))
        groups.append(TurnGroup(turn, result.text, calls, refused))
    answer = groups[0].said if groups and run.stopped_for == "done" else ""
    return AgentActivity(run, groups, len(turns) - len(shown), answer)


def _group_by_turn(child_steps: Sequence[StepOverview]) -> Iterator[tuple[StepOverview, list[StepOverview]]]:
    turn: StepOverview | None = None
    calls: list[StepOverview] = []
    for child in child_steps:
        if child.step.tool != AGENT_TURN:
            calls.append(child)
            continue
        if turn is not None:
            yield turn, calls
        turn, calls = child, []
    if turn is not None:
        yield turn, calls


def _turn_results(turn_steps: Sequence[StepOverview]) -> Mapping[int, TurnResult]:
    numbers = {turn.step.call_id: turn.number for turn in turn_steps if turn.step.call_id}
    calls = Call.objects.filter(pk__in=numbers).exclude(response="").only("response")
    results = {}
    for call in calls:
        try:
            result = TurnResult.model_validate(extract_value(call.response_json, ["results", "0"]))
        except ValidationError:
            result = TurnResult()
        results[numbers[call.pk]] = result
    return results


def _call_outcomes(step: Step) -> Mapping[str, str]:
    """Return the texts that the model received or will receive about its calls, by call id."""
    run = AgentRun.objects.only("messages", "pending").get(step=step.pk)
    said = (each for each in MESSAGES.validate_json(run.messages) if isinstance(each, ToolOutcomes))
    outcomes = {outcome.id: outcome.text for each in said for outcome in each.results}
    return outcomes | {each.id: each.refusal for each in AWAITED.validate_json(run.pending) if each.refusal}
