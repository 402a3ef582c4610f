"""The page on which a person connects an agent by OAuth: what it would get, and what its calls would meet, as of now.

The page is computed for this person: their roles, the policies and the grants of this moment. What they consent to is
the scopes, the limits and the end; policies go on deciding about each call.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from django import forms
from django.http import HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from approvals.grants.coverage import tools_with_grants
from approvals.policies.outlook import Outlook, OutlookGroup, outlook_for
from catalog.access.limits import Limits
from catalog.access.tokens import DEFAULT_TOKEN_DAYS
from catalog.connections.authorize import Authorization, AuthorizeView
from catalog.connections.services import ConsentTerms
from catalog.core import clock
from catalog.ui.labels import SAFETY_BADGES, SCOPE_SENTENCES
from catalog.ui.page_forms import FormSection
from catalog.ui.requests import PageRequest, is_fragment_request
from catalog.ui.token_limits import LIMITS_SECTION, LimitsForm, source_title

CALLS = "calls:create"
NO_TOOL: Limits = {"categories": []}
"""The limits of a form whose choice is not complete, such as chosen categories without one that is chosen."""
END_DAYS = (1, 7, 30, 60, 90, 180, 365)


@dataclass(frozen=True, slots=True)
class OutlookRow:
    """A line of a table of the outlook."""

    label: str
    group: OutlookGroup
    icon: str = ""


@dataclass(frozen=True, slots=True)
class OutlookTable:
    """The tools of an outlook, counted by what they have in common."""

    title: str
    rows: Sequence[OutlookRow]


class ConsentForm(LimitsForm):
    days = forms.TypedChoiceField(label=_("It ends after"), coerce=int, initial=DEFAULT_TOKEN_DAYS)
    layout = (
        LIMITS_SECTION,
        FormSection("end", _("End"), _("You can end the connection earlier at any time, on Connections."), ("days",)),
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        days: Any = self.fields["days"]
        days.choices = [
            (each, ngettext("%(count)d day", "%(count)d days", each) % {"count": each}) for each in END_DAYS
        ]


class ConsentView(AuthorizeView):
    form_class = ConsentForm
    template_name = "connections/consent.html"

    def post(self, request: PageRequest) -> HttpResponse:
        """Decide, or with `decision=show` show the page, or for htmx the outlook, with the limits of the form."""
        if request.POST.get("decision") != "show":
            return super().post(request)
        authorization = self._read(request)
        form = self.make_form(authorization, request.POST)
        if is_fragment_request(request, "outlook-now"):
            return render(request, "connections/_outlook.html", self.context(authorization, form))
        return self._page(authorization, form, status=200 if form.is_valid() else 422)

    def context(self, authorization: Authorization, form: forms.Form) -> dict[str, Any]:
        assert isinstance(form, ConsentForm)  # noqa: S101 - see form_class
        limits: Limits | None = NO_TOOL if form.is_bound else None
        if form.is_valid():
            limits = form.limits
        person = cast("PageRequest", self.request).user
        outlook = outlook_for(person, limits, granted=tools_with_grants(person))
        return {
            **super().context(authorization, form),
            "may_call": CALLS in authorization.scopes,
            "scopes": [SCOPE_SENTENCES[scope] for scope in authorization.scopes],
            "beyond": [SCOPE_SENTENCES.get(scope, scope) for scope in authorization.beyond],
            "outlook": outlook,
            "levels": level_rows(outlook),
            "tables": outlook_tables(outlook),
            "now": clock.now(),
        }

    def terms(self, authorization: Authorization, form: forms.Form) -> ConsentTerms:
        assert isinstance(form, ConsentForm)  # noqa: S101 - see form_class
        return ConsentTerms(authorization.scopes, days=form.cleaned_data["days"], limits=form.limits)


def level_rows(outlook: Outlook) -> list[OutlookRow]:
    badges = [(SAFETY_BADGES[group.key], group) for group in outlook.by_level]
    return [OutlookRow(badge.label, group, badge.icon) for badge, group in badges]


def outlook_tables(outlook: Outlook) -> list[OutlookTable]:
    """Return the tables that follow the one by level."""
    categories = [OutlookRow(group.key or gettext("Without category"), group) for group in outlook.by_category]
    sources = [OutlookRow(source_title(group.key), group) for group in outlook.by_source]
    return [OutlookTable(gettext("By category"), categories), OutlookTable(gettext("By source"), sources)]
