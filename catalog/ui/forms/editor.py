"""Editor of a call's arguments, as a form made from the schema or as JSON, with lossless switching between the two."""

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict
from django.utils.translation import gettext as _

from catalog.core.canonical_json import parse_json
from catalog.core.json_paths import member_path
from catalog.errors import MalformedJSON, ParameterError, TooLarge, ToolgateError
from catalog.rest.problems import problem_for
from catalog.schemas import ArgumentProblem, raise_for_problems
from catalog.schemas.description import in_schema_order
from catalog.secrets.placeholders import placeholders_as_text
from catalog.ui.forms.form import FormNode, build_form, form_to_value, show_problems, value_to_form
from catalog.ui.forms.submission import FormFields, is_field_path

FORM_MODE, JSON_MODE = "form", "json"
EDIT_ACTIONS = ("add", "remove", "open", "close")


@dataclass(slots=True, kw_only=True)
class ArgumentsEditor:
    """The arguments while they are edited, as a form or as JSON. `problems` are those that belong to no field.

    `original` are the arguments before they were edited, `default_paths` the dotted paths of those that were not given.
    These are marked as defaults until edited. A text that `is_reference` may stand for a value of any type.
    """

    schema: Mapping[str, Any]
    original: Mapping[str, Any] = field(default_factory=dict)
    default_paths: Collection[str] = ()
    mode: str = FORM_MODE
    fields: FormFields = field(default_factory=FormFields)
    text: str = "{}"
    form: FormNode | None = None
    focus: str = ""
    problems: list[str] = field(default_factory=list)
    is_reference: Callable[[str], bool] | None = None

    @property
    def wrong(self) -> int:
        return len(self.problems) + (sum(len(each.problems) for each in self.form.every()) if self.form else 0)

    def read(self, sent: QueryDict) -> None:
        """Read a submitted form. Raises ParameterError for unknown fields."""
        self.mode = JSON_MODE if sent.get("mode") == JSON_MODE else FORM_MODE
        self.fields, self.text = FormFields.read(sent), sent.get("json", "{}").replace("\r\n", "\n")

    def fill(self, arguments: Mapping[str, Any]) -> None:
        self.fields = value_to_form(self.schema, placeholders_as_text(arguments), self.is_reference)
        self.text = json.dumps(in_schema_order(arguments, self.schema), indent=2, ensure_ascii=False)

    def draw(self) -> None:
        """Build the form to render. Raises ParameterError if it would be too large to submit."""
        if self.mode == FORM_MODE and self.form is None:
            self.form = build_form(self.schema, self.fields)
        if self.form is not None:
            self.form.focus(self.focus)
            marked = [node for node in self.form.every() if node.path in self.default_paths]
            original = value_to_form(self.schema, placeholders_as_text(self.original)) if marked else FormFields()
            for node in marked:
                node.is_default = self.fields.inside(node.name) == original.inside(node.name)

    def render_or_show_json(self) -> None:
        try:
            self.draw()
        except ParameterError as error:
            self.mode, self.problems = JSON_MODE, [error.message]

    def press(self, action: str, place: str) -> None:
        """Handle a button: add, remove, open or close `place`, show form or JSON, or update. Raises ParameterError."""
        if action in EDIT_ACTIONS:
            if not is_field_path(place):
                raise_for_problems(
                    [ArgumentProblem("", "do", _("This button does not match the form. Reload the page."))]
                )
            fields = self.fields.settled()
            self.focus = ""
            if action == "remove":
                fields.remove_row(place)
            elif action == "close":
                fields.drop(place)
            elif action == "open":
                fields.put("given", place, "1")
                self.focus = place
            else:
                self.focus = member_path(place, str(fields.add_row(place)))
            self._take(fields)
        elif action == "show":
            arguments = self.arguments()  # before the mode changes: unreadable input stays as it is, with the reason
            self.mode, self.form = JSON_MODE if place == JSON_MODE else FORM_MODE, None
            self.fill(arguments)
            self.render_or_show_json()
        else:
            self._take(self.fields.settled())

    def arguments(self) -> dict[str, Any]:
        """Return the arguments. Raises ParameterError naming the fields that have no valid value."""
        if self.mode == JSON_MODE:
            try:
                arguments = parse_json(self.text or "{}")
            except (MalformedJSON, TooLarge) as error:
                raise_for_problems([ArgumentProblem(getattr(error, "path", ""), "json", error.message)])
                raise
            if not isinstance(arguments, dict):
                raise_for_problems([ArgumentProblem("", "type", _("The arguments must be a JSON object: {…}."))])
            return arguments  # type: ignore[return-value] # anything else was refused
        fields = self.fields.settled()
        form = build_form(self.schema, fields)
        self.form, self.fields = form, fields
        value, problems = form_to_value(form)
        raise_for_problems(problems)
        return value

    def show_error(self, error: ToolgateError) -> int:
        """Show an error at its field; return the HTTP status of the page."""
        problem = problem_for(error)
        errors = list(problem.errors if problem else ()) or [{"path": "", "message": error.message}]
        if self.mode == FORM_MODE and self.form is None:
            self._render_readable()
        self.draw()
        if self.form is not None:
            self.problems = show_problems(self.form, errors)
        else:
            self.problems = [
                f"{each['path']}: {each['message']}" if each["path"] else each["message"] for each in errors
            ]
        return problem.status if problem else 422

    def _take(self, fields: FormFields) -> None:
        """Replace the fields. Raises ParameterError, and keeps the old fields, if no form can show the new ones."""
        if self.mode == FORM_MODE:
            self.form = build_form(self.schema, fields)
        self.fields = fields

    def _render_readable(self) -> None:
        """Build the form as submitted; if impossible, with the previous choice of variants, or else empty."""
        for fields in (self.fields, self.fields.with_previous_variants()):
            with suppress(ParameterError):
                self._take(fields)
                return
        self.fields = FormFields()
        self.render_or_show_json()
