"""Revealing one secret on the page of a request."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from approvals.answers import Setback, status_of
from approvals.deciding import Outcome
from approvals.requests.privacy import reveal_field
from approvals.views import answered, held_or_404, page_context
from catalog.errors import ToolgateError
from catalog.ui.requests import PageRequest, signed_in, wants_part


@require_POST
@signed_in
def reveal(request: PageRequest, public_id: str) -> HttpResponse:
    """Show one secret in its place, to who may see it."""
    held = held_or_404(request, public_id)
    try:
        field = reveal_field(held, request.POST.get("path", ""), by=request.user)
    except ToolgateError as error:
        return answered(request, public_id, Outcome(setback=Setback.from_error(error), status=status_of(error)))
    if wants_part(request, f"secret-{field.number}"):
        return render(request, "approvals/_secret.html", {"held": held, "field": field, "may_reveal": True})
    return render(request, "approvals/inbox.html", page_context(request, public_id) | {"revealed": field})
