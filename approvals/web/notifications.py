"""Pages of notifications: a user's preferences, and the log of deliveries."""

import secrets
from typing import Any, cast

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from approvals.messaging import web_push
from approvals.models import Delivery, PushDevice
from approvals.notifications import devices
from approvals.notifications.delivery import retry_delivery
from approvals.notifications.preferences import PreferencesPage, change_choice, deliveries_for, preferences_page
from catalog.errors import Conflict, ParameterError
from catalog.templatetags.toolgate import revealed
from catalog.ui.page_forms import FormSection, PageForm, render_form
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
    quiet_until = forms.TimeField(
        label=gettext_lazy("Quiet hours until"),
        required=False,
        widget=TimeInput(format="%H:%M"),
        help_text=gettext_lazy("In the time zone of your profile. Both times, or neither."),
    )
    layout = (
        FormSection(
            "channels",
            gettext_lazy("Channels"),
            gettext_lazy("Messages never contain arguments. A link opens the request and decides nothing."),
            ("by_mail", "remove", "address"),
        ),
        FormSection(
            "quiet",
            gettext_lazy("Quiet hours"),
            gettext_lazy("Notifications are held back, and sent afterwards if they are still relevant."),
            ("quiet_from", "quiet_until"),
        ),
    )

    def __init__(self, data: QueryDict | None, page: PreferencesPage) -> None:
        """Create the form; the mail option is disabled if no mail can reach the user."""
        choice = page.choice
        initial = {name: getattr(choice, name) for name in ("quiet_from", "quiet_until")}
        super().__init__(data, initial=initial | {"by_mail": choice.by_mail and page.mail_reaches})
        mail = self.fields["by_mail"]
        mail.label = format_html(_("By mail to {address}"), address=revealed(page.mail)) if page.mail else _("By mail")
        mail.disabled = not page.mail_reaches
        mail.help_text = "" if page.mail_reaches else _mail_hint(page)
        if not page.addresses:
            del self.fields["remove"]
            return
        cast("forms.MultipleChoiceField", self.fields["remove"]).choices = [
            (str(number), format_html(_("Remove {address}"), address=format_html("<code>{}</code>", revealed(shown))))
            for number, shown in enumerate(page.addresses)
        ]

    def values(self) -> dict[str, Any]:
        """Return the preferences in the form that `change_choice` expects."""
        data = self.cleaned_data
        hours = {name: f"{data[name]:%H:%M}" if data[name] else "" for name in ("quiet_from", "quiet_until")}
        return {name: data[name] for name in ("by_mail", "address")} | hours


def _mail_hint(page: PreferencesPage) -> str:
    link = format_html('<a href="{}">{}</a>', reverse("security-mail"), _("Add one on Security"))
    hints = [
        format_html(_("Your account has no mail address. {link}."), link=link)
        if page.sends_mail
        else _("This installation sends no mail. An administrator can set TOOLGATE_EMAIL_URL.")
    ]
    if page.choice.by_mail:
        hints.append(_("You will get mail from then on."))
    if not page.addresses:
        hints.append(_("Until then, notifications only appear on these pages. Add an address below."))
    return format_html_join(" ", "{}", ((hint,) for hint in hints))


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def preferences(request: PageRequest) -> HttpResponse:
    page = preferences_page(request.user)
    form = PreferencesForm(request.POST if request.method == "POST" else None, page)
    if form.is_valid():
        with form.refusals_shown():
            change_choice(request.user, form.values(), form.cleaned_data.get("remove", []))
            messages.success(request, _("Preferences saved."))
            return redirect("notifications")
    shown = {"section": "notifications", "page": page, "devices": devices.device_rows(request.user)}
    push_key = web_push.application_server_key() if web_push.is_configured() else ""
    return render_form(request, "approvals/notifications.html", form, **shown, push_key=push_key)


@require_POST
@sign_in_required
def add_push_device(request: PageRequest) -> HttpResponse:
    """Add the browser that sent its subscription; the cookie tells it from others when its person signs out."""
    browser = devices.browser_of(request) or secrets.token_urlsafe(24)
    name = devices.device_name(request.headers.get("User-Agent", ""))
    try:
        devices.add_device(request.user, request.POST.dict(), name=name, browser=browser)
    except ParameterError as error:
        return HttpResponse(error.message, status=422, content_type="text/plain")
    messages.success(request, _("%(name)s is notified from now on.") % {"name": name})
    response = HttpResponse(status=204)
    response.set_cookie(
        devices.BROWSER_COOKIE,
        browser,
        max_age=devices.BROWSER_COOKIE_SECONDS,
        secure=settings.TOOLGATE_HTTPS,
        httponly=True,
        samesite="Lax",
    )
    return response


@require_POST
@sign_in_required
def push_device_action(request: PageRequest, number: int) -> HttpResponse:
    """Remove a device, or send it a test."""
    device = get_object_or_404(PushDevice, person=request.user, pk=number)
    if request.POST.get("do") == "test":
        devices.queue_test(device)
        messages.success(request, _("A test is on its way to %(name)s.") % {"name": device.name})
    else:
        devices.remove_device(request.user, device.pk)
        messages.success(request, _("%(name)s is not notified any more.") % {"name": device.name})
    return redirect("notifications")


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
    delivery = get_object_or_404(deliveries_for(request.user), pk=number)
    try:
        retry_delivery(delivery, by=request.user)
        messages.success(request, _("Notification queued again."))
    except Conflict as error:
        messages.warning(request, error.message)
    return redirect("deliveries")
