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
from plans.web.plan.overview import Picture, StepPicture

TURNS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Group:
    """One turn: what the model said in it, the calls that were made of those it wanted, and those that were refused."""

    turn: StepPicture
    said: str
    calls: Sequence[StepPicture]
    refused: Sequence[ToolOutcome] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """What an agent did: its numbers, the newest turns first, how many earlier ones there are, its last words."""

    run: AgentWork
    groups: Sequence[Group]
    earlier: int
    answer: str

    @property
    def may_speak(self) -> bool:
        """Whether its model may be speaking now: its newest turn is not over."""
        return not self.groups or self.groups[0].turn.step.status in (StepStatus.PENDING, StepStatus.IN_PROGRESS)


def work_at(picture: Picture, number: int, *, may_read: bool) -> Work | None:
    """Return the work of the agent of a step, without its words for who may not read them; None without an agent."""
    drawn = picture.by_number[number]
    run = work_of(drawn.step)
    if run is None:
        return None
    turns = list(_turns([each for each in picture.steps if each.parent == number]))
    shown = turns[-TURNS_SHOWN:]
    results = _results([turn for turn, _ in shown]) if may_read else {}
    told = _told(drawn.step) if any(_unmade(results, *each) for each in shown) else {}
    groups = [_group(results.get(turn.number, TurnResult()), turn, calls, told) for turn, calls in reversed(shown)]
    answer = groups[0].said if groups and run.stopped_for == "done" else ""
    return Work(run, groups, len(turns) - len(shown), answer)


def _turns(children: Sequence[StepPicture]) -> Iterator[tuple[StepPicture, list[StepPicture]]]:
    """Yield each turn with the calls that follow on it."""
    turn: StepPicture | None = None
    calls: list[StepPicture] = []
    for child in children:
        if child.step.tool != AGENT_TURN:
            calls.append(child)
            continue
        if turn is not None:
            yield turn, calls
        turn, calls = child, []
    if turn is not None:
        yield turn, calls


def _results(turns: Sequence[StepPicture]) -> Mapping[int, TurnResult]:
    """Return what the model answered in each turn; one query."""
    numbers = {turn.step.call_id: turn.number for turn in turns if turn.step.call_id}
    calls = Call.objects.filter(pk__in=numbers).exclude(response="").only("response")
    return {numbers[call.pk]: _result_of(call) for call in calls}


def _result_of(call: Call) -> TurnResult:
    try:
        return TurnResult.model_validate(extract_value(call.response_json, ["results", "0"]))
    except ValidationError:
        return TurnResult()


def _unmade(results: Mapping[int, TurnResult], turn: StepPicture, calls: Sequence[StepPicture]) -> bool:
    return turn.number in results and len(results[turn.number].calls) > len(calls)


def _told(step: Step) -> Mapping[str, str]:
    """Return what the model of an agent's step was told, or will be, by the ids of its calls; those under way aside."""
    run = AgentRun.objects.only("messages", "pending").get(step=step.pk)
    said = (each for each in MESSAGES.validate_json(run.messages) if isinstance(each, ToolOutcomes))
    told = {outcome.id: outcome.text for each in said for outcome in each.results}
    return told | {each.id: each.refusal for each in AWAITED.validate_json(run.pending) if each.refusal}


def _group(result: TurnResult, turn: StepPicture, calls: Sequence[StepPicture], told: Mapping[str, str]) -> Group:
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
    return Group(turn, result.text, calls, refused)
