"""The pages for HTTP tools defined by hand, for administrators: adding a tool and changing its request."""

import json
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from catalog.core.canonical_json import parse_json
from catalog.core.egress import MAX_URL_LENGTH
from catalog.definitions.levels import SafetyLevel
from catalog.errors import Conflict, MalformedJSON, ParameterError, TooLarge, ToolgateError
from catalog.inventory.http_tools import (
    create_http_tool,
    definition_digest,
    is_defined_by_hand,
    shown_request,
    update_http_tool,
)
from catalog.inventory.selectors import tool_or_404
from catalog.models import Tool
from catalog.sources.http_requests import METHODS, PLACEHOLDER
from catalog.ui.labels import SAFETY_CHOICES
from catalog.ui.page_forms import PageForm, PairsField, render_form
from catalog.ui.requests import PageRequest, administrator_required


class HttpToolFields(PageForm):
    """The fields of an HTTP tool that can be changed later."""

    description = forms.CharField(
        label=gettext_lazy("Description"),
        widget=forms.Textarea({"class": "grows", "rows": 2}),
        help_text=gettext_lazy("Models choose the tool by it."),
    )
    method = forms.ChoiceField(label=gettext_lazy("Method"), choices=[(each, each) for each in METHODS])
    url = forms.CharField(
        label=gettext_lazy("URL"),
        max_length=MAX_URL_LENGTH,
        help_text=gettext_lazy(
            "Such as https://shop.example.org/orders/{id}: placeholders are parameters, in the path or the query."
        ),
    )
    parameters = forms.CharField(
        label=gettext_lazy("Parameters"),
        required=False,
        widget=forms.Textarea({"class": "grows mono", "rows": 4}),
        help_text=gettext_lazy(
            "The JSON Schema of an object, or a gram type signature. Leave it empty if the placeholders of the URL are "
            "all; each is a text then. Other parameters become the query (GET, HEAD, DELETE) or the JSON body."
        ),
    )
    headers = PairsField(
        separator=":",
        label=gettext_lazy("Headers"),
        help_text=gettext_lazy("Such as “Authorization: Bearer …”, one on each line. Stored encrypted, shown as ••••."),
    )
    timeout = forms.IntegerField(label=gettext_lazy("Timeout in seconds"), min_value=1, max_value=300, initial=30)

    def values(self) -> dict[str, Any]:
        http = {name: self.cleaned_data[name] for name in ("method", "url", "headers", "timeout")}
        parameters, described = self.cleaned_data["parameters"], self.cleaned_data["description"]
        key = "typeSignature" if isinstance(parameters, str) else "schema"
        return {"specification": {"name": self.tool_name, "description": described, key: parameters}, "http": http}

    @property
    def tool_name(self) -> str:
        return str(self.cleaned_data["name"])

    def clean_parameters(self) -> str | dict[str, Any]:
        """Return a type signature as text, or a JSON Schema as an object; if empty, a schema of the placeholders."""
        text = self.cleaned_data["parameters"].strip()
        if not text:
            names = list(dict.fromkeys(PLACEHOLDER.findall(self.data.get("url", ""))))
            return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}
        if not text.startswith("{"):
            return str(text)
        try:
            value = parse_json(text)
        except (MalformedJSON, TooLarge) as error:
            raise forms.ValidationError(str(error)) from None
        return value if isinstance(value, dict) else {}

    def add_problems(self, error: ToolgateError) -> None:
        """Show an error of the service, after mapping its paths to the names of this form's fields."""
        if isinstance(error, ParameterError):
            for each in error.details.get("errors", ()):
                path = str(each["path"]).removeprefix("http.").removeprefix("specification.")
                each["path"] = path if path.partition(".")[0] in self.fields else "parameters"
        super().add_problems(error)


class HttpToolChangeForm(HttpToolFields):
    shown = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, tool: Tool, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.tool = tool

    @property
    def tool_name(self) -> str:
        return self.tool.name


class HttpToolForm(HttpToolFields):
    name = forms.CharField(
        label=gettext_lazy("Name"), max_length=64, help_text=gettext_lazy("snake_case, such as read_order.")
    )
    safety_level = forms.ChoiceField(
        label=gettext_lazy("Safety level"),
        choices=list(SAFETY_CHOICES.items()),
        initial=SafetyLevel.DANGEROUS.value,
    )
    categories = forms.CharField(
        label=gettext_lazy("Categories"), required=False, help_text=gettext_lazy("Separated by commas.")
    )
    field_order = ("name", "description", "method", "url", "parameters", "safety_level", "categories", "headers")

    def values(self) -> dict[str, Any]:
        data = self.cleaned_data
        return {**super().values(), "safety_level": data["safety_level"], "categories": data["categories"]}

    def clean_categories(self) -> list[str]:
        return [each.strip() for each in self.cleaned_data["categories"].split(",") if each.strip()]


@require_http_methods(["GET", "HEAD", "POST"])
@administrator_required
def new_http_tool(request: PageRequest) -> HttpResponse:
    form = HttpToolForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        with form.refusals_shown():
            tool = create_http_tool(**form.values(), by=request.user)
            messages.success(request, _("Tool created."))
            return redirect("tool", tool.name)
    return render_form(request, "sources/new_http_tool.html", form, section="sources")


@require_http_methods(["GET", "HEAD", "POST"])
@administrator_required
def change_http_tool(request: PageRequest, name: str) -> HttpResponse:
    """Show specification and request of an HTTP tool defined by hand; a POST changes them.

    If the tool was changed since the page was opened, nothing is saved. The page then keeps the input, shows the stored
    values that differ from it, and can be submitted again.
    """
    tool = tool_or_404(name)
    if not is_defined_by_hand(tool):
        raise Http404
    form, stored = HttpToolChangeForm(tool, request.POST or None, initial=_initial(tool, request.user)), []
    if request.method == "POST" and form.is_valid():
        try:
            is_changed = update_http_tool(tool, form.values(), by=request.user, shown=form.cleaned_data["shown"])
        except ParameterError as error:
            form.add_problems(error)
        except Conflict as error:
            tool = tool_or_404(name)
            sent = {field: text.replace("\r\n", "\n") for field, text in request.POST.dict().items()}
            form = HttpToolChangeForm(
                tool, {**sent, "shown": definition_digest(tool)}, initial=_initial(tool, request.user)
            )
            form.add_problems(error)
            stored = [field for field in form.visible_fields() if field.name in form.changed_data]
        else:
            messages.success(request, _("Request changed.") if is_changed else _("Nothing changed."))
            return redirect("tool", name)
    return render_form(request, "sources/change_http_tool.html", form, section="tools", tool=tool, stored=stored)


def _initial(tool: Tool, viewer: User) -> dict[str, Any]:
    """Return the fields' values for the form, with header values masked."""
    shown, definition = shown_request(tool, viewer) or {}, tool.definition or {}
    return {
        **shown,
        "shown": definition_digest(tool),
        "description": definition["description"],
        "parameters": json.dumps(definition["input_schema"], indent=2, ensure_ascii=False),
        "headers": "\n".join(f"{name}: {value}" for name, value in shown["headers"].items()),
    }
