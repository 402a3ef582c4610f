"""Rules on trial: they decide nothing, and each is judged alone at its place."""

from datetime import timedelta
from typing import Any

import pytest

from approvals.models import Policy, PolicyRevision, TrialResult
from approvals.policies import services, trials
from approvals.policies.backtest import back_test, rulebooks_for
from approvals.policies.gate import gate, rules_in_force
from approvals.policies.simulator import effect_of
from catalog.core import clock
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch.pipeline import Allow, CallFacts, Deny
from tests.approvals.factories import add_policy, held_call, make_tool

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("read_anew")]
HOLD: dict[str, Any] = {"effect": "hold", "stages": [{"group": "reviewer", "count": 1}]}


def facts(**more: Any) -> CallFacts:
    """Return the facts of a cautious call, which the default policies allow."""
    fields: dict[str, Any] = {
        "tool_name": "send_mail",
        "safety_level": SafetyLevel.CAUTIOUS,
        "categories": ("mail",),
        "arguments": {"count": 3},
    }
    return CallFacts(**(fields | more))


def try_rule(order: int = 1, **terms: Any) -> PolicyRevision:
    """Put a policy on trial, by default before all others."""
    return add_policy(order, mode="trial", **terms)


def judged(**more: Any) -> list[tuple[str, str, str]]:
    """Return policy, verdict and actual verdict of each rule on trial that would decide the call."""
    found = rules_in_force().trial_verdicts(facts(**more))
    return [(each.rule.policy, effect_of(each.would), effect_of(each.was)) for each in found]


@pytest.mark.parametrize("terms", [{"effect": "deny"}, HOLD, {"effect": "allow"}])
def test_rule_on_trial_changes_no_verdict(terms):
    before = gate(facts())
    revision = try_rule(**terms)
    assert gate(facts()) == before == Allow()
    assert judged() == [(revision.policy.name, terms["effect"], "allow")]


def test_each_rule_is_judged_alone_at_its_place():
    try_rule(1, effect="deny", tool="send_*")
    try_rule(2, **HOLD)
    add_policy(3, effect="deny", tool="send_mail")
    try_rule(4, **HOLD)
    assert judged() == [("Policy 1", "deny", "deny"), ("Policy 2", "hold", "deny")]
    assert judged(tool_name="send_fax") == [
        ("Policy 1", "deny", "allow"),
        ("Policy 2", "hold", "allow"),
        ("Policy 4", "hold", "allow"),
    ]


def test_rule_after_all_others_would_decide_what_none_decides():
    PolicyRevision.objects.filter(safety_level="dangerous").update(tool="other")
    try_rule(9_999, **HOLD)
    assert judged(safety_level=SafetyLevel.DANGEROUS) == [("Policy 9999", "hold", "deny")]
    assert judged() == []


def test_rule_that_may_not_allow_a_dangerous_call_would_not_decide_it():
    try_rule(effect="allow")
    assert judged(safety_level=SafetyLevel.DANGEROUS) == []


def test_stricter_form_of_the_call_counts(ada, ben):
    """A rule that would allow the call as requested does not decide it if another person has edited it."""
    PolicyRevision.objects.filter(safety_level="cautious").update(**HOLD)
    try_rule(effect="allow", requester="ada")
    assert judged(requested_by=ada.pk, find_requesters=lambda: {ada.pk, ben.pk}) == []
    assert judged(requested_by=ada.pk, find_requesters=lambda: {ada.pk}) == [("Policy 1", "allow", "hold")]


def test_back_test_of_a_rule_on_trial_tests_it_as_if_enforced(ada):
    held_call(ada, make_tool("send_mail", "cautious"))
    revision, other = try_rule(2, **HOLD), try_rule(1, effect="deny")
    assert back_test(rulebooks_for(revision), days=1).counts == {"hold": 1}
    assert back_test(rulebooks_for(other), days=1).counts == {"deny": 1}


def test_report_counts_since_the_revision_and_names_decisions(ada, admin):
    revision = try_rule(**HOLD)
    trials.record_trials(facts(), None, now=clock.now())
    trials.record_trials(facts(), held_call(ada), now=clock.now())
    report = trials.trial_report(revision.policy)
    assert report is not None
    assert (report.since, report.held, report.allowed, report.denied) == (revision.created_at, 2, 0, 0)
    assert (report.differs, [each.call is None for each in report.calls]) == (2, [False, True])
    changed = services.change_policy(revision.policy, {"message": "Later."}, by=admin)
    report = trials.trial_report(changed)
    assert report is not None
    assert changed.revision is not None
    assert (report.total, report.since) == (0, changed.revision.created_at)
    assert trials.trial_report(services.change_policy(changed, {"mode": "enforce"}, by=admin)) is None


def test_old_rows_are_deleted_and_the_figures_say_since_when(monkeypatch):
    monkeypatch.setattr(trials, "KEPT_CALLS", 3)
    revision, now = try_rule(**HOLD), clock.now()
    PolicyRevision.objects.filter(pk=revision.pk).update(created_at=now - timedelta(days=200))
    for age in (91, 5, 4, 3, 2, 1):
        trials.record_trials(facts(), None, now=now - timedelta(days=age))
    assert trials.clear_trials(now=now) == 3
    assert trials.clear_trials(now=now) == 0
    report = trials.trial_report(Policy.objects.select_related("revision").get(pk=revision.policy_id))
    assert report is not None
    assert (report.total, report.since) == (3, TrialResult.objects.earliest("pk").at)


def test_deny_of_an_invalid_rule_on_trial_refuses_nothing():
    try_rule(effect="deny", hours="never")
    assert not isinstance(gate(facts()), Deny)
    assert judged() == [("Policy 1", "deny", "allow")]
