"""Warnings about names in policies that match nothing."""

from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from approvals.models import Policy
from approvals.policies import services
from approvals.policies.lint import policy_warnings
from approvals.policies.term_checks import term_columns
from catalog.errors import ParameterError
from catalog.models import Source, Tool
from tests.approvals.factories import POLICY_ROWS, make_tool
from tests.pages import Pages
from tests.rest import Rest, wrong_paths

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("catalog")]
FORM = POLICY_ROWS | {"name": "x", "effect": "deny", "on_expiry": "fail", "do": "save"}


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
def test_unknown_names_are_warned_about_at_their_field(match, near):
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
def test_known_names_have_no_warning(match, ada):
    assert warned(match) == {}


def test_withdrawn_tools_do_not_count(ada):
    assert warned({"tool": "write_note"}).keys() == {"tool"}
    make_tool("write_note")
    assert warned({"tool": "write_note"}) == {}
    Tool.objects.filter(name="write_note").update(registered=False)
    assert warned({"tool": "write_note"}).keys() == {"tool"}


def test_existing_plan_has_no_warning(ada):
    call = Rest(ada).post("calls/", {"tool": "write_file", "arguments": {"path": "a", "content": "x"}}).json()
    assert warned({"plan": call["plan"]}) == {}


def test_too_small_groups_are_warned_about(rosa, admin):
    """Administrators count as reviewers; disabled accounts do not count."""
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


def test_unknown_source_is_refused_with_a_suggestion(admin):
    body = {"name": "New tools", "effect": "deny", "match": {"source": "catalog.toolset.workspace"}}
    answer = Rest(admin).post("policies/", body)
    assert wrong_paths(answer) == ["match.source"]
    assert answer.json()["errors"][0]["code"] == "unknown"
    assert "catalog.toolsets.workspace" in answer.json()["errors"][0]["message"]
    pages = Pages(admin)
    pages.open("/policies/new/")
    sent = FORM | {"source": "catalog.toolset.workspace"}
    assert "catalog.toolsets.workspace" in pages.send("/policies/new/", sent, status=422)
    assert 'id="f-source_error"' in pages.html
    assert Policy.objects.count() == 3


def test_policy_may_keep_a_removed_source(admin):
    source = Source.objects.create(name="shop")
    policy = services.create_policy({"name": "x", "effect": "deny", "match": {"source": "shop"}}, by=admin)
    source.delete()
    services.change_policy(policy, {"enabled": False, "message": "No.", "match": {"source": "shop"}}, by=admin)
    with pytest.raises(ParameterError):
        services.change_policy(policy, {"match": {"source": "shopp"}}, by=admin)


def test_page_of_a_policy_with_a_removed_source(admin):
    source = Source.objects.create(name="shop")
    policy = services.create_policy({"name": "x", "effect": "deny", "match": {"source": "shop"}}, by=admin)
    source.delete()
    pages = Pages(admin)

    def assert_is_complete() -> None:
        form, summary = pages.context["form"], pages.context["summary"]
        assert (form.problems, form.warnings.keys()) == ([], {"source"})
        assert summary.sentence and summary.place

    pages.open(f"/policies/{policy.public_id}/")
    assert_is_complete()
    pages.send("/policies/sentence/", FORM | {"source": "shop", "policy": policy.public_id})
    assert_is_complete()


def test_hidden_characters_of_names_are_spelled_out(admin):
    version = make_tool("write_note").current_version
    assert version is not None
    version.input_schema = {"type": "object", "properties": {"cont\u202eent": {}}}
    version.save()
    pages = Pages(admin)
    pages.open("/policies/new/")
    row = {"row-0-path": "content", "row-0-operator": "exists", "row-0-value": ""}
    text = pages.send("/policies/sentence/", FORM | {"tool": "write_note"} | row)
    assert "cont U+202E ent" in text


def test_policy_with_warnings_can_be_saved(admin):
    pages = Pages(admin)
    pages.open("/policies/new/")
    pages.send("/policies/new/", FORM | {"tool": "wirte_file"})
    policy = Policy.objects.get(name="x")
    text = pages.open(f"/policies/{policy.public_id}/")
    assert pages.context["form"].warnings["tool"] in text


def test_open_host_of_a_policy_that_allows_is_warned_about():
    match = {"arguments": [{"path": "x", "operator": "exists"}, *ROW_WITHOUT_END]}

    assert "row-1" in policy_warnings(term_columns({"effect": "allow", "match": match}))
    assert "row-1" not in policy_warnings(term_columns({"effect": "deny", "message": "No.", "match": match}))


ROW_WITHOUT_END = [{"path": "host", "operator": "starts_with", "value": "api.example.com"}]


@pytest.mark.parametrize(
    ("schema", "terms", "warns"),
    [
        ({"type": "number"}, {}, True),
        ({"$ref": "#/$defs/amount"}, {}, True),
        ({"type": "number", "default": 5}, {}, False),
        ({"allOf": [{"default": 5}]}, {}, False),
        ({"type": "number"}, {"operator": "missing"}, False),
        ({"type": "number"}, {"effect": "allow"}, False),
        ({"type": "number"}, {"required": ["amount"]}, False),
    ],
)
def test_missing_case_is_proposed_where_no_default_is_known(schema, terms, warns):
    document = {"type": "object", "properties": {"amount": schema}, "$defs": {"amount": {"type": "number"}}}
    document |= {"required": terms.get("required", [])}
    version = make_tool("send_money").current_version
    assert version is not None
    type(version).objects.filter(pk=version.pk).update(input_schema=document)
    row = {"path": "amount", "operator": "greater_than", "value": 1}
    if "operator" in terms:
        row = {"path": "amount", "operator": terms["operator"]}
    found = warned({"tool": "send_money", "arguments": [row]}, effect=terms.get("effect", "deny"))
    assert ("amount missing" in found.get("row-0", "")) is warns
