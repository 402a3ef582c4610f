"""The pages of sources, for administrators: the list and one source."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib import messages
from django.db import models
from django.db.models import Prefetch
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.text import normalize_newlines
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST, require_safe

from catalog.errors import ParameterError, SourceProblem, ToolgateError, UpstreamUnavailable
from catalog.inventory import held_changes, source_sync, sources
from catalog.inventory.overrides import MAX_REASON, InvalidOverride
from catalog.inventory.selectors import LEVELS
from catalog.models import Source, Tool
from catalog.sources.selection import parse_only, write_only
from catalog.sources.settings import allowed_variables, masked, read_secrets
from catalog.tools.registry import shipped_modules
from catalog.ui.labels import Badge
from catalog.ui.page_forms import FormSection, PageForm, PairsField, stripped_lines
from catalog.ui.requests import PageRequest, administrator_required
from catalog.ui.toasts import ToastButton, announce
from catalog.ui.version_changes import held_change

MAX_ONLY = 20_000
MAX_MESSAGES = 5
"""Problems of a synchronisation that are shown after it."""
MAX_UPLOAD = 400_000
"""Bytes of an uploaded document.

A request has at most 1 MiB, and may carry the kept document, a new one and three fields for each tool.
"""
STATUS_BADGES: Mapping[str, Badge] = {
    Source.Status.CONNECTING: Badge(Source.Status.CONNECTING.label, "clock", "run"),
    Source.Status.CONNECTED: Badge(Source.Status.CONNECTED.label, "ok", "ok"),
    Source.Status.FAILING: Badge(Source.Status.FAILING.label, "fail", "danger"),
    Source.Status.DISABLED: Badge(Source.Status.DISABLED.label, "off", "idle"),
}
SET_BADGES: Mapping[bool, Badge] = {
    True: Badge(gettext_lazy("Enabled"), "ok", "ok"),
    False: STATUS_BADGES[Source.Status.DISABLED],
}
"""Badges of shipped sets, by whether they are enabled. They have no connection that could fail."""
TOOL_BADGES: Mapping[str, Badge] = {
    "ready": Badge(gettext_lazy("Ready"), "ok", "ok"),
    "drifted": Badge(gettext_lazy("Change held"), "retry", "warn"),
    "disabled": Badge(gettext_lazy("Disabled"), "off", "idle"),
    "removed": Badge(gettext_lazy("No longer offered"), "stop", "idle"),
}


class SourceType(models.TextChoices):
    """Kind of a source on the page. It separates MCP servers at a URL from those started as a program."""

    MCP = "mcp", gettext_lazy("MCP server at a URL")
    PROGRAM = "program", gettext_lazy("MCP server as a program")
    OPENAPI = "openapi", gettext_lazy("HTTP API with an OpenAPI document")

    @classmethod
    def of(cls, source: Source) -> "SourceType":
        return cls.PROGRAM if source.command else cls(source.kind)

    @property
    def kind(self) -> Source.Kind:
        return Source.Kind.OPENAPI if self is SourceType.OPENAPI else Source.Kind.MCP


TYPES_OF_FIELDS: Mapping[str, tuple[SourceType, ...]] = {
    "url": (SourceType.MCP,),
    "command": (SourceType.PROGRAM,),
    "document_url": (SourceType.OPENAPI,),
    "document": (SourceType.OPENAPI,),
    "base_url": (SourceType.OPENAPI,),
    "only": (SourceType.OPENAPI,),
    "query": (SourceType.OPENAPI,),
    "headers": (SourceType.MCP, SourceType.OPENAPI),
    "env": (SourceType.PROGRAM,),
}
"""Fields that only sources of some types have. Every source has the other fields."""


def has_field(name: str, source_type: SourceType) -> bool:
    return source_type in TYPES_OF_FIELDS.get(name, SourceType)


@dataclass(frozen=True, slots=True)
class Document:
    """An OpenAPI document: uploaded now, uploaded in an earlier request, or stored with the source (`is_stored`).

    Its line ends are LF, because a browser changes line ends in the hidden field that repeats an upload.
    """

    name: str
    text: str
    is_stored: bool = False

    @property
    def kilobytes(self) -> int:
        return max(1, round(len(self.text.encode()) / 1000))


class SourceFields(PageForm):
    """The fields of sources of all types, except name and type.

    `source_type` is None if no valid type was submitted. `kept` is the stored or earlier uploaded document, which
    remains unless a file or a URL replaces it.
    """

    source_type: SourceType | None = None
    url = forms.CharField(
        label=gettext_lazy("URL of the server"),
        required=False,
        max_length=2000,
        help_text=gettext_lazy("Such as https://wiki.example.org/mcp."),
    )
    command = forms.CharField(
        label=gettext_lazy("Command"),
        required=False,
        widget=forms.Textarea({"class": "mono"}),
        help_text=gettext_lazy("The program and its arguments, one on each line."),
    )
    document_url = forms.CharField(
        label=gettext_lazy("URL of the OpenAPI document"),
        required=False,
        max_length=2000,
        help_text=gettext_lazy(
            "Such as https://shop.example.org/openapi.json. Toolgate reads it again every 15 minutes."
        ),
    )
    document = forms.FileField(  # type: ignore[call-arg]  # django-stubs do not know template_name
        label=gettext_lazy("Or a file with the document"),
        required=False,
        help_text=gettext_lazy("JSON or YAML, at most 400 kB. Give larger documents by URL, or use import_openapi."),
        template_name="sources/_document.html",
    )
    base_url = forms.CharField(
        label=gettext_lazy("Base URL"),
        required=False,
        max_length=2000,
        help_text=gettext_lazy("The address of the API, if it is not the one that the document names."),
    )
    only = forms.CharField(
        label=gettext_lazy("Operations"),
        required=False,
        max_length=MAX_ONLY,
        widget=forms.Textarea,
        help_text=gettext_lazy(
            "Empty imports all. To import some, write one on each line: tag=NAME, path=/PREFIX or operation=NAME."
        ),
    )
    headers = PairsField(
        separator=":",
        label=gettext_lazy("Headers"),
        help_text=gettext_lazy("Sent with each request, such as “Authorization: Bearer …”, one on each line."),
        is_secret=True,
    )
    query = PairsField(
        separator="=",
        label=gettext_lazy("Query"),
        help_text=gettext_lazy("API keys in the query of each call, such as “api_key=…”, one on each line."),
        is_secret=True,
    )
    env = PairsField(
        separator="=",
        label=gettext_lazy("Environment"),
        is_secret=True,
    )
    timeout = forms.IntegerField(
        label=gettext_lazy("Timeout in seconds"),
        min_value=1,
        max_value=300,
        initial=30,
        help_text=gettext_lazy("For connecting, for listing tools and for each call."),
    )
    trusted = forms.BooleanField(
        label=gettext_lazy("Trust this source"),
        required=False,
        help_text=gettext_lazy(
            "Its own hints about safety set the levels, and changed descriptions are taken up without review."
        ),
    )

    layout: ClassVar[Sequence[FormSection]] = (
        FormSection(
            "connection",
            gettext_lazy("Connection"),
            gettext_lazy("Say where the tools are."),
            ("url", "command", "document_url", "document", "only"),
        ),
        FormSection(
            "access",
            gettext_lazy("Credentials"),
            gettext_lazy("Leave this empty if the source needs none. Values are stored encrypted and shown as ••••."),
            ("headers", "query", "env"),
        ),
        FormSection(
            "trust",
            gettext_lazy("Trust"),
            gettext_lazy("You can set the level of each tool yourself, whether you trust the source or not."),
            ("trusted",),
        ),
        FormSection(
            "advanced",
            gettext_lazy("Advanced"),
            gettext_lazy("Most sources need no change here."),
            ("base_url", "timeout"),
            is_advanced=True,
        ),
    )

    def __init__(self, *args: Any, stored: str = "", **options: Any) -> None:
        super().__init__(*args, **options)
        self.stored = stored
        self.kept = Document("", stored, is_stored=True) if stored else None
        text = normalize_newlines(self.data.get("kept_document", ""))
        if text and "drop_document" not in self.data:
            self.kept = Document(self.data.get("kept_name", ""), text)
        self.fields["env"].help_text = _("NAME=value, one on each line. Allowed here: %(names)s.") % {
            "names": ", ".join(allowed_variables())
        }

    def values(self) -> dict[str, Any]:
        names = ("url", "command", "base_url", "only", "headers", "query", "env", "timeout", "trusted")
        values = {name: self.cleaned_data[name] for name in names if name in self.cleaned_data}
        if "document_url" in self.cleaned_data:
            values["url"] = self.cleaned_data["document_url"]
        document = self.kept.text if self.kept else ""
        return values if document == self.stored else {**values, "document": document}

    def clean_command(self) -> list[str]:
        return stripped_lines(self.cleaned_data["command"])

    def clean_only(self) -> dict[str, list[str]]:
        try:
            return parse_only(stripped_lines(self.cleaned_data["only"]))
        except ParameterError as error:
            raise forms.ValidationError(error.message) from None

    def clean_document(self) -> Document | None:
        upload = self.cleaned_data["document"]
        if upload is None:
            return None
        if upload.size > MAX_UPLOAD:
            raise forms.ValidationError(_("This file is larger than 400 kB."))
        try:
            return Document(upload.name, normalize_newlines(upload.read().decode()))
        except UnicodeDecodeError:
            raise forms.ValidationError(_("This file is not UTF-8 text.")) from None

    def clean(self) -> None:
        """Ignore fields of other types. An uploaded document replaces the kept one; a URL removes it."""
        source_type, data = self.source_type, self.cleaned_data
        if source_type is None:
            return
        for name in self.fields:
            if not has_field(name, source_type):
                self.errors.pop(name, None)
                data.pop(name, None)
        for name in ("command", "url"):
            if data.get(name) in ("", []):
                self.add_error(name, _("This field is required."))
        if data.get("document"):
            self.kept = data["document"]
        elif data.get("document_url") or source_type is not SourceType.OPENAPI:
            self.kept = None

    def add_problems(self, error: ToolgateError) -> None:
        """Show an error of the service; one of the URL is shown at the field that this type has for it."""
        if isinstance(error, ParameterError) and self.source_type is SourceType.OPENAPI:
            for each in error.details.get("errors", ()):
                each["path"] = "document_url" if each["path"] == "url" else each["path"]
        super().add_problems(error)


def address_limit() -> str:
    """Return a sentence about the addresses that can be reached from this installation."""
    addresses = ", ".join(settings.TOOLGATE_EGRESS_ALLOW)
    if not addresses:
        return _("Only public addresses can be reached: TOOLGATE_EGRESS_ALLOW lists no others.")
    return _("Public addresses can be reached, and %(addresses)s (TOOLGATE_EGRESS_ALLOW).") % {"addresses": addresses}


def program_limit() -> str:
    """Return a sentence about the programs that the pages and the REST API can start."""
    programs = ", ".join(settings.TOOLGATE_STDIO_COMMANDS)
    if not programs:
        return _(
            "No programs can be started here: TOOLGATE_STDIO_COMMANDS lists none. In a shell, import_mcp can start any."
        )
    return _("Programs that can be started: %(programs)s (TOOLGATE_STDIO_COMMANDS).") % {"programs": programs}


class SourceSettingsForm(SourceFields):
    """The fields of an existing source, as far as its type has them."""

    def __init__(self, source: Source, *args: Any, **options: Any) -> None:
        super().__init__(*args, stored=source.document, **options)
        self.source_type = SourceType.of(source)
        for name in TYPES_OF_FIELDS:
            if not has_field(name, self.source_type):
                del self.fields[name]


class AcceptanceForm(PageForm):
    """The form that accepts all held changes of a source. `held` has those that the page showed, as `NAME:DIGEST`."""

    held = forms.MultipleChoiceField(
        widget=forms.MultipleHiddenInput,
        error_messages=dict.fromkeys(
            ("required", "invalid_choice"), gettext_lazy("The held changes are no longer those that you were shown.")
        ),
    )
    reason = forms.CharField(label=gettext_lazy("Reason"), max_length=MAX_REASON)

    def __init__(self, held_tools: Iterable[Tool], data: Any = None) -> None:
        super().__init__(data)
        self.fields["held"].choices = [(choice, choice) for choice in map(_held_choice, held_tools)]  # type: ignore[attr-defined]

    def problems(self) -> list[str]:
        return [*self.errors.get("held", ()), *self.non_field_errors()]

    def changes(self) -> dict[str, str]:
        """Return the digest of each accepted change by the name of its tool."""
        return dict(each.split(":") for each in self.cleaned_data["held"])


def _held_choice(tool: Tool) -> str:
    return f"{tool.name}:{held_changes.held_digest(tool)}"


@require_safe
@administrator_required
def source_list(request: PageRequest) -> HttpResponse:
    found = sources.switchable_sources().defer("document", "secrets", "tool_settings")
    found = found.prefetch_related(Prefetch("tools", Tool.objects.select_related("current_version")))
    texts = shipped_modules()
    rows, sets = [], []
    for source in found:
        offered = [tool for tool in source.tools.all() if tool.registered]
        if has_upstream_or_client(source):
            held = sum(1 for tool in offered if tool.held_version_id is not None)
            rows.append((source, badge_of(source), {"tools": len(offered), "held": held}))
        else:
            names: dict[str, list[str]] = {level: [] for level in LEVELS}
            for tool in offered:
                if tool.current_version:
                    names[tool.current_version.safety_level].append(tool.name)
            by_level = [(level, tools) for level, tools in names.items() if tools]
            sets.append((source, source.title, badge_of(source), texts[source.name], by_level))
    return render(request, "sources/sources.html", {"section": "sources", "rows": rows, "sets": sets})


def has_upstream_or_client(source: Source) -> bool:
    """Return whether a source has a page of its own in the list of sources, unlike the sets that ship."""
    return source.is_imported or source.kind == Source.Kind.CLIENT


def badge_of(source: Source) -> Badge:
    return STATUS_BADGES[source.status] if source.is_imported else SET_BADGES[source.enabled]


def synchronise(request: PageRequest, source: Source) -> None:
    """Synchronise a source, and show what changed as a message on the next page."""
    try:
        changes = source_sync.sync_source(source)
    except (SourceProblem, UpstreamUnavailable) as error:
        messages.error(request, error.message)
        return
    messages.success(
        request,
        _("Synchronised: %(added)d added, %(changed)d changed, %(removed)d removed, %(held)d held.")
        % {
            "added": len(changes.added),
            "changed": len(changes.changed),
            "removed": len(changes.removed),
            "held": len(changes.drifted),
        },
    )
    for problem in changes.problems[:MAX_MESSAGES]:
        messages.warning(request, problem)
    more = len(changes.problems) - MAX_MESSAGES
    if more > 0:
        messages.warning(
            request, _("%(more)d more problems: import_openapi and POST sources/preview/ list all.") % {"more": more}
        )


@require_safe
@administrator_required
def source_detail(request: PageRequest, name: str) -> HttpResponse:
    return _render_detail(request, _source_or_404(name))


@require_POST
@administrator_required
def change_source(request: PageRequest, name: str) -> HttpResponse:
    source = _source_or_404(name)
    if "enabled" in request.POST or not source.is_imported:
        source = sources.update_source(source, {"enabled": request.POST.get("enabled") == "yes"}, by=request.user)
        done = _("Enabled %(name)s.") if source.enabled else _("Disabled %(name)s.")
        undo = {"enabled": "no" if source.enabled else "yes"}
        button = ToastButton(_("Undo"), reverse("source-change", args=[name]), undo)
        announce(request, done % {"name": source.title}, button)
        is_listed = has_upstream_or_client(source)
        return redirect("source", name) if is_listed else redirect(f"{reverse('sources')}#set-{name}")
    form = SourceSettingsForm(source, request.POST, request.FILES)
    if form.is_valid():
        with form.refusals_shown():
            sources.update_source(source, form.values(), by=request.user)
            messages.success(request, _("Saved."))
            return redirect("source", name)
    return _render_detail(request, source, form, status=422)


@require_POST
@administrator_required
def sync_source(request: PageRequest, name: str) -> HttpResponse:
    synchronise(request, _imported_or_404(name))
    return redirect("source", name)


@require_POST
@administrator_required
def accept_changes(request: PageRequest, name: str) -> HttpResponse:
    source = _imported_or_404(name)
    form = AcceptanceForm(list(source.tools.exclude(held_version=None).order_by("name")), request.POST)
    if form.is_valid():
        try:
            held_changes.accept_changes(source, form.changes(), by=request.user, reason=form.cleaned_data["reason"])
            messages.success(request, _("Accepted."))
            return redirect("source", name)
        except InvalidOverride as error:
            form.add_problems(error)
    return _render_detail(request, source, acceptance=form, status=422)


def _source_or_404(name: str) -> Source:
    return get_object_or_404(sources.switchable_sources(), name=name)


def _imported_or_404(name: str) -> Source:
    return get_object_or_404(sources.imported_sources(), name=name)


def _render_detail(
    request: PageRequest,
    source: Source,
    form: SourceSettingsForm | None = None,
    acceptance: AcceptanceForm | None = None,
    status: int = 200,
) -> HttpResponse:
    offered = (
        source.tools.filter(definition__isnull=False) if source.is_imported else source.tools.filter(registered=True)
    )
    tools = offered.select_related("current_version", "held_version").order_by("name")
    held = [tool for tool in tools if tool.held_version]
    ready = [(tool.name, tool.current_version) for tool in tools if tool.status == "ready" and tool.current_version]
    shown = {
        "section": "sources",
        "source": source,
        "ready": ready,
        "title": source.title,
        "description": shipped_modules().get(source.name, ""),
        "badge": badge_of(source),
        "by_level": [(level, [name for name, version in ready if version.safety_level == level]) for level in LEVELS],
        "tools": [(tool, TOOL_BADGES[tool.status]) for tool in tools],
        "held": [(tool, _held_choice(tool), held_change(tool)) for tool in held],
        "acceptance": acceptance or AcceptanceForm(held),
    }
    if source.is_imported:
        shown["form"] = form or SourceSettingsForm(source, initial=_initial(source))
    return render(request, "sources/source.html", shown, status=status)


def _initial(source: Source) -> dict[str, Any]:
    """Return the fields' values for the form, with headers, query and environment masked."""
    secrets = read_secrets(source)
    return {
        "url": source.url,
        "document_url": source.url,
        "command": "\n".join(source.command),
        "base_url": source.base_url,
        "only": "\n".join(write_only(source.only)),
        "query": "\n".join(f"{name}={value}" for name, value in masked(secrets["query"]).items()),
        "headers": "\n".join(f"{name}: {value}" for name, value in masked(secrets["headers"]).items()),
        "env": "\n".join(f"{name}={value}" for name, value in masked(secrets["env"]).items()),
        "timeout": source.timeout,
        "trusted": source.trusted,
    }
