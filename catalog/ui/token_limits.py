"""Limits of tokens on pages: the fields of a form that sets them, and their words."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from django import forms
from django.db.models import Count, Q
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from catalog.access.limits import Limits, tools_within
from catalog.definitions.levels import SafetyLevel
from catalog.inventory.selectors import offered_tools
from catalog.models import Source
from catalog.tools.registry import PLANNER_CATEGORY
from catalog.ui.page_forms import CardSelect, CardSelectMultiple, CardText, FormSection, PageForm

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

ANY, ONLY = "any", "only"
SHOWN_NAMES = 5
LEVEL_CHOICES: list[tuple[str, "StrOrPromise"]] = [
    ("", _("Every level")),
    (SafetyLevel.CAUTIOUS, _("Safe and cautious")),
    (SafetyLevel.SAFE, _("Safe only")),
]
LEVEL_CARDS = {
    "": CardText(_("Dangerous tools too. Their calls wait for a person unless a grant covers them.")),
    SafetyLevel.CAUTIOUS.value: CardText(_("Tools that read, and tools that change something without asking anyone.")),
    SafetyLevel.SAFE.value: CardText(_("Tools that only read.")),
}
LIMITS_SECTION = FormSection(
    "tools",
    _("Tools"),
    _("It sees and calls only these. Policies still decide about each call."),
    ("max_level", "category_choice", "categories", "source_choice", "sources"),
)


class LimitsForm(PageForm):
    """Fields for the limits of a token. `stored` are its limits now; their names stay choices if no tool has them."""

    max_level = forms.ChoiceField(
        label=_("Highest level"), choices=LEVEL_CHOICES, required=False, widget=CardSelect(LEVEL_CARDS)
    )
    category_choice = forms.ChoiceField(
        label=_("Categories"),
        choices=[(ANY, _("Any category")), (ONLY, _("Only the chosen ones"))],
        required=False,
        widget=CardSelect(
            {
                ANY: CardText(_("Also categories that are added later.")),
                ONLY: CardText(_("All categories of a tool must be chosen. Tools without a category are left out.")),
            }
        ),
    )
    categories = forms.MultipleChoiceField(label=_("Chosen categories"), required=False, widget=CardSelectMultiple)
    source_choice = forms.ChoiceField(
        label=_("Sources"),
        choices=[(ANY, _("Any source")), (ONLY, _("Only the chosen ones"))],
        required=False,
        widget=CardSelect({ANY: CardText(_("Also sources that are added later.")), ONLY: CardText()}),
    )
    sources = forms.MultipleChoiceField(label=_("Chosen sources"), required=False, widget=CardSelectMultiple)

    def __init__(self, *args: Any, stored: Limits | None = None, **options: Any) -> None:
        limits = stored or {}
        options["initial"] = _initial(limits) | (options.get("initial") or {})
        super().__init__(*args, **options)
        usable = offered_tools().filter(Q(in_use=True)).exclude(categories__name=PLANNER_CATEGORY)
        categories = usable.filter(categories__isnull=False).order_by().values_list("categories__name")
        self._offer("categories", categories.annotate(count=Count("pk", distinct=True)), limits.get("categories", ()))
        sources = usable.order_by().values_list("source__name").annotate(count=Count("pk", distinct=True))
        self._offer("sources", sources, limits.get("sources", ()))

    def _offer(self, name: str, counted: Iterable[tuple[str, int]], kept: Iterable[str]) -> None:
        counts = {**dict.fromkeys(kept, 0), **dict(counted)}
        field: Any = self.fields[name]
        field.choices = [(each, source_title(each) if name == "sources" else each) for each in sorted(counts)]
        field.widget.cards = {each: CardText(_tool_count(count)) for each, count in counts.items()}

    def clean(self) -> None:
        super().clean()
        for choice, name in (("category_choice", "categories"), ("source_choice", "sources")):
            if not self.cleaned_data.get(choice) and self.cleaned_data.get(name):
                self.cleaned_data[choice] = ONLY  # names without a choice are never no limit
            if self.cleaned_data.get(choice) == ONLY and name not in self.errors and not self.cleaned_data.get(name):
                self.add_error(name, gettext("Choose at least one."))

    @property
    def limits(self) -> dict[str, Any] | None:
        """The limits of a valid form; None if it sets none."""
        data, found = self.cleaned_data, {}
        if data["max_level"]:
            found["max_level"] = data["max_level"]
        if data["category_choice"] == ONLY:
            found["categories"] = data["categories"]
        if data["source_choice"] == ONLY:
            found["sources"] = data["sources"]
        return found or None


def count_tools_within(limits: Limits | None) -> int:
    """Return the number of enabled tools within the limits, whether or not a policy refuses their calls."""
    usable = offered_tools().filter(tools_within(limits) & Q(in_use=True))
    return usable.exclude(categories__name=PLANNER_CATEGORY).count()


def source_title(name: str) -> str:
    """Return the name of a source as pages show it. Only those of Python modules, as shipped sets are, have dots."""
    return Source(name=name, kind=Source.Kind.PYTHON if "." in name else Source.Kind.MCP).title


def _initial(limits: Limits) -> dict[str, Any]:
    level = limits.get("max_level", "")
    return {
        "max_level": "" if level == SafetyLevel.DANGEROUS else level,
        "category_choice": ONLY if "categories" in limits else ANY,
        "categories": list(limits.get("categories", ())),
        "source_choice": ONLY if "sources" in limits else ANY,
        "sources": list(limits.get("sources", ())),
    }


def _tool_count(count: int) -> str:
    return ngettext("%(count)d tool", "%(count)d tools", count) % {"count": count}


def limits_in_words(limits: Limits | None) -> list[str]:
    """Return a phrase for each limit, such as "safe tools" or "source wiki"; empty without limits."""
    return [_phrase(key, value) for key, value in (limits or {}).items()]


def _phrase(key: str, value: Any) -> str:
    if key == "max_level":
        return str(LEVEL_PHRASES.get(value, value))
    if not value:
        return gettext("no tool")
    titles = [source_title(each) for each in value[:SHOWN_NAMES]] if key == "sources" else value[:SHOWN_NAMES]
    names = ", ".join(titles)
    if len(value) > SHOWN_NAMES:
        names = gettext("%(names)s and %(count)d more") % {"names": names, "count": len(value) - SHOWN_NAMES}
    if key == "categories":
        return ngettext("category %(names)s", "categories %(names)s", len(value)) % {"names": names}
    return ngettext("source %(names)s", "sources %(names)s", len(value)) % {"names": names}


LEVEL_PHRASES: Mapping[str, "StrOrPromise"] = {
    SafetyLevel.SAFE: _("safe tools"),
    SafetyLevel.CAUTIOUS: _("safe and cautious tools"),
    SafetyLevel.DANGEROUS: _("tools of every level"),
}
