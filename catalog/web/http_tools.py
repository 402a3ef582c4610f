"""The pages for HTTP tools defined by hand, for administrators: adding a tool and changing its request."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.forms.boundfield import BoundField
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from catalog.core.canonical_json import parse_json
from catalog.core.egress import MAX_URL_LENGTH
from catalog.definitions.levels import SafetyLevel
from catalog.errors import Conflict, MalformedJSON, ParameterError, TooLarge, ToolgateError, ToolValidationError
from catalog.inventory.http_tools import (
    create_http_tool,
    definition_digest,
    is_defined_by_hand,
    shown_request,
    update_http_tool,
)
from catalog.inventory.selectors import tool_or_404
from catalog.models import Tool
from catalog.sources.http_requests import BODYLESS, METHODS, PLACEHOLDER, Operation, prepare
from catalog.ui.page_forms import SAFETY_LEVELS, FormSection, PageForm, PairsField, SafetySelect, render_form
from catalog.ui.requests import PageRequest, administrator_required, is_fragment_request
from catalog.web.sources import address_limit

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise


MAX_MORE = 2000
"""Maximum characters of the names of further parameters."""
MAX_ROWS = 30
"""Parameters that the form describes one by one; more can be written as a JSON Schema."""
ROW_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
TYPES: Mapping[str, "StrOrPromise"] = {
    "string": gettext_lazy("Text"),
    "integer": gettext_lazy("Whole number"),
    "number": gettext_lazy("Number"),
    "boolean": gettext_lazy("Yes or no"),
}
"""Types of parameters that the form offers, as JSON Schema names them."""


@dataclass(frozen=True, slots=True)
class ParameterRow:
    """The fields of one parameter. `place` is `path`, `query` or `body`; one in the path is always required."""

    name: str
    place: str
    type: BoundField
    example: BoundField
    about: BoundField
    required: BoundField | None


class HttpToolSettingsForm(PageForm):
    """The fields of an HTTP tool that can be changed later.

    Each placeholder of the URL and each name in `more` is a parameter with fields of its own: `type:NAME`,
    `example:NAME`, `about:NAME` and, unless it stands in the path, `required:NAME`. If `parameters` is written, it
    replaces all of them. Placeholders whose name fits no field are required texts.
    """

    description = forms.CharField(
        label=gettext_lazy("Description"),
        widget=forms.Textarea({"class": "grows", "rows": 2}),
        help_text=gettext_lazy("Models choose the tool by it: say what it returns or changes."),
    )
    method = forms.ChoiceField(label=gettext_lazy("Method"), choices=[(each, each) for each in METHODS])
    url = forms.CharField(
        label=gettext_lazy("URL"),
        max_length=MAX_URL_LENGTH,
        help_text=gettext_lazy(
            "Such as https://shop.example.org/orders/{id}. Each name in braces becomes a parameter, in the path or the "
            "query."
        ),
    )
    more = forms.CharField(
        label=gettext_lazy("More parameters"),
        required=False,
        max_length=MAX_MORE,
        widget=forms.TextInput({"autocomplete": "off", "spellcheck": "false"}),
        help_text=gettext_lazy(
            "Names separated by commas, such as limit, status. They are sent in the query (GET, HEAD, DELETE) or as "
            "the JSON body."
        ),
    )
    headers = PairsField(
        separator=":",
        is_secret=True,
        label=gettext_lazy("Headers"),
        help_text=gettext_lazy("Such as “Authorization: Bearer …”, one on each line."),
    )
    parameters = forms.CharField(
        label=gettext_lazy("Parameters as JSON Schema or gram"),
        required=False,
        widget=forms.Textarea({"class": "grows mono", "rows": 4, "spellcheck": "false"}),
        help_text=gettext_lazy(
            "The JSON Schema of an object, or a gram type signature. It replaces the parameters above."
        ),
    )
    timeout = forms.IntegerField(label=gettext_lazy("Timeout in seconds"), min_value=1, max_value=300, initial=30)
    layout: ClassVar[Sequence[FormSection]] = (
        FormSection(
            "request",
            gettext_lazy("Request"),
            gettext_lazy("Each call sends this request; agents cannot change the server or the path."),
            ("method", "url"),
        ),
        FormSection(
            "access",
            gettext_lazy("Credentials"),
            gettext_lazy("Headers that only this tool sends. They are stored encrypted and shown as ••••."),
            ("headers",),
        ),
        FormSection(
            "advanced",
            gettext_lazy("Advanced"),
            gettext_lazy("A timeout, and parameters that need lists, objects or other limits."),
            ("timeout", "parameters"),
            is_advanced=True,
        ),
    )

    def __init__(self, data: Mapping[str, Any] | None = None, *, initial: Mapping[str, Any] | None = None) -> None:
        super().__init__(data, initial=initial)
        given = initial or {} if data is None else data
        # Longer texts are refused by their fields, and would take minutes here.
        url, more = str(given.get("url", ""))[:MAX_URL_LENGTH], str(given.get("more", ""))[:MAX_MORE]
        self.placeholders = list(dict.fromkeys(PLACEHOLDER.findall(url)))
        self.in_path = set(PLACEHOLDER.findall(url.partition("?")[0]))
        named = [each for each in map(str.strip, more.split(",")) if each]
        names = [*self.placeholders, *(each for each in named if each not in self.placeholders)]
        self.names = list(dict.fromkeys(names))
        for name in [each for each in self.names if ROW_NAME.fullmatch(each)][:MAX_ROWS]:
            self.fields[f"type:{name}"] = forms.ChoiceField(
                label=_("Type"),
                choices=list(TYPES.items()),
                initial="string",
                required=False,
                widget=forms.Select({"class": "select"}),
            )
            self.fields[f"example:{name}"] = forms.CharField(
                label=_("Example"),
                required=False,
                max_length=200,
                widget=forms.TextInput({"class": "input", "autocomplete": "off"}),
            )
            self.fields[f"about:{name}"] = forms.CharField(
                label=_("Description"),
                required=False,
                max_length=1000,
                widget=forms.TextInput({"class": "input"}),
            )
            if name not in self.in_path:
                self.fields[f"required:{name}"] = forms.BooleanField(
                    label=_("Required"),
                    required=False,
                    initial=name in self.placeholders,
                )

    @property
    def rows(self) -> list[ParameterRow]:
        """The parameters with fields of their own; none if they are written as JSON Schema or gram."""
        if self["parameters"].value():
            return []
        place = "query" if self["method"].value() in (None, *BODYLESS) else "body"
        return [
            ParameterRow(
                name,
                "path" if name in self.in_path else "query" if name in self.placeholders else place,
                self[f"type:{name}"],
                self[f"example:{name}"],
                self[f"about:{name}"],
                self[f"required:{name}"] if f"required:{name}" in self.fields else None,
            )
            for name in self.names
            if f"type:{name}" in self.fields
        ]

    @property
    def example_request(self) -> str:
        """The request of a call with the examples as arguments; empty if one that stands in the path is missing."""
        examples = {}
        for row in self.rows:
            try:
                value = _read_example(str(row.type.value()), str(row.example.value() or ""))
            except ValueError:
                continue
            if value is not None:
                examples[row.name] = value
        method, url = str(self["method"].value() or METHODS[0]), str(self["url"].value() or "")
        others = {name: name for name in self.names if name not in self.placeholders}
        sent = {"query": others} if method in BODYLESS else {"body": "json" if others else "", "body_fields": others}
        if not url or not self.in_path <= examples.keys():
            return ""
        try:
            return prepare(Operation(method=method, url=url, **sent), examples, {}).shown()
        except ToolValidationError:
            return ""

    def values(self) -> dict[str, Any]:
        http = {name: self.cleaned_data[name] for name in ("method", "url", "headers", "timeout")}
        parameters, described = self.cleaned_data["parameters"], self.cleaned_data["description"]
        key = "typeSignature" if isinstance(parameters, str) else "schema"
        return {"specification": {"name": self.tool_name, "description": described, key: parameters}, "http": http}

    @property
    def tool_name(self) -> str:
        """Name of the tool; for a new one as it was typed."""
        return str(self["name"].value() or "").strip()

    @property
    def level(self) -> str:
        """Safety level of the tool; for a new one the chosen one."""
        return str(self["safety_level"].value())

    def clean_more(self) -> str:
        text = str(self.cleaned_data["more"])
        if len(self.names) > MAX_ROWS:
            message = _("Describe at most %(most)d parameters here. Write more as a JSON Schema, under Advanced.")
            raise forms.ValidationError(message, params={"most": MAX_ROWS})
        wrong = [each for each in self.names if each not in self.placeholders and not ROW_NAME.fullmatch(each)]
        if wrong:
            message = _(
                "“%(name)s” cannot be a name here: use letters, digits, “_”, “-” and “.”, and begin with a letter."
            )
            raise forms.ValidationError(message, params={"name": wrong[0][:64]})
        return text

    def clean_parameters(self) -> str | dict[str, Any]:
        """Return a type signature as text, a JSON Schema as an object, and "" if neither was written."""
        text = self.cleaned_data["parameters"].strip()
        if not text.startswith("{"):
            return str(text)
        try:
            value = parse_json(text)
        except (MalformedJSON, TooLarge) as error:
            raise forms.ValidationError(str(error)) from None
        return value if isinstance(value, dict) else {}

    def clean(self) -> None:
        if self.cleaned_data.get("parameters") == "":
            self.cleaned_data["parameters"] = self._described_schema()

    def _described_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the parameters with fields of their own; adds errors of their examples."""
        data, properties, required = self.cleaned_data, {}, []
        for name in self.names:
            kind, about = data.get(f"type:{name}") or "string", data.get(f"about:{name}")
            properties[name] = described = {"type": kind} | ({"description": about} if about else {})
            try:
                example = _read_example(kind, data.get(f"example:{name}", ""))
            except ValueError as error:
                self.add_error(f"example:{name}", f"{name}: {error}")
            else:
                described |= {} if example is None else {"examples": [example]}
            if name in self.in_path or data.get(f"required:{name}", name in self.placeholders):
                required.append(name)
        return {"type": "object", "properties": properties} | ({"required": required} if required else {})

    def add_problems(self, error: ToolgateError) -> None:
        """Show an error of the service, after mapping its paths to the names of this form's fields."""
        if isinstance(error, ParameterError):
            for each in error.details.get("errors", ()):
                path = str(each["path"]).removeprefix("http.").removeprefix("specification.")
                each["path"] = path if path.partition(".")[0] in self.fields else "parameters"
        super().add_problems(error)


def _read_example(kind: str, text: str) -> str | int | float | bool | None:
    """Return the value that an example is for a parameter of this type; None without one. Raises ValueError."""
    text = text.strip()
    if not text:
        return None
    if kind == "string":
        return text
    if kind == "boolean":
        if text not in ("true", "false"):
            raise ValueError(_("write true or false."))
        return text == "true"
    pattern = r"-?\d{1,15}" if kind == "integer" else r"-?\d{1,15}(\.\d{1,15})?"
    if not re.fullmatch(pattern, text, re.ASCII):
        raise ValueError(_("write a whole number.") if kind == "integer" else _("write a number, such as 2.5."))
    return int(text) if kind == "integer" else float(text)


class HttpToolChangeForm(HttpToolSettingsForm):
    shown = forms.CharField(required=False, widget=forms.HiddenInput)
    layout = (
        FormSection(
            "tool",
            gettext_lazy("Tool"),
            gettext_lazy("Agents see the description; the name cannot be changed."),
            ("description",),
        ),
        *HttpToolSettingsForm.layout,
    )

    def __init__(self, tool: Tool, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.tool = tool

    @property
    def tool_name(self) -> str:
        return self.tool.name

    @property
    def level(self) -> str:
        return self.tool.current_version.safety_level if self.tool.current_version else ""


class HttpToolForm(HttpToolSettingsForm):
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=64,
        widget=forms.TextInput({"autocomplete": "off", "spellcheck": "false"}),
        help_text=gettext_lazy("Small letters, digits and “_”, such as read_order."),
    )
    safety_level = forms.ChoiceField(
        label=gettext_lazy("Safety level"),
        choices=SAFETY_LEVELS,
        initial=SafetyLevel.DANGEROUS.value,
        widget=SafetySelect,
    )
    categories = forms.CharField(
        label=gettext_lazy("Categories"),
        required=False,
        help_text=gettext_lazy("Separated by commas. Policies and lists can name them."),
    )
    field_order = ("name", "description", "method", "url", "more", "safety_level", "categories", "headers")
    layout = (
        FormSection(
            "tool",
            gettext_lazy("Tool"),
            gettext_lazy("Agents see the name and the description."),
            ("name", "description"),
        ),
        *HttpToolSettingsForm.layout[:1],
        FormSection(
            "safety",
            gettext_lazy("Safety"),
            gettext_lazy("The level decides which calls wait for a person; policies can decide otherwise."),
            ("safety_level", "categories"),
        ),
        *HttpToolSettingsForm.layout[1:],
    )

    def values(self) -> dict[str, Any]:
        data = self.cleaned_data
        return {**super().values(), "safety_level": data["safety_level"], "categories": data["categories"]}

    def clean_categories(self) -> list[str]:
        return [each.strip() for each in self.cleaned_data["categories"].split(",") if each.strip()]


def _typed(request: PageRequest) -> dict[str, Any] | None:
    """Return the input of a request that only draws the form again with the parameters of its URL; None of others."""
    if request.POST.get("do") != "rows":
        return None
    typed = {name: text.replace("\r\n", "\n") for name, text in request.POST.dict().items()}
    rows = [name.partition(":")[2] for name in typed if name.startswith("type:")]
    return {**typed, **{f"required:{name}": f"required:{name}" in typed for name in rows}}


def _render_typed(
    request: PageRequest, template: str, form: HttpToolSettingsForm, typed: Mapping[str, Any], **shown: Any
) -> HttpResponse:
    """Render the form as it was typed; for htmx its summary, with the parameters if they are others than before."""
    if is_fragment_request(request, "http-summary"):
        template = "sources/_http_summary.html"
        drawn = {name.partition(":")[2] for name in typed if name.startswith("type:")}
        shown["other_rows"] = drawn != {row.name for row in form.rows}
    return render(request, template, {"form": form, "is_typed": True, **shown})


@require_http_methods(["GET", "HEAD", "POST"])
@administrator_required
def new_http_tool(request: PageRequest) -> HttpResponse:
    """Show the form of a new HTTP tool; a POST creates it, or with `do=rows` shows the parameters of its URL."""
    template, typed = "sources/new_http_tool.html", _typed(request)
    if typed is not None:
        return _render_typed(
            request, template, HttpToolForm(initial=typed), typed, section="sources", limits=[address_limit()]
        )
    form = HttpToolForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        with form.refusals_shown():
            tool = create_http_tool(**form.values(), by=request.user)
            messages.success(request, _("Tool created."))
            return redirect("tool", tool.name)
    return render_form(request, template, form, section="sources", limits=[address_limit()])


@require_http_methods(["GET", "HEAD", "POST"])
@administrator_required
def change_http_tool(request: PageRequest, name: str) -> HttpResponse:
    """Show specification and request of an HTTP tool defined by hand; a POST changes them.

    If the tool was changed since the page was opened, nothing is saved. The page then keeps the input, shows the stored
    values that differ from it, and can be submitted again. A POST with `do=rows` shows the parameters of its URL.
    """
    tool = tool_or_404(name)
    if not is_defined_by_hand(tool):
        raise Http404
    template, typed = "sources/change_http_tool.html", _typed(request)
    if typed is not None:
        form = HttpToolChangeForm(tool, initial=typed)
        return _render_typed(request, template, form, typed, section="tools", tool=tool)
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
    return render_form(request, template, form, section="tools", tool=tool, stored=stored)


def _initial(tool: Tool, viewer: User) -> dict[str, Any]:
    """Return the fields' values for the form, with header values masked.

    The parameters have fields of their own if these express the stored schema exactly; otherwise they are JSON.
    """
    shown, definition = shown_request(tool, viewer) or {}, tool.definition or {}
    schema, placeholders = definition["input_schema"], PLACEHOLDER.findall(shown["url"])
    properties, required = schema.get("properties", {}), schema.get("required", [])
    more = [name for name in properties if name not in placeholders]
    more.sort(key=lambda name: required.index(name) if name in required else len(required))
    values = {
        **shown,
        "shown": definition_digest(tool),
        "description": definition["description"],
        "headers": "\n".join(f"{name}: {value}" for name, value in shown["headers"].items()),
        "more": ", ".join(more),
        "parameters": "",
    }
    for name, described in properties.items():
        kind, about, examples = (
            (described.get(key) for key in ("type", "description", "examples"))
            if isinstance(described, Mapping)
            else ("", "", None)
        )
        example = examples[0] if isinstance(examples, list) and examples else ""
        values |= {
            f"type:{name}": kind,
            f"about:{name}": about or "",
            f"example:{name}": example if isinstance(example, str) else json.dumps(example),
            f"required:{name}": name in required,
        }
    described = HttpToolChangeForm(tool, values)
    described.full_clean()
    if {"additionalProperties": False, **(described.cleaned_data.get("parameters") or {})} != schema:
        values |= {"more": "", "parameters": json.dumps(schema, indent=2, ensure_ascii=False)}
    return values
