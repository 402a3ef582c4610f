"""The steps that a step of a draft may wait for, and why it cannot wait for the others."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from catalog.core.canonical_json import Json
from plans.documents.editing import steps_of
from plans.documents.merging import step_number

MAX_SHOWN_STEPS = 12
"""Most steps listed without a search, beside those that are chosen."""
MAX_CHAIN = 6


@dataclass(frozen=True, slots=True)
class StepChoice:
    """A step that the step may wait for. `chain` lists the steps through which it already waits for the step itself."""

    value: str
    title: str
    chosen: bool = False
    is_missing: bool = False
    chain: Sequence[int] = ()

    @property
    def would_circle(self) -> bool:
        return bool(self.chain) and not self.chosen

    @property
    def chain_text(self) -> str:
        return " → ".join(map(str, self.chain))


def step_choices(document: Json, number: int, needs: Collection[str], search: str = "") -> tuple[list[StepChoice], int]:
    """Return the steps that a step waits for, then others that match a search, and how many more of these there are.

    `needs` has the dependencies as texts, whatever the document contains.
    """
    titles: dict[int, str] = {}
    for step in steps_of(document):
        if (found := step_number(step)) is not None and found != number:
            title = step.get("description")
            titles.setdefault(found, title if isinstance(title, str) else "")
    words = search.casefold().split()
    others = [
        each
        for each, title in titles.items()
        if str(each) not in needs and all(word in f"{each} {title}".casefold() for word in words)
    ]
    if len(others) > MAX_SHOWN_STEPS and not words:
        others = _nearest_first(others, document, number)
    chains = _chains_to(number, dependency_arrows(document, without=number))
    known = {str(each): each for each in titles}
    chosen = [
        StepChoice(
            text,
            titles[known[text]] if text in known else "",
            chosen=True,
            is_missing=text not in known,
            chain=chains.get(known.get(text, number), ()),
        )
        for text in sorted(needs, key=lambda text: (text not in known, known.get(text, 0)))
    ]
    rest = [StepChoice(str(each), titles[each], chain=chains.get(each, ())) for each in others[:MAX_SHOWN_STEPS]]
    return chosen + rest, max(0, len(others) - MAX_SHOWN_STEPS)


def _nearest_first(steps: Sequence[int], document: Json, number: int) -> list[int]:
    """Return the steps listed before a step from the nearest one on, then those after it."""
    order = [step_number(step) for step in steps_of(document)]
    before = set(order[: order.index(number)]) if number in order else set()
    return [each for each in reversed(steps) if each in before] + [each for each in steps if each not in before]


def dependency_arrows(document: Json, *, without: int) -> list[tuple[int, int]]:
    """Return (dependency, step that depends on it) for every readable dependency, but those of the step `without`."""
    arrows = []
    for step in steps_of(document):
        number = step_number(step)
        needs = step.get("dependencies") if number is not None and number != without else None
        if number is not None and isinstance(needs, list):
            arrows += [(each, number) for each in needs if type(each) is int]
    return arrows


def _chains_to(number: int, arrows: Sequence[tuple[int, int]]) -> dict[int, tuple[int, ...]]:
    """Return step → the chain of steps from it to `number`, for which it waits; a long chain is cut."""
    dependents: dict[int, list[int]] = {}
    for needed, step in arrows:
        dependents.setdefault(needed, []).append(step)
    before, level = {number: number}, [number]
    while level:
        found = [(step, needed) for needed in level for step in dependents.get(needed, ())]
        level = []
        for step, needed in found:
            if step not in before:
                before[step] = needed
                level.append(step)
    return {step: tuple(_chain(step, number, before)) for step in before if step != number}


def _chain(step: int, end: int, before: Mapping[int, int]) -> Iterator[int]:
    for _place in range(MAX_CHAIN):
        yield step
        if step == end:
            return
        step = before[step]
    yield end
