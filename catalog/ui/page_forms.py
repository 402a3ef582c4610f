"""Django forms of pages: one template for each field, and errors of services shown at their fields."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django import forms
from django.forms.boundfield import BoundField
from django.forms.renderers import TemplatesSetting
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from catalog.errors import Conflict, ParameterError, ToolError, ToolgateError

WIDGET_CLASSES: dict[type[forms.Widget], str] = {
    forms.Select: "select",
    forms.SelectMultiple: "select",
    forms.CheckboxInput: "",
    forms.CheckboxSelectMultiple: "",
    forms.RadioSelect: "",
    forms.HiddenInput: "",
    forms.FileInput: "",
    forms.ClearableFileInput: "",
}
"""CSS classes of widgets; other widgets have the class `input`."""
DEFAULT_ROWS = "10"
"""Rows of a Textarea by default in Django."""


class PageFormRenderer(TemplatesSetting):
    field_template_name = "_form_field.html"


class PageBoundField(BoundField):
    """A field of a page's form. If it has an error, it takes the focus when the page is opened."""

    def build_widget_attrs(self, attrs: dict[str, Any], widget: forms.Widget | None = None) -> dict[str, Any]:
        """Set `autofocus` on a field with an error. If several fields have it, browsers focus the first."""
        built = super().build_widget_attrs(attrs, widget)
        return built | {"autofocus": True} if "aria-invalid" in built else built


class MultilineField(forms.CharField):
    """A text of several lines, with LF as line end whatever the browser sends."""

    def to_python(self, value: Any) -> Any:
        text: str | None = super().to_python(value)
        return text and text.replace("\r\n", "\n")


class PageForm(forms.Form):
    bound_field_class = PageBoundField

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            name = WIDGET_CLASSES.get(type(field.widget), "input")
            if name:
                field.widget.attrs["class"] = f"{name} {field.widget.attrs.get('class', '')}".strip()
            if field.widget.attrs.get("rows") == DEFAULT_ROWS:
                field.widget.attrs["rows"] = 3

    @contextmanager
    def refusals_shown(self) -> Iterator[None]:
        """Catch a ParameterError or Conflict that a service raises in the body, and show it at the form's fields."""
        try:
            yield
        except (ParameterError, Conflict) as error:
            self.add_problems(error)

    def add_problems(self, error: ToolgateError) -> None:
        details = error.details if isinstance(error, ToolError) else {}
        for each in details.get("errors") or [{"path": "", "message": error.message}]:
            name = str(each["path"]).partition(".")[0]
            self.add_error(name if name in self.fields else None, each["message"])


def render_form(request: HttpRequest, template: str, form: PageForm, **shown: Any) -> HttpResponse:
    """Render a page with its form; the status is 422 if the form has errors."""
    return render(request, template, {"form": form, **shown}, status=422 if form.errors else 200)


def stripped_lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


class PairsField(forms.CharField):
    """Lines such as `NAME: value`, returned as a dict."""

    widget = forms.Textarea

    def __init__(self, *, separator: str, **options: Any) -> None:
        super().__init__(required=False, **options)
        self.separator = separator

    def clean(self, value: Any) -> Any:
        pairs = [line.partition(self.separator) for line in stripped_lines(super().clean(value))]
        if not all(mark for _name, mark, _value in pairs):
            example = "name: value" if self.separator == ":" else f"name{self.separator}value"
            raise forms.ValidationError(_("Write one “%(example)s” on each line."), params={"example": example})
        return {name.strip(): text.strip() for name, _mark, text in pairs}
