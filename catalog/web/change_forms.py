"""Administrators' forms on a tool's page. Each changes one setting and is named by its hidden field `what`."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from django import forms
from django.contrib.auth.models import User
from django.forms import BoundField
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from catalog.calls.statistics import ImplementationStats
from catalog.definitions.grant_limits import DEFAULT_GRANT_HOURS, DEFAULT_GRANT_USES, MAX_GRANT_HOURS, MAX_GRANT_USES
from catalog.inventory.held_changes import accept_changes, held_digest
from catalog.inventory.overrides import MAX_REASON, MAX_WEIGHT, OverrideChange, apply_overrides
from catalog.models import Tool
from catalog.ui.page_forms import SAFETY_LEVELS, PageForm, SafetySelect

CHANGE_LABELS = {
    "tool.accepted": gettext_lazy("Change accepted"),
    "tool.level_set": gettext_lazy("Safety level changed"),
    "tool.categories_set": gettext_lazy("Categories changed"),
    "tool.enabled": gettext_lazy("Enabled"),
    "tool.disabled": gettext_lazy("Disabled"),
    "tool.description_set": gettext_lazy("Description changed"),
    "tool.grantable_set": gettext_lazy("Grants changed"),
    "tool.implementation_set": gettext_lazy("Implementations changed"),
}


class ChangeForm(PageForm):
    """A form for one setting of a tool. `resets_by` is the value of its button that restores the default."""

    what: ClassVar[str]
    resets_by: ClassVar[str] = ""

    def __init__(self, tool: Tool, data: QueryDict | None = None) -> None:
        self.tool = tool
        self.resets = bool(self.resets_by) and data is not None and data.get("do") == self.resets_by
        super().__init__(data, initial=self.initial_values(), auto_id=f"set-{self.what}-%s")
        if self.resets:
            self.fields.clear()

    def initial_values(self) -> dict[str, Any]:
        return {}

    def overrides(self) -> dict[str, Any]:
        """Return the submitted setting in the form that `apply_overrides` takes."""
        return dict(self.cleaned_data)

    @property
    def problem(self) -> str:
        """The first error that is not shown at a visible field; empty if there is none."""
        hidden = [error for field in self.hidden_fields() for error in field.errors]
        return next(iter([*self.non_field_errors(), *hidden]), "")

    def save(self, by: User) -> list[OverrideChange]:
        values = self.overrides()
        return apply_overrides(self.tool.name, values, by=by, reason=values.pop("reason", ""))


class AcceptForm(ChangeForm):
    what = "version"
    held = forms.CharField(max_length=64, widget=forms.HiddenInput)
    reason = forms.CharField(label=gettext_lazy("Reason"), max_length=MAX_REASON)

    def initial_values(self) -> dict[str, Any]:
        return {"held": held_digest(self.tool)}

    def save(self, by: User) -> list[OverrideChange]:
        tool, data = self.tool, self.cleaned_data
        accept_changes(tool.source, {tool.name: data["held"]}, by=by, reason=data["reason"])
        before, after = tool.current_version, tool.held_version
        return [OverrideChange("tool.accepted", before and before.number, after and after.number)]


class LevelForm(ChangeForm):
    what = "level"
    safety_level = forms.ChoiceField(label=gettext_lazy("Safety level"), widget=SafetySelect)
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        required=False,
        max_length=MAX_REASON,
        help_text=gettext_lazy("Required to lower the level."),
    )

    def __init__(self, tool: Tool, data: QueryDict | None = None) -> None:
        super().__init__(tool, data)
        by_author = _("%(level)s (set by the author)")
        self.fields["safety_level"].choices = [  # type: ignore[attr-defined]
            (level, by_author % {"level": label} if level == tool.declared_level else label)
            for level, label in SAFETY_LEVELS
        ]

    def initial_values(self) -> dict[str, Any]:
        return {"safety_level": self.tool.current_version and self.tool.current_version.safety_level}


class DescriptionForm(ChangeForm):
    what = "description"
    resets_by = "authors"
    description_override = forms.CharField(
        label=gettext_lazy("Description for models"),
        required=False,
        widget=forms.Textarea({"class": "grows", "rows": 4}),
    )

    def initial_values(self) -> dict[str, Any]:
        return {"description_override": self.tool.current_version and self.tool.current_version.description}

    def overrides(self) -> dict[str, Any]:
        return {"description_override": self.cleaned_data.get("description_override", "").replace("\r\n", "\n")}


class CategoriesForm(ChangeForm):
    what = "categories"
    resets_by = "authors"
    categories = forms.CharField(
        label=gettext_lazy("Categories"), required=False, help_text=gettext_lazy("Separated by commas.")
    )

    def initial_values(self) -> dict[str, Any]:
        return {"categories": ", ".join(category.name for category in self.tool.categories.all())}

    def overrides(self) -> dict[str, Any]:
        if self.resets:
            return {"categories": None}
        return {"categories": sorted({name.strip() for name in self.cleaned_data["categories"].split(",")} - {""})}


class EnabledForm(ChangeForm):
    what = "enabled"
    enabled = forms.ChoiceField(choices=[("yes", "yes"), ("no", "no")], widget=forms.HiddenInput)

    def initial_values(self) -> dict[str, Any]:
        return {"enabled": "no" if self.tool.enabled else "yes"}

    def overrides(self) -> dict[str, Any]:
        return {"enabled": self.cleaned_data["enabled"] == "yes"}


class GrantsForm(ChangeForm):
    what = "grantable"
    resets_by = "none"
    max_hours = forms.IntegerField(
        label=gettext_lazy("Maximum hours of a grant"), min_value=1, max_value=MAX_GRANT_HOURS
    )
    max_uses = forms.IntegerField(label=gettext_lazy("Maximum uses of a grant"), min_value=1, max_value=MAX_GRANT_USES)

    def initial_values(self) -> dict[str, Any]:
        limits = self.tool.grant_limits
        return {
            "max_hours": limits.max_hours if limits else DEFAULT_GRANT_HOURS,
            "max_uses": limits.max_uses if limits else DEFAULT_GRANT_USES,
        }

    def overrides(self) -> dict[str, Any]:
        return {"grantable": None if self.resets else dict(self.cleaned_data)}


class ImplementationsForm(ChangeForm):
    """The weight and on/off switch of each implementation; after a submit, of those that were submitted."""

    what = "implementations"

    def __init__(self, tool: Tool, data: QueryDict | None = None) -> None:
        super().__init__(tool, data)
        self.numbers: list[int] = []
        for each in tool.implementations.all():
            if data is not None and f"weight-{each.pk}" not in data:
                continue
            self.numbers.append(each.pk)
            self.fields[f"weight-{each.pk}"] = forms.IntegerField(
                min_value=0,
                max_value=MAX_WEIGHT,
                initial=each.weight,
                widget=forms.NumberInput({"class": "input numeric short", "autocomplete": "off"}),
            )
            self.fields[f"enabled-{each.pk}"] = forms.BooleanField(required=False, initial=each.enabled)

    def clean(self) -> None:
        sent = {name for name in self.data if name.startswith("weight-")}
        if not sent <= self.fields.keys():
            raise forms.ValidationError(_("An implementation no longer exists. Reload the page."))

    def overrides(self) -> dict[str, Any]:
        data = self.cleaned_data
        values = [{"id": pk, "weight": data[f"weight-{pk}"], "enabled": data[f"enabled-{pk}"]} for pk in self.numbers]
        return {"implementations": values}


FORMS: Mapping[str, type[ChangeForm]] = {
    form.what: form
    for form in (
        AcceptForm,
        LevelForm,
        DescriptionForm,
        CategoriesForm,
        EnabledForm,
        GrantsForm,
        ImplementationsForm,
    )
}


def change_forms(tool: Tool, bound_form: ChangeForm | None = None) -> dict[str, ChangeForm]:
    return {what: bound_form if bound_form and bound_form.what == what else form(tool) for what, form in FORMS.items()}


ImplementationRow = tuple[ImplementationStats, BoundField | None, BoundField | None]


def implementation_rows(stats: Sequence[ImplementationStats], form: ChangeForm | None) -> list[ImplementationRow]:
    """Return each implementation's outcomes with its fields for weight and on/off switch; None for a missing field."""

    def field(name: str) -> BoundField | None:
        return form[name] if form is not None and name in form.fields else None

    return [
        (outcome, field(f"weight-{outcome.implementation.pk}"), field(f"enabled-{outcome.implementation.pk}"))
        for outcome in stats
    ]


def describe_changes(override_changes: list[OverrideChange]) -> str:
    if not override_changes:
        return _("Nothing changed.")
    labels = (
        str(CHANGE_LABELS[each.kind]) if each.kind in CHANGE_LABELS else _("Changed") for each in override_changes
    )
    return f"{', '.join(dict.fromkeys(labels))}."
