"""Defaults of arguments on their way: gate, request, edit, grant, retry, upgrade, handler."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from approvals.grants.proposals import propose_grant
from approvals.grants.services import GrantTerms, create_grant
from approvals.models import ApprovalRequest, Policy, PolicyRevision, Round
from approvals.policies.backtest import back_test, draft_of, rulebooks_for
from approvals.policies.term_checks import term_columns
from approvals.requests import lifecycle
from approvals.reviews.decisions import Decision, decide
from approvals.reviews.edits import check_edit
from approvals.states import ReviewVerdict
from catalog.inventory.overrides import apply_overrides
from catalog.models import Call
from catalog.testing import clean_registry
from catalog.tools import Preview, register_tool, registry, tool
from plans.actions.call import CallOrder, create_call
from plans.actions.clone import clone_plan
from plans.actions.retry import retry_with
from plans.models import Plan
from plans.store.requesters import Requester
from tests.builders import approve, call_of, make_plan, reject, request_of, step, step_of, work_off
from tests.catalogs import fill_catalog
from tests.invariants import assert_invariants
from tests.pages import Pages

PAID: list[Any] = []


class Entry(BaseModel):
    """One entry."""

    to: str
    amount: int = 5000


with clean_registry():

    @tool(safety_level="dangerous", reversibility="restorable")
    def pay(entries: list[Entry], memo: str = "none") -> str:
        """Pay."""
        PAID.append(([each.model_dump() for each in entries], memo))
        if memo == "fail":
            raise ValueError(memo)
        return "paid"

    @pay.preview
    def _(entries: list[Entry], memo: str = "none") -> Preview:
        return Preview(f"Pay {sum(each.amount for each in entries)}", "none")


ASKED = {"entries": [{"to": "m"}]}
FILLED = {"entries": [{"to": "m", "amount": 5000}], "memo": "none"}


@pytest.fixture(autouse=True)
def paying(catalog, admin, settings, monkeypatch):
    PAID.clear()
    let_be_granted_now(admin, settings, monkeypatch)
    yield
    registry._TOOLS.pop("pay")


def let_be_granted_now(admin, settings, monkeypatch):
    register_tool(pay)
    fill_catalog()
    settings.TOOLGATE_UNDO_SECONDS = 0
    monkeypatch.setattr("catalog.inventory.snapshot.SNAPSHOT_SECONDS", 0.0)
    apply_overrides("pay", {"grantable": {"max_hours": 8, "max_uses": 20}}, by=admin)


def ask(ada, arguments=None, **fields) -> Plan:
    return work_off(make_plan(ada, step(1, "pay", parameters=arguments or ASKED, **fields)))


def hold_large(order=1, **terms) -> None:
    rows = [{"path": "entries.0.amount", "operator": "greater_than", "value": 1000}]
    policy = Policy.objects.create(name=f"Large {order}", order=order)
    stages = [{"group": "reviewer", "count": 2}]
    fields = {"effect": "hold", "stages": stages, "conditions": rows, **terms}
    policy.revision = PolicyRevision.objects.create(policy=policy, number=1, **fields)
    policy.save()


def test_request_shows_and_binds_the_defaults_that_run(ada, rosa, tomas):
    hold_large()
    plan = ask(ada)
    request = request_of(plan)
    round_ = request.rounds.get()
    assert (round_.arguments_json, round_.default_paths) == (FILLED, ["entries.0.amount", "memo"])
    assert ((round_.preview_json or {})["summary"], round_.quorum) == ("Pay 5000", 2)
    approve(plan, rosa)
    approve(plan, tomas)
    work_off(plan)
    call = call_of(plan)
    assert (call.status, PAID) == ("completed", [(FILLED["entries"], "none")])
    assert call.response_json["parameters"] == ASKED
    assert_invariants()


def test_default_that_a_policy_denies_is_refused(ada):
    hold_large(effect="deny", stages=[])
    assert ask(ada).status == "failed"
    assert not ApprovalRequest.objects.exists() and PAID == []
    assert ask(ada, {"entries": [{"to": "m", "amount": 5}]}).status == "in_progress"


def test_edit_keeps_untouched_defaults(ada, rosa):
    plan = ask(ada)
    request = request_of(plan)
    edit = check_edit(request, {**FILLED, "memo": "thanks"})
    assert (json.loads(edit.text)["memo"], edit.fields) == ("thanks", ("memo",))
    decision = Decision(ReviewVerdict.APPROVE, request.digest, arguments={"entries": [{"to": "n"}]})
    decide(request, by=rosa, decision=decision)
    call = call_of(plan)
    assert call.default_paths == ["entries.0.amount", "memo"]
    assert Round.objects.get(request=request, number=2).defaults == call.defaults
    work_off(plan)
    assert PAID == [([{"to": "n", "amount": 5000}], "none")]
    assert_invariants()


def test_grant_needs_no_row_for_a_default_and_covers_no_other_value(ada, rosa):
    plan = ask(ada)
    approve(plan, rosa)
    work_off(plan)
    request = request_of(plan)
    proposal = propose_grant(request, rosa)
    assert proposal.rows == [{"path": "entries.0.to", "operator": "equals", "value": "m"}]
    assert proposal.history.covered == 1
    terms = GrantTerms(tool="pay", rows=proposal.rows, scope="requester", scope_ref="ada")
    create_grant(terms, by=rosa, source_request=request)
    assert ask(ada).status == "completed"
    assert ask(ada, {"entries": [{"to": "m", "amount": 1}]}).status == "in_progress"


def test_grant_must_fit_the_default_too(ada, admin):
    rows = [{"path": "entries", "operator": "exists"}, {"path": "entries.0.amount", "operator": "missing"}]
    create_grant(GrantTerms(tool="pay", rows=rows, scope="requester", scope_ref="ada"), by=admin)
    assert ask(ada).status == "in_progress"


def test_grant_for_a_requester_covers_no_step_that_another_person_changed(ada, ben, admin):
    rows = [{"path": "entries", "operator": "exists"}]
    create_grant(GrantTerms(tool="pay", rows=rows, scope="requester", scope_ref="ada"), by=admin)
    plan = make_plan(ada, step(1, "pay", parameters=ASKED))
    step_of(plan).askers.create(person=ben)
    assert work_off(plan).status == "in_progress"
    assert ask(ada).status == "completed"


def test_back_test_sees_defaults(ada):
    ask(ada)
    rows = [{"path": "entries.0.amount", "operator": "greater_than", "value": 1000}]
    columns = term_columns({"effect": "deny", "match": {"arguments": rows}})
    found = back_test(rulebooks_for(draft_of(columns, name="Draft", order=1)), days=1)
    assert dict(found.counts) == {"deny": 1}


def test_repeated_call_with_its_default_given_is_refused(ada, rosa):
    plan = ask(ada)
    reject(plan, rosa)
    work_off(plan)
    retry_with(plan, None, {"entries": [{"to": "m", "amount": 5000}]}, by=Requester(ada))
    work_off(plan)
    assert ApprovalRequest.objects.count() == 1
    assert call_of(plan).error_kind == "refused_before"


def test_retry_and_clone_fill_in_again(ada, rosa):
    created = create_call(CallOrder("pay", {"entries": [{"to": "${x}"}], "memo": "fail"}), by=Requester(ada))
    plan = Plan.objects.get(public_id=created.plan_ref)
    approve(plan, rosa)
    work_off(plan)
    assert (call_of(plan).status, step_of(plan).parameters_json) == (
        "failed",
        {"entries": [{"to": "${x}"}], "memo": "fail"},
    )
    retry_with(plan, None, {**call_of(plan).arguments_json, "memo": "again"}, by=Requester(ada))
    work_off(plan)
    assert (call_of(plan).default_paths, call_of(plan).attempt) == (["entries.0.amount"], 0)
    clone = clone_plan(plan, by=Requester(ada), start=True)
    work_off(clone)
    assert call_of(clone).default_paths == ["entries.0.amount"]
    assert call_of(clone).arguments_json["entries"] == [{"to": "${x}", "amount": 5000}]


def as_before_the_upgrade(plan: Plan) -> None:
    """Store the call and its request as they were before defaults were filled in."""
    call, text = call_of(plan), json.dumps(ASKED, separators=(",", ":"))
    Call.objects.filter(pk=call.pk).update(arguments=text, defaults=None, omitted=None)
    Round.objects.filter(request=call.approval).update(arguments=text, defaults=None, omitted=None)


def test_open_request_without_defaults_is_superseded_and_asked_again(ada, rosa):
    plan = ask(ada)
    as_before_the_upgrade(plan)
    assert lifecycle.invalidate_outdated() == 1
    work_off(plan)
    first, second = ApprovalRequest.objects.order_by("pk")
    assert (first.status, first.superseded_by, second.status) == ("superseded", second, "pending")
    assert (call_of(plan).arguments_json, call_of(plan).default_paths) == (FILLED, ["entries.0.amount", "memo"])
    assert lifecycle.invalidate_outdated() == 0


def test_approval_without_defaults_starts_nothing(ada, rosa):
    plan = ask(ada)
    approve(plan, rosa)
    as_before_the_upgrade(plan)
    work_off(plan)
    assert PAID == []
    assert [each.status for each in ApprovalRequest.objects.order_by("pk")] == ["superseded", "pending"]


def test_pages_say_which_values_are_defaults(ada, rosa):
    plan = ask(ada)
    desk = Pages(rosa).open(f"/approvals/?item={request_of(plan).public_id}")
    assert "default: entries.0.amount" in desk
    assert "· default" in desk
    operator = Pages(ada)
    assert 'memo : "none" \N{EN DASH} default' in operator.open(f"/plans/{plan.public_id}/?step=1&tab=input")
    operator.open("/tools/pay/try/")
    checked = operator.send("/tools/pay/try/", {"mode": "json", "json": json.dumps(ASKED), "do": "check"})
    assert "entries.0.amount : 5000 \N{EN DASH} default" in checked


def test_edited_value_is_not_marked_as_a_default(ada, rosa):
    """Nor in a form that is refused for another field."""
    held = request_of(ask(ada))
    page = Pages(rosa)
    page.open(f"/approvals/?item={held.public_id}&view=edit")
    assert page.html.count("default-mark") == 2
    sent = {"mode": "form", "size:entries": "1", "value:entries.0.amount": "x", "value:memo": "none", "do": "check"}
    page.send(f"/approvals/{held.public_id}/edit/", sent, status=422)
    assert page.html.count("default-mark") == 1
