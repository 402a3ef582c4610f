"""The page Profile: a person's own name, time zone, locale, theme and shortcuts."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST

from catalog.access.people import MAX_NAME
from catalog.access.personal_settings import (
    SETTING_NAMES,
    change_settings,
    formats_of,
    rename_person,
    settings_of,
)
from catalog.access.roles import roles_of
from catalog.core import clock
from catalog.errors import ParameterError
from catalog.models import PersonalSettings
from catalog.text.formats import (
    DEFAULT_TIME_ZONE,
    LOCALES,
    REGIONS,
    ReaderFormats,
    format_date,
    format_exactly,
    format_number,
    time_zone_names,
    written_for,
)
from catalog.ui.page_forms import CardSelect, CardText, FormSection, PageForm, render_form
from catalog.ui.requests import PageRequest, next_address, sign_in_required

SAMPLE_NUMBER = 1234.5


class ProfileForm(PageForm):
    first_name = forms.CharField(
        label=gettext_lazy("First name"),
        required=False,
        max_length=MAX_NAME,
        widget=forms.TextInput({"autocomplete": "given-name"}),
    )
    last_name = forms.CharField(
        label=gettext_lazy("Last name"),
        required=False,
        max_length=MAX_NAME,
        widget=forms.TextInput({"autocomplete": "family-name"}),
    )
    time_zone = forms.ChoiceField(label=gettext_lazy("Time zone"), required=False)
    locale = forms.ChoiceField(
        label=gettext_lazy("Dates and numbers"),
        required=False,
        help_text=gettext_lazy("The language stays English."),
    )
    theme = forms.ChoiceField(
        label=gettext_lazy("Theme"),
        choices=PersonalSettings.Theme.choices,
        initial=PersonalSettings.Theme.SYSTEM,
        widget=CardSelect(
            {
                PersonalSettings.Theme.SYSTEM.value: CardText(icon="device"),
                PersonalSettings.Theme.LIGHT.value: CardText(icon="sun"),
                PersonalSettings.Theme.DARK.value: CardText(icon="moon"),
            }
        ),
    )
    shortcuts = forms.BooleanField(
        label=gettext_lazy("Use single-key shortcuts"),
        required=False,
        initial=True,
        help_text=gettext_lazy(
            "Such as A to approve and J for the next request. Switch them off if you use speech input, or press "
            "keys by accident. Ctrl Enter and Ctrl K stay."
        ),
    )
    layout = (
        FormSection(
            "you",
            gettext_lazy("You"),
            gettext_lazy("Your name is shown beside your requests and decisions. The audit log keeps your username."),
            ("first_name", "last_name"),
        ),
        FormSection(
            "formats",
            gettext_lazy("Time and numbers"),
            gettext_lazy("Used on every page and in every mail to you. Exported files and the API keep UTC."),
            ("time_zone", "locale"),
        ),
        FormSection("looks", gettext_lazy("Appearance"), gettext_lazy("For all your browsers."), ("theme",)),
        FormSection(
            "keyboard", gettext_lazy("Keyboard"), gettext_lazy("Press ? on any page for the list."), ("shortcuts",)
        ),
    )

    def __init__(self, user: User, data: Any = None) -> None:
        chosen = settings_of(user)
        kept = {"theme": chosen.theme or PersonalSettings.Theme.SYSTEM, "shortcuts": chosen.shortcuts}
        names = {"first_name": user.first_name, "last_name": user.last_name}
        super().__init__(data, initial={**names, **kept, "time_zone": chosen.time_zone, "locale": chosen.locale})
        self.fields["time_zone"].choices = zone_choices(chosen.time_zone)  # type: ignore[attr-defined] # a ChoiceField
        self.fields["locale"].choices = locale_choices(formats_of(user).time_zone)  # type: ignore[attr-defined] # as above

    def save(self, user: User) -> None:
        """Save the form. Raises ParameterError."""
        data = self.cleaned_data
        with transaction.atomic():
            rename_person(user, first_name=data["first_name"], last_name=data["last_name"])
            change_settings(user, {name: data[name] for name in sorted(SETTING_NAMES)})


def zone_choices(chosen: str) -> list[tuple[str, Any]]:
    """Return the time zones by region, after the choice of the installation's, and always the one that is chosen."""
    regions: dict[str, list[tuple[str, str]]] = {}
    for name in sorted(time_zone_names()):
        if name.startswith(REGIONS):
            region, _slash, place = name.partition("/")
            regions.setdefault(region, []).append((name, place.replace("_", " ")))
    usual = gettext("As the installation (%(zone)s)") % {"zone": settings.TOOLGATE_TIME_ZONE}
    others = {DEFAULT_TIME_ZONE, chosen} - {""}
    return [("", usual), *((name, name) for name in sorted(others) if not name.startswith(REGIONS)), *regions.items()]


def locale_choices(time_zone: str) -> list[tuple[str, str]]:
    """Return all locales, each with a date, a time and a number written in it."""
    found = []
    for locale, label in LOCALES.items():
        with written_for(ReaderFormats(time_zone, locale)):
            found.append((locale, f"{label}: {format_date(clock.now())} · {format_number(SAMPLE_NUMBER)}"))
    return found


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def profile(request: PageRequest) -> HttpResponse:
    user = request.user
    form = ProfileForm(user, request.POST if request.method == "POST" else None)
    if form.is_valid():
        with form.refusals_shown():
            form.save(user)
            messages.success(request, gettext("Profile saved."))
            return redirect("profile")
    shown = {"section": "profile", "roles": sorted(roles_of(user)), "now": format_exactly(clock.now())}
    return render_form(request, "profile/profile.html", form, **shown)


@require_POST
@sign_in_required
def choose_setting(request: PageRequest) -> HttpResponse:
    """Change single settings, for the theme of the menu, the switch of the shortcuts and the offer of a time zone."""
    changes: dict[str, str | bool] = {name: request.POST[name] for name in SETTING_NAMES & request.POST.keys()}
    if "shortcuts" in changes:
        changes["shortcuts"] = changes["shortcuts"] == "on"
    try:
        change_settings(request.user, changes)
    except ParameterError as error:
        return HttpResponse(error.message, status=422, content_type="text/plain")
    return redirect(next_address(request, "/")) if "next" in request.POST else HttpResponse(status=204)
