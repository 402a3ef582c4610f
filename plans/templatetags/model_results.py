"""Tag for the result of a call as a model received it, in the very format that agents and MCP clients get."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import mcp_types as types
from django import template
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from approvals.models import ApprovalRequest
from catalog.models import Call
from catalog.results import TRUNCATION_MARK
from catalog.secrets.placeholders import PLACEHOLDER_KEY
from catalog.text import formats
from catalog.ui.results import RAW_SHOWN, ShownResult, shown_result
from plans.agents.messages import images_of, outcome_of
from plans.engine import model_texts
from plans.mcp.results import ended_result
from plans.models import AGENT_TURN, Step

register = template.Library()


@dataclass(frozen=True, slots=True)
class ModelResult:
    """The result of a call for a model, beside the one that people see; `differences` are sentences."""

    receiver: str
    text: str
    structured: str
    images: int
    is_cut: bool
    shown: ShownResult
    differences: list[str]


@register.simple_tag
def model_result(step: Step | None) -> ModelResult | None:
    """Return the ended call of a step for its model; None if it has not ended or was never made."""
    call = step.call if step is not None else None
    if step is None or call is None or not call.response:
        return None
    structured, shown = "", shown_result(call)
    if call.via == "mcp":
        receiver = _("The MCP client that made this call received:")
        result = ended_result(call, ApprovalRequest.objects.filter(call=call).first())
        text = "\n\n".join(each.text for each in result.content if isinstance(each, types.TextContent))
        images = sum(isinstance(each, types.ImageContent) for each in result.content)
        if result.structured_content is not None:
            structured = json.dumps(result.structured_content, ensure_ascii=False, indent=2)
    else:
        is_of_agent = step.parent_id is not None and step.tool != AGENT_TURN
        receiver = (
            _("The model of the agent that made this call received:")
            if is_of_agent
            else _("No model made this call. An agent that makes it receives:")
        )
        text, images = outcome_of(step, _calls_of_round(step) if is_of_agent else 1), len(images_of(step))
    return ModelResult(
        receiver=receiver,
        text=text[:RAW_SHOWN],
        structured=structured[:RAW_SHOWN],
        images=images,
        is_cut=len(text) > RAW_SHOWN,
        shown=shown,
        differences=list(_differences(call, shown, text, images)) or [_("Models get the same as people see.")],
    )


def _calls_of_round(step: Step) -> int:
    """Return the number of calls of one turn of the agent's model, whose results share the room for them."""
    siblings = Step.objects.filter(parent_id=step.parent_id).order_by("step_id").values_list("step_id", "tool")
    count = 0
    for number, tool in siblings:
        if tool == AGENT_TURN:
            if number > step.step_id:
                break
            count = 0
        else:
            count += 1
    return max(1, count)


def _differences(call: Call, shown: ShownResult, text: str, images: int) -> Iterator[str]:
    model_text = model_texts.model_text(call.pk)
    if model_text is not None and model_text.is_left_out:
        yield _("The tool hides its value from models: they get only the message.")
    elif model_text is not None:
        yield _("Models get a text that the tool writes for them in place of the value.")
    if TRUNCATION_MARK.strip() in text:
        yield _("Models get only the beginning: %(count)s characters.") % {"count": formats.format_number(len(text))}
    if PLACEHOLDER_KEY in text:
        yield _("Secrets in it are replaced by their names.")
    pictures = sum(each.is_image for each in shown.blocks)
    if pictures > images:
        yield ngettext(
            "Models get %(images)s of %(count)s image.",
            "Models get %(images)s of %(count)s images.",
            pictures,
        ) % {"images": images, "count": pictures}
    if (call.response_json or {}).get("edited"):
        yield _("Models are told that a person changed the arguments.")
