"""Reading the JSON out of what a model answered: alone, between fences, or after some words."""

from collections.abc import Iterator
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from catalog.core.canonical_json import Json, parse_json
from catalog.errors import ToolgateError

ModelT = TypeVar("ModelT", bound=BaseModel)
MOST_BYTES = 512 * 1024
MOST_NAMED = 20
FENCE = "```"


class Unreadable(ValueError):
    """An answer that is not what was asked for; the text says what is wrong with it, for the model too."""


def read_answer(text: str, shape: type[ModelT]) -> ModelT:
    """Return the answer in the shape that was asked for. Raises Unreadable."""
    try:
        return shape.model_validate(_json_in(text))
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[:MOST_NAMED]
        told = (f"{'.'.join(map(str, each['loc'])) or 'the answer'}: {each['msg']}" for each in found)
        raise Unreadable(f"The answer has not the shape that was asked for: {'; '.join(told)}.") from None


def _json_in(text: str) -> Json:
    """Return the first JSON object of a text."""
    problem = "The answer is no JSON object."
    for each in dict.fromkeys(_objects_in(text.strip())):
        try:
            return parse_json(each, max_bytes=MOST_BYTES)
        except ToolgateError as error:
            problem = f"The answer is no JSON that can be read: {error.message}"
    raise Unreadable(problem)


def _objects_in(text: str) -> Iterator[str]:
    """Yield what may be an object: the whole text, what stands between fences, all between the outermost braces."""
    fenced = text.split(FENCE)[1::2]
    for each in (text, *(inner[inner.find("{") :].strip() for inner in fenced if "{" in inner)):
        if each.startswith("{"):
            yield each
    if "{" in text:
        yield text[text.find("{") : text.rfind("}") + 1]
