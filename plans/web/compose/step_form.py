"""The form of one step in the plan builder: made from a document, and read back into a document.

A form keeps whatever was typed. Only `step_document` refuses, with the problem at its field, what has no JSON value.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from django.contrib.auth.models import User
from django.http import QueryDict
from django.utils.translation import gettext as _

from catalog.calls.privacy import is_mask
from catalog.core.canonical_json import Json, parse_json
from catalog.core.json_paths import follow
from catalog.errors import MalformedJSON, ParameterError, QueryTypeUnsupported, TooLarge, ToolgateError, field_error
from catalog.schemas.resolver import SchemaMapping
from catalog.ui.forms.editor import FORM_MODE
from catalog.ui.forms.form import build_form, form_to_value
from plans.agents.definitions import named_agents
from plans.documents import references
from plans.documents.checking import AgentAvailability
from plans.documents.editing import step_index, steps_of
from plans.documents.quick_fixes import Fix, fixes
from plans.documents.reading import Problem
from plans.models import Plan
from plans.spec import KEY
from plans.web.access import error_status
from plans.web.compose.argument_form import (
    NO_SCHEMA,
    ReferencePicker,
    StepArguments,
    references_of,
    sample_of,
    show_argument_problems,
)
from plans.web.compose.done_check_form import DoneCheckForm, check_rows, check_text
from plans.web.compose.step_choices import StepChoice, step_choices
from plans.web.compose.step_results import (
    MAX_LISTED,
    Example,
    ResultSearch,
    StepResult,
    last_response,
    load_examples,
    path_text,
    results_for,
)
from plans.web.compose.tool_choice import ChosenTool, find_tools, query_type_of

TOOL, AGENT, NOTE = KINDS = ("tool", "agent", "note")
NAMED_BY = {TOOL: "tool", AGENT: "agent"}
"""The field of the document that makes a step one of this kind, also while it is still an empty text."""
MAX_WITH_FIXES = 50
MAX_SAMPLE = 20_000
"""Characters of an example that are put into a field; of a longer one, the field says that it is used."""
MAX_KEY = 40
NO_OUTPUT_KEY = "no_output_key"
FIELDS = ("description", "tool", "agent", "dependencies", "expected_key", "output_path", "done_check")


@dataclass(frozen=True, slots=True)
class StepProblem:
    message: str
    severity: str = "error"
    fixes: Sequence[Fix] = ()


@dataclass(slots=True, kw_only=True)
class Sample:
    """The value that stands for a reference while the step is tried; a blank text stands for the example."""

    reference: str
    text: str = ""
    result: StepResult | None = None
    example: Any = None
    has_example: bool = False
    is_private: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class FormPart:
    """A part of the form, with the id of its element and the key that leads to it."""

    id: str
    key: str
    label: str


@dataclass(frozen=True, slots=True)
class StepConflict:
    """A value that others have changed too, with both sides as text."""

    path: str
    label: str
    mine: str
    theirs: str


@dataclass(kw_only=True)
class StepForm:
    """The form of a step; `panel` names the part that is open: tool, refer, path or try.

    `document` is the draft's at `base_version`, `origin` the plan from which the draft was made.
    """

    document: dict[str, Any]
    step_id: int
    viewer: User
    base_version: int = 0
    origin: Plan | None = None
    kind: str = NOTE
    description: str = ""
    tool: ChosenTool = field(default_factory=ChosenTool)
    agent: str = ""
    expected_key: str = ""
    output_path: str = ""
    needs: list[Any] = field(default_factory=list)
    drawn: str = TOOL
    """The kind of step for which the form of the arguments is made."""
    arguments: StepArguments = field(default_factory=lambda: StepArguments(schema=NO_SCHEMA))
    check: DoneCheckForm = field(default_factory=DoneCheckForm)
    panel: str = ""
    tool_search: str = ""
    needs_search: str = ""
    result_search: str = ""
    samples: list[Sample] = field(default_factory=list)
    own_result: StepResult | None = None
    problems: dict[str, list[StepProblem]] = field(default_factory=dict)
    fixes_by_path: Mapping[str, Sequence[Fix]] = field(default_factory=dict)
    choices: Sequence[StepChoice] = ()
    more_choices: int = 0
    conflicts: Sequence[StepConflict] = ()
    setback: str = ""
    is_saved: bool = False
    is_unsaved: bool = False
    focus: str = ""
    """Id of the control that gets the focus."""

    @cached_property
    def index(self) -> int:
        """Index of the step in the document. Raises LookupError if it was deleted."""
        return step_index(self.document, self.step_id)

    @property
    def exists(self) -> bool:
        try:
            return self.index >= 0
        except LookupError:
            return False

    @property
    def step(self) -> Mapping[str, Any]:
        step: Mapping[str, Any] = self.document["steps"][self.index]
        return step

    @property
    def path(self) -> str:
        return f"steps.{self.index}"

    @cached_property
    def agents(self) -> Mapping[str, AgentAvailability]:
        return named_agents(self.viewer)

    @property
    def results(self) -> list[StepResult]:
        return results_for(self.document, self.step_id, self.needs)

    # Filling and reading.

    def fill(self) -> None:
        """Fill the form from the step."""
        step = self.step
        tool, agent = _text(step.get("tool")), _text(step.get("agent"))
        self.kind = _kind_of(step)
        self.description, self.agent = _text(step.get("description")), agent
        self.tool = ChosenTool(name=tool)
        self.expected_key, self.output_path = _text(step.get("expected_key")), path_text(step.get("output_path"))
        needs = step.get("dependencies")
        self.needs = list(needs) if isinstance(needs, list) else []
        self.check = DoneCheckForm.of_text(_text(step.get("done_check")))
        self._take_arguments(step.get("parameters", {}))

    @property
    def _schema(self) -> SchemaMapping:
        return self.tool.schema if self.drawn == TOOL else NO_SCHEMA

    def _take_arguments(self, arguments: object) -> None:
        self.drawn = AGENT if self.kind == AGENT else TOOL
        self.arguments = StepArguments(schema=self._schema)
        if isinstance(arguments, Mapping):
            self.arguments.fill(arguments)
        else:  # a form cannot hold it
            self.arguments.mode, self.arguments.text = "json", json.dumps(arguments, indent=2, ensure_ascii=False)
        self.arguments.render_or_show_json()

    def read(self, sent: QueryDict) -> None:
        """Read a submitted form. Raises ParameterError for fields that no form of this page has."""
        self.kind = sent.get("kind", NOTE) if sent.get("kind") in KINDS else NOTE
        for name in ("description", "agent", "expected_key", "output_path"):
            setattr(self, name, sent.get(name, "").replace("\r\n", "\n").strip())
        self.tool_search, self.needs_search = sent.get("tool_q", "")[:200], sent.get("needs_q", "")[:200]
        self.result_search, self.panel = sent.get("result_q", "")[:200], sent.get("panel", "")
        number = sent.get("version", "")
        self.tool = ChosenTool(
            name=sent.get("tool", "")[:64],
            number=int(number) if number.isascii() and number.isdecimal() and len(number) < 10 else None,
        )
        values = {_value_text(each): each for each in self._listed_needs()}
        chosen = dict.fromkeys(sent.getlist("needs")[:1000])
        self.needs = [values[text] for text in chosen if text in values]
        self.needs += [int(text) for text in chosen if text not in values and re.fullmatch(r"[0-9]{1,10}", text)]
        self.check = DoneCheckForm.read(sent)
        texts, names = sent.getlist("sample"), sent.getlist("sample_of")
        self.samples = [
            Sample(reference=name, text=text.replace("\r\n", "\n"))
            for name, text in list(zip(names, texts, strict=False))[:100]
        ]
        self.drawn = AGENT if sent.get("drawn") == AGENT else TOOL
        schema = self.tool.filled_schema if self.drawn == TOOL else NO_SCHEMA
        self.arguments = StepArguments(schema=schema)
        self.arguments.read(sent)
        # The person chose another kind of step, or the tool has changed while its form was open.
        if self.kind not in (NOTE, self.drawn) or schema != self._schema:
            self._take_arguments(self.arguments.arguments())

    def _listed_needs(self) -> list[Any]:
        needs = self.step.get("dependencies")
        return needs if isinstance(needs, list) else []

    # Buttons.

    def press(self, action: str, place: str, caret: str = "") -> None:
        """Handle a button that changes only the form. Raises ParameterError."""
        if action in ("add", "remove", "open", "close", "show", "update"):
            self.arguments.press(action, place)
        elif action == "pick":
            self._pick_tool(place)
        elif action == "panel":
            self.panel = place
            self.focus = {"tool": "step-tool-q", "path": "step-path-close", "try": "step-try-run"}.get(place, "")
        elif action == "refer":
            self.panel, self.focus = f"refer:{place}", "result-q"
            self.arguments.picker = ReferencePicker(place=place, label="", caret=caret)
        elif action == "use":
            self._use_result(*place.partition(" ")[::2], caret)
        elif action == "value":
            self.arguments.drop_reference(place)
        elif action.startswith("check-"):
            self.check.press(action.removeprefix("check-"), place)
        elif action == "key":
            self.expected_key, self.focus = place, "step-key"
        elif action == "path":
            self.output_path, self.panel, self.focus = place, "", "step-path"

    def _pick_tool(self, name: str) -> None:
        """Choose a tool; arguments whose names and types fit stay in their fields, the others beside them."""
        arguments = self._said_arguments()
        self.tool, self.kind, self.panel = ChosenTool(name=name[:64]), TOOL, ""
        self._take_arguments(arguments)
        self.focus = "step-arguments"

    def _use_result(self, place: str, reference: str, caret: str) -> None:
        if not self.arguments.refer(place, reference, caret):
            raise field_error("", "do", _("This button does not match the form. Reload the page."))
        self.panel = ""
        key = references.find_in(reference, "")[0].key
        result = next((each for each in self.results if each.key == key), None)
        if result is not None and result.step_id is not None and not result.is_before:
            self.needs.append(result.step_id)

    # The document.

    def step_document(self) -> dict[str, Any]:
        """Return the step with what the form says. Raises ParameterError for fields without a JSON value."""
        if self.check.has_problems:
            raise field_error("", "done_check", _("Complete each row of “Done when”, or remove it."))
        said: dict[str, Any] = {
            "description": self.description,
            "tool": self.tool.name if self.kind == TOOL else "",
            "agent": self.agent if self.kind == AGENT else "",
            "parameters": self._said_arguments() if self.kind != NOTE else {},
            "dependencies": self.needs,
            "expected_key": self.expected_key if self.kind != NOTE else "",
            "output_path": self._output_path_steps() if self.kind != NOTE else [],
            "done_check": self.check.done_check(_text(self.step.get("done_check"))),
        }
        step = dict(self.step)
        own, before = NAMED_BY.get(self.kind), NAMED_BY.get(_kind_of(step))
        for name, value in said.items():
            if value or name == own or (name == "description" and name in step):
                step[name] = value
            elif step.get(name) or name == before:  # an empty value that was written stays as it is
                step.pop(name, None)
        return step

    def _said_arguments(self) -> dict[str, Any]:
        """Return the arguments as they are stored where nobody has touched them.

        Constants that the form adds count once a field is filled in or the tool is another; the objects and lists that
        it begins count once a field in them is filled in, or where their constants are all that they need.
        """
        said, before = self.arguments.arguments(), self.step.get("parameters", {})
        if self.arguments.mode != FORM_MODE or not isinstance(before, Mapping):
            return said
        untouched = StepArguments(schema=self.arguments.schema)
        untouched.fill(before)
        as_filled, _problems = form_to_value(build_form(untouched.schema, untouched.fields))
        if said == as_filled and self.tool.name == self.step.get("tool", ""):
            return dict(before)
        untouched_names = {name for name, value in said.items() if value == as_filled.get(name)}
        kept = {name: before[name] if name in untouched_names & before.keys() else said[name] for name in said}
        begun = {
            name
            for name in untouched_names - before.keys()
            if isinstance(said[name], dict | list) and not self.arguments.is_made_of_constants(name)
        }
        return {name: value for name, value in kept.items() if name not in begun}

    def changed_document(self) -> dict[str, Any]:
        """Return the document with this step; references to a key that it renames follow in other steps."""
        steps = list(self.document["steps"])
        new = self.step_document()
        steps[self.index] = new
        old_key, key = _text(self.step.get("expected_key")), _text(new.get("expected_key"))
        if old_key != key and re.fullmatch(KEY, old_key) and re.fullmatch(KEY, key):
            keys = [each.get("expected_key") for each in steps if isinstance(each, Mapping)]
            if old_key not in keys and keys.count(key) == 1:
                steps = [_with_key_renamed(each, old_key, key) for each in steps]
        return {**self.document, "steps": steps}

    def _output_path_steps(self) -> list[str]:
        """Return the steps of the typed path: names with dots between them, or a JSON list of texts."""
        text = self.output_path
        if text.startswith("["):
            try:
                steps = parse_json(text)
            except (MalformedJSON, TooLarge) as error:
                raise field_error("", "output_path", error.message) from None
            if isinstance(steps, list) and all(isinstance(each, str) for each in steps):
                return steps
            raise field_error("", "output_path", _("Write the path as names with dots between them."))
        return text.split(".") if text else []

    # Problems.

    def judge(self, problems: Iterable[Problem], document: Mapping[str, Any] | None = None) -> None:
        """Show the problems of this step at their fields, each with its quick fixes for `document`."""
        text = json.dumps(self.document if document is None else document, ensure_ascii=False)
        own = [each for each in problems if f"{each.path}.".startswith(f"{self.path}.")]
        in_arguments: list[Problem] = []
        fixes_by_path: dict[str, list[Fix]] = {}
        for place, problem in enumerate(own):
            inside = problem.path.removeprefix(f"{self.path}").removeprefix(".")
            name, _dot, rest = inside.partition(".")
            offered = fixes(problem, text) if place < MAX_WITH_FIXES else []
            if name == "parameters" and self.kind != NOTE:
                in_arguments.append(problem)
                fixes_by_path[rest] = [*fixes_by_path.get(rest, ()), *offered]
                continue
            message = f"{problem.message} {problem.suggestion}" if problem.suggestion else problem.message
            where = "expected_key" if problem.code == NO_OUTPUT_KEY else name if name in FIELDS else ""
            self.problems.setdefault(where, []).append(StepProblem(message, problem.severity, offered))
        show_argument_problems(self.arguments, in_arguments, f"{self.path}.parameters")
        self.fixes_by_path = fixes_by_path

    def show_error(self, error: ToolgateError) -> int:
        """Show an error at its field, or above the form if it has none; return the HTTP status of the page."""
        if not isinstance(error, ParameterError | QueryTypeUnsupported):
            self.setback = error.message
            return error_status(error)
        codes = {each.get("code") for each in error.details.get("errors", ())}
        name = next((code for code in ("output_path", "done_check", "sample") if code in codes), None)
        if name is None:
            return self.arguments.show_error(error)
        self.problems.setdefault(name, []).append(StepProblem(error.message))
        return 422

    def fixed_document(self, name: str, problems: Iterable[Problem], document: Mapping[str, Any]) -> Json | None:
        """Return the document with the named quick fix of this step applied; None if it is not offered any more."""
        text = json.dumps(document, ensure_ascii=False)
        own = [each for each in problems if f"{each.path}.".startswith(f"{self.path}.")][:MAX_WITH_FIXES]
        fix = next((fix for each in own for fix in fixes(each, text) if fix.name == name), None)
        return parse_json(fix.fixed) if fix else None

    @property
    def invalid(self) -> set[str]:
        """The names of the fields that have an error."""
        return {name for name, found in self.problems.items() if any(each.severity == "error" for each in found)}

    @property
    def errors(self) -> int:
        """Number of errors at the fields."""
        here = (each for found in self.problems.values() for each in found)
        return sum(each.severity == "error" for each in here) + (self.arguments.wrong if self.kind != NOTE else 0)

    # Drawing.

    def draw(self) -> None:
        """Prepare what the templates show: the open panel, with its examples, and what each field adds."""
        try:
            self.arguments.draw()
        except ParameterError as error:
            self.arguments.problems.append(error.message)
        if self.panel == "tool" or (self.kind == TOOL and not self.tool.name):
            used = [_text(step.get("tool")) for step in steps_of(self.document) if isinstance(step, Mapping)]
            self.tool.hits, self.tool.more = find_tools(self.tool_search, [name for name in used if name])
        elif self.panel.startswith("refer:"):
            self._open_picker(self.panel.removeprefix("refer:"))
        elif self.panel == "path":
            self.own_result = self._own_result()
        elif self.panel == "try":
            self._fill_samples()
        if self.focus == "step-arguments" and not self.arguments.focus_first():
            self.focus = "step-tool-change"
        self.arguments.add_aids(self.results, self.fixes_by_path)
        needs = dict.fromkeys(map(_value_text, self.needs))
        self.choices, self.more_choices = step_choices(self.document, self.step_id, needs, self.needs_search)

    def _open_picker(self, place: str) -> None:
        form = self.arguments.form
        node = next((each for each in form.every() if each.name == place), None) if form and place else None
        if node is None or form is None:
            self.panel = ""
            return
        is_text = node.kind in ("text", "area")
        is_alone = not (is_text and node.text)
        search = ResultSearch(self.result_search)
        found = search.candidates(self.results)
        listed = found[:MAX_LISTED]
        load_examples(listed, self.viewer, self.origin)
        for result in listed:
            result.list_parts(node.shape if is_alone else None, self.arguments.schema)
        listed = search.select(listed)
        caret = self.arguments.picker.caret if self.arguments.picker else ""
        self.arguments.picker = ReferencePicker(
            place=place,
            label=node.path,
            text=self.result_search,
            results=listed,
            more=max(0, len(found) - MAX_LISTED),
            is_alone=is_alone,
            caret=caret,
        )

    def _own_result(self) -> StepResult:
        """Return the whole result of the step's own tool, with the value of its last run."""
        try:
            query_type = query_type_of(self.arguments.arguments())
        except ParameterError:
            query_type = ""
        example = last_response(self.viewer, self.tool.name, query_type) if self.tool.name else None
        result = StepResult(key="value", tool=self.tool.name, example=example)
        result.list_parts()
        result.found_parts = result.parts[1:]
        return result

    def _fill_samples(self) -> None:
        """List the references of the arguments with their examples; what was typed for them stays."""
        try:
            found = references_of(self.arguments.arguments())
        except ParameterError:
            return
        typed = {sample.reference: sample for sample in self.samples}
        by_key = {result.key: result for result in self.results}
        load_examples([by_key[each.key] for each in found if each.key in by_key], self.viewer, self.origin)
        self.samples = []
        for each in found:
            result = by_key.get(each.key)
            sample = Sample(reference=str(each), result=result)
            example = result.example if result else None
            if example is not None and not example.size:
                _take_example(sample, example, each.path)
            if str(each) in typed:
                sample.text, sample.problem = typed[str(each)].text, typed[str(each)].problem
            elif sample.has_example:
                text = sample_text(sample.example)
                sample.text = text if len(text) <= MAX_SAMPLE else ""
            self.samples.append(sample)

    def tried_arguments(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the step's parameters with samples in place of references. Raises ParameterError without a value."""
        self._fill_samples()
        memory, names = {}, {}
        for place, sample in enumerate(self.samples):
            if not sample.text.strip() and not sample.has_example:
                sample.problem = _("Enter a value for the trial.")
            memory[f"r{place}"] = sample_of(sample.text) if sample.text.strip() else sample.example
            names[sample.reference] = f"${{r{place}}}"
        if any(sample.problem for sample in self.samples):
            raise field_error("", "sample", _("Enter a value for each result that the step uses."))
        resolved: dict[str, Any] = references.resolve(references.replace_references(parameters, names), memory)
        return resolved

    @property
    def step_count(self) -> int:
        return len(steps_of(self.document))

    @property
    def parts(self) -> list[FormPart]:
        """The parts of the form; each has the same key in all kinds of steps."""
        arguments = _("Values") if self.kind == AGENT else _("Arguments")
        parts = [FormPart("step-description", "1", _("Description"))]
        if self.kind != NOTE:
            chosen = (
                FormPart("step-agent", "2", _("Agent")) if self.kind == AGENT else FormPart("step-tool", "2", _("Tool"))
            )
            parts += [chosen, FormPart("step-arguments", "3", arguments)]
        parts.append(FormPart("step-needs", "4", _("Waits for")))
        if self.kind != NOTE:
            parts.append(FormPart("step-output", "5", _("Result")))
        parts.append(FormPart("step-check", "6", _("Done when")))
        if self.kind == TOOL and self.tool.can_run:
            parts.append(FormPart("step-try", "7", _("Try")))
        return parts

    @property
    def suggested_key(self) -> str:
        """A key made from the description that no other step has; empty if there is nothing to suggest."""
        taken = {_text(step.get("expected_key")) for step in steps_of(self.document) if isinstance(step, Mapping)}
        return suggest_key(self.description, taken) if not self.expected_key else ""

    @property
    def default_key(self) -> str:
        """The key under which the tool stores its results if the step names none."""
        version = self.tool.version if self.kind == TOOL else None
        return version.output_key if version else ""


def _kind_of(step: Mapping[str, Any]) -> str:
    """Return the kind of a step: that of the field that names a tool or an agent, or else that has an empty text."""
    for is_named in (bool, lambda text: text == ""):
        for kind, name in NAMED_BY.items():
            if isinstance(step.get(name), str) and is_named(step[name]):
                return kind
    return NOTE


def _with_key_renamed(step: Any, old: str, new: str) -> Any:
    """Return a step whose references to the key `old`, and whose check by parts, name `new` instead."""
    if not isinstance(step, Mapping):
        return step
    changed = dict(step)
    parameters, check = step.get("parameters"), step.get("done_check")
    if isinstance(parameters, Mapping):
        found = [each for each in references_of(parameters) if each.key == old]
        texts = {str(each): str(replace(each, key=new)) for each in found}
        changed["parameters"] = references.replace_references(parameters, texts) if texts else parameters
    rows = check_rows(check) if isinstance(check, str) and old in check else None
    if rows:
        renamed = [replace(row, subject=_renamed(row.subject, old, new)) for row in rows]
        renamed = [
            replace(row, value=_renamed(row.value, old, new)) if row.kind == "result" else row for row in renamed
        ]
        changed["done_check"] = check if renamed == rows else check_text(renamed)
    return changed


def _renamed(path: str, old: str, new: str) -> str:
    key, dot, rest = path.partition(".")
    return f"{new}{dot}{rest}" if key == old else path


def suggest_key(description: str, taken: Iterable[str]) -> str:
    """Return a key made from the words of a description; empty if it has no Latin letters or digits."""
    plain = unicodedata.normalize("NFKD", description[:200]).encode("ascii", "ignore").decode().casefold()
    words = re.findall(r"[a-z0-9]+", plain)
    kept = [word for word in words if word not in ("a", "an", "the", "of", "and", "to", "for", "in", "s")] or words
    name = ""
    for word in kept:
        if name and len(name) + len(word) >= MAX_KEY:
            break
        name = f"{name}_{word}" if name else word[:MAX_KEY]
    if name[:1].isdigit():
        name = f"_{name}"
    if not name:
        return ""
    used, number, free = set(taken), 2, name
    while free in used:
        free, number = f"{name}_{number}", number + 1
    return free


def sample_text(value: Any) -> str:
    """Return the text that `sample_of` reads as this value."""
    if isinstance(value, str) and value.strip() and sample_of(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False, indent=2 if isinstance(value, dict | list) else None)


def _take_example(sample: Sample, example: Example, path: Sequence[str]) -> None:
    try:
        value = follow(example.value, path)
    except LookupError:
        return
    if is_mask(value):
        sample.is_private = True
    else:
        sample.example, sample.has_example = value, True


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _value_text(value: Any) -> str:
    return str(value) if type(value) is int else json.dumps(value, ensure_ascii=False)
