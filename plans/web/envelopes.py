"""Pages of envelopes: the list, and one envelope with what it promises beside what is used of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext, gettext_lazy, ngettext_lazy
from django.views.decorators.http import require_POST, require_safe

from approvals.envelopes.reading import BADGES, EnvelopeView, listed, mismatch_sentence, uses_of, views_of
from approvals.envelopes.services import end_envelope, envelopes_for, may_end
from approvals.models import Envelope, EnvelopeItem, EnvelopeMismatch
from catalog.access.roles import NotAllowed
from catalog.errors import Conflict, ParameterError
from catalog.models import Call
from catalog.ui.list_views import render_list
from catalog.ui.lists import (
    Choice,
    Column,
    ListDefinition,
    ListFilter,
    SortOrder,
    age_filter,
    column_choices,
    column_filter,
    person_choices,
    register_list,
)
from catalog.ui.requests import PageRequest, is_fragment_request, sign_in_required
from plans.models import Step
from plans.store.privacy import MEETS_PRIVATE

CALLS_SHOWN = 200
Status = Envelope.Status


def _present(viewer: User, envelopes: Sequence[Envelope]) -> list[EnvelopeView]:
    found = {each.pk: each for each in listed(viewer).filter(pk__in=[envelope.pk for envelope in envelopes])}
    return views_of(viewer, [found[envelope.pk] for envelope in envelopes if envelope.pk in found])


def _proposers(viewer: User, chosen: Sequence[str]) -> list[Choice]:
    people = User.objects.filter(pk__in=envelopes_for(viewer).order_by().values("requester"))
    return person_choices(people, chosen)


def _tools(viewer: User, chosen: Sequence[str]) -> list[Choice]:
    items = EnvelopeItem.objects.filter(envelope__in=envelopes_for(viewer).order_by().values("pk"))
    return column_choices(items, "tool__name", chosen)


_MAY_BE_PRIVATE = Exists(Step.objects.filter(MEETS_PRIVATE, plan__public_id=OuterRef("call__plan_ref")))


ENVELOPE_LIST = register_list(
    ListDefinition[Envelope](
        name="envelopes",
        path="/envelopes/",
        count_text=ngettext_lazy("%(shown)s envelope", "%(shown)s envelopes", "count"),
        search_label=gettext_lazy("Search envelopes"),
        search_hint=gettext_lazy("Purpose, proposer, id"),
        rows=lambda viewer, _query: envelopes_for(viewer),
        present=_present,
        search=lambda text: (
            (Q(purpose__icontains=text) & ~_MAY_BE_PRIVATE)  # nor may a search find what its reader may not see
            | Q(requester__username=text)
            | Q(public_id=text)
        ),
        tabs={
            "": (gettext_lazy("All"), Q()),
            **{str(status): (badge.text, Q(status=status)) for status, badge in BADGES.items()},
        },
        filters=(
            ListFilter(
                name="tool",
                label=gettext_lazy("Tool"),
                offer=_tools,
                condition=lambda values: Q(
                    pk__in=EnvelopeItem.objects.filter(tool__name__in=values).values("envelope")
                ),
            ),
            column_filter(
                name="proposer", label=gettext_lazy("Proposer"), offer=_proposers, column="requester__username"
            ),
            age_filter("proposed_at"),
        ),
        orders={
            "-proposed": SortOrder(gettext_lazy("Newest first"), "-id"),
            "proposed": SortOrder(gettext_lazy("Oldest first"), "id"),
        },
        columns=(
            Column(gettext_lazy("Status")),
            Column(gettext_lazy("Purpose")),
            Column(gettext_lazy("Proposer")),
            Column(gettext_lazy("Calls used")),
            Column(gettext_lazy("Ends")),
            Column(gettext_lazy("Proposed"), "proposed", "-proposed"),
        ),
        row_template="envelopes/_envelope.html",
        empty_template="envelopes/_none.html",
    )
)


@dataclass(frozen=True, slots=True)
class OutsideCall:
    """A call that waits outside the envelope, and the broken promise as a sentence."""

    call: Call
    sentence: str


@require_safe
@sign_in_required
def envelope_list(request: PageRequest) -> HttpResponseBase:
    return render_list(request, ENVELOPE_LIST, "envelopes/envelopes.html", {"section": "approvals"})


@require_safe
@sign_in_required
def envelope_page(request: PageRequest, public_id: str) -> HttpResponse:
    return _render(request, public_id)


def _render(
    request: PageRequest, public_id: str, *, error: str = "", reason: str = "", status: int = 200
) -> HttpResponse:
    envelope = get_object_or_404(listed(request.user), public_id=public_id)
    [view] = views_of(request.user, [envelope])
    outside = EnvelopeMismatch.objects.filter(envelope=envelope).select_related("call__approval").order_by("-pk")
    shown = {
        "section": "approvals",
        "view": view,
        "uses": uses_of(request.user, envelope, CALLS_SHOWN),
        "outside": [OutsideCall(each.call, mismatch_sentence(each.mismatch)) for each in outside[:CALLS_SHOWN]],
        "may_end": view.is_open and may_end(envelope, request.user),
        "error": error,
        "reason": reason,
    }
    template = "envelopes/_live.html" if is_fragment_request(request, "envelope-live") else "envelopes/envelope.html"
    return render(request, template, shown, status=status)


@require_POST
@sign_in_required
def end_envelope_page(request: PageRequest, public_id: str) -> HttpResponse:
    envelope = get_object_or_404(listed(request.user), public_id=public_id)
    reason = request.POST.get("reason", "")
    try:
        end_envelope(envelope, reason=reason, by=request.user)
        messages.success(request, gettext("Envelope ended. Its calls need approval again."))
    except ParameterError as error:
        return _render(request, public_id, error=error.message, reason=reason, status=422)
    except NotAllowed as error:
        return _render(request, public_id, error=error.message, reason=reason, status=403)
    except Conflict as error:
        messages.warning(request, error.message)
    return redirect("envelope", public_id)
