"""The simulator: verdict, deciding rule and reasons of skipped rules."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from approvals.models import AuditEntry, Policy
from approvals.policies import services
from approvals.policies.history import CallOrigin, History
from approvals.policies.rulebook import NO_HOLDING_POLICY, compile_match
from approvals.policies.simulator import CANNOT_ALLOW_DANGEROUS, RefusedArguments, simulate
from catalog.core import clock
from catalog.errors import ParameterError
from catalog.models import Source
from plans.demo.policies import POLICIES
from tests.approvals.factories import ARGUMENTS, held_call, make_tool
from tests.rest import Rest

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def tools(db):
    """A dangerous tool and a safe one."""
    make_tool("write_note")
    make_tool("read_note", level="safe")


def make(admin: Any, **document: Any) -> Policy:
    """Create a policy before all others."""
    return services.create_policy({"order": 1, "effect": "deny", "message": "No.", **document}, by=admin)


def test_skipped_rules_give_their_reasons(admin, ada):
    rows = [{"path": "size", "operator": "exists"}, {"path": "path", "operator": "starts_with", "value": "a/"}]
    of_tool = {"tool": "read_*", "category": "mail", "safety_level": "safe", "source": "shop"}
    Source.objects.create(name="shop")
    of_call = {"requester": "group:viewer", "plan": "plan_1", "arguments": rows}
    make(admin, name="Far off", match=of_tool | of_call)
    found = simulate("write_note", ARGUMENTS | {"path": "b", "size": 1}, "ada")
    [passed] = found.passed
    named = [("safety_level", "safe"), ("tool", "read_*"), ("category", "mail"), ("source", "shop")]
    named += [("requester", "viewer"), ("plan", ""), ("arguments", "a/")]
    assert [each.field for each in passed.reasons] == [field for field, _ in named]
    assert all(value in each.text for each, (_, value) in zip(passed.reasons, named, strict=True))
    assert found.decided is not None
    assert (found.effect, found.decided.policy.order) == ("hold", 10)


def test_ineffective_allow_is_explained(admin):
    make(admin, name="All run", effect="allow", message="")
    found = simulate("write_note", ARGUMENTS)
    assert (found.effect, found.passed[0].policy.name, found.passed[0].reasons) == (
        "hold",
        "All run",
        (CANNOT_ALLOW_DANGEROUS,),
    )
    assert simulate("read_note", ARGUMENTS).effect == "allow"


def test_default_verdict_without_a_matching_rule(admin):
    Policy.objects.update(enabled=False)
    run, refused = simulate("read_note", ARGUMENTS), simulate("write_note", ARGUMENTS)
    assert (run.effect, run.decided) == ("allow", None)
    assert (refused.effect, refused.decided, refused.sentence) == ("deny", None, NO_HOLDING_POLICY)


def test_numbers_are_normalised_as_in_calls(admin):
    make(admin, name="Two", match={"arguments": [{"path": "n", "operator": "in", "value": [2]}]})
    assert simulate("read_note", ARGUMENTS | {"n": 2.0}).effect == "deny"


def test_simulation_at_another_time(admin):
    make(admin, name="Weekend", match={"hours": "Fri 18:00-24:00 Europe/Berlin"})
    friday = datetime(2030, 2, 1, 17, 30, tzinfo=UTC)
    assert simulate("read_note", ARGUMENTS, at=friday).effect == "deny"
    earlier = simulate("read_note", ARGUMENTS, at=friday - timedelta(hours=1))
    assert (earlier.effect, len(earlier.passed[0].reasons)) == ("allow", 1)


def test_simulation_writes_nothing(django_assert_num_queries):
    before = AuditEntry.objects.count()
    simulate("write_note", ARGUMENTS)
    assert AuditEntry.objects.count() == before


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (("gone", {}), "tool"),
        (("write_note", ARGUMENTS, "nobody"), "requester"),
        (("write_note", {"x": float("nan")}), "x"),
    ],
)
def test_invalid_simulations_are_refused(asked, field):
    with pytest.raises(ParameterError) as refusal:
        simulate(*asked)
    assert refusal.value.details["field"] == field


@pytest.mark.parametrize(("tool", "requester"), [("write\x00", ""), ("write_note", "ada\x00")])
def test_names_with_null_bytes_are_unknown(tool, requester):
    with pytest.raises(ParameterError):
        simulate(tool, ARGUMENTS, requester)


@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        ({}, {"path", "content"}),
        ({"path": 5, "content": "x"}, {"path"}),
        ({"path": "a", "content": "x", "mode": {"$secret": "x"}}, {"mode"}),
        ({"path": "a", "contents": "x"}, {"contents", "content"}),
    ],
)
@pytest.mark.usefixtures("catalog")
def test_refused_arguments_reach_no_policy(arguments, paths, ada):
    with pytest.raises(RefusedArguments) as refusal:
        simulate("write_file", arguments)
    called = Rest(ada).post("calls/", {"tool": "write_file", "arguments": arguments})
    assert refusal.value.details["errors"] == called.json()["errors"]
    assert {each["path"] for each in refusal.value.details["errors"]} == paths


@pytest.mark.parametrize("path", [{}, {"path": None}, {"path": "."}])
@pytest.mark.usefixtures("catalog")
def test_denying_rule_sees_the_default(admin, path):
    make(admin, name="Named", match={"arguments": [{"path": "path", "operator": "equals", "value": "."}]})
    assert simulate("search_files", {"text": "x", **path}).effect == "deny"
    assert simulate("search_files", {"text": "x", "path": "notes"}).effect == "allow"


def test_stored_schema_is_used_if_the_code_is_not_loaded():
    with pytest.raises(RefusedArguments) as refusal:
        simulate("write_note", {"path": "a"})
    assert refusal.value.details["errors"][0]["path"] == "content"


def test_a_text_that_leads_elsewhere_is_denied_but_not_allowed(admin):
    match = {"arguments": [{"path": "path", "operator": "matches", "value": "^reports/"}]}
    arguments = ARGUMENTS | {"path": "reports/../secrets"}
    allowing = make(admin, name="Reports", effect="allow", message="", match=match)
    assert decided_by(ARGUMENTS | {"path": "reports/x"}) == allowing
    found = simulate("read_note", arguments)
    assert [each.field for each in found.passed[0].reasons] == ["arguments"]
    denying = make(admin, name="No reports", match=match)
    assert decided_by(arguments) == denying


def decided_by(arguments: dict[str, Any]) -> Policy:
    """Return the policy that decides a call of the safe tool."""
    decided = simulate("read_note", arguments).decided
    assert decided is not None
    return decided.policy


KEPT = [
    ("read_file", {"path": ".env"}),
    ("read_file", {"path": "app/.env.production"}),
    ("write_file", {"path": "tls/server.pem", "content": "x"}),
    ("propose_file_edit", {"path": ".env", "original": "a", "modified": "b", "description": "x"}),
    ("search_files", {"text": "=", "path": ".ssh/keys"}),
]


@pytest.mark.usefixtures("catalog")
@pytest.mark.parametrize(("tool", "arguments"), KEPT)
def test_policy_of_the_demo_blocks_files_with_keys(admin, tool, arguments):
    [document] = [each for each in POLICIES if each["name"] == "Files with keys are blocked"]
    services.create_policy(document, by=admin)
    assert simulate(tool, arguments).effect == "deny"
    assert simulate("read_file", {"path": "keys/readme.md"}).effect != "deny"


def test_rules_that_look_back_say_what_they_found(admin, ada):
    """They count as if the requester made the call now; nothing is stored."""
    recent, seen = {"count": 2, "seconds": 60, "by": "requester"}, {"tool": "read_note", "within": 60}
    made = make(admin, name="Second", match={"recent": recent})
    make(admin, name="After", order=2, match={"seen": seen})
    first, after = simulate("write_note", ARGUMENTS, "ada").passed
    assert [each.field for each in (*first.reasons, *after.reasons)] == ["recent", "seen"]
    call = held_call(ada)
    revision = made.revision
    assert revision is not None
    history = History(CallOrigin(requested_by=ada.pk), clock.now())
    history.answers([compile_match(revision)])
    history.keep(call, is_started=False)
    assert simulate("write_note", ARGUMENTS, "ada").effect == "deny"
