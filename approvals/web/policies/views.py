"""Views of policies. Administrators change them; every user with a role reads them and uses the simulator."""

from collections.abc import Callable, Sequence
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from approvals.models import Policy, PolicyRevision
from approvals.policies import services, shipped
from approvals.web.policies.forms import PolicyForm
from approvals.web.policies.pages import (
    policy_list_page,
    policy_or_404,
    policy_page,
    require_role,
    run_backtest,
    summarise_policy_form,
)
from approvals.web.policies.simulator import simulator_page
from catalog.access.roles import NotAllowed
from catalog.errors import Conflict, ParameterError, ToolgateError
from catalog.ui.requests import PageRequest, is_fragment_request, sign_in_required
from catalog.ui.toasts import ToastButton, announce

ROW_PREFIXES = {"rows": "row", "stages": "stage"}
"""Prefix of the formset to which each of these buttons adds a row."""
OPPOSITES = {"on": "off", "off": "on", "enforce": "trial", "trial": "enforce"}
"""Actions that undo each other."""


@require_safe
@sign_in_required
def policies_list(request: PageRequest) -> HttpResponse:
    return render(request, "policies/policies.html", policy_list_page(request.user))


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def new_policy(request: PageRequest) -> HttpResponse:
    """Show the form of a new policy; a POST creates it, adds a row, or tests it on past calls."""
    services.require_policy_changes(request.user)
    if request.method != "POST":
        return render(request, "policies/policy.html", policy_page(request.user, PolicyForm()))
    return _submit(request, None)


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def policy(request: PageRequest, public_id: str) -> HttpResponse:
    """Show one policy; a POST saves it, adds a row, or tests the change on past calls."""
    require_role(request.user)
    found = policy_or_404(request.user, public_id)
    if request.method != "POST":
        return render(request, "policies/policy.html", policy_page(request.user, PolicyForm(policy=found)))
    services.require_policy_changes(request.user)
    return _submit(request, found)


def _submit(request: PageRequest, policy: Policy | None) -> HttpResponse:
    """Perform the action of the pressed button; `test:CALL` continues a test with calls older than CALL."""
    do, _sep, before = request.POST.get("do", "").partition(":")
    sent: QueryDict = request.POST
    if do in ROW_PREFIXES:  # one of the buttons that add rows
        sent = request.POST.copy()
        name = f"{ROW_PREFIXES[do]}-TOTAL_FORMS"
        count = sent.get(name, "")
        sent[name] = str(int(count) + 1) if count.isascii() and count.isdecimal() and len(count) < 5 else count
    form = PolicyForm(sent, policy=policy)
    if do == "save":
        saved = _save(form, by=request.user)
        if saved is not None and policy is None:
            message = _("Policy “%(name)s” created. It applies from now on.") % {"name": saved.name}
            messages.success(request, message)
            return redirect("policies")
        if saved is not None:
            messages.success(request, _("Policy “%(name)s” saved.") % {"name": saved.name})
            return redirect("policy", saved.public_id)
    if do == "test" and is_fragment_request(request, "figures"):
        tested = run_backtest(form)
        return render(request, "policies/_figures.html", {"form": form, "tested": tested})
    shown: dict[str, Any] = policy_page(request.user, form)
    if do == "test":
        before = before[:64]
        shown |= {"tested": run_backtest(form, before=before), "tested_before": before}
    failed = do in ("save", "test") and bool(form.problems)
    return render(request, "policies/policy.html", shown, status=422 if failed else 200)


def _save(form: PolicyForm, *, by: User) -> Policy | None:
    """Create or change the policy of a form; return None after adding errors. Raises NotAllowed."""
    if not form.columns:
        return None
    try:
        if form.policy is None:
            return services.create_policy(form.document(), by=by)
        known = {"revision": form.cleaned_data["revision"] or 0}
        return services.change_policy(form.policy, form.document() | known, by=by)
    except (ParameterError, Conflict) as error:
        form.add_problems(error)
        return None


@require_POST
@sign_in_required
def policy_action(request: PageRequest, public_id: str) -> HttpResponse:
    do = request.POST.get("do", "")
    try:
        message = perform_policy_action(policy_or_404(request.user, public_id), do, by=request.user)
    except NotAllowed:
        raise
    except ToolgateError as error:
        messages.error(request, error.message)
    else:
        before = OPPOSITES.get(do)
        announce(
            request,
            message,
            ToastButton(_("Undo"), reverse("policy-act", args=[public_id]), {"do": before}) if before else None,
        )
    return redirect("policy", public_id) if do in PolicyRevision.Mode.values else redirect("policies")


@require_POST
@sign_in_required
def coding_agent_policies(request: PageRequest) -> HttpResponse:
    """Add or remove the shipped policies for coding agents; each can be undone by the other."""
    added = _("Policies for coding agents added. They apply from now on.")
    removed = _("Policies for coding agents deleted.")
    return _act_on_shipped(request, shipped.NAMES, shipped.add_coding_agent_policies, added, removed)


@require_POST
@sign_in_required
def reading_policy(request: PageRequest) -> HttpResponse:
    """Add or remove the shipped policy for calls after untrusted reading; each can be undone by the other."""
    added, removed = _("Policy added. It applies from now on."), _("Policy deleted.")
    return _act_on_shipped(request, [shipped.AFTER_READING], shipped.add_reading_policy, added, removed)


def _act_on_shipped(
    request: PageRequest, names: Sequence[str], add: Callable[..., object], added: str, removed: str
) -> HttpResponse:
    services.require_policy_changes(request.user)
    do = request.POST.get("do", "")
    try:
        if do == "add":
            add(by=request.user)
            announce(request, added, ToastButton(_("Undo"), request.path, {"do": "remove"}))
        elif do == "remove":
            shipped.remove_policies(*names, by=request.user)
            announce(request, removed, ToastButton(_("Undo"), request.path, {"do": "add"}))
        else:
            messages.error(request, _("Unknown action. Reload the page and try again."))
    except Conflict as error:
        messages.error(request, error.message)
    return redirect("policies")


@require_POST
@sign_in_required
def sentence(request: PageRequest) -> HttpResponse:
    """Show the summary of a form without saving it."""
    services.require_policy_changes(request.user)
    public_id = request.POST.get("policy", "")
    form = PolicyForm(request.POST, policy=policy_or_404(request.user, public_id) if public_id else None)
    return render(request, "policies/_saying.html", {"summary": summarise_policy_form(form), "form": form})


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def simulator(request: PageRequest) -> HttpResponse:
    """Show the verdict on a hypothetical call, sent by POST to keep its arguments out of histories and logs.

    With `?tool=` the form of a new call begins with this tool.
    """
    require_role(request.user)
    page = simulator_page(request.user, request.POST if request.method == "POST" else None, request.GET.get("tool", ""))
    shown = {"section": "policies", "may_change": services.may_change_policy(request.user), "page": page}
    if is_fragment_request(request, "found"):  # while the form is filled in: errors are shown when it is sent
        return render(request, "policies/_found.html", shown)
    template = "policies/_simulator.html" if is_fragment_request(request, "simulator") else "policies/simulator.html"
    return render(request, template, shown, status=422 if page.error_list else 200)


def perform_policy_action(policy: Policy, do: str, *, by: User) -> str:
    """Perform an action that a page of policies offers; return its message. Raises Conflict and ParameterError."""
    if do in ("up", "down"):
        moved = services.move_policy(policy, up=do == "up", by=by)
        name = {"name": policy.name}
        if do == "up":
            return (_("“%(name)s” moved up.") if moved else _("“%(name)s” is already first.")) % name
        return (_("“%(name)s” moved down.") if moved else _("“%(name)s” is already last.")) % name
    if do in ("on", "off"):
        services.change_policy(policy, {"enabled": do == "on"}, by=by)
        return (_("“%(name)s” enabled.") if do == "on" else _("“%(name)s” disabled.")) % {"name": policy.name}
    if do in PolicyRevision.Mode.values:
        services.change_policy(policy, {"mode": do}, by=by)
        return (
            _("“%(name)s” is enforced. It decides calls from now on.")
            if do == PolicyRevision.Mode.ENFORCE
            else _("“%(name)s” is on trial. It decides no call.")
        ) % {"name": policy.name}
    if do == "end":
        services.end_policy(policy, by=by)
        return _("“%(name)s” deleted. Its history is kept for the calls it held.") % {"name": policy.name}
    raise Conflict(_("Unknown action. Reload the page and try again."))
