"""Rules: matching, order, invalid rules and changes."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from hypothesis import given
from hypothesis import strategies as st

from approvals.models import Policy, PolicyRevision
from approvals.policies import services
from approvals.policies.gate import gate
from approvals.policies.rulebook import revisions_in_force, rule_from_revision
from approvals.policies.simulator import simulate_among
from approvals.policy_language.conditions import check_conditions, compile_conditions
from approvals.policy_language.hours import read_hours
from catalog.access.roles import NotAllowed
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch.arguments import stored_arguments
from catalog.dispatch.pipeline import Allow, CallFacts, Deny, Hold
from catalog.schemas import compile_schema
from tests.approvals.factories import rules_now

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("read_anew")]
MONDAY_NOON = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


def facts(**more: Any) -> CallFacts:
    """Return the facts of a cautious call that ada's agent makes."""
    fields: dict[str, Any] = {
        "tool_name": "send_mail",
        "safety_level": SafetyLevel.CAUTIOUS,
        "categories": ("mail", "outside"),
        "arguments": {"to": "x@us.example", "count": 3},
        "plan_ref": "plan_1",
        "source": "shop",
    }
    return CallFacts(**(fields | more))


def refuse_first(**terms: Any) -> PolicyRevision:
    """Add a denying policy before all others."""
    policy = Policy.objects.create(name="First", order=1)
    policy.revision = PolicyRevision.objects.create(policy=policy, number=1, effect="deny", message="First.", **terms)
    policy.save()
    return policy.revision


@pytest.mark.parametrize(
    ("terms", "other"),
    [
        ({"tool": "send_*"}, {"tool_name": "read_mail"}),
        ({"tool": "send_mai?"}, {"tool_name": "send_mails"}),
        ({"category": "mail"}, {"categories": ("file",)}),
        ({"safety_level": "cautious"}, {"safety_level": SafetyLevel.SAFE}),
        ({"source": "shop"}, {"source": "builtin"}),
        ({"plan": "plan_1"}, {"plan_ref": "plan_2"}),
        ({"requester": "ada"}, {"requested_by": None}),
        ({"requester": "group:operator"}, {"requested_by": None}),
        ({"conditions": [{"path": "count", "operator": "less_than", "value": 4}]}, {"arguments": {"count": 4}}),
    ],
)
def test_rule_matches_its_terms(ada, terms, other):
    refuse_first(**terms)
    told = {"requested_by": ada.pk}
    assert gate(facts(**told)) == Deny("First.")
    assert gate(facts(**(told | other))) == Allow()


def test_all_terms_must_match(ada):
    revision = refuse_first(tool="send_*", category="mail", source="shop", requester="ada", plan="plan_1")
    assert gate(facts(requested_by=ada.pk)) == Deny("First.")
    for name in ("tool", "category", "source", "plan"):
        PolicyRevision.objects.filter(pk=revision.pk).update(**{name: "other"})
        assert gate(facts(requested_by=ada.pk)) == Allow()
        PolicyRevision.objects.filter(pk=revision.pk).update(**{name: getattr(revision, name)})


AMOUNT = {"type": "object", "properties": {"to": {}, "rows": {"items": {"properties": {"amount": {"default": 5000}}}}}}
BIG = 1917043659912705296


@pytest.mark.parametrize(
    ("effect", "row", "decides"),
    [
        ("deny", ("greater_than", 1000), True),
        ("deny", ("missing", None), True),
        ("deny", ("less_than", 1000), False),
        ("allow", ("greater_than", 1000), False),
        ("allow", ("missing", None), False),
        ("allow", ("not_equals", 1), True),
    ],
)
def test_denying_rule_matches_one_form_of_the_arguments_and_allowing_rule_both(effect, row, decides):
    rows = [{"path": "rows.0.amount", "operator": row[0]} | ({} if row[1] is None else {"value": row[1]})]
    refuse_first(conditions=rows)
    PolicyRevision.objects.filter(policy__name="First").update(effect=effect)
    other = Policy.objects.create(name="Rest", order=2)
    other.revision = PolicyRevision.objects.create(policy=other, number=1, effect="deny", message="Rest.")
    other.save()
    prepared = stored_arguments(compile_schema(AMOUNT), {"to": "m", "rows": [{}]}, None)
    verdict = gate(facts(arguments=prepared.passed, prepared=prepared))
    assert (verdict != Deny("Rest.")) is decides


def test_rule_that_matches_a_default_or_an_editor_does_not_weaken_a_later_one(ada, ben):
    first = refuse_first(conditions=[{"path": "rows.0.amount", "operator": "greater_than", "value": 1000}])
    PolicyRevision.objects.filter(pk=first.pk).update(effect="hold", stages=[{"group": "Finance", "count": 1}])
    later = Policy.objects.create(name="Later", order=2)
    missing = [{"path": "rows.0.amount", "operator": "missing"}]
    later.revision = PolicyRevision.objects.create(policy=later, number=1, effect="deny", conditions=missing)
    later.save()
    prepared = stored_arguments(compile_schema(AMOUNT), {"to": "m", "rows": [{}]}, None)
    called = facts(arguments=prepared.passed, prepared=prepared)
    denied = gate(called)
    assert isinstance(denied, Deny)
    assert simulate_among(called, revisions_in_force()).verdict == denied

    PolicyRevision.objects.filter(pk=first.pk).update(conditions=[], requester="ben")
    PolicyRevision.objects.filter(policy=later).update(conditions=[], requester="ada")
    assert isinstance(gate(facts(requested_by=ada.pk, find_requesters=lambda: {ben.pk})), Deny)
    assert isinstance(gate(facts(requested_by=ben.pk, find_requesters=lambda: {ben.pk})), Hold)


def test_large_integer_is_compared_as_an_integer():
    schema = compile_schema({"type": "object", "properties": {"id": {"type": "integer"}}})
    prepared = stored_arguments(schema, {"id": str(BIG)}, "[]")
    called = facts(arguments=prepared.passed, prepared=prepared)
    rows: list[tuple[str, Any]] = [
        ("equals", str(BIG)),
        ("in", ["x", f"+{BIG}"]),
        ("greater_than", str(BIG - 1)),
        ("less_than", str(BIG + 1)),
    ]
    rows += [("greater_than", 5), ("not_equals", str(BIG + 1))]
    for operator, value in rows:
        conditions = check_conditions([{"path": "id", "operator": operator, "value": value}])
        assert all(map(compile_conditions(conditions).matches, called.argument_forms)), operator
        refused = [{"path": "id", "operator": "greater_than", "value": str(BIG)}]
        assert not compile_conditions(refused).matches(called.argument_forms[0])


def test_requester_term_matches_one_requester_or_to_allow_all(ada, ben):
    asked = {"requested_by": ada.pk, "find_requesters": lambda: {ben.pk}}
    revision = refuse_first(requester="ben")
    assert gate(facts(**asked)) == Deny("First.")
    other = Policy.objects.create(name="Rest", order=2)
    other.revision = PolicyRevision.objects.create(policy=other, number=1, effect="deny", message="Rest.")
    other.save()
    PolicyRevision.objects.filter(pk=revision.pk).update(effect="allow")
    assert gate(facts(**asked)) == Deny("Rest.")
    assert gate(facts(requested_by=ben.pk)) == Allow()


def test_requester_group_uses_current_members(ada):
    Group.objects.create(name="interns")
    refuse_first(requester="group:interns")
    assert gate(facts(requested_by=ada.pk)) == Allow()
    ada.groups.add(Group.objects.get(name="interns"))
    assert gate(facts(requested_by=ada.pk)) == Deny("First.")


HOURS = [
    ("Mon-Fri 09:00-17:00", "2026-11-23T09:00Z", "2026-11-23T17:00Z"),
    ("Mon-Fri 09:00-17:00", "2026-11-27T16:59Z", "2026-11-28T12:00Z"),
    ("Sat,Sun 00:00-24:00", "2026-11-29T23:59Z", "2026-11-30T00:00Z"),
    ("Fri-Mon 08:00-09:00", "2026-11-29T08:30Z", "2026-11-24T08:30Z"),
    ("22:00-06:00", "2026-11-25T05:59Z", "2026-11-25T06:00Z"),
    ("Fri 22:00-06:00", "2026-11-28T05:00Z", "2026-11-27T05:00Z"),
    ("Mon 09:00-10:00 Europe/Berlin", "2026-11-23T08:30Z", "2026-11-23T09:30Z"),
    ("Mon 09:00-10:00 Europe/Berlin", "2026-07-06T07:30Z", "2026-07-06T08:30Z"),
]
NO_HOURS = [
    *("9-5", "Mon-Fri", "Mon-Fri 25:00-26:00", "Mun 09:00-10:00", "09:00-09:00", " ", "Mon-Fri 09:00-24:30"),
    *("09:00-10:00 Mars/Olympus", "09:00-10:00 ../../etc/passwd"),
]


def test_hours_of_the_week():
    for text, inside, outside in HOURS:
        covered = [read_hours(text).cover(datetime.fromisoformat(moment)) for moment in (inside, outside)]
        assert covered == [True, False], text


def test_malformed_hours_are_refused():
    for text in NO_HOURS:
        with pytest.raises(ValueError):
            read_hours(text)


def test_rule_applies_in_its_hours_only():
    refuse_first(hours="Mon 11:00-13:00")
    book = rules_now()
    assert book.verdict(facts(), MONDAY_NOON) == Deny("First.")
    assert book.verdict(facts(), MONDAY_NOON.replace(hour=13)) == Allow()


@pytest.mark.parametrize("terms", [{"hours": "whenever"}, {"conditions": [{"path": "a", "operator": "like"}]}])
def test_invalid_rule_denies(terms):
    refuse_first(tool="send_*", **terms)
    verdict = gate(facts())
    assert isinstance(verdict, Deny) and verdict != Deny("First.")
    assert gate(facts(tool_name="read_mail")) == Allow()


def test_deleted_policy_is_ignored(admin):
    revision = refuse_first()
    services.end_policy(revision.policy, by=admin)
    assert gate(facts()) == Allow()
    assert rule_from_revision(revision).message == "First."


def test_allow_is_skipped_for_dangerous_calls_only():
    Policy.objects.filter(order=20).update(enabled=False)
    policy = Policy.objects.create(name="Mails run", order=1)
    policy.revision = PolicyRevision.objects.create(policy=policy, number=1, effect="allow", tool="send_*")
    policy.save()
    assert gate(facts()) == Allow()
    assert isinstance(gate(facts(safety_level=SafetyLevel.DANGEROUS)), Hold)


def test_sentences_of_policies():
    stages = [{"group": "reviewer", "count": 2}]
    amount = [{"path": "amount", "operator": "greater_than", "value": 1000}]
    sentences: dict[str, dict[str, Any]] = {
        "Dangerous calls need approval by 2 reviewers within 24 h.": {"safety_level": "dangerous", "stages": stages},
        "Calls of send_* during Mon-Fri 09:00-17:00 UTC where amount is greater than 1000 need approval by 2 "
        "reviewers within 90 min.": {
            "tool": "send_*",
            "hours": "Mon-Fri 09:00-17:00",
            "conditions": amount,
            "stages": stages,
            "expires_seconds": 5400,
        },
        "Safe calls run without approval.": {"safety_level": "safe", "effect": "allow"},
        "All calls run without approval, except dangerous ones.": {"effect": "allow"},
        "Calls requested by a member of operator are blocked: “No.”": {
            "requester": "group:operator",
            "effect": "deny",
            "message": "No.",
        },
    }
    assert {PolicyRevision(**({"effect": "hold"} | terms)).sentence: terms for terms in sentences.values()} == sentences


LEVELS = st.sampled_from(["", *SafetyLevel])
RULES = st.lists(
    st.tuples(LEVELS, st.sampled_from(["allow", "hold", "deny"]), st.sampled_from(["", "send_*", "read_*"]),
              st.sampled_from([None, 3, 5])),
    max_size=6,
)  # fmt: skip


@given(rules=RULES, level=st.sampled_from(list(SafetyLevel)), count=st.integers(2, 6))
def test_indexed_verdict_equals_sequential_evaluation(rules, level, count):
    Policy.objects.all().update(enabled=False)
    Policy.objects.filter(name__startswith="P").update(revision=None)
    expected = "deny" if level == "dangerous" else "allow"
    for number, (its_level, effect, tool, least) in reversed(list(enumerate(rules))):
        conditions = [{"path": "count", "operator": "greater_than", "value": least}] if least else []
        stages = [{"group": "reviewer", "count": 1}]
        policy, _ = Policy.objects.update_or_create(name=f"P{number}", defaults={"order": number, "enabled": True})
        last = policy.revisions.count()
        terms = {"safety_level": its_level, "effect": effect, "tool": tool, "conditions": conditions}
        policy.revision = PolicyRevision.objects.create(policy=policy, number=last + 1, stages=stages, **terms)
        policy.save()
        fits = its_level in ("", level) and tool != "read_*" and (least is None or count > least)
        if fits and not (effect == "allow" and level == "dangerous"):
            expected = effect
    verdict = rules_now().verdict(facts(safety_level=level, arguments={"count": count}))
    assert {Allow: "allow", Hold: "hold", Deny: "deny"}[type(verdict)] == expected
    assert level != "dangerous" or not isinstance(verdict, Allow)


def test_own_changes_apply_at_once(admin, trusted_for_long, django_capture_on_commit_callbacks):
    assert gate(facts()) == Allow()
    with django_capture_on_commit_callbacks(execute=True):
        made = services.create_policy({"name": "None", "order": 1, "effect": "deny", "message": "No."}, by=admin)
    assert gate(facts()) == Deny("No.")
    with django_capture_on_commit_callbacks(execute=True):
        services.change_policy(made, {"enabled": False}, by=admin)
    assert gate(facts()) == Allow()


def test_policies_swap_order(admin):
    first, second, third = Policy.objects.order_by("order")
    assert services.move_policy(third, up=True, by=admin)
    assert list(Policy.objects.order_by("order")) == [first, third, second]
    assert not services.move_policy(first, up=True, by=admin)
    assert not services.move_policy(second, up=False, by=admin)
    Policy.objects.update(order=7)
    assert services.move_policy(Policy.objects.order_by("order", "pk")[0], up=False, by=admin)
    assert list(Policy.objects.order_by("order").values_list("order", flat=True)) == [10, 20, 30]


def test_policy_without_order_comes_first(admin):
    document = {"effect": "deny", "message": "No.", "match": {"tool": "none"}}
    for name in ("One", "Two", "Three", "Four"):
        services.create_policy({"name": name, **document}, by=admin)
    Policy.objects.filter(name="Four").update(order=0)
    services.create_policy({"name": "Five", **document}, by=admin)
    names = list(Policy.objects.order_by("order", "pk").values_list("name", flat=True))
    assert names[:5] == ["Five", "Four", "Three", "Two", "One"]


@pytest.mark.parametrize("who", ["ada", "rosa", "vera"])
def test_only_administrators_may_change_policies(who, ada, rosa, vera):
    person, policy = User.objects.get(username=who), Policy.objects.get(order=10)
    for refused in (
        lambda: services.create_policy({"name": "x", "effect": "deny"}, by=person),
        lambda: services.change_policy(policy, {"enabled": False}, by=person),
        lambda: services.move_policy(policy, up=False, by=person),
        lambda: services.end_policy(policy, by=person),
    ):
        with pytest.raises(NotAllowed):
            refused()
    assert services.policies_for(person).count() == 3
