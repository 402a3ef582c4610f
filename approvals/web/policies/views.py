"""Views of policies. Administrators change them; every user with a role reads them and uses the simulator."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from approvals.models import Policy
from approvals.policies import services
from approvals.web.policies.forms import PolicyForm, document_in, read_form, refused
from approvals.web.policies.pages import (
    list_page,
    new_page,
    order_in,
    policy_or_404,
    policy_page,
    said_of,
    simulator_page,
    tested,
    tried_before,
)
from catalog.access.roles import NotAllowed
from catalog.errors import Conflict, ParameterError, ToolgateError
from catalog.ui.requests import PageRequest, signed_in


@require_safe
@signed_in
def policies_list(request: PageRequest) -> HttpResponse:
    """Show the policies in their order."""
    return render(request, "policies/policies.html", list_page(request.user))


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def new(request: PageRequest) -> HttpResponse:
    """Show the form of a new policy; a POST makes it, or tries it on past calls."""
    if request.method != "POST":
        return render(request, "policies/policy.html", new_page(request.user))
    form = read_form(request.POST)
    if form.fields.get("do") == "save":
        made = create_from_form(form, by=request.user)
        if not isinstance(made, PolicyForm):
            messages.success(request, f"Made: {made.name}. It counts from now on.")
            return redirect("policies")
        form = made
    shown = new_page(request.user, form) | _tested(request, form)
    return render(request, "policies/policy.html", shown, status=_status(form))


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def policy(request: PageRequest, public_id: str) -> HttpResponse:
    """Show one policy; a POST changes it, or tries the change on past calls."""
    if request.method != "POST":
        return render(request, "policies/policy.html", policy_page(request.user, public_id))
    form = read_form(request.POST)
    if form.fields.get("do") == "save":
        saved = save_from_form(policy_or_404(request.user, public_id), form, by=request.user)
        if not isinstance(saved, PolicyForm):
            messages.success(request, f"Saved: {saved.name}.")
            return redirect("policy", public_id)
        form = saved
    shown = policy_page(request.user, public_id, form) | _tested(request, form, public_id)
    return render(request, "policies/policy.html", shown, status=_status(form))


@require_POST
@signed_in
def policy_act(request: PageRequest, public_id: str) -> HttpResponse:
    """Move a policy, switch it on or off, or end it."""
    try:
        told = carry_out(policy_or_404(request.user, public_id), request.POST.get("do", ""), by=request.user)
    except NotAllowed:
        raise
    except ToolgateError as error:
        messages.error(request, error.message)
    else:
        messages.success(request, told)
    return redirect("policies")


@require_POST
@signed_in
def sentence(request: PageRequest) -> HttpResponse:
    """Say what the form means, as it stands; nothing is stored."""
    if not services.may_change(request.user):
        raise NotAllowed("Only an administrator may change policies.")
    form = read_form(request.POST)
    return render(request, "policies/_saying.html", {"said": said_of(form), "form": form})


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def simulator(request: PageRequest) -> HttpResponse:
    """Show what the rules would say of a call that nobody makes."""
    shown = simulator_page(request.user, request.POST.dict())
    status = 422 if "refused" in shown or "problems" in shown else 200
    return render(request, "policies/simulator.html", shown, status=status)


def _status(form: PolicyForm) -> int:
    """Return 422 for a form that was to be saved or tried and cannot be; a form may be incomplete while it grows."""
    return 422 if form.problems and _wanted(form) in ("save", "test") else 200


def _wanted(form: PolicyForm) -> str:
    """Return what the pressed button asks for; `test:CALL` goes on with the calls older than that one."""
    return form.fields.get("do", "").partition(":")[0]


def _tested(request: PageRequest, form: PolicyForm, public_id: str = "") -> dict[str, object]:
    if _wanted(form) != "test":
        return {}
    row = policy_or_404(request.user, public_id) if public_id else None
    return {"tested": tested(request.user, form, row), "tried_before": tried_before(form)}


def create_from_form(form: PolicyForm, *, by: User) -> Policy | PolicyForm:
    """Make the policy that the form says; return it, or the form with what is wrong. Raises NotAllowed."""
    try:
        return services.create(_document_in(form), by=by)
    except ParameterError as error:
        return refused(form, error)
    except Conflict as error:
        form.problems = {"": error.message}
        return form


def save_from_form(policy: Policy, form: PolicyForm, *, by: User) -> Policy | PolicyForm:
    """Change the policy to what the form says, unless someone else did meanwhile. Returns and raises as `make`."""
    revision = form.fields.get("revision", "")
    known = {"revision": int(revision) if revision.isascii() and revision.isdecimal() and len(revision) < 9 else 0}
    try:
        return services.change(policy, _document_in(form) | known, by=by)
    except ParameterError as error:
        return refused(form, error)
    except Conflict as error:
        form.problems = {"": error.message}
        return form


def _document_in(form: PolicyForm) -> dict[str, Any]:
    """Return what the form says, its order only where one was typed."""
    order = order_in(form)
    return document_in(form) | ({} if order is None else {"order": order})


def carry_out(policy: Policy, do: str, *, by: User) -> str:
    """Do what a button of the list says; return it in words. Raises as `policies` does; Conflict for none such."""
    if do in ("up", "down"):
        moved = services.move(policy, up=do == "up", by=by)
        return f"Moved {do}: {policy.name}." if moved else f"{policy.name} is the {'first' if do == 'up' else 'last'}."
    if do in ("on", "off"):
        services.change(policy, {"enabled": do == "on"}, by=by)
        return f"Switched {do}: {policy.name}."
    if do == "end":
        services.end(policy, by=by)
        return f"Ended: {policy.name}. It is kept for the calls it held."
    raise Conflict("The form does not say what to do; reload the page.")
