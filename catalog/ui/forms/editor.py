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
from catalog.rest.problems import problem_of
from catalog.schemas import Problem, refuse
from catalog.secrets.placeholders import as_texts
from catalog.ui.forms.form import Field, fields_of, form_of, show_problems, value_of
from catalog.ui.forms.submission import FormFields, below, is_path

FORM, JSON = "form", "json"
EDITS = ("add", "remove", "open", "close")


@dataclass(slots=True, kw_only=True)
class Writing:
    """The arguments as they are being written, in one of two modes; `problems` are those that belong to no field."""

    schema: Mapping[str, Any]
    mode: str = FORM
    fields: FormFields = field(default_factory=FormFields)
    text: str = "{}"
    form: Field | None = None
    focus: str = ""
    problems: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> int:
        """How many problems are shown."""
        return len(self.problems) + (sum(len(each.problems) for each in self.form.every()) if self.form else 0)

    def read(self, sent: QueryDict) -> None:
        """Take what a form sent. Raises ParameterError for fields that no form of ours has."""
        self.mode = JSON if sent.get("mode") == JSON else FORM
        self.fields, self.text = FormFields.read(sent), sent.get("json", "{}").replace("\r\n", "\n")

    def fill(self, arguments: Mapping[str, Any]) -> None:
        """Write these arguments into the form."""
        self.fields = fields_of(self.schema, as_texts(arguments))
        self.text = json.dumps(arguments, indent=2, ensure_ascii=False)

    def draw(self) -> None:
        """Make the form of what was written. Raises ParameterError where it would be too large to send."""
        if self.mode == FORM and self.form is None:
            self.form = form_of(self.schema, self.fields)
        if self.form is not None:
            self.form.focus(self.focus)

    def draw_or_write(self) -> None:
        """Make the form of what was filled in; where it would be too large to send, show that as JSON."""
        try:
            self.draw()
        except ParameterError as error:
            self.mode, self.problems = JSON, [error.message]

    def press(self, wanted: str, place: str) -> None:
        """Do what a button of the form itself says: add, remove, open or close a place, show the other way, update.

        Raises ParameterError where that cannot be.
        """
        if wanted in EDITS:
            self._edit(wanted, place)
        elif wanted == "show":
            self._switch(JSON if place == JSON else FORM)
        else:
            self._take(self.fields.settled())

    def arguments(self) -> dict[str, Any]:
        """Return what was written. Raises ParameterError naming the fields that spell nothing."""
        if self.mode == JSON:
            return _parsed(self.text)
        fields = self.fields.settled()
        form = form_of(self.schema, fields)
        self.form, self.fields = form, fields
        value, problems = value_of(form)
        refuse(problems)
        return value

    def show_refusal(self, error: ToolgateError) -> int:
        """Put what is wrong where it belongs; return the HTTP status that says it."""
        told = problem_of(error)
        errors = list(told.errors if told else ()) or [{"path": "", "message": error.message}]
        if self.mode == FORM and self.form is None:
            self._draw_what_can_be_read()
        if self.form is not None:
            self.problems = show_problems(self.form, errors)
        else:
            self.problems = [
                f"{each['path']}: {each['message']}" if each["path"] else each["message"] for each in errors
            ]
        return told.status if told else 422

    def _take(self, fields: FormFields) -> None:
        """Go on with these fields. Raises ParameterError, and keeps those that were, where no form can show them."""
        if self.mode == FORM:
            self.form = form_of(self.schema, fields)
        self.fields = fields

    def _edit(self, wanted: str, place: str) -> None:
        """Add or remove a row, open or leave out a part."""
        if not is_path(place):
            refuse([Problem("", "do", "The button names no place of this form; reload the page.")])
        fields = self.fields.settled()
        self.focus = _edited(fields, wanted, place)
        self._take(fields)

    def _switch(self, mode: str) -> None:
        """Show the same arguments the other way; what cannot be read stays as it is, with the reason."""
        arguments = self.arguments()
        self.mode, self.form = mode, None
        self.fill(arguments)
        self.draw_or_write()

    def _draw_what_can_be_read(self) -> None:
        """Draw the form as it was sent, or as it was before another variant was picked; else an empty one."""
        for fields in (self.fields, self.fields.with_old_picks()):
            with suppress(ParameterError):
                self._take(fields)
                return
        self.fields = FormFields()
        self.draw_or_write()


def _edited(fields: FormFields, wanted: str, place: str) -> str:
    """Change the fields; return the path of what is to be filled in next."""
    if wanted == "remove":
        fields.remove_row(place)
    elif wanted == "close":
        fields.drop(place)
    elif wanted == "open":
        fields.put("given", place, "1")
        return place
    else:
        return below(place, str(fields.add_row(place)))
    return ""


def _parsed(text: str) -> dict[str, Any]:
    try:
        value = parse_json(text or "{}")
    except (MalformedJSON, TooLarge) as error:
        refuse([Problem(getattr(error, "path", ""), "json", error.message)])
        raise
    if not isinstance(value, dict):
        refuse([Problem("", "type", "The arguments are one JSON object: {…}.")])
    return value  # type: ignore[return-value] # anything else was refused
