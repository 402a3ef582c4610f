"""The arguments of a step in the plan builder: a form made from the tool's schema, whose fields hold values or results.

A field refers to a result by `${key.path}`: alone, or inside a text. Arguments that the tool does not take stay in the
step until they are removed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from catalog.core.canonical_json import parse_json
from catalog.core.json_paths import enclosing_paths
from catalog.errors import MalformedJSON, ParameterError, TooLarge
from catalog.schemas.resolver import SchemaMapping
from catalog.ui.forms.editor import ArgumentsEditor
from catalog.ui.forms.form import FormNode, build_form, show_problems
from plans.documents import references
from plans.documents.quick_fixes import Fix
from plans.documents.reading import Problem
from plans.web.compose.step_results import StepResult

NO_SCHEMA: SchemaMapping = {"type": "object"}
MAX_CHIPS = 12


@dataclass(frozen=True, slots=True)
class Chip:
    """A reference in a field and the result that it names; None if no step writes it before."""

    text: str
    result: StepResult | None


@dataclass(slots=True, kw_only=True)
class ReferencePicker:
    """The choice of a result for the field at `place`. A result `is_alone` if the field has no other text."""

    place: str
    label: str
    text: str = ""
    results: Sequence[StepResult] = ()
    more: int = 0
    is_alone: bool = True
    caret: str = ""


@dataclass(slots=True, kw_only=True)
class FieldAid:
    """Additions of the builder to a field: its references, quick fixes, and the choice of a result while it is open."""

    chips: list[Chip] = field(default_factory=list)
    fixes: list[Fix] = field(default_factory=list)
    picker: ReferencePicker | None = None
    can_refer: bool = True
    is_left_over: bool = False


def is_whole_reference(text: str) -> bool:
    """Return whether a text is one reference and nothing else."""
    try:
        found = references.find_in(text, "")
    except ParameterError:
        return False
    return bool(found) and found[0].whole


@dataclass(slots=True, kw_only=True)
class StepArguments(ArgumentsEditor):
    is_reference: Callable[[str], bool] | None = is_whole_reference
    picker: ReferencePicker | None = None
    loose_fixes: list[Fix] = field(default_factory=list)
    """Fixes of problems that belong to no field."""

    def node_at(self, place: str) -> FormNode | None:
        """Return the innermost field at a place of the form as it was submitted. Raises ParameterError."""
        found = [node for node in build_form(self.schema, self.fields.settled()).every() if node.name == place]
        return found[-1] if found else None

    def refer(self, place: str, reference: str, caret: str = "") -> bool:
        """Put a reference into a field: into its text at the caret, or else in place of its value.

        `caret` is a number of UTF-16 code units, as scripts count; without it, a text gets the reference at its end.
        Returns False, and changes nothing, if there is no such field. Raises ParameterError as `press` does.
        """
        node = self.node_at(place)
        if node is None or not place or not is_whole_reference(reference):
            return False
        fields = self.fields.settled()
        if node.kind in ("text", "area"):
            fields.put("value", place, insert_at(node.text, reference, caret))
        else:
            row_name = fields.text("key", place)
            fields.drop(place)
            if row_name is not None:
                fields.put("key", place, row_name)
            fields.put("reference", place, reference)
        self.fields, self.form, self.focus = fields, None, place
        return True

    def drop_reference(self, place: str) -> None:
        """Let a field hold a value again."""
        fields = self.fields.settled()
        if fields.text("reference", place) is not None:
            row_name = fields.text("key", place)
            fields.drop(place)
            if row_name is not None:
                fields.put("key", place, row_name)
        self.fields, self.form, self.focus = fields, None, place

    @property
    def left_over(self) -> list[FormNode]:
        """The arguments that the tool does not take."""
        return [node for group in self._groups() if not group.takes_more for node in group.children if node.key]

    def _groups(self) -> Iterator[FormNode]:
        """Yield the object of the arguments: itself, or the variant that is chosen."""
        if self.form is not None:
            yield from [self.form] if self.form.kind == "group" else self.form.children

    def is_made_of_constants(self, name: str) -> bool:
        """Return whether constants are all that the schema of an argument asks for."""
        return any(
            _needs_constants_only(each) for group in self._groups() for each in group.children if each.path == name
        )

    def focus_first(self) -> bool:
        """Let the first control get the focus; return False if there is none."""
        node = next((each for each in self.form.every() if each.has_control), None) if self.form else None
        if node is not None:
            node.focused = True
        return node is not None

    def add_aids(self, results: Sequence[StepResult], fixes: Mapping[str, Sequence[Fix]]) -> None:
        """Give every field its references and fixes (by path), and one of them the open picker."""
        if self.form is None:
            self.loose_fixes = [fix for offered in fixes.values() for fix in offered]
            return
        by_key = {result.key: result for result in results}
        places = {node.path for node in self.form.every()}
        own_fixes: dict[str, list[Fix]] = {}
        for path, offered in fixes.items():  # the innermost field on the path has the problem
            place = next((each for each in enclosing_paths(path) if each in places), "")
            own_fixes.setdefault(place, []).extend(offered)
        self.loose_fixes = own_fixes.get("", [])
        left_over = {node.name for node in self.left_over}
        seen: set[str] = set()
        for node in self.form.every():
            if node.name in seen or not node.name:  # the variant of a union is at the place of the union
                continue
            seen.add(node.name)
            is_open = self.picker is not None and self.picker.place == node.name
            text = self._text_of(node)
            node.extra = FieldAid(
                chips=[Chip(str(each), by_key.get(each.key)) for each in _references_in(text)][:MAX_CHIPS],
                fixes=own_fixes.get(node.path, []),
                picker=self.picker if is_open else None,
                can_refer=not node.fixed,
                is_left_over=node.name in left_over,
            )

    def _text_of(self, node: FormNode) -> str:
        inner = node.children[0] if node.kind == "union" and node.children else node
        return inner.text if inner.kind in ("text", "area", "json", "reference") else ""


def _needs_constants_only(node: FormNode) -> bool:
    required = [child for child in node.children if child.required]
    is_open = node.kind == "group" and node.open and bool(required)
    return is_open and all(child.fixed or _needs_constants_only(child) for child in required)


def _references_in(text: str) -> Sequence[references.Reference]:
    if "${" not in text:
        return ()
    try:
        return references.find_in(text, "")
    except ParameterError:
        return ()


def insert_at(text: str, piece: str, caret: str) -> str:
    """Return a text with a piece inserted at a caret, a number of UTF-16 code units; at the end without a number."""
    units = text.encode("utf-16-le", "surrogatepass")
    place = 2 * int(caret) if caret.isascii() and caret.isdecimal() and len(caret) < 8 else len(units)
    head, tail = units[:place], units[place:]
    if head[-1:] and 0xD8 <= head[-1] <= 0xDB:  # between the halves of one character
        head, tail = units[: place - 2], units[place - 2 :]
    return head.decode("utf-16-le", "surrogatepass") + piece + tail.decode("utf-16-le", "surrogatepass")


def references_of(arguments: Mapping[str, Any]) -> list[references.Reference]:
    """Return the well-formed references in a step's arguments, each text once, in their order."""
    found: dict[str, references.Reference] = {}
    for where, text in references.texts(arguments):
        for each in _references_in(text):
            found.setdefault(str(each), replace(each, where=where))
    return list(found.values())


def sample_of(text: str) -> Any:
    """Return the value that a person typed for a reference: JSON, or else the text itself."""
    try:
        return parse_json(text)
    except (MalformedJSON, TooLarge):
        return text


def show_argument_problems(arguments: StepArguments, problems: Iterable[Problem], path: str) -> None:
    """Show problems below the path `path` of the document at their fields, or above the form."""
    relative = [
        {"path": problem.path.removeprefix(path).removeprefix("."), "message": _with_suggestion(problem)}
        for problem in problems
    ]
    if arguments.form is not None:
        arguments.problems += show_problems(arguments.form, relative)
    else:
        arguments.problems += [f"{each['path']}: {each['message']}".removeprefix(": ") for each in relative]


def _with_suggestion(problem: Problem) -> str:
    return f"{problem.message} {problem.suggestion}" if problem.suggestion else problem.message
