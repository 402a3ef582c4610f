"""Edit and approve: checks of edited arguments, rounds and votes."""

import json

import pytest

from approvals.audit.verification import verify
from approvals.models import ApprovalRequest, AuditEntry, Review
from approvals.reviews.decisions import Decision, decide, revoke, undo_decision
from approvals.reviews.edits import changed_fields, check_edit
from approvals.states import ReviewVerdict
from catalog.access.roles import NotAllowed
from catalog.errors import Conflict, ParameterError, ToolError
from catalog.results import Preview
from catalog.tools import get_tool
from plans.models import Plan
from tests.approvals.factories import answer, edit, refusal_at, set_rule
from tests.builders import act, call_of, events_of, make_plan, request_of, step_of, work_off, write_step
from tests.conftest import person
from tests.invariants import assert_invariants

pytestmark = pytest.mark.django_db


@pytest.fixture
def plan(stage, ada, read_anew) -> Plan:
    """A plan whose dangerous step waits for approval, without the cache of policies."""
    stage.previews["dangerous"] = lambda value, context: Preview(f"Do {value}", "text", state_token=f"state of {value}")
    return work_off(make_plan(ada, act(1, "asked", "dangerous", expected_key="out")))


def test_call_runs_with_edited_arguments(plan, stage, rosa):
    assert edit(plan, rosa, "edited").status == "approved"
    assert work_off(plan).status == "completed"
    assert stage.values("dangerous") == ["edited"]
    assert_invariants()


def test_edit_opens_a_round_with_its_own_digest_and_preview(plan, rosa):
    before = request_of(plan)
    after = edit(plan, rosa, "edited")
    first, second = after.rounds.order_by("number")
    assert (first.digest, second.digest, second.editor) == (before.digest, after.digest, rosa)
    assert json.loads(first.arguments) == {"value": "asked"} and json.loads(second.arguments) == {"value": "edited"}
    assert second.preview_json is not None and second.preview_json["summary"] == "Do edited"
    assert (second.state_token, after.public_id) == ("state of edited", before.public_id)


def test_requester_sees_who_edited_which_arguments(plan, rosa):
    edit(plan, rosa, "edited")
    work_off(plan)
    call = call_of(plan)
    assert call.message.startswith("Edited by Rosa before it was approved: value.")  # what the model reads
    assert call.response_json["edited"] == {"by": ["Rosa"], "fields": ["value"]}
    assert call.arguments_json == {"value": "edited"}


def test_audit_log_names_fields_without_values(plan, rosa):
    edit(plan, rosa, "edited")
    entry = AuditEntry.objects.get(action="approval.edited")
    assert (entry.actor, entry.details_json["fields"]) == (rosa, ["value"])
    assert "asked" not in entry.details and verify().first_bad is None
    events = [event for event in events_of(plan) if event.startswith("1 approval.")]
    assert events == [f"1 approval.{word}" for word in ("opened", "edited", "reviewed", "decided")]


def test_invalid_arguments_name_their_path(catalog, workspace, ada, rosa):
    plan = work_off(make_plan(ada, write_step(1)))
    with pytest.raises(ParameterError) as wrong:
        answer(plan, rosa, ReviewVerdict.APPROVE, arguments={"path": 7, "content": "x"})
    assert wrong.value.details["errors"][0]["path"] == "path"
    assert (request_of(plan).round_number, Review.objects.count()) == (1, 0)


def test_edit_refused_by_the_tool_is_rejected(plan, stage, rosa):
    def refuse(value, context):
        raise ToolError("There is no such place.")

    stage.previews["dangerous"] = refuse
    with refusal_at("", "refused_by_tool"):
        edit(plan, rosa, "nowhere")
    assert (request_of(plan).round_number, Review.objects.count()) == (1, 0)


def test_edit_denied_by_a_policy_is_rejected(plan, rosa):
    set_rule(effect="deny", message="Not here.")
    with pytest.raises(Conflict) as refused:
        edit(plan, rosa, "edited")
    assert "Not here." in refused.value.message  # the policy's own words
    assert (request_of(plan).status, request_of(plan).round_number) == ("pending", 1)


def test_editor_does_not_count_in_a_larger_quorum(plan, stage, rosa, tomas, admin):
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    assert check_edit(request_of(plan), {"value": "edited"}).quorum == 2
    assert edit(plan, rosa, "edited", comment="So it is safe.").status == "pending"
    assert [each.text for each in request_of(plan).comments.all()] == ["So it is safe."]
    with pytest.raises(NotAllowed):
        answer(plan, rosa, ReviewVerdict.APPROVE)
    assert answer(plan, tomas, ReviewVerdict.APPROVE).status == "pending"


def test_rule_may_bar_the_editor(plan, rosa, tomas):
    set_rule(editor_may_approve=False)
    assert edit(plan, rosa, "edited").status == "pending"
    assert answer(plan, tomas, ReviewVerdict.APPROVE).status == "approved"


def test_edit_voids_earlier_votes(plan, rosa, tomas, ben):
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    ApprovalRequest.objects.update(policy_revision=set_rule())
    request_of(plan).rounds.update(quorum=2)
    ben.groups.add(rosa.groups.get())
    answer(plan, rosa, ReviewVerdict.APPROVE)
    edit(plan, tomas, "edited")
    assert answer(plan, ben, ReviewVerdict.APPROVE).status == "pending"
    assert answer(plan, rosa, ReviewVerdict.APPROVE).status == "approved"


def test_unchanged_arguments_are_a_plain_approval(plan, rosa):
    assert edit(plan, rosa, "asked").round_number == 1


def test_undo_reverts_the_edit(plan, rosa, settings):
    settings.TOOLGATE_UNDO_SECONDS = 60
    edit(plan, rosa, "edited", channel="page")
    undo_decision(request_of(plan), by=rosa)
    request = request_of(plan)
    assert (request.status, request.round_number, call_of(plan).arguments_json) == ("pending", 3, {"value": "asked"})
    assert request.rounds.get(number=3).state_token == "state of asked"
    assert answer(plan, rosa, ReviewVerdict.APPROVE).status == "approved"
    work_off(plan)
    assert "edited" not in call_of(plan).response_json


def test_decision_on_an_earlier_round_is_refused(plan, rosa, tomas):
    set_rule(editor_may_approve=False)
    seen = request_of(plan).digest
    edit(plan, rosa, "edited")
    with pytest.raises(Conflict):
        decide(request_of(plan), by=tomas, decision=Decision(ReviewVerdict.APPROVE, seen))
    assert (request_of(plan).status, Review.objects.count()) == ("pending", 0)


@pytest.mark.parametrize(
    ("more", "field", "code"),
    [
        ({"verdict": ReviewVerdict.REJECT, "hunks": (0,)}, "hunks", "invalid"),
        ({"verdict": ReviewVerdict.REJECT, "arguments": {"value": 1}}, "arguments", "invalid"),
        ({"verdict": ReviewVerdict.APPROVE, "arguments": {"value": 1}, "hunks": (0,)}, "arguments", "invalid"),
        ({"verdict": ReviewVerdict.APPROVE, "response": None}, "response", "invalid"),
        ({"verdict": ReviewVerdict.RESPOND}, "response", "required"),
        ({"verdict": ReviewVerdict.APPROVE, "effect": "skip"}, "effect", "invalid"),
        ({"verdict": ReviewVerdict.REJECT, "effect": "burn"}, "effect", "invalid_choice"),
        ({"verdict": ReviewVerdict.REQUEST_CHANGES, "comment": " "}, "comment", "required"),
    ],
)
def test_conflicting_fields_are_reported(plan, rosa, more, field, code):
    with refusal_at(field, code):
        answer(plan, rosa, **more)
    assert request_of(plan).status == "pending"


def test_no_edit_is_computed_for_ineligible_users(plan, stage, vera):
    stage.previews["dangerous"] = lambda value, context: 1 / 0
    with pytest.raises(NotAllowed):
        edit(plan, vera, "edited")


def test_edit_is_refused_after_a_tool_change(plan, stage, rosa):
    version = request_of(plan).tool_version
    version.pk, version.number, version.fingerprint = None, 2, "0" * 64
    version.save()
    ApprovalRequest.objects.update(tool_version=version)
    with pytest.raises(Conflict):
        check_edit(request_of(plan), {"value": "edited"})


def test_changed_fields_are_listed():
    before = {"a": 1, "b": {"c": 1, "d": [1, 2]}, "e": True}
    after = {"a": 1, "b": {"c": 2, "d": [1, 3]}, "e": 1, "f": None}
    assert changed_fields(before, after) == ("b.c", "b.d", "e", "f")
    assert changed_fields(before, dict(before)) == ()


def test_changed_fields_contain_no_hmacs():
    before, after = ({'{"$secret":"jwt#' + digit * 64 + '"}': 1} for digit in "ab")
    assert changed_fields(before, after) == ('{"$secret":"jwt"}',)


def test_edit_keeps_old_secrets_and_cuts_out_new_ones(plan, stage, rosa):
    key = "ghp_" + "a1B2c3D4e5" * 4
    edit(plan, rosa, {"key": key})
    assert key not in call_of(plan).arguments
    work_off(plan)
    assert stage.values("dangerous") == [{"key": key}]
    assert get_tool("dangerous") is not None and step_of(plan).status == "completed"


def test_editor_may_revoke(plan, rosa, tomas):
    """Editors may not approve in a larger quorum, but revoking only makes things safer."""
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    edit(plan, rosa, "edited")
    answer(plan, tomas, ReviewVerdict.APPROVE)
    answer(plan, person("third", "reviewer"), ReviewVerdict.APPROVE)
    assert revoke(request_of(plan), by=rosa).status == "revoked"
