"""One set of arguments while a person writes it: as a form made from a schema or as JSON, the same data both ways.

Pages that let people write arguments add their own buttons; those that change the form itself are pressed here.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict

from catalog.core.canonical_json import parse_json
from catalog.errors import MalformedJSON, ParameterError, TooLarge, ToolgateError
from catalog.rest.problems import problem_for
from catalog.schemas import ArgumentProblem, raise_for_problems
from catalog.secrets.placeholders import placeholders_as_text
from catalog.ui.forms.form import FormNode, build_form, form_to_value, show_problems, value_to_form
from catalog.ui.forms.submission import FormFields, child_path, is_field_path

FORM_MODE, JSON_MODE = "form", "json"
EDIT_ACTIONS = ("add", "remove", "open", "close")


@dataclass(slots=True, kw_only=True)
class ArgumentsEditor:
    """The arguments as they are being written, in one of two modes; `problems` are those that belong to no field."""

    schema: Mapping[str, Any]
    mode: str = FORM_MODE
    fields: FormFields = field(default_factory=FormFields)
    text: str = "{}"
    form: FormNode | None = None
    focus: str = ""
    problems: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> int:
        """How many problems are shown."""
        return len(self.problems) + (sum(len(each.problems) for each in self.form.every()) if self.form else 0)

    def read(self, sent: QueryDict) -> None:
        """Take what a form sent. Raises ParameterError for fields that no form of ours has."""
        self.mode = JSON_MODE if sent.get("mode") == JSON_MODE else FORM_MODE
        self.fields, self.text = FormFields.read(sent), sent.get("json", "{}").replace("\r\n", "\n")

    def fill(self, arguments: Mapping[str, Any]) -> None:
        """Write these arguments into the form."""
        self.fields = value_to_form(self.schema, placeholders_as_text(arguments))
        self.text = json.dumps(arguments, indent=2, ensure_ascii=False)

    def draw(self) -> None:
        """Make the form of what was written. Raises ParameterError where it would be too large to send."""
        if self.mode == FORM_MODE and self.form is None:
            self.form = build_form(self.schema, self.fields)
        if self.form is not None:
            self.form.focus(self.focus)

    def render_or_show_json(self) -> None:
        """Make the form of what was filled in; where it would be too large to send, show that as JSON."""
        try:
            self.draw()
        except ParameterError as error:
            self.mode, self.problems = JSON_MODE, [error.message]

    def press(self, wanted: str, place: str) -> None:
        """Do what a button of the form itself says: add, remove, open or close a place, show the other way, update.

        Raises ParameterError where that cannot be.
        """
        if wanted in EDIT_ACTIONS:
            self._edit(wanted, place)
        elif wanted == "show":
            self._switch(JSON_MODE if place == JSON_MODE else FORM_MODE)
        else:
            self._take(self.fields.settled())

    def arguments(self) -> dict[str, Any]:
        """Return what was written. Raises ParameterError naming the fields that spell nothing."""
        if self.mode == JSON_MODE:
            return _parse_arguments(self.text)
        fields = self.fields.settled()
        form = build_form(self.schema, fields)
        self.form, self.fields = form, fields
        value, problems = form_to_value(form)
        raise_for_problems(problems)
        return value

    def show_error(self, error: ToolgateError) -> int:
        """Put what is wrong where it belongs; return the HTTP status that says it."""
        told = problem_for(error)
        errors = list(told.errors if told else ()) or [{"path": "", "message": error.message}]
        if self.mode == FORM_MODE and self.form is None:
            self._render_readable()
        if self.form is not None:
            self.problems = show_problems(self.form, errors)
        else:
            self.problems = [
                f"{each['path']}: {each['message']}" if each["path"] else each["message"] for each in errors
            ]
        return told.status if told else 422

    def _take(self, fields: FormFields) -> None:
        """Go on with these fields. Raises ParameterError, and keeps those that were, where no form can show them."""
        if self.mode == FORM_MODE:
            self.form = build_form(self.schema, fields)
        self.fields = fields

    def _edit(self, wanted: str, place: str) -> None:
        """Add or remove a row, open or leave out a part."""
        if not is_field_path(place):
            raise_for_problems([ArgumentProblem("", "do", "The button names no place of this form; reload the page.")])
        fields = self.fields.settled()
        self.focus = _apply_edit(fields, wanted, place)
        self._take(fields)

    def _switch(self, mode: str) -> None:
        """Show the same arguments the other way; what cannot be read stays as it is, with the reason."""
        arguments = self.arguments()
        self.mode, self.form = mode, None
        self.fill(arguments)
        self.render_or_show_json()

    def _render_readable(self) -> None:
        """Draw the form as it was sent, or as it was before another variant was picked; else an empty one."""
        for fields in (self.fields, self.fields.with_previous_variants()):
            with suppress(ParameterError):
                self._take(fields)
                return
        self.fields = FormFields()
        self.render_or_show_json()


def _apply_edit(fields: FormFields, wanted: str, place: str) -> str:
    """Change the fields; return the path of what is to be filled in next."""
    if wanted == "remove":
        fields.remove_row(place)
    elif wanted == "close":
        fields.drop(place)
    elif wanted == "open":
        fields.put("given", place, "1")
        return place
    else:
        return child_path(place, str(fields.add_row(place)))
    return ""


def _parse_arguments(text: str) -> dict[str, Any]:
    try:
        value = parse_json(text or "{}")
    except (MalformedJSON, TooLarge) as error:
        raise_for_problems([ArgumentProblem(getattr(error, "path", ""), "json", error.message)])
        raise
    if not isinstance(value, dict):
        raise_for_problems([ArgumentProblem("", "type", "The arguments are one JSON object: {…}.")])
    return value  # type: ignore[return-value] # anything else was refused
