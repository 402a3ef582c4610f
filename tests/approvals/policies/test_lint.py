"""What a policy names that nothing is: sources are refused, all else is told under its field and may be saved."""

from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from approvals.models import Policy
from approvals.policies import services
from approvals.policies.lint import policy_warnings
from approvals.policies.terms import term_columns
from catalog.errors import ParameterError
from catalog.models import Source, Tool
from tests.approvals.factories import make_tool
from tests.pages import Pages
from tests.rest import Rest, wrong_paths

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("catalog")]
FORM = {"name": "x", "effect": "deny", "on_expiry": "fail", "do": "save"}


def warned(match: dict[str, Any] | None = None, **terms: Any) -> dict[str, str]:
    """Return the warnings about a policy with these terms."""
    return policy_warnings(term_columns({"effect": "deny", "match": match or {}} | terms))


def of(path: str) -> list[dict[str, Any]]:
    """Return conditions on one argument."""
    return [{"path": path, "operator": "exists"}]


@pytest.mark.parametrize(
    ("match", "near"),
    [
        ({"tool": "wirte_file"}, {"tool": "write_file"}),
        ({"tool": "zzz*"}, {"tool": ""}),
        ({"tool": "Write_*"}, {"tool": ""}),
        ({"category": "filesytem"}, {"category": "filesystem"}),
        ({"tool": "write_file", "safety_level": "safe"}, {"tool": ""}),
        ({"tool": "write_*", "arguments": of("contnt.0")}, {"row-0": "content"}),
        ({"requester": "group:finance"}, {"requester": ""}),
        ({"requester": "gone"}, {"requester": ""}),
    ],
)
def test_names_of_nothing_are_warned_about_at_their_field(match, near):
    """With what it may have meant."""
    Group.objects.create(name="finance")
    User.objects.create_user("gone", is_active=False)
    found = warned(match)
    assert found.keys() == near.keys()
    assert all(found[name] and meant in found[name] for name, meant in near.items())


@pytest.mark.parametrize(
    "match",
    [
        {},
        {"tool": "write_*", "safety_level": "dangerous", "category": "filesystem", "arguments": of("content.0")},
        {"requester": "group:operator"},
        {"requester": "ada"},
        {"arguments": of("content")},
    ],
)
def test_what_there_is_asks_for_no_second_look(match, ada):
    """Also where a policy is about any tool."""
    assert warned(match) == {}


def test_tools_that_were_withdrawn_are_none(ada):
    """Their rows are kept for the calls there were."""
    assert warned({"tool": "write_note"}).keys() == {"tool"}
    make_tool("write_note")
    assert warned({"tool": "write_note"}) == {}
    Tool.objects.filter(name="write_note").update(registered=False)
    assert warned({"tool": "write_note"}).keys() == {"tool"}


def test_a_plan_that_there_is(ada):
    """Asked of the layer that knows plans."""
    call = Rest(ada).post("calls/", {"tool": "write_file", "arguments": {"path": "a", "content": "x"}}).json()
    assert warned({"plan": call["plan"]}) == {}


def test_groups_too_small_to_agree_are_named(rosa, admin):
    """Administrators count as reviewers, accounts that are switched off as nobody."""
    stages = [{"group": "reviewer", "count": 2}, {"group": "finance", "count": 1}]
    group = Group.objects.create(name="finance")
    assert warned(effect="hold", stages=stages).keys() == {"stage-1"}
    User.objects.create_user("gone", is_active=False).groups.add(group)
    assert warned(effect="hold", stages=stages).keys() == {"stage-1"}
    rosa.groups.add(group)
    assert warned(effect="hold", stages=stages) == {}
    stages[0]["count"] = 3
    assert warned(effect="hold", stages=stages).keys() == {"stage-0"}
    assert warned(stages=stages) == {}


def test_an_unknown_source_is_refused_with_the_nearest(admin):
    """Where a policy is made or changed, over REST as on the page; nothing is stored."""
    body = {"name": "New tools", "effect": "deny", "match": {"source": "catalog.toolset.workspace"}}
    answer = Rest(admin).post("policies/", body)
    assert wrong_paths(answer) == ["match.source"]
    assert answer.json()["errors"][0]["code"] == "unknown"
    assert "catalog.toolsets.workspace" in answer.json()["errors"][0]["message"]
    pages = Pages(admin)
    pages.open("/policies/new/")
    sent = FORM | {"source": "catalog.toolset.workspace"}
    assert "catalog.toolsets.workspace" in pages.send("/policies/new/", sent, status=422)
    assert 'id="err-source"' in pages.html
    assert Policy.objects.count() == 3


def test_a_policy_keeps_a_source_that_is_gone(admin):
    """It can still be changed, switched off and ended; no other unknown one is taken."""
    source = Source.objects.create(name="shop")
    policy = services.create_policy({"name": "x", "effect": "deny", "match": {"source": "shop"}}, by=admin)
    source.delete()
    services.change_policy(policy, {"enabled": False, "message": "No.", "match": {"source": "shop"}}, by=admin)
    with pytest.raises(ParameterError):
        services.change_policy(policy, {"match": {"source": "shopp"}}, by=admin)


def test_the_page_of_a_policy_whose_source_is_gone_says_what_it_means(admin):
    """As it may be saved: nothing is wrong with it, on its page and while it is filled in."""
    source = Source.objects.create(name="shop")
    policy = services.create_policy({"name": "x", "effect": "deny", "match": {"source": "shop"}}, by=admin)
    source.delete()
    pages = Pages(admin)

    def assert_is_complete() -> None:
        form, said = pages.context["form"], pages.context["said"]
        assert (form.problems, form.warnings.keys()) == ({}, {"source"})
        assert said.sentence and said.place

    pages.open(f"/policies/{policy.public_id}/")
    assert_is_complete()
    pages.send("/policies/sentence/", FORM | {"source": "shop", "policy": policy.public_id})
    assert_is_complete()


def test_names_that_others_chose_are_shown_with_what_does_not_show(admin):
    """Arguments are named by whoever offers the tool."""
    version = make_tool("write_note").current_version
    assert version is not None
    version.input_schema = {"type": "object", "properties": {"cont\u202eent": {}}}
    version.save()
    pages = Pages(admin)
    pages.open("/policies/new/")
    row = {"row-0-path": "content", "row-0-operator": "exists", "row-0-value": ""}
    said = pages.send("/policies/sentence/", FORM | {"tool": "write_note"} | row)
    assert "cont U+202E ent" in said


def test_what_is_worth_a_second_look_may_be_saved(admin):
    """The editor says it again when the policy is opened."""
    pages = Pages(admin)
    pages.open("/policies/new/")
    pages.send(
        "/policies/new/", {"name": "x", "effect": "deny", "tool": "wirte_file", "on_expiry": "fail", "do": "save"}
    )
    policy = Policy.objects.get(name="x")
    said = pages.open(f"/policies/{policy.public_id}/")
    assert pages.context["form"].warnings["tool"] in said
