"""Outlook on calls: its word for a tool never contradicts the rules, and it counts what an agent would be offered."""

import pytest
from django.contrib.auth.models import User
from hypothesis import given
from hypothesis import strategies as st

from approvals.grants.coverage import tools_with_grants
from approvals.models import Policy, PolicyRevision
from approvals.policies.outlook import Prospect, Prospects, outlook_for
from approvals.policies.rulebook import build_rulebook
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch.pipeline import Allow, CallFacts, Deny, Hold
from catalog.inventory.overrides import apply_overrides
from tests.approvals.factories import add_policy, grant

PERSON, OTHER = 1, 2
PEOPLE = {"ada": frozenset({PERSON}), "group:finance": frozenset({PERSON, OTHER}), "ben": frozenset({OTHER})}
CONDITIONS = [{"path": "count", "operator": "less_than", "value": 4}]
TERMS = st.fixed_dictionaries(
    {
        "effect": st.sampled_from(["allow", "hold", "deny"]),
        "tool": st.sampled_from(["", "", "send_*", "send_mail", "read"]),
        "category": st.sampled_from(["", "", "mail", "files"]),
        "safety_level": st.sampled_from(["", "", *SafetyLevel]),
        "source": st.sampled_from(["", "", "shop"]),
        "requester": st.sampled_from(["", "", *PEOPLE]),
        "plan": st.sampled_from(["", "", "", "plan_1"]),
        "conditions": st.sampled_from([[], [], CONDITIONS]),
        "stages": st.sampled_from([[{"group": "reviewer", "count": 1}], [{"group": "finance", "count": 2}]]),
    }
)
TOOLS = [
    (name, level, categories, source)
    for name in ("send_mail", "read")
    for level in SafetyLevel
    for categories in ((), ("mail",), ("mail", "files"))
    for source in ("shop", "wiki")
]


def rules_of(terms):
    """Return the rules of unsaved policies with these terms, in order."""
    revisions = [
        PolicyRevision(policy=Policy(name=f"Policy {number}"), number=1, **each) for number, each in enumerate(terms)
    ]
    return build_rulebook(revisions, PEOPLE)


@given(
    st.lists(TERMS, max_size=5),
    st.sampled_from(TOOLS),
    st.sampled_from([{}, {"count": 3}, {"count": 4}]),
    st.sampled_from(["", "plan_1"]),
)
def test_the_word_never_contradicts_the_rules(terms, tool, arguments, plan_ref):
    rules = rules_of(terms)
    name, level, categories, source = tool
    facts = CallFacts(
        tool_name=name,
        safety_level=level,
        categories=categories,
        arguments=arguments,
        requested_by=PERSON,
        plan_ref=plan_ref,
        source=source,
    )
    verdict, (prospect, people) = rules.verdict(facts), Prospects(rules).find(facts)
    if prospect is Prospect.RUNS:
        assert isinstance(verdict, Allow)
    elif prospect is Prospect.WAITS:
        assert isinstance(verdict, Hold | Deny)
    elif prospect is Prospect.REFUSED:
        assert isinstance(verdict, Deny)
    if isinstance(verdict, Hold):
        assert all(stage.sentence in people for stage in verdict.terms.stages)


@pytest.mark.django_db
def test_tools_are_counted_by_prospect_level_and_source(stage, ada: User, ben: User):
    add_policy(1, effect="hold", tool="cautious*", requester="ada", stages=[{"group": "reviewer", "count": 2}])
    add_policy(2, effect="deny", tool="private", message="No.")
    outlook = outlook_for(ada)
    words = {tool.name: tool.prospect for tool in outlook.tools}
    assert (words["safe"], words["dangerous"]) == (Prospect.RUNS, Prospect.WAITS)
    assert words["cautious"] is Prospect.WAITS and outlook_for(ben).tools != outlook.tools
    assert [tool.name for tool in outlook.refused] == ["private"]
    assert not {"ask_user", "draft_plan", "private"} & words.keys()
    assert [group.key for group in outlook.by_level] == ["safe", "cautious", "dangerous"]
    assert sum(len(group.tools) for group in outlook.by_level) == len(outlook.tools)
    assert {group.key for group in outlook.waiting} == {"1 reviewer", "2 reviewers"}
    names = {tool.name for tool in outlook_for(ada, {"max_level": "safe"}).tools}
    assert names == {tool.name for tool in outlook.tools if tool.level == "safe"}


@pytest.mark.django_db
def test_a_tool_with_a_grant_may_run(stage, ada: User, ben: User, admin: User):
    apply_overrides("dangerous", {"grantable": {"max_hours": 8, "max_uses": 20}}, by=admin)
    grant(admin)
    assert tools_with_grants(ben) == set()
    for granted, prospect in ((tools_with_grants(ada), Prospect.MAY_RUN), (frozenset(), Prospect.WAITS)):
        words = {tool.name: tool.prospect for tool in outlook_for(ada, granted=granted).tools}
        assert (words["dangerous"], words["dangerous_hasty"]) == (prospect, Prospect.WAITS)
