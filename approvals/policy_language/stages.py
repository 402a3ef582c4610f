"""Stages of approval: how many members of which group must approve, and which stages given people do not fill."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from catalog.access.roles import ROLES

MAX_STAGES = 10
MAX_COUNT = 20


@dataclass(frozen=True, slots=True)
class Stage:
    group: str
    count: int

    @property
    def sentence(self) -> str:
        """The stage as a phrase: 2 reviewers, 1 member of finance."""
        plural = "" if self.count == 1 else "s"
        who = f"{self.group}{plural}" if self.group in ROLES else f"member{plural} of {self.group}"
        return f"{self.count} {who}"


def stages_of(rows: Iterable[Mapping[str, Any]]) -> tuple[Stage, ...]:
    """Return the stages of stored rows; a negative count becomes 0."""
    return tuple(Stage(str(row["group"]), max(0, int(row["count"]))) for row in rows)


def people_in_words(stages: Iterable[Stage]) -> str:
    """Return the stages as a phrase: 2 reviewers and 1 member of finance."""
    sentences = [stage.sentence for stage in stages if stage.count]
    return " and ".join([", ".join(sentences[:-1]), sentences[-1]] if len(sentences) > 1 else sentences) or "nobody"


def unfilled_stages(stages: Sequence[Stage], memberships: Sequence[frozenset[str]]) -> list[Stage]:
    """Return the stages that remain unfilled under an optimal assignment; `memberships` has each person's groups."""
    places = [stage for stage in stages for _ in range(stage.count)]
    held: dict[int, int] = {}
    lacking = [
        places[place] for place in range(len(places)) if not _fill_place(place, places, memberships, held, set())
    ]
    return [replace(stage, count=lacking.count(stage)) for stage in dict.fromkeys(lacking)]


def _fill_place(
    place: int, stages: Sequence[Stage], people: Sequence[frozenset[str]], held: dict[int, int], visited: set[int]
) -> bool:
    """Fill a place, moving people to other places if needed; return False if nobody fits. `held` maps person to place.

    Kuhn's matching algorithm: a place that was filled once stays filled, so earlier stages are filled first.
    """
    for person, groups in enumerate(people):
        if person in visited or stages[place].group not in groups:
            continue
        visited.add(person)
        if person not in held or _fill_place(held[person], stages, people, held, visited):
            held[person] = place
            return True
    return False
