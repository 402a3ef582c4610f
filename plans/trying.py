"""Trying a tool from its page: one set of arguments as a form or as JSON; checked, rehearsed, or called.

A call made here goes the way of every direct call (`plans.calls`), in the name of the person at the page.
"""

import json
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.http import QueryDict

from catalog.access import ADMINISTRATOR, OPERATOR, NotAllowed, has_role
from catalog.canonical import canonical_text, digest, parse_json
from catalog.errors import MalformedJSON, ParameterError, TooLarge, ToolgateError
from catalog.form_fields import FormFields, below, is_path
from catalog.form_values import fields_of, show_problems, value_of
from catalog.idempotency import act_once
from catalog.models import Call, Tool
from catalog.problems import problem_of
from catalog.schema_forms import Field, form_of
from catalog.schemas import Problem, refuse
from catalog.states import PUBLIC_STATUS
from plans import starting
from plans.calls import CallOrder, create_call
from plans.rehearsing import Rehearsal, rehearse
from plans.services import Requester

if TYPE_CHECKING:
    from django.contrib.auth.models import User

FORM, JSON = "form", "json"
EDITS = ("add", "remove", "open", "close")
KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(slots=True, kw_only=True)
class Trial:
    """What the page shows: the arguments as they are being written, and what became of the last button.

    `problems` are those that belong to no field; `key` makes sending the same form twice one call.
    """

    tool: Tool
    viewer: "User"
    mode: str = FORM
    fields: FormFields = field(default_factory=FormFields)
    text: str = "{}"
    key: str = ""
    form: Field | None = None
    focus: str = ""
    problems: list[str] = field(default_factory=list)
    fits: bool = False
    rehearsal: Rehearsal | None = None
    call: Call | None = None
    answered_with: int = 200

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of the arguments."""
        version = self.tool.current_version
        return version.input_schema if version else {}

    @property
    def may_call(self) -> bool:
        """Whether the viewer may call tools."""
        return has_role(self.viewer, OPERATOR, ADMINISTRATOR)

    @property
    def level(self) -> str:
        """The safety level of the tool."""
        return self.tool.current_version.safety_level if self.tool.current_version else ""

    @property
    def wrong(self) -> int:
        """How many problems are shown."""
        return len(self.problems) + (sum(len(each.problems) for each in self.form.every()) if self.form else 0)

    @property
    def is_running(self) -> bool:
        """Whether the call has not ended and nobody is waited for."""
        return self.call is not None and PUBLIC_STATUS[self.call.status] == "running"

    @property
    def looks_again(self) -> str:
        """After how long the page asks again what became of the call; empty when nothing more will."""
        if self.is_running:
            return "700ms"
        return "3s" if self.call is not None and self.call.waiting_for else ""

    def fill(self, arguments: Mapping[str, Any]) -> None:
        """Write these arguments into the form."""
        self.fields, self.text = fields_of(self.schema, arguments), _pretty(arguments)

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


def begin(tool: Tool, viewer: "User", arguments: Mapping[str, Any] | None = None) -> Trial:
    """Return a form nobody has sent yet: empty, or filled with these arguments."""
    trial = Trial(tool=tool, viewer=viewer, key=_new_key())
    if arguments is not None:
        trial.fill(arguments)
    trial.draw_or_write()
    return trial


def look_at(tool: Tool, viewer: "User", call: Call) -> Trial:
    """Return what became of a call, with a form filled with its arguments."""
    trial = begin(tool, viewer, call.arguments_json)
    trial.call = call
    return trial


def answer(tool: Tool, viewer: "User", sent: QueryDict) -> Trial:
    """Do what the pressed button says and return what the page shows then; `answered_with` is the HTTP status."""
    trial = Trial(tool=tool, viewer=viewer, mode=JSON if sent.get("mode") == JSON else FORM)
    wanted, _, place = sent.get("do", "check").partition(":")
    try:
        trial.fields, trial.text = FormFields.read(sent), sent.get("json", "{}").replace("\r\n", "\n")
        trial.key = sent.get("key", "")
        _press(trial, wanted, place)
        trial.draw()
    except ToolgateError as error:
        _show_refusal(trial, error)
    trial.key = _new_key()
    return trial


def _press(trial: Trial, wanted: str, place: str) -> None:
    if wanted in EDITS:
        _edit(trial, wanted, place)
    elif wanted == "show":
        _switch(trial, JSON if place == JSON else FORM)
    elif wanted in DO:
        DO[wanted](trial, _arguments(trial))
    else:
        _take(trial, trial.fields.settled())


def _take(trial: Trial, fields: FormFields) -> None:
    """Go on with these fields. Raises ParameterError, and keeps those that were sent, where no form can show them."""
    if trial.mode == FORM:
        trial.form = form_of(trial.schema, fields)
    trial.fields = fields


def _edit(trial: Trial, wanted: str, place: str) -> None:
    """Add or remove a row, open or leave out a part."""
    if not is_path(place):
        refuse([Problem("", "do", "The button names no place of this form; reload the page.")])
    fields = trial.fields.settled()
    trial.focus = _edited(fields, wanted, place)
    _take(trial, fields)


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


def _switch(trial: Trial, mode: str) -> None:
    """Show the same arguments the other way; what cannot be read stays as it is, with the reason."""
    arguments = _arguments(trial)
    trial.mode, trial.form = mode, None
    trial.fill(arguments)
    trial.draw_or_write()


def _arguments(trial: Trial) -> dict[str, Any]:
    """Return what was written. Raises ParameterError naming the fields that spell nothing."""
    if trial.mode == JSON:
        return _parsed(trial.text)
    fields = trial.fields.settled()
    form = form_of(trial.schema, fields)
    trial.form, trial.fields = form, fields
    value, problems = value_of(form)
    refuse(problems)
    return value


def _parsed(text: str) -> dict[str, Any]:
    try:
        value = parse_json(text or "{}")
    except (MalformedJSON, TooLarge) as error:
        refuse([Problem(getattr(error, "path", ""), "json", error.message)])
        raise
    if not isinstance(value, dict):
        refuse([Problem("", "type", "The arguments are one JSON object: {…}.")])
    return value  # type: ignore[return-value] # anything else was refused


def _check(trial: Trial, arguments: dict[str, Any]) -> None:
    starting.order_for(trial.tool.name, arguments)
    trial.fits = True


def _preview(trial: Trial, arguments: dict[str, Any]) -> None:
    _see_that_they_may(trial)
    trial.rehearsal = rehearse(trial.tool.name, arguments, by=Requester(trial.viewer))


def _call(trial: Trial, arguments: dict[str, Any]) -> None:
    """Call the tool; the same form sent twice is one call."""
    _see_that_they_may(trial)
    if not KEY.fullmatch(trial.key):
        refuse([Problem("", "key", "This form has lost its key; reload the page.")])
    starting.order_for(trial.tool.name, arguments)
    order, by = CallOrder(trial.tool.name, arguments), Requester(trial.viewer)
    what = digest("try", trial.tool.name, canonical_text(arguments))
    called = act_once(
        f"user:{trial.viewer.pk}", f"try:{trial.key}:{what}", what, lambda: create_call(order, by=by).public_id
    )
    trial.call = Call.objects.get(public_id=called)


DO = {"check": _check, "preview": _preview, "call": _call}


def _see_that_they_may(trial: Trial) -> None:
    if not trial.may_call:
        raise NotAllowed("Calling tools needs the role operator or administrator. Nothing was run.")


def _show_refusal(trial: Trial, error: ToolgateError) -> None:
    """Put what is wrong where it belongs."""
    told = problem_of(error)
    trial.answered_with = told.status if told else 422
    errors = list(told.errors if told else ()) or [{"path": "", "message": error.message}]
    if trial.mode == FORM and trial.form is None:
        _draw_what_can_be_read(trial)
    if trial.form is not None:
        trial.problems = show_problems(trial.form, errors)
    else:
        trial.problems = [f"{each['path']}: {each['message']}" if each["path"] else each["message"] for each in errors]


def _draw_what_can_be_read(trial: Trial) -> None:
    """Draw the form as it was sent, or as it was before another variant was picked; else an empty one."""
    for fields in (trial.fields, trial.fields.with_old_picks()):
        with suppress(ParameterError):
            _take(trial, fields)
            return
    trial.fields = FormFields()
    trial.draw_or_write()


def _new_key() -> str:
    return secrets.token_urlsafe(18)


def _pretty(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, indent=2, ensure_ascii=False)
