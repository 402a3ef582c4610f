"""Trying a tool from its page: arguments as a form or as JSON that are validated, previewed or called."""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from catalog.access.roles import ADMINISTRATOR, OPERATOR, NotAllowed, has_role
from catalog.calls.argument_notes import ArgumentNote, notes_on_arguments
from catalog.calls.vault import keyring
from catalog.core.canonical_json import canonical_text, digest
from catalog.errors import ToolgateError
from catalog.inventory.selectors import tool_or_404
from catalog.inventory.snapshot import loaded_tool
from catalog.models import Call, Tool
from catalog.rest.idempotency import run_once
from catalog.schemas import ArgumentProblem, raise_for_problems
from catalog.secrets.placeholders import holds_secret
from catalog.states import PUBLIC_STATUS
from catalog.ui.forms.editor import ArgumentsEditor
from catalog.ui.requests import PageRequest, is_fragment_request, parse_number, shown_status, sign_in_required
from plans.actions.call import CallOrder, Rehearsal, create_call, rehearse
from plans.engine import calls
from plans.engine.work import PreparedCall
from plans.live.waits import wait_briefly
from plans.store import selectors
from plans.store.privacy import hidden_call_parts
from plans.store.requesters import Requester
from plans.web.access import FORM_EXPIRED

KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(slots=True, kw_only=True)
class Trial(ArgumentsEditor):
    """State of the page: arguments and result. With the same `key`, a resubmitted form counts as one call."""

    tool: Tool
    viewer: User
    key: str = ""
    fits: bool = False
    prepared: PreparedCall | None = None
    rehearsal: Rehearsal | None = None
    call: Call | None = None
    answered_with: int = 200

    @property
    def argument_notes(self) -> Sequence[ArgumentNote]:
        """Notes on the defaults of the call that was made or checked, and on what it leaves out."""
        tool = loaded_tool(self.tool.name)
        if self.call is not None:
            return notes_on_arguments(tool, self.call, self.call.arguments_json, self.call.version.input_schema)
        if self.prepared is None:
            return ()
        call = Call(defaults=self.prepared.defaults_text, omitted=self.prepared.omitted_text)
        return notes_on_arguments(tool, call, self.prepared.redacted_arguments, self.schema)

    @property
    def may_call(self) -> bool:
        return has_role(self.viewer, OPERATOR, ADMINISTRATOR)

    @property
    def level(self) -> str:
        return self.tool.current_version.safety_level if self.tool.current_version else ""

    @property
    def is_running(self) -> bool:
        """True if the call has neither ended nor waits for people."""
        return self.call is not None and PUBLIC_STATUS[self.call.status] == "running"

    @property
    def looks_again(self) -> str:
        """Delay after which the page reloads the call; empty if the call has ended."""
        if self.is_running:
            return "700ms"
        return "3s" if self.call is not None and self.call.waiting_for else ""


def new_trial(tool: Tool, viewer: User, arguments: Mapping[str, Any] | None = None) -> Trial:
    trial = Trial(tool=tool, viewer=viewer, schema=_schema_of(tool), key=new_key())
    if arguments is not None:
        trial.fill(arguments)
    trial.render_or_show_json()
    return trial


def _schema_of(tool: Tool) -> Mapping[str, Any]:
    version = tool.current_version
    return version.input_schema if version else {}


def trial_of_call(tool: Tool, viewer: User, call: Call) -> Trial:
    trial = new_trial(tool, viewer, call.given_json)
    trial.call = call
    return trial


def handle_button(tool: Tool, viewer: User, sent: QueryDict) -> Trial:
    """Run the action of the pressed button and return the page's state; `answered_with` is the HTTP status."""
    trial = Trial(tool=tool, viewer=viewer, schema=_schema_of(tool))
    wanted, _, place = sent.get("do", "check").partition(":")
    try:
        trial.read(sent)
        trial.key = sent.get("key", "")
        if wanted == "call":
            call_once(trial)
        elif wanted in ("check", "preview"):
            arguments = trial.arguments()
            if wanted == "preview":
                _require_permission(trial)
            trial.prepared = calls.prepare_call(tool.name, arguments)
            trial.fits = wanted == "check"
            if wanted == "preview":
                trial.rehearsal = rehearse(tool.name, arguments, by=Requester(viewer))
        else:
            trial.press(wanted, place)
        trial.draw()
    except ToolgateError as error:
        trial.answered_with = trial.show_error(error)
    trial.key = new_key()
    return trial


def call_once(trial: Trial) -> None:
    """Call the tool once, even if the form is submitted twice."""
    arguments = trial.arguments()
    _require_permission(trial)
    if not KEY.fullmatch(trial.key):
        raise_for_problems([ArgumentProblem("", "key", _(FORM_EXPIRED))])
    calls.prepare_call(trial.tool.name, arguments)
    order, by = CallOrder(trial.tool.name, arguments), Requester(trial.viewer)
    what = keyring().fingerprint(digest("try", trial.tool.name, canonical_text(arguments)))
    called = run_once(
        f"user:{trial.viewer.pk}", f"try:{trial.key}:{what}", what, lambda: create_call(order, by=by).public_id
    )
    trial.call = Call.objects.get(public_id=called)
    if holds_secret(trial.call.arguments):  # from here on the page shows placeholders
        trial.fill(trial.call.arguments_json)
        trial.form = None


def _require_permission(trial: Trial) -> None:
    if not trial.may_call:
        raise NotAllowed(_("Calling tools needs the role operator or administrator. Nothing was run."))


def new_key() -> str:
    """Return a key of one form: resubmitted with the same key and arguments, it counts as one call."""
    return secrets.token_urlsafe(18)


CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def try_tool_page(request: PageRequest, name: str) -> HttpResponse:
    """Show the form, filled with the example or call named in the query; a POST runs the pressed button."""
    tool = tool_or_404(name)
    if request.method == "POST":
        trial = handle_button(tool, request.user, request.POST)
        if trial.call is not None:
            wait_briefly(trial.call)
            trial.call = _call_or_404(request.user, tool, trial.call.public_id)
            if not request.htmx:  # a call gets its own URL, because reloading must not call again
                return redirect(f"{request.path}?call={trial.call.public_id}")
    elif "call" in request.GET:
        trial = trial_of_call(tool, request.user, _call_or_404(request.user, tool, request.GET["call"]))
    else:
        number, arguments = parse_number(request.GET.get("example", "")), None
        if number is not None and number < len(tool.examples):
            arguments = tool.examples[number].get("arguments")
        trial = new_trial(tool, request.user, arguments if isinstance(arguments, dict) else None)
    template = "plans/try.html"
    if is_fragment_request(request, "tried"):
        template = "plans/_tried.html"
    elif is_fragment_request(request, "trying"):
        template = "plans/_trying.html"
    shown = {"section": "tools", "trial": trial, "tool": trial.tool}
    return render(request, template, shown, status=shown_status(request, trial.answered_with))


def _call_or_404(viewer: User, tool: Tool, public_id: str) -> Call:
    if not CALL_ID.fullmatch(public_id):
        raise Http404
    try:
        call = selectors.call_for(viewer, None, public_id)
    except Call.DoesNotExist:
        raise Http404 from None
    if call.tool_name != tool.name or hidden_call_parts(viewer, call) is not None:
        raise Http404
    return call
