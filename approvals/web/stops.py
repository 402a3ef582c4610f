"""The page of stops: those that stand, the form that sets one, and those that were lifted."""

from typing import TYPE_CHECKING

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef
from django.http import HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST

from approvals.models import Stop
from approvals.stops.services import (
    MAX_KEY,
    MAX_REASON,
    AlreadyStopped,
    StopLine,
    agent_names,
    cancel_under,
    lift_stop,
    may_lift_stops,
    may_set_stops,
    parse_scope,
    require_may_lift,
    require_may_set,
    scope_in_words,
    set_or_cancel,
    stops_for,
)
from catalog.errors import Conflict, ParameterError
from catalog.models import ApiToken, Category, Source, Tool
from catalog.ui.page_forms import PageForm, render_form
from catalog.ui.requests import PageRequest, sign_in_required

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

MAX_LIFTED = 50
MAX_CANDIDATES = 500
MAX_DIGITS = 10
KINDS: list[tuple[str, "StrOrPromise"]] = [
    (Stop.Kind.EVERYTHING.value, gettext_lazy("Everything")),
    (Stop.Kind.TOOL.value, gettext_lazy("One tool")),
    (Stop.Kind.CATEGORY.value, gettext_lazy("All tools of a category")),
    (Stop.Kind.SOURCE.value, gettext_lazy("All tools of a source")),
    (Stop.Kind.AGENT.value, gettext_lazy("One agent of Toolgate")),
    (Stop.Kind.TOKEN.value, gettext_lazy("One token or connected agent")),
    (Stop.Kind.REQUESTER.value, gettext_lazy("One person")),
]


class StopForm(PageForm):
    kind = forms.ChoiceField(label=gettext_lazy("Stop"), choices=KINDS)
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=MAX_KEY,
        required=False,
        widget=forms.TextInput({"list": "stoppable", "placeholder": " "}),
        help_text=gettext_lazy("Of the tool, category, source, agent or person; the number of a token."),
    )
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=MAX_REASON,
        widget=forms.Textarea({"rows": 2, "autofocus": True}),
        help_text=gettext_lazy("People and agents read it."),
    )
    cancel_running = forms.BooleanField(
        label=gettext_lazy("Also ask what runs now to cancel"),
        required=False,
        help_text=gettext_lazy("A call that had begun and may have taken effect then waits for a person to settle it."),
    )

    def save(self, *, by: User) -> Stop | None:
        """Set the stop; None if it was refused, with the reason at its field."""
        if not self.is_valid():
            return None
        given = self.cleaned_data
        kind, name = given["kind"], given["name"]
        value: object = name
        if kind == Stop.Kind.EVERYTHING and name:
            self.add_error("kind", _("Choose what the name below is of, or leave it empty to stop everything."))
            return None
        if kind == Stop.Kind.EVERYTHING:
            value = True
        elif kind == Stop.Kind.TOKEN:
            value = int(name) if name.isdecimal() and len(name) < MAX_DIGITS else 0
        try:
            scope, cancels = parse_scope({kind: value}), given["cancel_running"]
            return set_or_cancel(scope, given["reason"], by=by, cancel_running=cancels)[0]
        except AlreadyStopped as standing:
            self.add_error(None, standing.message)
        except ParameterError as error:
            path = str(error.details.get("field"))
            self.add_error("reason" if path == "reason" else "name", error.message)
        return None


def _initial(query: QueryDict) -> dict[str, str]:
    """Return the scope that the page is opened for, such as `?tool=send_mail`."""
    kind = next((kind for kind, _label in KINDS if kind in query), Stop.Kind.EVERYTHING.value)
    return {"kind": kind, "name": query.get(kind, "")[:MAX_KEY]}


def _candidates() -> list[tuple[str, str]]:
    """Return names to choose from, with their kind."""
    names: list[tuple[str, str]] = []
    used = Exists(Tool.categories.through.objects.filter(category=OuterRef("pk")))
    for model, label in ((Tool, _("tool")), (Category, _("category")), (Source, _("source"))):
        rows = model.objects.filter(used) if model is Category else model.objects.all()
        names += [(name, label) for name in rows.order_by("name").values_list("name", flat=True)[:MAX_CANDIDATES]]
    names += [(name, _("agent")) for name in agent_names()[:MAX_CANDIDATES]]
    tokens = ApiToken.objects.filter(revoked_at=None).select_related("user").order_by("-pk")[:MAX_CANDIDATES]
    names += [(str(token.pk), f"{_('token')} {token.name} ({token.user.get_username()})") for token in tokens]
    people = User.objects.filter(is_active=True).order_by("username").values_list("username", flat=True)
    return names + [(name, _("person")) for name in people[:MAX_CANDIDATES]]


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def stops(request: PageRequest) -> HttpResponse:
    """Show the stops; a POST sets one."""
    may_set = may_set_stops(request.user)
    form = StopForm(request.POST if request.method == "POST" else None, initial=_initial(request.GET))
    if request.method == "POST":
        require_may_set(request.user)
        stop = form.save(by=request.user)
        if stop is not None:
            words = {"scope": scope_in_words(stop)}
            messages.success(
                request, _("%(scope)s: stopped. Nothing of it starts until an administrator lifts it.") % words
            )
            return redirect(f"{reverse('stops')}#standing")
    seen = stops_for(request.user)
    shown = {
        "section": "stops",
        "standing": [StopLine(stop) for stop in seen.filter(lifted_at=None)],
        "lifted": [StopLine(stop) for stop in seen.filter(lifted_at__isnull=False)[:MAX_LIFTED]],
        "may_set": may_set,
        "may_lift": may_lift_stops(request.user),
        "candidates": _candidates() if may_set else [],
    }
    return render_form(request, "approvals/stops.html", form, **shown)


@require_POST
@sign_in_required
def change_stop(request: PageRequest, public_id: str) -> HttpResponse:
    """Lift a standing stop, or ask what runs in its scope to cancel, as the pressed button says."""
    stop = get_object_or_404(stops_for(request.user), public_id=public_id)
    do, reason = request.POST.get("do"), request.POST.get("reason", "")
    try:
        if do == "cancel":
            require_may_set(request.user)
            cancel_under(stop, reason, by=request.user)
            messages.success(request, _("What runs in its scope is asked to cancel."))
        elif do == "lift":
            require_may_lift(request.user)
            lift_stop(stop, reason, by=request.user)
            messages.success(
                request, _("%(scope)s: lifted. It goes on within a second.") % {"scope": scope_in_words(stop)}
            )
        else:
            messages.error(request, _("Unknown action. Reload the page and try again."))
    except (Conflict, ParameterError) as error:
        messages.warning(request, error.message)
    return redirect(f"{reverse('stops')}#standing")
