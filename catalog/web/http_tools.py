"""The form of a new HTTP tool, for administrators."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from catalog.core.canonical_json import parse_json
from catalog.definitions.levels import SafetyLevel
from catalog.errors import MalformedJSON, ParameterError, TooLarge, ToolgateError
from catalog.inventory.http_tools import create_http_tool
from catalog.sources.http_requests import METHODS
from catalog.ui.page_forms import PageForm, PairsField, render_form
from catalog.ui.requests import PageRequest, administrator_required


class HttpToolForm(PageForm):
    """A tool whose calls are HTTP requests."""

    specification = forms.CharField(
        label=gettext_lazy("Specification"),
        widget=forms.Textarea,
        help_text=gettext_lazy("gram, or JSON with “name”, “description” and “schema” (the JSON Schema of an object)."),
    )
    safety_level = forms.ChoiceField(
        label=gettext_lazy("Safety level"),
        choices=[(level.value, level.value.title()) for level in SafetyLevel],
        initial=SafetyLevel.DANGEROUS.value,
    )
    categories = forms.CharField(
        label=gettext_lazy("Categories"), required=False, help_text=gettext_lazy("Separated by commas.")
    )
    method = forms.ChoiceField(label=gettext_lazy("Method"), choices=[(each, each) for each in METHODS])
    url = forms.CharField(
        label=gettext_lazy("URL"),
        max_length=2000,
        help_text=gettext_lazy(
            "Such as https://shop.example.org/orders/{id}: placeholders are parameters, in the path or the query. The "
            "other parameters become the query (GET, HEAD, DELETE) or the JSON body."
        ),
    )
    headers = PairsField(
        separator=":",
        label=gettext_lazy("Headers"),
        help_text=gettext_lazy("Such as “Authorization: Bearer …”, one on each line. Stored encrypted, never shown."),
    )
    timeout = forms.IntegerField(label=gettext_lazy("Timeout in seconds"), min_value=1, max_value=300, initial=30)

    def clean_specification(self) -> str | dict[str, Any]:
        """Return gram as text and JSON as an object."""
        text = self.cleaned_data["specification"].strip()
        if not text.startswith("{"):
            return str(text)
        try:
            value = parse_json(text)
        except (MalformedJSON, TooLarge) as error:
            raise forms.ValidationError(str(error)) from None
        return value if isinstance(value, dict) else {}

    def clean_categories(self) -> list[str]:
        """Return the names of the categories."""
        return [each.strip() for each in self.cleaned_data["categories"].split(",") if each.strip()]

    def add_problems(self, error: ToolgateError) -> None:
        """Show what the service refused; the fields of the request have names of their own there."""
        if isinstance(error, ParameterError):
            for each in error.details.get("errors", ()):
                each["path"] = str(each["path"]).removeprefix("http.")
        super().add_problems(error)


@require_http_methods(["GET", "HEAD", "POST"])
@administrator_required
def new_http_tool(request: PageRequest) -> HttpResponse:
    """Show the form of a new HTTP tool; a POST creates it."""
    form = HttpToolForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        with form.refusals_shown():
            tool = create_http_tool(
                data["specification"],
                {name: data[name] for name in ("method", "url", "headers", "timeout")},
                safety_level=data["safety_level"],
                categories=data["categories"],
                by=request.user,
            )
            messages.success(request, _("Tool created."))
            return redirect("tool", tool.name)
    return render_form(request, "sources/new_http_tool.html", form, section="sources")
