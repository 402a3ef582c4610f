"""Pages of notifications: a user's preferences, and the log of deliveries."""

from typing import Any, cast

from django import forms
from django.contrib import messages
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from approvals.models import Delivery
from approvals.notifications.delivery import retry_delivery
from approvals.notifications.preferences import PreferencesPage, change_choice, deliveries_for, preferences_page
from catalog.errors import Conflict, ParameterError
from catalog.templatetags.toolgate import revealed
from catalog.ui.page_forms import PageForm
from catalog.ui.requests import PageRequest, sign_in_required

PAGE_SIZE = 100


class TimeInput(forms.TimeInput):
    input_type = "time"


class PreferencesForm(PageForm):
    by_mail = forms.BooleanField(required=False)
    remove = forms.MultipleChoiceField(
        label=gettext_lazy("Your addresses"), required=False, widget=forms.CheckboxSelectMultiple
    )
    address = forms.CharField(
        label=gettext_lazy("Another address"),
        required=False,
        widget=forms.TextInput(attrs={"maxlength": 1000, "autocomplete": "off", "spellcheck": "false"}),
        help_text=gettext_lazy(
            "https://… for signed webhooks, or a chat: slack://…, workflows://… (Teams), ntfys://…, discord://…, "
            "tgram://…. It is not shown again."
        ),
    )
    quiet_from = forms.TimeField(
        label=gettext_lazy("Quiet hours from"), required=False, widget=TimeInput(format="%H:%M")
    )
    quiet_until = forms.TimeField(label=gettext_lazy("until"), required=False, widget=TimeInput(format="%H:%M"))
    time_zone = forms.CharField(
        label=gettext_lazy("Time zone"),
        required=False,
        widget=forms.TextInput(attrs={"maxlength": 64, "autocomplete": "off", "spellcheck": "false"}),
    )

    def __init__(self, data: QueryDict | None, page: PreferencesPage) -> None:
        """Create the form; the mail option is disabled if no mail can reach the user."""
        choice = page.choice
        initial = {name: getattr(choice, name) for name in ("quiet_from", "quiet_until", "time_zone")}
        super().__init__(data, initial=initial | {"by_mail": choice.by_mail and page.mail_reaches})
        mail = self.fields["by_mail"]
        mail.label = format_html(_("By mail to {address}"), address=revealed(page.mail)) if page.mail else _("By mail")
        mail.disabled = not page.mail_reaches
        mail.help_text = "" if page.mail_reaches else _mail_hint(page)
        cast("forms.MultipleChoiceField", self.fields["remove"]).choices = [
            (str(number), format_html(_("Remove {address}"), address=format_html("<code>{}</code>", revealed(shown))))
            for number, shown in enumerate(page.addresses)
        ]

    def values(self) -> dict[str, Any]:
        """Return the preferences in the form that `change_choice` expects."""
        data = self.cleaned_data
        hours = {name: f"{data[name]:%H:%M}" if data[name] else "" for name in ("quiet_from", "quiet_until")}
        return {name: data[name] for name in ("by_mail", "address", "time_zone")} | hours


def _mail_hint(page: PreferencesPage) -> str:
    hints = [
        _("Your account has no mail address. An administrator can add one.")
        if page.sends_mail
        else _("This installation sends no mail. An administrator can set TOOLGATE_EMAIL_URL.")
    ]
    if page.choice.by_mail:
        hints.append(_("You will get mail from then on."))
    if not page.addresses:
        hints.append(_("Until then, notifications only appear on these pages. Add an address below."))
    return " ".join(hints)


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def preferences(request: PageRequest) -> HttpResponse:
    page = preferences_page(request.user)
    form = PreferencesForm(request.POST if request.method == "POST" else None, page)
    if form.is_valid():
        try:
            change_choice(request.user, form.values(), form.cleaned_data["remove"])
        except ParameterError as error:
            form.add_problems(error)
        else:
            messages.success(request, _("Preferences saved."))
            return redirect("notifications")
    shown = {"section": "notifications", "page": page, "form": form}
    return render(request, "approvals/notifications.html", shown, status=422 if form.errors else 200)


class DeliveryFilterForm(PageForm):
    """Filter and position of the log of deliveries, from the URL; invalid values are ignored."""

    status = forms.ChoiceField(
        label=gettext_lazy("Status"), required=False, choices=[("", gettext_lazy("All")), *Delivery.Status.choices]
    )
    before = forms.IntegerField(required=False, min_value=0, max_value=10**18, widget=forms.HiddenInput)


@require_safe
@sign_in_required
def deliveries(request: PageRequest) -> HttpResponse:
    form = DeliveryFilterForm(request.GET)
    form.is_valid()
    status, before = form.cleaned_data.get("status", ""), form.cleaned_data.get("before")
    found = list(deliveries_for(request.user, status, before)[: PAGE_SIZE + 1])
    older = found[PAGE_SIZE - 1].pk if len(found) > PAGE_SIZE else None
    shown = {"deliveries": found[:PAGE_SIZE], "older": older, "form": form}
    return render(request, "approvals/deliveries.html", shown | {"section": "audit", "may_retry": True})


@require_POST
@sign_in_required
def retry_delivery_page(request: PageRequest, number: int) -> HttpResponse:
    rows = deliveries_for(request.user)
    try:
        delivery = get_object_or_404(rows, pk=number)
    except OverflowError:  # larger than any key
        raise Http404 from None
    try:
        retry_delivery(delivery, by=request.user)
        messages.success(request, _("Notification queued again."))
    except Conflict as error:
        messages.warning(request, error.message)
    return redirect("deliveries")
