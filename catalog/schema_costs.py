"""What judging a document by a schema can cost at most, so that no pair of them takes more than a moment.

An evaluation is one schema against one value. How many meet one value at a depth follows from the schema alone
(`Costs`); most schemas never come near the budgets, and for them nothing is counted when a call is judged.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

import jsonschema_rs

from catalog.core.canonical_json import MAX_DEPTH
from catalog.errors import SchemaProblem
from catalog.schema_places import REFERENCES, Schema, children, subschemas, target_of, targets

EVALUATIONS = 4_000_000
"""Evaluations that judging one document may take."""
STATE_STEPS = 16_000_000
"""Characters times pattern states that one document may take."""
EXPLAINED = 10_000
"""Evaluations that may be explained one by one: an explanation costs a thousand times a verdict."""
COUNTED = 15_000
"""Evaluations that are counted one by one, where the bound that follows from the schema alone is too high."""
LARGEST_DOCUMENT = 131_072
"""Values, at two bytes each, in the largest arguments that are taken."""
MAX_BRANCHES = 10_000
MAX_CHAIN = 32
MAX_PATTERN_KIB = 1024

_COUNTLESS = 10**12
_STATES_PER_KIB = 8
_FRACTION = 5_000
_SAME_VALUE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")


@dataclass(frozen=True, slots=True)
class Size:
    """How large a document is: its values and keys, its levels, and the characters in them."""

    values: int
    depth: int
    characters: int


@dataclass(eq=False, slots=True)
class _Node:
    """A subschema: what one evaluation costs in plain ones, its pattern states, and what it hands on to whom."""

    weight: int
    states: int
    same: "list[_Node]" = field(default_factory=list)
    named: "dict[str, _Node]" = field(default_factory=dict)
    matched: "list[_Node]" = field(default_factory=list)
    others: "list[_Node]" = field(default_factory=list)
    names: "list[_Node]" = field(default_factory=list)
    first: "list[_Node]" = field(default_factory=list)
    entries: "list[_Node]" = field(default_factory=list)
    met: int = 0

    def most_below(self) -> int:
        """Return the most that can meet one member or one entry of a value."""
        members = max([each.met for each in self.named.values()]) if self.named else 0
        entries = max([each.met for each in self.first]) if self.first else 0
        for group in (self.matched, self.others, self.names):
            members += sum([each.met for each in group]) if group else 0
        entries += sum([each.met for each in self.entries]) if self.entries else 0
        return min(_COUNTLESS, max(members, entries))

    def met_below(self, value: object) -> "Iterator[tuple[_Node, object]]":
        """Yield what meets the members or entries of a value; each pattern may match."""
        if isinstance(value, dict):
            everywhere = self.others or self.matched or self.names  # else most keys meet nothing here: not even a look
            for key in value if everywhere else value.keys() & self.named.keys():
                member = value[key]
                own = [self.named[key]] if key in self.named else self.others
                yield from ((each, member) for each in own)
                yield from ((each, member) for each in self.matched)
                yield from ((each, key) for each in self.names)
        elif isinstance(value, list):
            yield from zip(self.first, value, strict=False)
            yield from ((each, entry) for each in self.entries for entry in value)


class Costs:
    """What a schema can cost; raises SchemaProblem for one without a bound."""

    __slots__ = ("_evaluations", "_root", "_states", "harmless")

    def __init__(self, schema: Schema) -> None:
        nodes = _nodes(schema)
        self._root = nodes[id(schema)]
        order = _from_the_inside_out(nodes.values())
        self._evaluations = _by_depth(self._root, order, lambda node: node.weight)
        self._states = _by_depth(self._root, order, lambda node: node.states)
        self.harmless = (
            self._evaluations[-1] * LARGEST_DOCUMENT <= EVALUATIONS
            and self._states[-1] * LARGEST_DOCUMENT * 2 <= STATE_STEPS
        )

    def allows(self, value: object) -> bool:
        """Say whether the value can be judged in a moment."""
        if self.harmless:
            return True
        size = size_of_document(value)
        evaluations, states = _at(self._evaluations, size.depth), _at(self._states, size.depth)
        if evaluations * size.values <= EVALUATIONS and states * size.characters <= STATE_STEPS:
            return True
        return self._fits(value, EVALUATIONS)

    def explains(self, value: object) -> bool:
        """Say whether everything that may be wrong with the value can be told in a moment."""
        size = size_of_document(value)
        return _at(self._evaluations, size.depth) * size.values <= EXPLAINED or self._fits(value, EXPLAINED)

    def _fits(self, value: object, budget: int) -> bool:
        """Count what meets what, value by value, until it is more than the budget."""
        counted = evaluations = steps = 0
        waiting: list[tuple[_Node, object]] = [(self._root, value)]
        while waiting:
            node, found = waiting.pop()
            counted += 1
            evaluations += node.weight
            if node.states:
                steps += node.states * _characters(found)
            if counted + len(waiting) > COUNTED or evaluations > budget or steps > STATE_STEPS:
                return False
            waiting += ((each, found) for each in node.same)
            waiting += islice(node.met_below(found), COUNTED)
        return True


def _nodes(schema: Schema) -> dict[int, _Node]:
    """Return a node for each subschema, by the identity of the subschema, and join them."""
    named = targets(schema)
    places = [each for _, each in subschemas(schema)]
    nodes = {id(each): _Node(_weight(each), _states(each)) for each in places}

    def below(each: Schema, *keywords: str) -> list[_Node]:
        return [nodes[id(child)] for child in children(each, *keywords) if isinstance(child, dict)]

    for each in places:
        node = nodes[id(each)]
        referred = (target_of(each[keyword], named) for keyword in REFERENCES if keyword in each)
        node.same = below(each, *_SAME_VALUE) + [nodes[id(target)] for target in referred if isinstance(target, dict)]
        members = each.get("properties", {}).items()
        node.named = {name: nodes[id(child)] for name, child in members if isinstance(child, dict)}
        node.matched, node.names = below(each, "patternProperties"), below(each, "propertyNames")
        node.others = below(each, "additionalProperties", "unevaluatedProperties")
        node.first, node.entries = below(each, "prefixItems"), below(each, "items", "contains", "unevaluatedItems")
    return nodes


def _from_the_inside_out(nodes: Iterable[_Node]) -> list[_Node]:
    """Return the nodes so that each comes after what judges the same value. Raises SchemaProblem."""
    heights: dict[_Node, int] = {}

    def climb(node: _Node, above: tuple[_Node, ...]) -> int:
        if node in above:
            raise SchemaProblem("A reference leads back to itself without going deeper into the value.")
        if node not in heights:
            if len(above) >= MAX_CHAIN:
                raise SchemaProblem(f"More than {MAX_CHAIN} references and combinations follow each other.")
            heights[node] = 1 + max((climb(each, (*above, node)) for each in node.same), default=0)
            node.met = 1 + sum(each.met for each in node.same)
            if node.met > MAX_BRANCHES:
                raise SchemaProblem(f"The schema unfolds into more than {MAX_BRANCHES:,} branches.")
        if heights[node] + len(above) > MAX_CHAIN:
            raise SchemaProblem(f"More than {MAX_CHAIN} references and combinations follow each other.")
        return heights[node]

    for node in nodes:
        climb(node, ())
    return list(heights)


def _by_depth(root: _Node, order: list[_Node], weigh: Callable[[_Node], int]) -> list[int]:
    """Return the most weight that can meet one value so many levels below the root; the last goes for deeper."""
    own = [weigh(node) for node in order]
    most: list[int] = []
    for _ in range(MAX_DEPTH + 1):
        for node, weight in zip(order, own, strict=True):
            node.met = weight + sum(each.met for each in node.same)
        most.append(min(_COUNTLESS, max([root.met, *most[-1:]])))
        below = [node.most_below() for node in order]
        if below == own or not any(below) or most[-1] == _COUNTLESS:
            break
        own = below
    return most


def size_of_document(value: object) -> Size:
    """Return how large a JSON value is."""
    values = depth = characters = 0
    level: list[object] = [value]
    while level:
        depth += 1
        values += len(level)
        characters += sum(len(each) for each in level if isinstance(each, str))
        level = [inner for each in level for inner in _inner(each)]
    return Size(values, depth, characters)


def _inner(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from value
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _at(by_depth: list[int], depth: int) -> int:
    return by_depth[min(depth, len(by_depth)) - 1]


def _characters(value: object) -> int:
    if isinstance(value, dict):
        return sum(map(len, value))
    return len(value) if isinstance(value, str) else 0


def _weight(schema: Schema) -> int:
    """Return what one evaluation of the schema itself costs, in plain evaluations."""
    weight = 1 + len(schema.get("required", ())) + len(schema.get("patternProperties", ()))
    weight += sum(1 + len(names) for names in schema.get("dependentRequired", {}).values())
    compared = [*schema.get("enum", ()), schema.get("const")]
    weight += sum(size_of_document(each).values for each in compared if isinstance(each, dict | list))
    return weight + (_FRACTION if isinstance(schema.get("multipleOf"), float) else 0)


def _states(schema: Schema) -> int:
    patterns = [*schema.get("patternProperties", ())]
    return sum(map(states_of, [*patterns, schema["pattern"]] if "pattern" in schema else patterns))


@lru_cache(maxsize=4096)
def states_of(pattern: str) -> int:
    """Return about how many states a pattern has; raise SchemaProblem for one that no linear-time engine takes."""
    kib = 1
    while not _compiles(pattern, kib):
        if kib >= MAX_PATTERN_KIB:
            raise SchemaProblem("This pattern is none that a linear-time engine takes.")
        kib *= 2
    return kib * _STATES_PER_KIB


def _compiles(pattern: str, kib: int) -> bool:
    options: Any = jsonschema_rs.RegexOptions(size_limit=kib * 1024)
    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, offline=True, pattern_options=options)
    except ValueError:
        return False
    return True
