"""Django forms of pages: one template for each field, and problems of services at their fields."""

from typing import Any

from django import forms
from django.forms.renderers import TemplatesSetting

from catalog.errors import ToolError, ToolgateError

WIDGET_CLASSES: dict[type[forms.Widget], str] = {
    forms.Select: "select",
    forms.SelectMultiple: "select",
    forms.CheckboxInput: "",
    forms.RadioSelect: "",
    forms.HiddenInput: "",
    forms.FileInput: "",
    forms.ClearableFileInput: "",
}
"""Classes of widgets; any other is an `input`."""


class PageFormRenderer(TemplatesSetting):
    """Renders `field.as_field_group` with the project's own template."""

    field_template_name = "_form_field.html"


class PageForm(forms.Form):
    """A form of a page."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            name = WIDGET_CLASSES.get(type(field.widget), "input")
            if name:
                field.widget.attrs["class"] = name
            if isinstance(field.widget, forms.Textarea):
                field.widget.attrs["rows"] = 3

    def add_problems(self, error: ToolgateError) -> None:
        """Show what a service refused, at its field where it names one."""
        details = error.details if isinstance(error, ToolError) else {}
        for each in details.get("errors") or [{"path": "", "message": error.message}]:
            name = str(each["path"]).partition(".")[0]
            self.add_error(name if name in self.fields else None, each["message"])
