"""The gate: rule order, default verdicts and caching."""

from dataclasses import replace

import pytest

from approvals.models import Policy, PolicyRevision
from approvals.policies import gate as gate_module
from approvals.policies.gate import gate
from approvals.policies.rulebook import NO_HOLDING_POLICY, NO_REVIEWERS, Rulebook, ToolVerdicts
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch.pipeline import Allow, CallFacts, Deny, Hold
from tests.approvals.factories import add_policy, set_rule


def facts(level: SafetyLevel = SafetyLevel.DANGEROUS) -> CallFacts:
    """Return the facts of a call of this level."""
    return CallFacts(tool_name="t", safety_level=level, categories=(), arguments={})


@pytest.fixture(autouse=True)
def read_anew(db, monkeypatch):
    """Disable the cache of rules."""
    monkeypatch.setattr(gate_module, "_view", gate_module._View())


def test_default_verdicts_by_level():
    assert gate(facts(SafetyLevel.SAFE)) == gate(facts(SafetyLevel.CAUTIOUS)) == Allow()
    verdict = gate(facts())
    assert isinstance(verdict, Hold)
    assert (verdict.terms.quorum, verdict.terms.groups, verdict.terms.number) == (1, ("reviewer",), 1)
    assert verdict.terms.expires_seconds == 24 * 3600


def test_limits_of_the_token_come_before_the_rules():
    add_policy(1, effect="allow")
    found = gate(replace(facts(SafetyLevel.CAUTIOUS), limits={"max_level": "safe"}))
    assert isinstance(found, Deny)
    assert found.by_limits


@pytest.mark.parametrize(("order", "expected"), [(5, Deny), (15, Hold)])
def test_first_matching_rule_decides(order, expected):
    add_policy(order, effect="deny", message="Closed.")
    verdict = gate(facts())
    assert isinstance(verdict, expected)
    assert verdict == Deny("Closed.") or isinstance(verdict, Hold)


def test_allow_has_no_effect_on_a_dangerous_call():
    add_policy(5, effect="allow")
    assert isinstance(gate(facts()), Hold)


@pytest.mark.parametrize("terms", [{"effect": "allow"}, {"safety_level": "safe"}])
def test_dangerous_call_without_a_rule_is_denied(terms):
    set_rule(**terms)
    assert gate(facts()) == Deny(NO_HOLDING_POLICY)


def test_disabled_policy_is_ignored():
    policy = Policy.objects.get(order=10)
    policy.revision = PolicyRevision.objects.create(policy=policy, number=2, effect="deny", message="Second.")
    policy.save()
    assert gate(facts()) == Deny("Second.")
    gate_module.invalidate_rules()
    Policy.objects.filter(order=10).update(enabled=False)
    assert isinstance(gate(facts()), Deny)


@pytest.mark.parametrize("stages", [[], [{"group": "reviewer", "count": 0}]])
def test_rule_without_approvers_denies(stages):
    set_rule(stages=stages)
    assert gate(facts()) == Deny(NO_REVIEWERS.format(policy=Policy.objects.get(order=10).name))


def test_safe_call_can_be_held():
    add_policy(5, effect="hold", safety_level="safe", stages=[{"group": "reviewer", "count": 2}])
    verdict = gate(facts(SafetyLevel.SAFE))
    assert isinstance(verdict, Hold)
    assert verdict.terms.quorum == 2


def test_rules_are_cached_for_a_second(django_assert_num_queries, trust_for):
    trust_for(3600.0)
    with django_assert_num_queries(1):
        gate(facts())
        gate(facts(SafetyLevel.SAFE))
    trust_for(0.0)
    with django_assert_num_queries(1):
        gate(facts())


def test_stale_rules_are_reloaded_if_another_thread_hangs(monkeypatch, trust_for):
    assert isinstance(gate(facts()), Hold)
    old = gate_module._view
    add_policy(5, effect="deny")
    trust_for(0.0)
    with gate_module._reading:
        assert isinstance(gate(facts()), Hold)
        monkeypatch.setattr(gate_module, "_view", replace(old, read_at=old.read_at - gate_module.MAX_RULES_AGE_SECONDS))
        assert isinstance(gate(facts()), Deny)


def test_verdicts_are_cached_per_tool(trusted_for_long, monkeypatch):
    worked_out: list[CallFacts] = []
    verdicts_for = Rulebook.verdicts_for

    def counted(book: Rulebook, facts: CallFacts) -> ToolVerdicts:
        worked_out.append(facts)
        return verdicts_for(book, facts)

    monkeypatch.setattr(Rulebook, "verdicts_for", counted)
    for _ in range(3):
        gate(facts())
    assert worked_out == [facts()]
