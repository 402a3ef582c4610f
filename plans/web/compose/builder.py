"""The plan builder's page: one draft as canvas, list of steps, form, JSON and YAML."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

from django.contrib.auth.models import User
from django.http import Http404
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from catalog.access.roles import ADMINISTRATOR, OPERATOR, has_role, user_display_name
from catalog.core.canonical_json import Json, parse_json
from catalog.core.yaml_documents import write_yaml
from catalog.errors import MalformedJSON, TooLarge
from catalog.inventory import snapshot
from catalog.text.formats import format_number
from plans.actions.create import check_document
from plans.actions.drafts import read_content
from plans.documents.editing import proposed_fields, steps_of
from plans.documents.files import read_yaml
from plans.documents.graphs import cycles
from plans.documents.merging import step_number
from plans.documents.positions import find_yaml_lines
from plans.documents.quick_fixes import Fix
from plans.documents.reading import Problem
from plans.models import Plan, PlanDraft, PlanDraftVersion
from plans.planner.drafts import request_of
from plans.store.draft_secrets import DraftContent, typists_of
from plans.store.drafts import draft_for, may_read
from plans.store.requesters import Requester
from plans.web.compose.forecast import Forecast, forecast
from plans.web.compose.text import PlanEditor, sketch_graph
from plans.web.graph import FOLDS, UNFOLDED, Drawing, Fold

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

View = Literal["form", "json", "yaml"]
VIEWS: "tuple[tuple[View, StrOrPromise], ...]" = (
    ("form", gettext_lazy("Form")),
    ("json", "JSON"),
    ("yaml", "YAML"),
)
FOLDED_FROM = 8
"""Steps from which the graph can be zoomed and folded."""
MAX_NEWS = 3
SECRET_MISSING = "secret_missing"  # noqa: S105 - the code of a problem


def check_draft(document: Json, content: DraftContent, by: Requester) -> Sequence[Problem]:
    """Return the problems of a draft's document for one person, with the secrets that this person typed.

    A secret of somebody else is a problem that says whose it is.
    """
    opened = DraftContent(document, content.secrets).opened_for(by.user.pk)
    problems = check_document(opened, by=by)
    if not any(problem.code == SECRET_MISSING for problem in problems):
        return problems
    typists = typists_of(document, content.secrets)
    people = User.objects.in_bulk({person for person in typists.values() if person != by.user.pk})
    message = _("%(name)s typed a secret here, which is used only where they start the plan. Enter one of your own.")
    return [
        replace(problem, message=message % {"name": user_display_name(people[typists[problem.path]])})
        if problem.code == SECRET_MISSING and typists.get(problem.path) in people
        else problem
        for problem in problems
    ]


@dataclass(frozen=True)
class DraftEditor(PlanEditor):
    """The text of a draft; `content` has the document with the secrets that the text leaves out."""

    content: DraftContent | None = field(default=None, kw_only=True)

    @cached_property
    def _read(self) -> "tuple[Json, list[Problem]]":
        return (self.content.document, []) if self.content else super()._read

    def _judge(self, document: Json) -> Sequence[Problem]:
        if self.content and self.by:
            return check_draft(document, self.content, self.by)
        return check_document(document, by=self.by)


@dataclass(frozen=True)
class YamlEditor(DraftEditor):
    """The text of a draft as YAML; its quick fixes are made in the JSON text."""

    json_editor: DraftEditor | None = field(default=None, kw_only=True)

    @cached_property
    def _read(self) -> "tuple[Json, list[Problem]]":
        if self.content:
            return self.content.document, []
        try:
            return read_yaml(self.text), []
        except MalformedJSON as error:
            return None, [Problem(error.path, error.code, "error", error.message, line=error.line or None)]
        except TooLarge as error:
            return None, [Problem("", "too_large", "error", error.message)]

    def _judge(self, document: Json) -> Sequence[Problem]:
        return self.json_editor.problems if self.json_editor else super()._judge(document)

    def _with_lines(self, problems: Sequence[Problem]) -> list[Problem]:
        lines = find_yaml_lines(self.text, {problem.path for problem in problems})
        return [replace(problem, line=lines[problem.path]) for problem in problems]

    @cached_property
    def findings(self) -> Sequence[tuple[Problem, Sequence[Fix]]]:
        if self.json_editor is None or not self.is_json:
            return [(problem, ()) for problem in self.problems]
        offered = {(problem.path, problem.code): fixes for problem, fixes in self.json_editor.findings}
        return [(problem, offered.get((problem.path, problem.code), ())) for problem in self.problems]


def read_text(text: str, view: View) -> Json:
    """Return the document of a text in the editor. Raises MalformedJSON and TooLarge."""
    document = read_yaml(text) if view == "yaml" else parse_json(text)
    if not isinstance(document, dict):
        raise MalformedJSON(_("A plan is an object with goal and steps."), code="type", line=1)
    return document


@dataclass(frozen=True, slots=True)
class BuilderStep:
    """A row of the list of steps; `worst` is the severity of its worst problem, empty if it has none.

    `proposed` counts its fields that are as a model proposed them.
    """

    index: int
    number: int | None
    title: str
    tool: str
    level: str
    is_agent: bool
    needs: tuple[int, ...]
    worst: str
    proposed: int

    @property
    def is_editable(self) -> bool:
        return self.number is not None


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem with its quick fixes, and the step it is about."""

    problem: Problem
    fixes: Sequence[Fix]
    step: int | None


@dataclass(frozen=True, slots=True)
class News:
    """A change that somebody else made, or the same person on another page."""

    change: PlanDraftVersion
    is_own: bool

    @property
    def who(self) -> str:
        return _("You, in another window") if self.is_own else user_display_name(self.change.by)


@dataclass(frozen=True)
class BuilderPage:
    """A draft for one viewer; `text` is what was sent and could not be stored, `setback` the reason."""

    draft: PlanDraft
    viewer: User
    view: View = "form"
    number: int | None = None
    fold: Fold = UNFOLDED
    text: str | None = None
    setback: str = ""
    news: Sequence[News] = ()
    views = VIEWS
    folds = FOLDS

    @cached_property
    def content(self) -> DraftContent:
        return read_content(self.draft)

    @property
    def document(self) -> Json:
        """The document without secrets."""
        return self.content.document

    @property
    def request(self) -> str:
        """The request in words from which a planner drafted it; empty if there is none."""
        return request_of(self.draft.call) if self.draft.call else ""

    @property
    def goal(self) -> str:
        goal = self.document.get("goal") if isinstance(self.document, dict) else None
        return goal if isinstance(goal, str) else ""

    @cached_property
    def proposal(self) -> Json:
        return parse_json(self.draft.proposal) if self.draft.sealed_proposal else None

    @cached_property
    def proposed(self) -> Mapping[int, frozenset[str]]:
        """The fields of each step that a model proposed and nobody has changed."""
        return proposed_fields(self.document, self.proposal) if self.proposal is not None else {}

    @property
    def is_goal_proposed(self) -> bool:
        return isinstance(self.proposal, dict) and self.proposal.get("goal") == self.goal

    @cached_property
    def editor(self) -> DraftEditor:
        """The stored document as JSON."""
        return DraftEditor(self.draft.text, by=Requester(self.viewer), content=self.content)

    @property
    def is_unread(self) -> bool:
        """True if the editor shows a text that could not be read as a plan."""
        return self.view != "form" and (
            self.text is not None
            or (self.draft.sealed_unread != "" and self.draft.unread_format == self.view and not self.unread_of)
        )

    @property
    def unread_of(self) -> User | None:
        """The other person whose text could not be read as a plan; only they see it."""
        return self.draft.unread_by if self.draft.unread_by_id != self.viewer.pk else None

    @cached_property
    def writing(self) -> DraftEditor:
        """The document, or the text that could not be read, in the editor that is shown."""
        by = Requester(self.viewer)
        unread = (self.text if self.text is not None else self.draft.unread_text) if self.is_unread else None
        if self.view == "yaml":
            if unread is not None:
                return YamlEditor(unread, by=by)
            return YamlEditor(write_yaml(self.document), by=by, content=self.content, json_editor=self.editor)
        return DraftEditor(unread, by=by) if unread is not None else self.editor

    @cached_property
    def findings(self) -> Sequence[Finding]:
        numbers = {index: step_number(step) for index, step in enumerate(steps_of(self.document))}
        found = []
        for problem, fixes in self.writing.findings:
            index = _index_of(problem.path)
            found.append(Finding(problem, fixes, numbers.get(index) if index is not None else None))
        return found

    @cached_property
    def drawing(self) -> Drawing | None:
        return sketch_graph(self.editor, self.fold)

    @cached_property
    def forecast(self) -> Forecast:
        return forecast(self.content.opened_for(self.viewer.pk), Requester(self.viewer))

    @cached_property
    def circles(self) -> Sequence[str]:
        """The cycles of the graph in words; the drawing leaves out the arrows that close them."""
        steps = self.editor.steps
        graph = {number: [each for each in step.dependencies if each in steps] for number, step in steps.items()}
        return [" → ".join(map(str, circle)) for circle in cycles(graph)]

    @cached_property
    def steps(self) -> Sequence[BuilderStep]:
        worst: dict[int, str] = {}
        for problem in self.editor.problems:  # errors come first
            index = _index_of(problem.path)
            if index is not None and problem.severity != "info":
                worst.setdefault(index, problem.severity)
        tools = snapshot.callable_tools()
        rows = []
        for index, step in enumerate(steps_of(self.document)):
            number = step_number(step)
            fields: Mapping[str, Any] = step if isinstance(step, dict) else {}
            tool, agent = (_text_in(fields, name) for name in ("tool", "agent"))
            needs = fields.get("dependencies")
            rows.append(
                BuilderStep(
                    index,
                    number,
                    _text_in(fields, "description"),
                    tool or agent,
                    str(tools[tool].tool.safety_level) if tool in tools else "",
                    bool(agent and not tool),
                    tuple(each for each in needs if type(each) is int) if isinstance(needs, list) else (),
                    worst.get(index, ""),
                    len(self.proposed.get(number, ())) if number is not None else 0,
                )
            )
        return rows

    @property
    def step_proposals(self) -> Sequence[str]:
        """The fields of the selected step that are as a model proposed them."""
        return sorted(self.proposed.get(self.step.number, ())) if self.step and self.step.number is not None else ()

    @property
    def has_proposals(self) -> bool:
        return any(step.proposed for step in self.steps)

    @cached_property
    def step(self) -> BuilderStep | None:
        """The selected step, or the first one; None if there is none."""
        chosen = next((each for each in self.steps if each.number == self.number and each.number is not None), None)
        return chosen or next((each for each in self.steps if each.is_editable), None)

    @property
    def is_gone(self) -> bool:
        """True if the step that was asked for is no longer part of the draft."""
        return self.number is not None and all(each.number != self.number for each in self.steps)

    @property
    def has_canvas_tools(self) -> bool:
        return len(self.steps) >= FOLDED_FROM

    @cached_property
    def _last(self) -> PlanDraftVersion | None:
        return self.draft.versions.select_related("by").filter(version=self.draft.version).first()

    @property
    def last_change(self) -> str:
        return self._last.summary if self._last else ""

    @cached_property
    def undoable(self) -> str:
        """The change that Undo takes back; empty if there is none."""
        return self.last_change if self._last and self._has(self._last.undo_to) else ""

    @cached_property
    def redoable(self) -> bool:
        return self._last is not None and self._has(self._last.redo_to)

    def _has(self, version: int | None) -> bool:
        return version is not None and self.draft.versions.filter(version=version).exists()

    @property
    def is_owner(self) -> bool:
        return self.draft.owner_id == self.viewer.pk

    @property
    def may_write(self) -> bool:
        return has_role(self.viewer, OPERATOR, ADMINISTRATOR)

    @property
    def plan(self) -> Plan | None:
        return self.draft.plan

    @property
    def count(self) -> str:
        return format_number(len(self.steps))

    def with_step(self, number: int | None) -> Self:
        return replace(self, number=number)


def _text_in(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _index_of(path: str) -> int | None:
    part, _rest, rest = path.partition(".")
    index = rest.partition(".")[0]
    return int(index) if part == "steps" and index.isdecimal() and len(index) < 6 else None


def draft_or_404(viewer: User, public_id: str) -> PlanDraft:
    """Return a draft that the viewer may open. Raises Http404."""
    try:
        draft = draft_for(viewer, public_id)
    except PlanDraft.DoesNotExist:
        raise Http404 from None
    if draft.plan is None and not may_read(viewer, draft, read_content(draft).document):
        raise Http404
    return draft


def version_for(viewer: User, draft: PlanDraft, number: int) -> PlanDraftVersion | None:
    """Return a version of a draft; None if it is gone, or if the viewer may not read what it said."""
    version = draft.versions.filter(version=number).first()
    return version if version and may_read(viewer, draft, read_content(version).document) else None


def news_since(draft: PlanDraft, seen: int, viewer: User, *, own: bool) -> Sequence[News]:
    """Return what changed since version `seen`, the newest first; without the viewer's changes if `own` is false."""
    changes = draft.versions.filter(version__gt=seen).select_related("by").defer("sealed").order_by("-version")
    if not own:
        changes = changes.exclude(by=viewer)
    return [News(change, change.by_id == viewer.pk) for change in changes[:MAX_NEWS]]
