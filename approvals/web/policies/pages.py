"""Contexts of the policy pages: the ordered list, and one policy with its editor, summary, history and back-test."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.http import Http404
from django.utils.translation import gettext as _

from approvals.models import Policy, PolicyRevision
from approvals.policies import services, shipped
from approvals.policies.backtest import BackTest, back_test, draft_of, rulebooks_for
from approvals.policies.lint import matched_levels, policy_warnings
from approvals.policies.trials import trial_report
from approvals.policy_language.derived import DERIVED_FACTS
from approvals.policy_language.sentences import extra_terms_in_words, policy_sentence
from approvals.web.policies.forms import DEFAULT_BACKTEST_DAYS, MAX_MENU_CHOICES, PolicyForm
from catalog.access.roles import NotAllowed, can_see_all
from catalog.models import Category, Source

NEW_POLICY_NAME = "New policy"


@dataclass(frozen=True, slots=True)
class PolicySummary:
    """Summary of a policy form: its sentence, further requirements and a warning; empty while the form is incomplete.

    `place` is a sentence about the policy's position in the order.
    """

    sentence: str
    extra_terms: Sequence[str] = ()
    warning: str = ""
    place: str = ""


def policy_list_page(viewer: User) -> dict[str, Any]:
    """Return the context of the list. Raises NotAllowed for users without a role."""
    require_role(viewer)
    rows = list(services.policies_for(viewer))
    ended = list(services.policies_for(viewer, ended=True))
    return _base_context(viewer) | {
        "policies": rows,
        "ended": ended,
        "has_coding_agent_set": any(policy.name in shipped.NAMES for policy in rows),
        "has_reading_policy": any(policy.name == shipped.AFTER_READING for policy in rows),
        "unguarded": not any(
            policy.enabled
            and policy.revision is not None
            and policy.revision.mode == PolicyRevision.Mode.ENFORCE
            and policy.revision.safety_level in ("", "dangerous")
            and policy.revision.effect == PolicyRevision.Effect.HOLD
            for policy in rows
        ),
    }


def policy_page(viewer: User, form: PolicyForm) -> dict[str, Any]:
    """Return the context of one policy: form, summary and history. Raises NotAllowed for users without a role."""
    require_role(viewer)
    policy = form.policy
    history = services.policy_history(policy) if policy is not None else []
    return _base_context(viewer) | {
        "categories": list(Category.objects.order_by("name").values_list("name", flat=True)[:MAX_MENU_CHOICES]),
        "sources": list(Source.objects.order_by("name").values_list("name", flat=True)[:MAX_MENU_CHOICES]),
        "derived_facts": list(DERIVED_FACTS),
        "policy": policy,
        "form": form,
        "summary": summarise_policy_form(form),
        "history": history,
        "trial": trial_report(policy) if policy is not None and policy.ended_at is None else None,
    }


def run_backtest(form: PolicyForm, *, before: str = "") -> BackTest | None:
    """Replay past calls, older than `before`, under the form's policy; return None if the form has errors."""
    if not form.columns:
        return None
    policy = form.policy
    name = form.cleaned_data.get("name") or NEW_POLICY_NAME
    draft = draft_of(form.columns, name=name, order=_effective_order(form), policy=policy)
    books = rulebooks_for(draft, enabled=policy is None or policy.enabled)
    return back_test(books, days=form.cleaned_data["days"] or DEFAULT_BACKTEST_DAYS, before=before)


def summarise_policy_form(form: PolicyForm) -> PolicySummary:
    """Return the summary of a form, and add the form's errors and warnings to its fields."""
    columns = form.columns
    if not columns:
        return PolicySummary("")
    draft = PolicyRevision(**columns)
    form.show_warnings(policy_warnings(columns))
    warning, levels = "", matched_levels(columns)
    if columns["effect"] == PolicyRevision.Effect.ALLOW and levels == {"dangerous"}:
        warning = _("This policy allows nothing: all matching calls are dangerous, and those always need approval.")
    elif columns["effect"] == PolicyRevision.Effect.ALLOW and ("dangerous" in levels or not levels):
        warning = _("Dangerous calls always need approval: for them, the next matching policy decides.")
    return PolicySummary(policy_sentence(draft), extra_terms_in_words(draft), warning, _order_sentence(form))


def _order_sentence(form: PolicyForm) -> str:
    """Return a sentence on the policy's position; policies of the same order number are sorted by age."""
    own = form.policy
    here = (_effective_order(form), own.pk if own else math.inf)
    rows = Policy.objects.filter(ended_at=None).order_by("order", "pk").values_list("order", "pk", "name")
    before = [name for order, pk, name in rows if (order, pk) < here]
    after = [name for order, pk, name in rows if (order, pk) > here]
    if not before:
        return _("First, before “%(after)s”.") % {"after": after[0]} if after else ""
    if not after:
        return _("Last, after “%(before)s”.") % {"before": before[-1]}
    return _("After “%(before)s”, before “%(after)s”.") % {"before": before[-1], "after": after[0]}


def _effective_order(form: PolicyForm) -> int:
    """Return the order number. An empty field means the policy's own number, or the first place for a new policy."""
    order: int | None = form.cleaned_data.get("order") if form.is_bound else None
    if order is None:
        return form.policy.order if form.policy else services.BEFORE_ALL_OTHERS
    return order


def policy_or_404(viewer: User, public_id: str) -> Policy:
    """Return a policy with terms that the viewer may read. Raises Http404."""
    try:
        policy = services.policy_for(viewer, public_id)
    except Policy.DoesNotExist:
        raise Http404 from None
    if policy.revision is None:
        raise Http404
    return policy


def require_role(viewer: User) -> None:
    """Raise NotAllowed for users without a role."""
    if not can_see_all(viewer):
        raise NotAllowed("Only users with a role may read policies.")


def _base_context(viewer: User) -> dict[str, Any]:
    return {"section": "policies", "may_change": services.may_change_policy(viewer)}
