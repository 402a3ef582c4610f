"""Pages of notifications: a user's preferences, and the log of deliveries."""

from django import forms
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from approvals.models import Delivery
from approvals.notifications.delivery import retry_delivery
from approvals.notifications.preferences import change_choice, deliveries_for, preferences_page
from catalog.errors import Conflict, ParameterError
from catalog.ui.page_forms import PageForm
from catalog.ui.requests import PageRequest, sign_in_required

PAGE_SIZE = 100


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def preferences(request: PageRequest) -> HttpResponse:
    """Show and change the user's notification preferences."""
    problem = None
    if request.method == "POST":
        try:
            change_choice(request.user, request.POST.dict(), request.POST.getlist("remove"))
            return redirect("/profile/notifications/?saved=1")
        except ParameterError as error:
            problem = error.details["errors"][0] if error.details else {"message": error.message}
    shown = {"page": preferences_page(request.user), "problem": problem, "saved": "saved" in request.GET}
    shown |= {"section": "notifications"}
    if problem:
        shown |= {"typed": request.POST, "removed": request.POST.getlist("remove")}
    return render(request, "approvals/notifications.html", shown, status=422 if problem else 200)


class DeliveryFilterForm(PageForm):
    """Filter and position of the log of deliveries, from the URL; invalid values are ignored."""

    status = forms.ChoiceField(
        label=gettext_lazy("Status"), required=False, choices=[("", gettext_lazy("All")), *Delivery.Status.choices]
    )
    before = forms.IntegerField(required=False, min_value=0, max_value=10**18, widget=forms.HiddenInput)


@require_safe
@sign_in_required
def deliveries(request: PageRequest) -> HttpResponse:
    """Show administrators the deliveries, newest first."""
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
    """Queue a failed delivery again and return to the list."""
    try:
        retry_delivery(get_object_or_404(deliveries_for(request.user), pk=number), by=request.user)
        messages.success(request, _("Notification queued again."))
    except OverflowError:
        raise Http404 from None
    except Conflict as error:
        messages.warning(request, error.message)
    return redirect("deliveries")
