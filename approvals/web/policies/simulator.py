"""The simulator's page: a hypothetical call, edited in the form of its tool, and the policy that decides it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.http import QueryDict

from approvals.envelopes.reading import EnvelopeView, covering_views
from approvals.policies.simulator import RefusedArguments, Simulation, simulate
from approvals.web.policies.forms import SimulatorForm
from catalog.errors import ParameterError, ToolgateError
from catalog.models import Source, Tool
from catalog.ui.forms.editor import ArgumentsEditor
from catalog.ui.page_forms import FormError

SIMULATE = "simulate"


@dataclass(slots=True)
class SimulatorPage:
    """The form of a call, the editor of its arguments (None without a tool), and the outcome once it was asked for."""

    form: SimulatorForm
    tool: Tool | None = None
    editor: ArgumentsEditor | None = None
    found: Simulation | None = None
    envelopes: Sequence[EnvelopeView] = ()
    is_refused: bool = False

    @property
    def runs_in_client(self) -> bool:
        return self.tool is not None and self.tool.source.kind == Source.Kind.CLIENT

    @property
    def error_list(self) -> list[FormError]:
        """The errors of the form, then those of the arguments."""
        found = self.form.error_list
        if self.editor is not None:
            fields = self.editor.form.every() if self.editor.form else ()
            found += [FormError(each.id, each.path, message) for each in fields for message in each.problems]
            found += [FormError("", "", message) for message in self.editor.problems]
        return found


def simulator_page(viewer: User, sent: QueryDict | None, tool_name: str = "") -> SimulatorPage:
    """Return the page of a new call of a tool, or that of the submitted form: its button changes or simulates it."""
    page = SimulatorPage(SimulatorForm(sent, initial={"tool": tool_name}))
    name = tool_name if sent is None else sent.get("tool", "")
    tools = Tool.objects.filter(registered=True, current_version__isnull=False).select_related(
        "current_version", "source"
    )
    page.tool = tools.filter(name=name).first() if "\x00" not in name else None
    if page.tool is None or page.tool.current_version is None:
        return page
    page.editor = ArgumentsEditor(schema=page.tool.current_version.input_schema)
    if sent is None or sent.get("drawn", "") != page.tool.name:  # the fields are those of another tool, or of none
        if sent is not None:
            page.form = SimulatorForm(initial=sent.dict())
        page.editor.fill({})
        page.editor.render_or_show_json()
        return page
    wanted, _, place = sent.get("do", SIMULATE).partition(":")
    try:
        page.editor.read(sent)
        if wanted == SIMULATE:
            _simulate(page, page.editor.arguments(), viewer)
        else:
            page.editor.press(wanted, place)
        page.editor.draw()
    except ToolgateError as error:
        page.is_refused = isinstance(error, RefusedArguments)
        page.editor.show_error(error)
    return page


def _simulate(page: SimulatorPage, arguments: dict[str, Any], viewer: User) -> None:
    """Simulate the call, or show the errors of the form at its fields. Raises RefusedArguments."""
    if not page.form.is_valid():
        return
    call = page.form.cleaned_data
    try:
        page.found = simulate(call["tool"], arguments, call["requester"], call["at"], call["cwd"])
        if call["at"] is None:  # an envelope is for now
            page.envelopes = covering_views(viewer, page.found, call["tool"])
    except RefusedArguments:
        raise
    except ParameterError as error:
        page.form.add_problems(error)
