"""Stages: optimal assignment of people, each counted once."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.policies.quorum import is_satisfied, unmet_stages
from approvals.policies.rulebook import rule_from_revision
from approvals.policy_language.stages import Stage, people_in_words, unfilled_stages
from tests.approvals.factories import set_rule

GROUPS = "abc"
STAGES = st.lists(st.builds(Stage, st.sampled_from(GROUPS), st.integers(0, 3)), max_size=3, unique_by=lambda s: s.group)
PEOPLE = st.lists(st.frozensets(st.sampled_from(GROUPS)), max_size=5)


def filled_at_best(stages: list[Stage], people: list[frozenset[str]]) -> int:
    """Return the maximum number of places that can be filled, by brute force."""
    counts = {stage.group: stage.count for stage in stages}
    best = 0
    for chosen in product(*[[*sorted(groups), None] for groups in people]):
        best = max(best, sum(min(chosen.count(group), count) for group, count in counts.items()))
    return best


@given(stages=STAGES, people=PEOPLE)
def test_assignment_is_optimal(stages, people):
    lacking = sum(stage.count for stage in unfilled_stages(stages, people))
    assert lacking == sum(stage.count for stage in stages) - filled_at_best(stages, people)


@given(stages=STAGES, people=PEOPLE, data=st.data())
def test_order_of_votes_does_not_matter(stages, people, data):
    other = data.draw(st.permutations(people))
    assert sum(s.count for s in unfilled_stages(stages, people)) == sum(s.count for s in unfilled_stages(stages, other))


@given(stages=STAGES, people=PEOPLE, more=st.frozensets(st.sampled_from(GROUPS)))
def test_one_more_person_never_hurts(stages, people, more):
    before = sum(stage.count for stage in unfilled_stages(stages, people))
    after = sum(stage.count for stage in unfilled_stages(stages, [*people, more]))
    assert before - 1 <= after <= before


def test_member_of_two_groups_counts_once():
    stages = [Stage("a", 1), Stage("b", 1)]
    assert unfilled_stages(stages, [frozenset("ab")]) == [Stage("b", 1)]
    assert unfilled_stages(stages, [frozenset("ab"), frozenset("a")]) == []
    assert unfilled_stages(stages, [frozenset("a"), frozenset("a")]) == [Stage("b", 1)]


@pytest.mark.django_db
def test_same_person_counts_once(rosa, tomas, rule_of_two):
    assert not is_satisfied(rule_of_two, [rosa, rosa])
    assert [stage.sentence for stage in unmet_stages(rule_of_two, [rosa, rosa])] == ["1 reviewer"]
    assert is_satisfied(rule_of_two, [rosa, tomas])


@pytest.fixture
def rule_of_two(db):
    """A rule that two reviewers satisfy."""
    return rule_from_revision(set_rule(stages=[{"group": "reviewer", "count": 2}]))


@pytest.mark.django_db
def test_rule_without_stages_is_never_satisfied(rosa):
    assert not is_satisfied(rule_from_revision(set_rule(stages=[])), [rosa])


def test_phrases_for_groups_and_roles():
    stages = [Stage("reviewer", 2), Stage("finance", 1), Stage("administrator", 1), Stage("viewer", 0)]
    assert people_in_words(stages) == "2 reviewers, 1 member of finance and 1 administrator"
    assert people_in_words([]) == "nobody"
