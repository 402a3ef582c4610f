"""The work of an agent as the card of its step shows it: its turns, newest first, with what its model said and called.

What the model said is read for those alone who may see the plan's private values.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from catalog.models import Call
from plans.agents.conversation import TurnResult
from plans.agents.shown import AgentWork, work_of
from plans.models import AGENT_TURN
from plans.picture import Picture, StepPicture
from plans.spec import extract_value

TURNS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Group:
    """One turn: what the model said in it, and the calls that it wanted."""

    turn: StepPicture
    said: str
    calls: Sequence[StepPicture]


@dataclass(frozen=True, slots=True)
class Work:
    """What an agent did: its numbers, the newest turns first, how many earlier ones there are, its last words."""

    run: AgentWork
    groups: Sequence[Group]
    earlier: int
    answer: str


def work_at(picture: Picture, number: int, *, may_read: bool) -> Work | None:
    """Return the work of the agent of a step, without its words for who may not read them; None without an agent."""
    drawn = picture.by_number[number]
    run = work_of(drawn.step)
    if run is None:
        return None
    turns = list(_turns([each for each in picture.steps if each.parent == number]))
    shown = turns[-TURNS_SHOWN:]
    said = _said([turn for turn, _ in shown]) if may_read else {}
    groups = [Group(turn, said.get(turn.number, ""), calls) for turn, calls in reversed(shown)]
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


def _said(turns: Sequence[StepPicture]) -> Mapping[int, str]:
    """Return what the model said in each turn; one query."""
    numbers = {turn.step.call_id: turn.number for turn in turns if turn.step.call_id}
    calls = Call.objects.filter(pk__in=numbers).exclude(response="").only("response")
    return {numbers[call.pk]: _text_of(call) for call in calls}


def _text_of(call: Call) -> str:
    try:
        return TurnResult.model_validate(extract_value(call.response_json, ["results", "0"])).text
    except ValidationError:
        return ""
