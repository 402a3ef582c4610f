"""What an agent's model is told: its task, and what came of each of its calls. What others wrote stands in fences."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from catalog.models import Call
from catalog.results import format_for_model
from catalog.secrets.placeholders import shown_text
from plans import prompts
from plans.agents.conversation import Task
from plans.engine import model_texts
from plans.models import MemoryItem, Step
from plans.states import StepStatus
from plans.store.statements import Claimed

LONGEST_INPUT = 60_000
LONGEST_RESULT, ALL_RESULTS = 20_000, 60_000
"""Characters of one result, and of those of one round together: each has its share."""
LONGEST_MESSAGE = 2_000
NOTHING = "This call was made, and gave nothing."
EDITED = "A person changed the arguments of this call before they approved it."
GONE = "Nobody knows what came of this call: its step is not there any more."
CANCELLED = "This call was cancelled before it ran: it changed nothing."
SKIPPED = "A person skipped this call: the tool did not run."


def task_of(step: Claimed) -> Task:
    """Return what the agent is to do: the step's description and parameters. Raises ParameterError for a reference."""
    parameters = json.loads(shown_text(step.parameters))
    given = model_texts.resolved(parameters, step.plan_pk) if parameters else {}
    parts = [step.description]
    if given:
        parts.append(
            prompts.data_block(format_for_model(given, LONGEST_INPUT), "What you are given for it", kind="json")
        )
    return Task(text="\n\n".join(parts))


def outcome_of(child: Step, among: int = 1) -> str:
    """Return what came of one of so many calls that have ended: done, changed by people, refused, failed, skipped."""
    if child.skipped:
        return _skipped(child)
    if child.status == StepStatus.CANCELLED:
        return CANCELLED
    if child.status == StepStatus.FAILED:
        return prompts.data_block(prompts.cut(child.error, LONGEST_MESSAGE), "This call failed")
    call = child.call
    response = call.response_json if call is not None else None
    if call is None or not isinstance(response, dict):
        return NOTHING
    return "\n\n".join([*_notes(call, response), _result(call, response, min(LONGEST_RESULT, ALL_RESULTS // among))])


def _result(call: Call, response: Mapping[str, Any], most: int) -> str:
    text = model_texts.text_of(call.pk)
    if text is None:
        return prompts.data_block(format_for_model(response.get("results"), most), "Its result", kind="json")
    return (
        model_texts.LEFT_OUT
        if text.is_left_out
        else prompts.data_block(format_for_model(text.text, most), "Its result")
    )


def _skipped(child: Step) -> str:
    """Return that people skipped a call, and why: they said so, or refused it and let its plan go on."""
    notes = MemoryItem.objects.filter(plan=child.plan_id, type=MemoryItem.Type.STEP_SKIPPED, step_id=child.step_id)
    note = notes.order_by("-pk").first()
    reason = str(note.value_json.get("reason", "")) if note is not None else ""
    return f"{SKIPPED}\n\n{prompts.data_block(prompts.cut(reason, LONGEST_MESSAGE), 'Why')}" if reason else SKIPPED


def _notes(call: Call, response: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the model is to know beside the result: what people changed, and what the tool says of it."""
    if "edited" in response:
        yield EDITED
        yield prompts.data_block(prompts.cut(shown_text(call.arguments), LONGEST_INPUT), "It ran with", kind="json")
    said = [call.message if call.message != "OK" else "", response.get("user_message"), response.get("warning")]
    for text in dict.fromkeys(str(each) for each in said if each):
        yield prompts.data_block(prompts.cut(text, LONGEST_MESSAGE), "Its message")
