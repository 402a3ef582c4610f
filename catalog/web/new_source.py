"""The page that adds a source, for administrators: settings, a preview of the tools, and choices for each tool."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from django import forms
from django.conf import settings
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from catalog.core.canonical_json import canonical_text, digest
from catalog.definitions.levels import SafetyLevel
from catalog.inventory import sources
from catalog.inventory.overrides import MAX_REASON
from catalog.inventory.source_preview import OfferedTool, SourcePreview, preview_source
from catalog.ui.labels import SAFETY_BADGES
from catalog.ui.page_forms import CardSelect, CardText, FormSection, PageForm
from catalog.ui.requests import PageRequest, administrator_required
from catalog.web.sources import TYPES_OF_FIELDS, SourceFields, SourceType, address_limit, program_limit, synchronise


class NewSourceForm(SourceFields):
    """A source to be added. The page shows only the fields of the chosen type; the other fields are ignored."""

    kind = forms.ChoiceField(
        label=gettext_lazy("Kind"), choices=SourceType.choices, initial=SourceType.MCP, widget=CardSelect
    )
    name = forms.SlugField(
        label=gettext_lazy("Name"),
        max_length=40,
        widget=forms.TextInput({"autocomplete": "off"}),
        help_text=gettext_lazy("a-z, 0-9, “_” and “-”, such as wiki. Tools whose name is taken get it as a prefix."),
        error_messages={"invalid": gettext_lazy("Use only a-z, 0-9, “_” and “-”.")},
    )
    layout = (
        FormSection(
            "kind",
            gettext_lazy("Source"),
            gettext_lazy("Choose how Toolgate reaches the tools, and name the source."),
            ("kind", "name"),
        ),
        *SourceFields.layout,
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        refusal = _("Not allowed on this installation: see its limits above.")
        self.fields["kind"].widget.cards = {
            SourceType.MCP.value: CardText(_("The server speaks Streamable HTTP.")),
            SourceType.PROGRAM.value: CardText(
                _("Toolgate starts the program and speaks MCP with it over stdio."),
                refusal="" if settings.TOOLGATE_STDIO_COMMANDS else refusal,
            ),
            SourceType.OPENAPI.value: CardText(_("Each operation of the API becomes a tool.")),
        }

    def kinds_of(self, name: str) -> str:
        return " ".join(TYPES_OF_FIELDS.get(name, ()))

    def clean(self) -> None:
        kind = self.cleaned_data.get("kind")
        self.source_type = SourceType(kind) if kind else None
        super().clean()

    def values(self) -> dict[str, Any]:
        data = self.cleaned_data
        return {**super().values(), "name": data["name"], "kind": SourceType(data["kind"]).kind.value}


@dataclass(frozen=True, slots=True)
class ToolChoice:
    tool: OfferedTool
    level: str
    enabled: bool

    @property
    def field_value(self) -> str:
        """Value of the form field `tool`: digest, level and name, percent-encoded because browsers change line ends."""
        return f"{self.tool.digest[:16]}:{self.tool.safety_level}:{quote(self.tool.upstream)}"

    @property
    def is_lower(self) -> bool:
        return _rank(self.level) < _rank(self.tool.safety_level)

    @property
    def settings(self) -> dict[str, Any]:
        """The choices that differ from the defaults, in the form that `sources.create_source` takes.

        With a lower level, `digest` identifies the definition for which it was chosen.
        """
        changed: dict[str, Any] = {} if self.enabled else {"enabled": False}
        if self.level != self.tool.safety_level:
            changed["safety_level"] = self.level
        if self.is_lower:
            changed["digest"] = self.tool.digest
        return changed


class ChoicesForm(PageForm):
    """Choices for the tools of a preview: the fields `tool`, `level:INDEX` and `on:INDEX` of each, and one reason.

    INDEX counts the values of `tool` from 0. Fields are not named after tools because browsers escape quotes and line
    breaks in the names of fields, and Django does not undo that.

    If `is_final`, the source is to be added: the form is refused if the preview has changed since the page was
    rendered, or if a level is lowered without a reason.
    """

    previewed = forms.CharField(required=False)
    reason = forms.CharField(label=gettext_lazy("Reason, if you lower a level"), required=False, max_length=MAX_REASON)

    def __init__(self, tools: Iterable[OfferedTool], digest_of_preview: str, sent: QueryDict) -> None:
        super().__init__(sent)
        self.digest = digest_of_preview
        self.choices = list(_choices(tools, sent))
        self.is_final = sent.get("do") == "add"

    def clean(self) -> None:
        if not self.is_final:
            return
        if self.cleaned_data.get("previewed") != self.digest:
            message = _(
                "The settings or the tools differ from those that you previewed. "
                "Check this preview, then add the source."
            )
            raise forms.ValidationError(message)
        if any(each.is_lower for each in self.choices) and not self.cleaned_data.get("reason"):
            self.add_error("reason", _("Say why you lower a level."))

    @property
    def enabled_by_level(self) -> list[tuple[SafetyLevel, list[str]]]:
        """The names of the enabled tools of each level, safe ones first."""
        enabled = [each for each in self.choices if each.enabled]
        return [(level, [each.tool.name for each in enabled if each.level == level]) for level in SafetyLevel]

    def settings(self) -> dict[str, dict[str, Any]]:
        reason = {"reason": self.cleaned_data["reason"]}
        return {each.tool.upstream: {**each.settings, **reason} for each in self.choices if each.settings}


def _choices(tools: Iterable[OfferedTool], sent: QueryDict) -> Iterator[ToolChoice]:
    """Yield a choice for each tool, keeping earlier choices; a lower level is dropped if the definition has changed."""
    seen = {}
    for index, each in enumerate(sent.getlist("tool")):
        tool_digest, _, rest = each.partition(":")
        level, _, name = rest.partition(":")
        seen[unquote(name)] = index, tool_digest, level
    for tool in tools:
        if tool.upstream not in seen:
            yield ToolChoice(tool, tool.safety_level, enabled=True)
            continue
        index, tool_digest, offered = seen[tool.upstream]
        level = sent.get(f"level:{index}", offered)
        is_chosen = level != offered and level in list(SafetyLevel)
        if not is_chosen or (_rank(level) < _rank(tool.safety_level) and not tool.digest.startswith(tool_digest)):
            level = tool.safety_level
        yield ToolChoice(tool, level, enabled=f"on:{index}" in sent)


def _rank(level: str) -> int:
    return SafetyLevel(level).rank


@require_http_methods(["GET", "HEAD", "POST"])
@administrator_required
def new_source(request: PageRequest) -> HttpResponse:
    """Show the form of a new source. A POST shows a preview of its tools; with `do=add`, it adds the source."""
    if request.method != "POST":
        return _render_page(request, NewSourceForm())
    form = NewSourceForm(request.POST, request.FILES)
    preview: SourcePreview | None = None
    choices: ChoicesForm | None = None
    if form.is_valid():
        with form.refusals_shown():
            values = form.values()
            preview = preview_source(values, by=request.user, is_new=True)
            tools = sorted([each.upstream, each.name, each.safety_level, each.digest] for each in preview.tools)
            choices = ChoicesForm(preview.tools, digest(canonical_text([values, tools])), request.POST)
            if sources.is_name_taken(values["name"]):
                form.add_error("name", _("There is already a source or a Python module with this name."))
            if choices.is_final and form.is_valid() and choices.is_valid():
                source = sources.create_source(
                    {**values, "tools": choices.settings()}, by=request.user, is_claimed=True
                )
                synchronise(request, source)
                return redirect("source", source.name)
    return _render_page(request, form, preview, choices)


def _render_page(
    request: PageRequest,
    form: NewSourceForm,
    preview: SourcePreview | None = None,
    choices: ChoicesForm | None = None,
) -> HttpResponse:
    earlier_choices = [
        (name, value)
        for name, values in request.POST.lists()
        for value in values
        if name in ("tool", "reason") or name.startswith(("level:", "on:"))
    ]
    shown = {
        "section": "sources",
        "form": form,
        "preview": preview,
        "choices": choices,
        "enabled": sum(each.enabled for each in choices.choices) if choices else 0,
        "limits": [address_limit(), program_limit()],
        "kept_choices": [] if choices and choices.choices else earlier_choices,
        "levels": [(level, badge.label) for level, badge in SAFETY_BADGES.items()],
    }
    is_wrong = form.errors or (choices is not None and choices.errors)
    return render(request, "sources/new.html", shown, status=422 if is_wrong else 200)
