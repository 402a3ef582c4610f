"""Views of policies. Administrators change them; every user with a role reads them and uses the simulator."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from approvals.models import Policy
from approvals.policies import services
from approvals.web.policies.forms import PolicyForm, document_from_form, form_with_errors, parse_policy_form
from approvals.web.policies.pages import (
    backtest_cursor,
    new_policy_page,
    policy_list_page,
    policy_or_404,
    policy_page,
    run_backtest,
    simulator_page,
    summarise_policy_form,
    typed_order,
)
from catalog.access.roles import NotAllowed
from catalog.errors import Conflict, ParameterError, ToolgateError
from catalog.ui.requests import PageRequest, parse_number, sign_in_required


@require_safe
@sign_in_required
def policies_list(request: PageRequest) -> HttpResponse:
    """Show the policies in order."""
    return render(request, "policies/policies.html", policy_list_page(request.user))


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def new_policy(request: PageRequest) -> HttpResponse:
    """Show the form of a new policy; a POST creates it, or tests it on past calls."""
    if request.method != "POST":
        return render(request, "policies/policy.html", new_policy_page(request.user))
    form = parse_policy_form(request.POST)
    if form.fields.get("do") == "save":
        made = create_from_form(form, by=request.user)
        if not isinstance(made, PolicyForm):
            messages.success(request, _("Policy “%(name)s” created. It applies from now on.") % {"name": made.name})
            return redirect("policies")
        form = made
    shown = new_policy_page(request.user, form) | _backtest_context(request, form)
    return render(request, "policies/policy.html", shown, status=_status(form))


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def policy(request: PageRequest, public_id: str) -> HttpResponse:
    """Show one policy; a POST saves it, or tests the change on past calls."""
    if request.method != "POST":
        return render(request, "policies/policy.html", policy_page(request.user, public_id))
    form = parse_policy_form(request.POST)
    if form.fields.get("do") == "save":
        saved = save_from_form(policy_or_404(request.user, public_id), form, by=request.user)
        if not isinstance(saved, PolicyForm):
            messages.success(request, _("Policy “%(name)s” saved.") % {"name": saved.name})
            return redirect("policy", public_id)
        form = saved
    shown = policy_page(request.user, public_id, form) | _backtest_context(request, form, public_id)
    return render(request, "policies/policy.html", shown, status=_status(form))


@require_POST
@sign_in_required
def policy_action(request: PageRequest, public_id: str) -> HttpResponse:
    """Move, enable, disable or delete a policy."""
    try:
        message = perform_policy_action(
            policy_or_404(request.user, public_id), request.POST.get("do", ""), by=request.user
        )
    except NotAllowed:
        raise
    except ToolgateError as error:
        messages.error(request, error.message)
    else:
        messages.success(request, message)
    return redirect("policies")


@require_POST
@sign_in_required
def sentence(request: PageRequest) -> HttpResponse:
    """Show the summary of a form without saving it."""
    if not services.may_change_policy(request.user):
        raise NotAllowed("Only administrators may change policies.")
    form = parse_policy_form(request.POST)
    return render(request, "policies/_saying.html", {"said": summarise_policy_form(form), "form": form})


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def simulator(request: PageRequest) -> HttpResponse:
    """Show the verdict of the policies on a hypothetical call."""
    shown = simulator_page(request.user, request.POST.dict())
    status = 422 if "refused" in shown or "problems" in shown else 200
    return render(request, "policies/simulator.html", shown, status=status)


def _status(form: PolicyForm) -> int:
    """Return 422 for a form that cannot be saved or tested; while it is being filled in, problems are no error."""
    return 422 if form.problems and _requested_action(form) in ("save", "test") else 200


def _requested_action(form: PolicyForm) -> str:
    """Return the action of the pressed button; `test:CALL` continues the test with calls older than that one."""
    return form.fields.get("do", "").partition(":")[0]


def _backtest_context(request: PageRequest, form: PolicyForm, public_id: str = "") -> dict[str, object]:
    if _requested_action(form) != "test":
        return {}
    row = policy_or_404(request.user, public_id) if public_id else None
    return {"tested": run_backtest(request.user, form, row), "tried_before": backtest_cursor(form)}


def create_from_form(form: PolicyForm, *, by: User) -> Policy | PolicyForm:
    """Create the policy of a form; return it, or the form with its problems. Raises NotAllowed."""
    try:
        return services.create_policy(_document_to_save(form), by=by)
    except ParameterError as error:
        return form_with_errors(form, error)
    except Conflict as error:
        form.problems = {"": error.message}
        return form


def save_from_form(policy: Policy, form: PolicyForm, *, by: User) -> Policy | PolicyForm:
    """Save a form, unless the policy has changed since it was loaded. Returns and raises like `create_from_form`."""
    known = {"revision": parse_number(form.fields.get("revision", ""), most_digits=8) or 0}
    try:
        return services.change_policy(policy, _document_to_save(form) | known, by=by)
    except ParameterError as error:
        return form_with_errors(form, error)
    except Conflict as error:
        form.problems = {"": error.message}
        return form


def _document_to_save(form: PolicyForm) -> dict[str, Any]:
    """Return the document of a form, with an order only if one was entered."""
    order = typed_order(form)
    return document_from_form(form) | ({} if order is None else {"order": order})


def perform_policy_action(policy: Policy, do: str, *, by: User) -> str:
    """Perform an action of the list and return a success message.

    Raises Conflict for an unknown action, and whatever the service raises.
    """
    if do in ("up", "down"):
        moved = services.move_policy(policy, up=do == "up", by=by)
        name = {"name": policy.name}
        if do == "up":
            return (_("“%(name)s” moved up.") if moved else _("“%(name)s” is already first.")) % name
        return (_("“%(name)s” moved down.") if moved else _("“%(name)s” is already last.")) % name
    if do in ("on", "off"):
        services.change_policy(policy, {"enabled": do == "on"}, by=by)
        return (_("“%(name)s” enabled.") if do == "on" else _("“%(name)s” disabled.")) % {"name": policy.name}
    if do == "end":
        services.end_policy(policy, by=by)
        return _("“%(name)s” deleted. Its history is kept for the calls it held.") % {"name": policy.name}
    raise Conflict(_("Unknown action. Reload the page and try again."))
