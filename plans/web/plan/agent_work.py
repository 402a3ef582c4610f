"""The work of an agent as the card of its step shows it: its turns, newest first, with what its model said and called.

What the model said is read for those alone who may see the plan's private values.
"""

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
    """One turn: what the model said in it, the calls that were made of those it wanted, and those that were refused."""

    turn: StepOverview
    said: str
    calls: Sequence[StepOverview]
    refused: Sequence[ToolOutcome] = ()


@dataclass(frozen=True, slots=True)
class AgentActivity:
    """What an agent did: its numbers, the newest turns first, how many earlier ones there are, its last words."""

    run: AgentWork
    groups: Sequence[TurnGroup]
    earlier: int
    answer: str

    @property
    def may_speak(self) -> bool:
        """Whether its model may be speaking now: its newest turn is not over."""
        return not self.groups or self.groups[0].turn.step.status in (StepStatus.PENDING, StepStatus.IN_PROGRESS)


def load_activity(picture: PlanOverview, number: int, *, may_read: bool) -> AgentActivity | None:
    """Return the work of the agent of a step, without its words for who may not read them; None without an agent."""
    drawn = picture.by_number[number]
    run = work_of(drawn.step)
    if run is None:
        return None
    turns = list(_group_by_turn([each for each in picture.steps if each.parent == number]))
    shown = turns[-TURNS_SHOWN:]
    results = _turn_results([turn for turn, _ in shown]) if may_read else {}
    told = _call_outcomes(drawn.step) if any(_refused_calls(results, *each) for each in shown) else {}
    groups = [_turn_group(results.get(turn.number, TurnResult()), turn, calls, told) for turn, calls in reversed(shown)]
    answer = groups[0].said if groups and run.stopped_for == "done" else ""
    return AgentActivity(run, groups, len(turns) - len(shown), answer)


def _group_by_turn(children: Sequence[StepOverview]) -> Iterator[tuple[StepOverview, list[StepOverview]]]:
    """Yield each turn with the calls that follow on it."""
    turn: StepOverview | None = None
    calls: list[StepOverview] = []
    for child in children:
        if child.step.tool != AGENT_TURN:
            calls.append(child)
            continue
        if turn is not None:
            yield turn, calls
        turn, calls = child, []
    if turn is not None:
        yield turn, calls


def _turn_results(turns: Sequence[StepOverview]) -> Mapping[int, TurnResult]:
    """Return what the model answered in each turn; one query."""
    numbers = {turn.step.call_id: turn.number for turn in turns if turn.step.call_id}
    calls = Call.objects.filter(pk__in=numbers).exclude(response="").only("response")
    return {numbers[call.pk]: _turn_result_of(call) for call in calls}


def _turn_result_of(call: Call) -> TurnResult:
    try:
        return TurnResult.model_validate(extract_value(call.response_json, ["results", "0"]))
    except ValidationError:
        return TurnResult()


def _refused_calls(results: Mapping[int, TurnResult], turn: StepOverview, calls: Sequence[StepOverview]) -> bool:
    return turn.number in results and len(results[turn.number].calls) > len(calls)


def _call_outcomes(step: Step) -> Mapping[str, str]:
    """Return what the model of an agent's step was told, or will be, by the ids of its calls; those under way aside."""
    run = AgentRun.objects.only("messages", "pending").get(step=step.pk)
    said = (each for each in MESSAGES.validate_json(run.messages) if isinstance(each, ToolOutcomes))
    told = {outcome.id: outcome.text for each in said for outcome in each.results}
    return told | {each.id: each.refusal for each in AWAITED.validate_json(run.pending) if each.refusal}


def _turn_group(
    result: TurnResult, turn: StepOverview, calls: Sequence[StepOverview], told: Mapping[str, str]
) -> TurnGroup:
    """Put the calls that have no step beside those that have: steps are in the order of the calls they were made for.

    Calls that were not made because a limit ended the work are told by why it ended.
    """
    made = [call.step.tool for call in calls]
    refused = []
    for each in result.calls:
        if not each.problem and made[:1] == [each.tool]:
            made.pop(0)
        elif each.id in told:
            refused.append(ToolOutcome(id=each.id, tool=each.tool, text=told[each.id]))
    return TurnGroup(turn, result.text, calls, refused)
