"""The dependency graph of a plan: cycles, ancestors and descendants."""

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

MAX_CYCLES = 10


def cycles(graph: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Return at most MAX_CYCLES dependency cycles, as lists [a, b, …, a] where each step depends on the next."""
    left = {step: set(needed) for step, needed in graph.items()}
    found: list[list[int]] = []
    while len(found) < MAX_CYCLES:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            around: list[int] = error.args[1][:0:-1]
            start = around.index(min(around))
            circle = [*around[start:], *around[:start], around[start]]
            found.append(circle)
            left[circle[-2]].discard(circle[-1])
        else:
            break
    return found


def without_cycles(graph: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    """Return the graph without the arrows that close a cycle when it is walked from its lowest step; in linear time."""
    kept: dict[int, list[int]] = {}
    walked: set[int] = set()
    for start in sorted(graph):
        path = [(start, iter(graph[start]))] if start not in kept else []
        on_path = {start}
        kept.setdefault(start, [])
        while path:
            step, needed = path[-1]
            for need in needed:
                if need not in graph or need in on_path:
                    continue
                kept[step].append(need)
                if need not in walked and need not in kept:
                    kept[need] = []
                    path.append((need, iter(graph[need])))
                    on_path.add(need)
                    break
            else:
                path.pop()
                on_path.discard(step)
                walked.add(step)
    return kept


def ancestors(graph: Mapping[int, Sequence[int]]) -> dict[int, frozenset[int]]:
    """Return step → all its direct and indirect dependencies. The graph must have no cycles."""
    found: dict[int, frozenset[int]] = {}
    for step in TopologicalSorter(graph).static_order():
        needed = graph[step]
        found[step] = frozenset(needed).union(*(found[each] for each in needed))
    return found


def descendants(first: int, arrows: Iterable[tuple[int, int]]) -> set[int]:
    """Return the steps that depend on `first`, directly or not; an arrow is (step, step that depends on it)."""
    dependents: dict[int, list[int]] = {}
    for needed, step in arrows:
        dependents.setdefault(needed, []).append(step)
    found, new = set[int](), [first]
    while new:
        more = set(dependents.get(new.pop(), ())) - found
        found |= more
        new += more
    return found
