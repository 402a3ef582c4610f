"""Django forms of pages: sections, choices as cards, a template for each field, errors of services at their fields."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.forms.boundfield import BoundField
from django.forms.renderers import TemplatesSetting
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from catalog.errors import Conflict, ParameterError, ToolError, ToolgateError
from catalog.ui.labels import SAFETY_BADGES, SAFETY_EFFECTS

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise


@dataclass(frozen=True, slots=True)
class FormSection:
    """A section of a form: a heading, one sentence, and names of fields. An advanced one is closed until it is used."""

    id: str
    title: "StrOrPromise"
    text: "StrOrPromise"
    fields: tuple[str, ...]
    is_advanced: bool = False


@dataclass(frozen=True, slots=True)
class BoundSection:
    section: FormSection
    fields: Sequence[BoundField]

    @property
    def is_open(self) -> bool:
        """True if a field has an error, or a value other than its default."""
        return any(field.errors or str(field.value() or "") != str(field.field.initial or "") for field in self.fields)


@dataclass(frozen=True, slots=True)
class FormError:
    """An error of a form, for the list above it: `target` is the id of the field, `label` empty for the whole form."""

    target: str
    label: "StrOrPromise"
    message: str


@dataclass(frozen=True, slots=True)
class CardText:
    """The text and icon on the card of a choice. With `refusal`, the choice is disabled and shows that instead.

    `kinds` are the kinds of the form that have this choice, separated by spaces; empty if all have it.
    """

    text: "StrOrPromise" = ""
    icon: str = ""
    kinds: str = ""
    refusal: "StrOrPromise" = ""


class CardSelect(forms.RadioSelect):
    """Radio buttons as cards. Forms set `cards`, the text for each value, in their `__init__` or on the class."""

    template_name = "_form_cards.html"

    def __init__(self, cards: Mapping[str, CardText] | None = None, attrs: dict[str, Any] | None = None) -> None:
        super().__init__(attrs)
        self.cards = cards or {}

    def create_option(self, name: str, value: Any, *args: Any, **options: Any) -> dict[str, Any]:
        option = super().create_option(name, value, *args, **options)
        option["attrs"].pop("class", None)  # it is that of the group
        card = self.cards.get(str(value), CardText())
        if card.refusal:
            option["attrs"]["disabled"] = True
        return {**option, "card": card}


class SafetySelect(CardSelect):
    """Safety levels as cards with their effects. The choices are those of `SAFETY_LEVELS`."""

    def __init__(self) -> None:
        cards = {level: CardText(text, SAFETY_BADGES[level].icon) for level, text in SAFETY_EFFECTS.items()}
        super().__init__(cards)


SAFETY_LEVELS = [(level, badge.text) for level, badge in SAFETY_BADGES.items()]


class CardSelectMultiple(CardSelect, forms.CheckboxSelectMultiple):
    """Checkboxes as cards."""


WIDGET_CLASSES: dict[type[forms.Widget], str] = {
    forms.Select: "select",
    forms.SelectMultiple: "select",
    forms.CheckboxInput: "",
    forms.CheckboxSelectMultiple: "",
    forms.RadioSelect: "",
    CardSelect: "cards",
    SafetySelect: "cards",
    CardSelectMultiple: "",
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
        if "aria-invalid" not in built:
            return built
        if self.use_fieldset:
            del built["aria-invalid"]  # not an attribute of single radio buttons and checkboxes
        return built | {"autofocus": True}

    @property
    def chosen(self) -> list[str]:
        """The names of the chosen options, or the typed text; empty if there is none."""
        values = self.value()
        sent = {str(each) for each in (values if isinstance(values, list) else [values]) if each not in (None, "")}
        choices = getattr(self.field, "choices", None)
        return sorted(sent) if choices is None else [str(label) for value, label in choices if str(value) in sent]

    @property
    def kinds(self) -> str:
        """The kinds of the form that have this field, separated by spaces; empty if all have it."""
        return self.form.kinds_of(self.name) if isinstance(self.form, PageForm) else ""


class MultilineField(forms.CharField):
    """A text of several lines, with LF as line end whatever the browser sends."""

    def to_python(self, value: Any) -> Any:
        text: str | None = super().to_python(value)
        return text and text.replace("\r\n", "\n")


class PageForm(forms.Form):
    bound_field_class = PageBoundField
    layout: ClassVar[Sequence[FormSection]] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            name = WIDGET_CLASSES.get(type(field.widget), "input")
            if name:
                field.widget.attrs["class"] = f"{name} {field.widget.attrs.get('class', '')}".strip()
            if field.widget.attrs.get("rows") == DEFAULT_ROWS:
                field.widget.attrs["rows"] = 3

    @property
    def sections(self) -> list[BoundSection]:
        """The sections of `layout`, with those of their fields that this form has."""
        bound = [
            BoundSection(each, [self[name] for name in each.fields if name in self.fields]) for each in self.layout
        ]
        return [each for each in bound if each.fields]

    def kinds_of(self, name: str) -> str:
        """Return the kinds that have the field, for forms whose kinds have different fields; empty if all have it."""
        return ""

    @property
    def error_list(self) -> list[FormError]:
        """All errors in the order of the fields, those of the whole form first."""
        found = [FormError("", "", str(message)) for message in self.non_field_errors()]
        for field in self:
            target = "" if field.is_hidden else field.id_for_label or field.auto_id
            found += [FormError(target, field.label, str(message)) for message in field.errors]
        return found

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
    """Lines such as `NAME: value`, returned as a dict. A secret field is never part of a draft in the browser."""

    def __init__(self, *, separator: str, is_secret: bool = False, **options: Any) -> None:
        attrs = {"rows": 2, "autocomplete": "off", "spellcheck": "false"} | ({"data-secret": ""} if is_secret else {})
        super().__init__(required=False, widget=forms.Textarea(attrs), **options)
        self.separator = separator

    def clean(self, value: Any) -> Any:
        pairs = [line.partition(self.separator) for line in stripped_lines(super().clean(value))]
        if not all(mark for _name, mark, _value in pairs):
            example = "name: value" if self.separator == ":" else f"name{self.separator}value"
            raise forms.ValidationError(_("Write one “%(example)s” on each line."), params={"example": example})
        return {name.strip(): text.strip() for name, _mark, text in pairs}
