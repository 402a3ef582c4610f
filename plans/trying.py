"""Trying a tool from its page: one set of arguments as a form or as JSON; checked, rehearsed, or called.

A call made here goes the way of every direct call (`plans.actions.call`), in the name of the person at the page.
"""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.http import QueryDict

from catalog.access.roles import ADMINISTRATOR, OPERATOR, NotAllowed, has_role
from catalog.calls.vault import keyring
from catalog.core.canonical_json import canonical_text, digest
from catalog.errors import ToolgateError
from catalog.models import Call, Tool
from catalog.rest.idempotency import act_once
from catalog.schemas import Problem, refuse
from catalog.secrets.placeholders import holds_secret
from catalog.states import PUBLIC_STATUS
from catalog.ui.forms.editor import Writing
from plans.actions.call import CallOrder, Rehearsal, create_call, rehearse
from plans.engine import calls
from plans.store.requesters import Requester

if TYPE_CHECKING:
    from django.contrib.auth.models import User

KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(slots=True, kw_only=True)
class Trial(Writing):
    """What the page shows: the arguments as they are being written, and what became of the last button.

    `key` makes sending the same form twice one call.
    """

    tool: Tool
    viewer: "User"
    key: str = ""
    fits: bool = False
    rehearsal: Rehearsal | None = None
    call: Call | None = None
    answered_with: int = 200

    @property
    def may_call(self) -> bool:
        """Whether the viewer may call tools."""
        return has_role(self.viewer, OPERATOR, ADMINISTRATOR)

    @property
    def level(self) -> str:
        """The safety level of the tool."""
        return self.tool.current_version.safety_level if self.tool.current_version else ""

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


def begin(tool: Tool, viewer: "User", arguments: Mapping[str, Any] | None = None) -> Trial:
    """Return a form nobody has sent yet: empty, or filled with these arguments."""
    trial = Trial(tool=tool, viewer=viewer, schema=_schema_of(tool), key=_new_key())
    if arguments is not None:
        trial.fill(arguments)
    trial.draw_or_write()
    return trial


def _schema_of(tool: Tool) -> Mapping[str, Any]:
    version = tool.current_version
    return version.input_schema if version else {}


def look_at(tool: Tool, viewer: "User", call: Call) -> Trial:
    """Return what became of a call, with a form filled with its arguments."""
    trial = begin(tool, viewer, call.arguments_json)
    trial.call = call
    return trial


def answer(tool: Tool, viewer: "User", sent: QueryDict) -> Trial:
    """Do what the pressed button says and return what the page shows then; `answered_with` is the HTTP status."""
    trial = Trial(tool=tool, viewer=viewer, schema=_schema_of(tool))
    wanted, _, place = sent.get("do", "check").partition(":")
    try:
        trial.read(sent)
        trial.key = sent.get("key", "")
        if wanted in DO:
            DO[wanted](trial, trial.arguments())
        else:
            trial.press(wanted, place)
        trial.draw()
    except ToolgateError as error:
        trial.answered_with = trial.show_refusal(error)
    trial.key = _new_key()
    return trial


def _check(trial: Trial, arguments: dict[str, Any]) -> None:
    calls.order_for(trial.tool.name, arguments)
    trial.fits = True


def _preview(trial: Trial, arguments: dict[str, Any]) -> None:
    _see_that_they_may(trial)
    trial.rehearsal = rehearse(trial.tool.name, arguments, by=Requester(trial.viewer))


def _call(trial: Trial, arguments: dict[str, Any]) -> None:
    """Call the tool; the same form sent twice is one call."""
    _see_that_they_may(trial)
    if not KEY.fullmatch(trial.key):
        refuse([Problem("", "key", "This form has lost its key; reload the page.")])
    calls.order_for(trial.tool.name, arguments)
    order, by = CallOrder(trial.tool.name, arguments), Requester(trial.viewer)
    what = keyring().fingerprint(digest("try", trial.tool.name, canonical_text(arguments)))
    called = act_once(
        f"user:{trial.viewer.pk}", f"try:{trial.key}:{what}", what, lambda: create_call(order, by=by).public_id
    )
    trial.call = Call.objects.get(public_id=called)
    if holds_secret(trial.call.arguments):  # from here on the page has their names only
        trial.fill(trial.call.arguments_json)
        trial.form = None


DO = {"check": _check, "preview": _preview, "call": _call}


def _see_that_they_may(trial: Trial) -> None:
    if not trial.may_call:
        raise NotAllowed("Calling tools needs the role operator or administrator. Nothing was run.")


def _new_key() -> str:
    return secrets.token_urlsafe(18)
