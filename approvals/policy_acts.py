"""What the pages of policies do with a form or a press of a button: carried out by `policies`, told in words."""

from typing import TYPE_CHECKING, Any

from approvals.models import Policy
from approvals.policies import services
from approvals.policy_forms import PolicyForm, document_in, refused
from approvals.policy_page import order_in
from catalog.errors import Conflict, ParameterError

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def make(form: PolicyForm, *, by: "User") -> Policy | PolicyForm:
    """Make the policy that the form says; return it, or the form with what is wrong. Raises NotAllowed."""
    try:
        return services.create(_document_in(form), by=by)
    except ParameterError as error:
        return refused(form, error)
    except Conflict as error:
        form.problems = {"": error.message}
        return form


def save(policy: Policy, form: PolicyForm, *, by: "User") -> Policy | PolicyForm:
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


def act(policy: Policy, do: str, *, by: "User") -> str:
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
