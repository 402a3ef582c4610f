"""Stages: people are put where they help most, and each counts once."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.policies.eligibility import is_satisfied, unmet_stages
from approvals.policies.rulebook import rule_from_revision
from approvals.policy_language.stages import Stage, people_in_words, unfilled_stages
from tests.approvals.factories import set_rule

GROUPS = "abc"
STAGES = st.lists(st.builds(Stage, st.sampled_from(GROUPS), st.integers(0, 3)), max_size=3, unique_by=lambda s: s.group)
PEOPLE = st.lists(st.frozensets(st.sampled_from(GROUPS)), max_size=5)


def filled_at_best(stages: list[Stage], people: list[frozenset[str]]) -> int:
    """Return how many places can be filled, by trying every way there is."""
    counts = {stage.group: stage.count for stage in stages}
    best = 0
    for chosen in product(*[[*sorted(groups), None] for groups in people]):
        best = max(best, sum(min(chosen.count(group), count) for group, count in counts.items()))
    return best


@given(stages=STAGES, people=PEOPLE)
def test_as_many_places_are_filled_as_can_be(stages, people):
    """Whoever is in several groups stands where nobody else can."""
    lacking = sum(stage.count for stage in unfilled_stages(stages, people))
    assert lacking == sum(stage.count for stage in stages) - filled_at_best(stages, people)


@given(stages=STAGES, people=PEOPLE, data=st.data())
def test_the_order_in_which_people_answer_does_not_matter(stages, people, data):
    """What is lacking is the same, place by place in number."""
    other = data.draw(st.permutations(people))
    assert sum(s.count for s in unfilled_stages(stages, people)) == sum(s.count for s in unfilled_stages(stages, other))


@given(stages=STAGES, people=PEOPLE, more=st.frozensets(st.sampled_from(GROUPS)))
def test_one_more_person_never_hurts(stages, people, more):
    """And fills one place at most."""
    before = sum(stage.count for stage in unfilled_stages(stages, people))
    after = sum(stage.count for stage in unfilled_stages(stages, [*people, more]))
    assert before - 1 <= after <= before


def test_someone_in_two_groups_counts_once():
    """And where it helps: the other stage has somebody else."""
    stages = [Stage("a", 1), Stage("b", 1)]
    assert unfilled_stages(stages, [frozenset("ab")]) == [Stage("b", 1)]
    assert unfilled_stages(stages, [frozenset("ab"), frozenset("a")]) == []
    assert unfilled_stages(stages, [frozenset("a"), frozenset("a")]) == [Stage("b", 1)]


@pytest.mark.django_db
def test_the_same_person_twice_is_one(rosa, tomas, rule_of_two):
    """However often they are named."""
    assert not is_satisfied(rule_of_two, [rosa, rosa])
    assert [stage.sentence for stage in unmet_stages(rule_of_two, [rosa, rosa])] == ["1 reviewer"]
    assert is_satisfied(rule_of_two, [rosa, tomas])


@pytest.fixture
def rule_of_two(db):
    """A rule that two reviewers satisfy."""
    return rule_from_revision(set_rule(stages=[{"group": "reviewer", "count": 2}]))


@pytest.mark.django_db
def test_a_rule_without_stages_is_never_satisfied(rosa):
    """Nobody could have agreed."""
    assert not is_satisfied(rule_from_revision(set_rule(stages=[])), [rosa])


def test_groups_that_are_no_roles_are_said_by_name():
    """Roles as people."""
    stages = [Stage("reviewer", 2), Stage("finance", 1), Stage("administrator", 1), Stage("viewer", 0)]
    assert people_in_words(stages) == "2 reviewers, 1 member of finance and 1 administrator"
    assert people_in_words([]) == "nobody"
