"""Django forms of pages: one template for each field, and problems of services at their fields."""

from typing import Any

from django import forms
from django.forms.boundfield import BoundField
from django.forms.renderers import TemplatesSetting

from catalog.errors import ToolError, ToolgateError

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
"""Classes of widgets; any other is an `input`."""
DEFAULT_ROWS = "10"
"""Rows of a Textarea whose form sets none."""


class PageFormRenderer(TemplatesSetting):
    """Renders `field.as_field_group` with the project's own template."""

    field_template_name = "_form_field.html"


class PageBoundField(BoundField):
    """A field of a page; one with an error takes the focus when the page is opened."""

    def build_widget_attrs(self, attrs: dict[str, Any], widget: forms.Widget | None = None) -> dict[str, Any]:
        """Return the attributes of the widget. Of several elements with `autofocus`, browsers use the first."""
        built = super().build_widget_attrs(attrs, widget)
        return built | {"autofocus": True} if "aria-invalid" in built else built


class MultilineField(forms.CharField):
    """A text of several lines; their ends become LF, whatever the browser sends."""

    def to_python(self, value: Any) -> Any:
        """Return the text."""
        text: str | None = super().to_python(value)
        return text and text.replace("\r\n", "\n")


class PageForm(forms.Form):
    """A form of a page."""

    bound_field_class = PageBoundField

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            name = WIDGET_CLASSES.get(type(field.widget), "input")
            if name:
                field.widget.attrs["class"] = f"{name} {field.widget.attrs.get('class', '')}".strip()
            if field.widget.attrs.get("rows") == DEFAULT_ROWS:
                field.widget.attrs["rows"] = 3

    def add_problems(self, error: ToolgateError) -> None:
        """Show what a service refused, at its field where it names one."""
        details = error.details if isinstance(error, ToolError) else {}
        for each in details.get("errors") or [{"path": "", "message": error.message}]:
            name = str(each["path"]).partition(".")[0]
            self.add_error(name if name in self.fields else None, each["message"])
