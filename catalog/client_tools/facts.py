"""Facts of a call that a coding agent runs itself, derived by rules from its input: programs, effects, paths, hosts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DerivedFacts:
    """Facts of one call; each tuple is without repetition and in the order of the input.

    `paths` are absolute, with `..` resolved against the working directory that the client claims; what begins with `~`
    stays so. `understood` is True if every part of the call is known entirely: only then may a rule that allows fit.
    """

    programs: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    understood: bool = False


def derived_facts(tool: str, input: Mapping[str, Any], cwd: str) -> DerivedFacts | None:
    """Return the facts of a call; None for a tool that is not known here. `tool` is the client's own name of it."""
    return None
