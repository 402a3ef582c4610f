"""Conversion of an agent's conversation to the messages of the model library, and of responses back.

Converted messages contain no secrets. Names and ids are valid for every provider, and each call is followed by a
result, even if none was stored: otherwise providers reject the whole conversation.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from catalog.core.canonical_json import parse_json
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch.serialization import storable_text
from catalog.errors import ToolgateError
from catalog.exports.flattening import flatten_to_object
from catalog.exports.providers import OPENAI_DESCRIPTION
from catalog.inventory.snapshot import CallableTool
from catalog.models import CallBlob
from catalog.tools.registry import get_tool
from plans.agents.messages import MOST_IMAGES, Message, ModelTurn, Task, ToolOutcome, ToolOutcomes, ToolUse
from plans.llm.client import without_secrets
from plans.llm.tools import short_schema
from plans.prompts import truncate

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.tools import ToolDefinition

MOST_ARGUMENT_BYTES = 512 * 1024
MAX_RAW_ARGUMENTS = 2_000
MOST_CHARACTERS = 240_000
"""Maximum length of a conversation: about 60,000 tokens, which fits current models with tools and a response."""
OUTCOME_OMITTED = "The result of this call was sent before and is omitted here to save space."
RAW_ARGUMENTS_KEY = "written"
"""Key in `arguments` that holds the raw text of a call whose arguments could not be parsed."""
UNREADABLE = "This call was not made: its arguments are not a JSON object. {why} Send it again with a JSON object."
NOT_MADE = "This call was not made."
CONTINUE_PROMPT = "Continue."
EARLIER_MESSAGES = "{count} messages, as in the turn before."
NEEDS_APPROVAL_NOTE = "Calls of this tool wait until a person has approved them."

Images = Mapping[tuple[int, int], bytes]
"""Bytes of images by the key of their call and the index of their block."""
_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def sanitized_messages(messages: Sequence[Message]) -> list[Message]:
    """Return a conversation without secrets in which each call has a result and the last message needs a response."""
    return _with_last_images(_trim_to_fit(list(_with_missing_outcomes([_without_secrets(each) for each in messages]))))


def _with_last_images(messages: list[Message]) -> list[Message]:
    """Return the messages with only the last MOST_IMAGES images: providers limit images and charge for them."""
    left = MOST_IMAGES
    for index in reversed(range(len(messages))):
        each = messages[index]
        if isinstance(each, ToolOutcomes):
            results = []
            for one in reversed(each.results):
                kept = one.images[-left:] if left else []
                left -= len(kept)
                results.append(one.model_copy(update={"images": kept}))
            messages[index] = ToolOutcomes(results=results[::-1])
    return messages


def load_images(messages: Sequence[Message]) -> Images:
    """Return the bytes of the images of a conversation, without those that no longer exist."""
    named = [
        image for each in messages if isinstance(each, ToolOutcomes) for one in each.results for image in one.images
    ]
    if not named:
        return {}
    rows = CallBlob.objects.filter(call__in={each.call for each in named}, number__in={each.number for each in named})
    return {(call, number): bytes(data) for call, number, data in rows.values_list("call_id", "number", "data")}


def _trim_to_fit(messages: list[Message]) -> list[Message]:
    """Omit the oldest results until the conversation fits, but never those of the last round."""
    over = sum(len(message_text(each)) for each in messages) - MOST_CHARACTERS
    for index, each in enumerate(messages[:-1]):
        if over <= 0:
            break
        if isinstance(each, ToolOutcomes):
            omitted = {"text": OUTCOME_OMITTED, "images": []}
            results = [
                one.model_copy(update=omitted) if len(one.text) > len(OUTCOME_OMITTED) else one for one in each.results
            ]
            less = ToolOutcomes(results=results)
            over -= len(message_text(each)) - len(message_text(less))
            messages[index] = less
    return messages


def _without_secrets(message: Message) -> Message:
    if isinstance(message, ModelTurn):
        calls = [each.model_copy(update={"arguments": without_secrets_in(each.arguments)}) for each in message.calls]
        return ModelTurn(text=without_secrets(message.text), calls=calls)
    if isinstance(message, ToolOutcomes):
        results = [each.model_copy(update={"text": without_secrets(each.text)}) for each in message.results]
        return ToolOutcomes(results=results)
    return Task(text=without_secrets(message.text))


def without_secrets_in(value: Any) -> Any:
    if isinstance(value, dict):
        return {without_secrets(key): without_secrets_in(each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_secrets_in(each) for each in value]
    return without_secrets(value) if isinstance(value, str) else value


def _with_missing_outcomes(messages: Sequence[Message]) -> Iterator[Message]:
    """Yield the messages; add a result for each call that was not made because a limit ended the run."""
    for index, each in enumerate(messages):
        if isinstance(each, ModelTurn) and not each.text and not each.calls:
            continue
        if isinstance(each, ToolOutcomes):
            continue
        yield each
        if isinstance(each, ModelTurn) and each.calls:
            follows = messages[index + 1] if index + 1 < len(messages) else None
            by_id = {one.id: one for one in follows.results} if isinstance(follows, ToolOutcomes) else {}
            results = [
                by_id.get(call.id) or ToolOutcome(id=call.id, tool=call.tool, text=call.problem or NOT_MADE)
                for call in each.calls
            ]
            yield ToolOutcomes(results=results)
    if messages and isinstance(messages[-1], ModelTurn) and not messages[-1].calls:
        yield Task(text=CONTINUE_PROMPT)


def transcript_messages(
    instructions: str, messages: Sequence[Message], tools: Iterable[CallableTool]
) -> list[Mapping[str, str]]:
    """Return the input of a model turn as stored for people: texts, each with its author.

    Only messages since the previous turn are included; the others are stored with earlier turns.
    """
    transcript: list[Mapping[str, str]] = [{"by": "instructions", "text": instructions}]
    names = ", ".join(each.tool.name for each in tools)
    if names:
        transcript.append({"by": "offered", "text": names})
    turns = [index for index, each in enumerate(messages) if isinstance(each, ModelTurn)]
    first = turns[-1] if turns else 0
    if first:
        transcript.append({"by": "earlier", "text": EARLIER_MESSAGES.format(count=first)})
    return transcript + [{"by": each.by, "text": message_text(each)} for each in messages[first:]]


def message_text(message: Message) -> str:
    """Return a message as one text: calls as tool and arguments, results under their tool's name."""
    if isinstance(message, ToolOutcomes):
        return "\n\n".join(f"{each.tool}:\n{each.text}" for each in message.results)
    if isinstance(message, ModelTurn):
        calls = [f"{each.tool} {json.dumps(each.arguments, ensure_ascii=False)}" for each in message.calls]
        return "\n\n".join([message.text, *calls] if message.text else calls)
    return message.text


def library_messages(
    instructions: str, messages: Sequence[Message], images: Images | None = None
) -> "list[ModelMessage]":
    from pydantic_ai.messages import (  # noqa: PLC0415 (it costs seconds to load)
        BinaryContent,
        ModelRequest,
        ModelResponse,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )

    found: list[ModelMessage] = []
    for each in messages:
        if isinstance(each, ModelTurn):
            text = [TextPart(each.text)] if each.text else []
            calls = [ToolCallPart(_provider_tool_name(call.tool), call.arguments, call.id) for call in each.calls]
            found.append(ModelResponse(parts=[*text, *calls]))
        elif isinstance(each, ToolOutcomes):
            returns = []
            for one in each.results:
                shown = [
                    BinaryContent(images[image.call, image.number], media_type=image.media_type)
                    for image in one.images
                    if images and (image.call, image.number) in images
                ]
                content = [one.text, *shown] if shown else one.text
                returns.append(ToolReturnPart(_provider_tool_name(one.tool), content, one.id))
            found.append(ModelRequest(parts=returns, instructions=instructions))
        else:
            found.append(ModelRequest(parts=[UserPromptPart(each.text)], instructions=instructions))
    return found


def _provider_tool_name(tool: str) -> str:
    """Return a name that providers accept, as a model may have requested a tool with any name."""
    return _NOT_IN_A_NAME.sub("_", tool)[:64] or "unnamed"


def tool_definitions(tools: Iterable[CallableTool]) -> "list[ToolDefinition]":
    """Return the tools as library definitions, without tools that require arguments whose names providers reject."""
    from pydantic_ai.tools import ToolDefinition  # noqa: PLC0415 (as above)

    definitions = []
    for tool in (each.tool for each in tools):
        schema: dict[str, Any] = without_secrets_in(flatten_to_object(short_schema(tool.input_schema)))
        odd = {name for name in schema["properties"] if not _KEY.fullmatch(name)}
        if odd & {*schema.get("required", ())}:
            continue
        schema["properties"] = {name: each for name, each in schema["properties"].items() if name not in odd}
        note = f"\n\n{NEEDS_APPROVAL_NOTE}" if tool.safety_level == SafetyLevel.DANGEROUS else ""
        text, room = without_secrets(tool.description), OPENAI_DESCRIPTION - len(note)
        description = (text if len(text) <= room else f"{text[: room - 1]}…") + note
        definitions.append(ToolDefinition(name=tool.name, description=description, parameters_json_schema=schema))
    return definitions


def parse_tool_calls(response: "ModelResponse", messages: Iterable[Message]) -> list[ToolUse]:
    """Return the calls that a response requests, in order, each with an id that is new to the conversation."""
    taken = {call.id for each in messages if isinstance(each, ModelTurn) for call in each.calls}
    calls = []
    for part in response.tool_calls:
        # The provider's own id, if every provider accepts it.
        call_id, number = storable_text(part.tool_call_id), len(taken) + 1
        while call_id in taken or not _ID.fullmatch(call_id):
            call_id, number = f"call_{number}", number + 1
        taken.add(call_id)
        calls.append(_parse_tool_use(call_id, storable_text(part.tool_name)[:64], part.args))
    return calls


def _parse_tool_use(call_id: str, tool: str, written: str | dict[str, Any] | None) -> ToolUse:
    """Return a call with strictly parsed arguments, or with the problem that prevented it."""
    try:
        text = written if isinstance(written, str) else json.dumps(written or {})
        arguments = parse_json(text.strip() or "{}", max_bytes=MOST_ARGUMENT_BYTES)
        if isinstance(arguments, dict):
            return ToolUse(id=call_id, tool=tool, arguments=without_secrets_in(arguments))
        why = "Lists, strings and numbers are not accepted."
    except ToolgateError as error:
        why = error.message
    known = get_tool(tool)
    raw: dict[str, Any] = {}
    if known is not None and known.secret_locations is None:  # else secrets are located only in parsed arguments
        raw = {RAW_ARGUMENTS_KEY: truncate(without_secrets(str(written)), MAX_RAW_ARGUMENTS)}
    return ToolUse(id=call_id, tool=tool, arguments=raw, problem=UNREADABLE.format(why=without_secrets(why)[:300]))
