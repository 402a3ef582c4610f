"""Contexts of the policy pages: the ordered list, one policy with its editor and history, and the simulator."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import Group, User
from django.http import Http404
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _

from approvals.models import Policy, PolicyRevision
from approvals.policies import services
from approvals.policies.backtest import MAX_DAYS, BackTest, back_test, draft_of, rulebooks_for
from approvals.policies.lint import matched_levels, policy_warnings
from approvals.policies.simulator import RefusedArguments, Simulation, simulate
from approvals.policy_language.sentences import extra_terms_in_words, policy_sentence
from approvals.web.policies.forms import OPERATOR_WORDS, PolicyForm, check_form, form_from_policy, policy_of_form
from catalog.access.roles import NotAllowed, can_see_all
from catalog.core.canonical_json import parse_json
from catalog.errors import MalformedJSON, ParameterError
from catalog.inventory.selectors import LEVELS
from catalog.models import Category, Source, Tool
from catalog.schemas import ArgumentProblem, raise_for_problems
from catalog.ui.requests import parse_number

BACKTEST_DAYS = (1, 7, 30, MAX_DAYS)
NEW_POLICY_NAME = "New policy"
MAX_MENU_CHOICES = 500


@dataclass(frozen=True, slots=True)
class PolicySummary:
    """Summary of a policy form: its sentence, further requirements and a warning; empty while the form is incomplete.

    `place` describes the policy's position in the order.
    """

    sentence: str
    extra_terms: Sequence[str] = ()
    warning: str = ""
    place: str = ""


def policy_list_page(viewer: User) -> dict[str, Any]:
    """Return the context of the list. Raises NotAllowed for users without a role."""
    _require_role(viewer)
    rows = list(services.policies_for(viewer))
    ended = list(services.policies_for(viewer, ended=True))
    return _base_context(viewer) | {
        "policies": rows,
        "ended": ended,
        "unguarded": not any(map(_holds_dangerous_calls, rows)),
    }


def _holds_dangerous_calls(policy: Policy) -> bool:
    """Return True if a policy holds dangerous calls, or some of them, for approval."""
    terms = policy.revision
    is_about = terms is not None and terms.safety_level in ("", "dangerous")
    return policy.enabled and is_about and terms is not None and terms.effect == PolicyRevision.Effect.HOLD


def policy_page(viewer: User, public_id: str, form: PolicyForm | None = None) -> dict[str, Any]:
    """Return the context of one policy: form, summary and history. Raises Http404 and NotAllowed."""
    _require_role(viewer)
    policy = policy_or_404(viewer, public_id)
    if policy.revision is None:
        raise Http404
    form = form or form_from_policy(policy, policy.revision)
    shown = {
        "policy": policy,
        "form": form,
        "said": summarise_policy_form(form),
        "history": services.policy_history(policy),
    }
    return _base_context(viewer) | _choices() | shown | {"days": BACKTEST_DAYS}


def new_policy_page(viewer: User, form: PolicyForm | None = None) -> dict[str, Any]:
    """Return the context of the form for a new policy. Raises NotAllowed for users who may not create policies."""
    if not services.may_change_policy(viewer):
        raise NotAllowed("Only administrators may create policies.")
    stages = [{"group": "reviewer", "count": 1}]
    blank = PolicyRevision(effect=PolicyRevision.Effect.HOLD, stages=stages, number=0)
    if form is None:
        form = form_from_policy(Policy(name="", order=0), blank)
        form.fields["order"] = ""
    return (
        _base_context(viewer) | _choices() | {"form": form, "said": summarise_policy_form(form), "days": BACKTEST_DAYS}
    )


def simulator_page(viewer: User, asked: Mapping[str, str]) -> dict[str, Any]:
    """Return the context of the simulator, with the verdict on the call in the form, if any.

    The call is submitted by POST so that its arguments do not end up in browser histories and access logs.
    """
    _require_role(viewer)
    shown: dict[str, Any] = {"asked": asked, "tools": Tool.objects.filter(registered=True)[:MAX_MENU_CHOICES]}
    if asked.get("tool"):
        try:
            shown["found"] = _run_simulation(asked)
        except RefusedArguments as error:
            shown["refused"] = error.details["errors"]
        except ParameterError as error:
            shown["problems"] = {error.details.get("field") or "arguments": error.message}
    return _base_context(viewer) | shown


def run_backtest(viewer: User, form: PolicyForm, policy: Policy | None) -> BackTest | None:
    """Replay past calls under the form's policy; return None if the form is incomplete. Raises NotAllowed."""
    if not services.may_change_policy(viewer):
        raise NotAllowed("Only administrators may test policies on past calls.")
    form, columns = check_form(form)
    if not columns:
        return None
    days = form.fields.get("days", "")
    draft = draft_of(
        columns, name=form.fields.get("name") or NEW_POLICY_NAME, order=_effective_order(form, policy), policy=policy
    )
    enabled = policy is None or policy.enabled
    books = rulebooks_for(draft, enabled=enabled)
    return back_test(books, days=int(days) if days in map(str, BACKTEST_DAYS) else 30, before=backtest_cursor(form))


def backtest_cursor(form: PolicyForm) -> str:
    """Return the id of the call at which the next page of a back-test starts; empty for the newest."""
    return form.fields.get("do", "").partition(":")[2][:64]


def summarise_policy_form(form: PolicyForm) -> PolicySummary:
    """Return the summary of a form, and set the form's problems and warnings."""
    checked_form, columns = check_form(form)
    if not columns:
        form.problems = form.problems or checked_form.problems
        return PolicySummary("")
    draft = PolicyRevision(**columns)
    form.warnings = policy_warnings(columns)
    return PolicySummary(policy_sentence(draft), extra_terms_in_words(draft), _warning(columns), _order_sentence(form))


def _warning(columns: Mapping[str, Any]) -> str:
    if columns["effect"] != PolicyRevision.Effect.ALLOW:
        return ""
    levels = matched_levels(columns)
    if levels == {"dangerous"}:
        return _("This policy allows nothing: all matching calls are dangerous, and those always need approval.")
    if "dangerous" in levels or not levels:
        return _("Dangerous calls always need approval: for them, the next matching policy decides.")
    return ""


def _order_sentence(form: PolicyForm) -> str:
    """Return a sentence on the policy's position; policies of the same order number are sorted by age."""
    own = policy_of_form(form)
    here = (_effective_order(form, own), own.pk if own else math.inf)
    rows = Policy.objects.filter(ended_at=None).order_by("order", "pk").values_list("order", "pk", "name")
    before = [name for order, pk, name in rows if (order, pk) < here]
    after = [name for order, pk, name in rows if (order, pk) > here]
    if not before:
        return _("First, before “%(after)s”.") % {"after": after[0]} if after else ""
    if not after:
        return _("Last, after “%(before)s”.") % {"before": before[-1]}
    return _("After “%(before)s”, before “%(after)s”.") % {"before": before[-1], "after": after[0]}


def typed_order(form: PolicyForm) -> int | None:
    """Return the order number in the form: None if empty, and a number after all others if invalid."""
    text = form.fields.get("order", "").strip()
    if not text:
        return None
    number = parse_number(text, most_digits=6)
    return 10**6 if number is None else number


def _effective_order(form: PolicyForm, policy: Policy | None) -> int:
    """Return the order number; if the field is empty, a policy keeps its own and a new one comes first."""
    order = typed_order(form)
    if order is None:
        return policy.order if policy else services.BEFORE_ALL_OTHERS
    return order


def policy_or_404(viewer: User, public_id: str) -> Policy:
    """Return a policy that the viewer may read. Raises Http404."""
    try:
        return services.policy_for(viewer, public_id)
    except Policy.DoesNotExist:
        raise Http404 from None


def _run_simulation(asked: Mapping[str, str]) -> Simulation:
    try:
        arguments = parse_json(asked.get("arguments") or "{}")
    except MalformedJSON as problem:
        message = _("The arguments are not valid JSON: %(problem)s") % {"problem": problem.message}
        raise ParameterError(message) from None
    if not isinstance(arguments, dict):
        example = json.dumps({"path": "a.txt"})
        raise ParameterError(_("The arguments must be a JSON object, such as %(example)s.") % {"example": example})
    return simulate(
        asked["tool"], arguments, asked.get("requester", "").strip(), _parse_simulated_time(asked.get("at", "").strip())
    )


def _parse_simulated_time(text: str) -> datetime | None:
    """Return the time in the form, in UTC unless it has an offset; None if empty. Raises ParameterError."""
    try:
        moment = parse_datetime(text)
    except ValueError:  # well-formed, but not a valid date
        moment = None
    if text and moment is None:
        message = _("Enter a date and a time, such as 2030-01-31 18:30.")
        raise_for_problems([ArgumentProblem("at", "invalid", message)])
    return moment.replace(tzinfo=moment.tzinfo or UTC) if moment else None


def _require_role(viewer: User) -> None:
    if not can_see_all(viewer):
        raise NotAllowed("Only users with a role may read policies.")


def _base_context(viewer: User) -> dict[str, Any]:
    return {"section": "policies", "may_change": services.may_change_policy(viewer)}


def _choices() -> dict[str, Any]:
    return {
        "groups": list(Group.objects.order_by("name").values_list("name", flat=True)[:MAX_MENU_CHOICES]),
        "categories": list(Category.objects.order_by("name").values_list("name", flat=True)[:MAX_MENU_CHOICES]),
        "sources": list(Source.objects.order_by("name").values_list("name", flat=True)[:MAX_MENU_CHOICES]),
        "levels": LEVELS,
        "operators": OPERATOR_WORDS,
    }
