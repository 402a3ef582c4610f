"""The bar of the demo: its steps while they are being done, and hiding it."""

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from catalog.ui.requests import next_address, sign_in_required
from plans.demo.bar import HIDDEN, bar_for


@require_safe
@sign_in_required
def demo_steps(request: HttpRequest) -> HttpResponseBase:
    """Return the steps, or status 204 if there is no bar, or if no more than the number `done` are done."""
    bar = bar_for(request)
    if bar is None or request.GET.get("done") == str(bar.done):
        return HttpResponse(status=204)
    return render(request, "plans/_demo_steps.html", {"demo_bar": bar})


@require_POST
@sign_in_required
def demo_hide(request: HttpRequest) -> HttpResponseBase:
    """Hide the bar until the person signs in again, and return to the page `next`."""
    request.session[HIDDEN] = True
    return redirect(next_address(request, reverse("home")))
