"""Pages of grants: the list of active and ended grants, revocation, and creation from an approved request."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models import Prefetch, QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from approvals.grants.conditions import conditions_for
from approvals.grants.services import GrantStatus, grant_status, grants_for, may_revoke_grant, revoke_grant
from approvals.models import Grant, GrantUse
from approvals.policy_language.bounds import conditions_sentence
from approvals.web.grant_form import GrantForm, scope_phrase
from approvals.web.review.views import request_or_404
from catalog.access.roles import user_display_name
from catalog.core import clock
from catalog.errors import Conflict
from catalog.ui.labels import Badge
from catalog.ui.requests import PageRequest, is_fragment_request, sign_in_required

MAX_ACTIVE_GRANTS = 200
MAX_ENDED_GRANTS = 50
MAX_USES_SHOWN = 10
"""Number of calls listed under a grant."""
EXPIRES_SOON = timedelta(hours=1)
BADGES: Mapping[str, Badge] = {
    "active": Badge(gettext_lazy("Active"), "ok", "ok"),
    "expires_soon": Badge(gettext_lazy("Expires soon"), "clock", "warn"),
    "ended": Badge(gettext_lazy("Ended"), "stop", "idle"),
}


@dataclass(frozen=True, slots=True)
class GrantLine:
    grant: Grant
    status: GrantStatus
    rows: list[dict[str, Any]]

    @property
    def badge(self) -> Badge:
        if not self.status.is_active:
            return BADGES["ended"]
        return BADGES["expires_soon" if self.grant.expires_at - clock.now() <= EXPIRES_SOON else "active"]

    @property
    def conditions(self) -> str:
        return conditions_sentence(self.rows)

    @property
    def scope(self) -> str:
        return scope_phrase(self.grant.scope, self.grant.scope_ref)

    @property
    def used(self) -> list[GrantUse]:
        """The last calls that ran under the grant, newest first."""
        used: list[GrantUse] = self.grant.last_used  # type: ignore[attr-defined] # see _lines
        return used

    @property
    def maker(self) -> str:
        """Display name of the user who created the grant."""
        return user_display_name(self.grant.created_by)


@dataclass(frozen=True, slots=True)
class GrantsPage:
    """Grants on the page; `marked` is the id of the highlighted one."""

    active: list[GrantLine]
    ended: list[GrantLine]
    may_revoke: bool
    marked: str = ""

    @property
    def ended_in_words(self) -> str:
        """Number of ended grants on the page, marked as partial when the list is cut."""
        count = len(self.ended)
        return _("the last %(count)s") % {"count": count} if count == MAX_ENDED_GRANTS else str(count)


def grants_page(viewer: User, query: Mapping[str, str]) -> GrantsPage:
    """Return the grants the viewer may see; `?grant=` highlights one."""
    active = _lines(viewer, grants_for(viewer, active=True).order_by("-pk")[:MAX_ACTIVE_GRANTS])
    ended = _lines(viewer, grants_for(viewer, active=False).order_by("-pk")[:MAX_ENDED_GRANTS])
    return GrantsPage(active, ended, may_revoke_grant(viewer), query.get("grant", ""))


def _lines(viewer: User, grants: QuerySet[Grant]) -> list[GrantLine]:
    calls = GrantUse.objects.select_related("call").only("grant", "at", "call__plan_ref", "call__step_ref")
    found = list(grants.prefetch_related(Prefetch("used", calls.order_by("-pk")[:MAX_USES_SHOWN], "last_used")))
    rows = conditions_for(viewer, found)
    return [GrantLine(grant, grant_status(grant), rows[grant.pk]) for grant in found]


@require_safe
@sign_in_required
def grants(request: PageRequest) -> HttpResponse:
    page = grants_page(request.user, request.GET)
    return render(request, "approvals/grants.html", {"section": "approvals", "page": page})


@require_POST
@sign_in_required
def revoke_grant_page(request: PageRequest, public_id: str) -> HttpResponse:
    grant = get_object_or_404(grants_for(request.user), public_id=public_id)
    try:
        revoke_grant(grant, by=request.user)
        messages.success(request, _("Grant revoked. Matching calls need approval again."))
    except Conflict as error:
        messages.warning(request, error.message)
    return redirect("grants")


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def propose_grant_page(request: PageRequest, public_id: str) -> HttpResponse:
    """Show the form that creates a grant from an approved request; a POST checks it against history, or saves it."""
    approval_request = request_or_404(request, public_id)
    form = GrantForm(approval_request, request.user, request.POST if request.method == "POST" else None)
    if request.POST.get("do") == "make" and form.save(request.user) is not None:
        messages.success(request, _("Grant created. Matching calls run without approval until it ends."))
        return redirect("grants")
    tested = form.tested  # must precede the status, since it adds errors to the form
    shown = {"section": "approvals", "form": form, "tested": tested}
    if is_fragment_request(request, "summary"):  # while the form is filled in: errors are shown when it is sent
        return render(request, "approvals/_grant_summary.html", shown)
    status = 200 if not form.is_bound or form.is_valid() else 422
    return render(request, "approvals/grant.html", shown, status=status)
