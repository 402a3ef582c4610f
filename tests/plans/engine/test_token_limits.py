"""Limits of tokens, by each way in which a token makes a tool run."""

import re

import pytest

from approvals.models import ApprovalRequest, AuditEntry
from catalog.access.tokens import change_token
from catalog.inventory import snapshot
from catalog.inventory.overrides import apply_overrides
from catalog.models import ApiToken, Call, CatalogState, Source, Tool
from plans.actions.change import change_plan, read_plan_change
from plans.actions.control import pause_plan, resume_plan
from plans.actions.create import PlanProblems
from plans.agents.definitions import ToolFilter
from plans.agents.tool_calls import tools_allowed
from plans.api.urls import PLAN, urlpatterns
from plans.models import Plan
from plans.store.requesters import Requester
from tests.approvals.factories import send_back
from tests.builders import act, approve, make_plan, request_of, step, step_of, work_off
from tests.plans.agents.scripted import agent_step, calls, children_of, make_agent
from tests.rest import Rest, wrong_paths

KINDS = {
    "level": {"max_level": "safe"},
    "categories": {"categories": ["open"]},
    "sources": {"sources": ["tests.tools_for_tests"]},
}


@pytest.fixture(params=KINDS)
def limits(request, stage, admin):
    """Limits of one kind that include `safe` and leave out `cautious`."""
    elsewhere = Source.objects.create(name="elsewhere")
    Tool.objects.filter(name="cautious").update(source=elsewhere)
    apply_overrides("safe", {"categories": ["open"]}, by=admin)
    apply_overrides("cautious", {"categories": ["open", "closed"]}, by=admin)
    CatalogState.objects.update(revision=100)
    snapshot.drop_snapshot()
    return KINDS[request.param]


@pytest.fixture
def rest(ada, limits):
    """The client of an agent's token with these limits."""
    rest = Rest(ada, "tools:read", "calls:create", "plans:read", "plans:write", kind="agent")
    narrow(rest.token, limits)
    return rest


def narrow(token, limits):
    """Give a token limits, as its owner does on a page."""
    change_token(token, {"limits": limits}, by=token.user)


def limited(user, limits):
    """Return the requester with a token that has these limits."""
    narrow(token := Rest(user).token, limits)
    return Requester(user, ApiToken.objects.select_related("user").get(pk=token.pk), via="rest")


def test_tools_outside_are_not_listed(rest):
    names = {tool["name"] for tool in rest.get("tools/", page_size=200).json()["results"]}
    assert "safe" in names and "cautious" not in names
    exported = {tool["name"] for tool in rest.get("tool-schemas/", provider="anthropic").json()}
    assert "safe" in exported and "cautious" not in exported
    assert rest.get("tools/safe/").status_code == 200
    for path in ("tools/cautious/", "tools/cautious/versions/", "tools/cautious/schema/?provider=json"):
        assert rest.get(path).status_code == 404, path
    assert rest.post("tools/cautious/validate/", {"arguments": {}}).status_code == 404


def test_direct_call_outside_is_refused_before_its_arguments_are_read(rest, stage):
    assert rest.post("calls/", {"tool": "safe", "arguments": {"value": 1}}).status_code == 201
    answer = rest.post("calls/", {"tool": "cautious", "arguments": {"wrong": 1}})
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:toolgate:outside_limits")
    assert stage.values("cautious") == []
    assert not Call.objects.filter(tool_name="cautious").exists()
    entry = AuditEntry.objects.get(action="limits.refused")
    assert (entry.tool_name, entry.details_json["token"]) == ("cautious", rest.token.pk)


def test_plan_with_step_outside_is_refused_at_the_step(rest):
    answer = rest.post("plans/", {"goal": "Try it", "steps": [act(1), act(2, tool="cautious")]})
    assert (answer.status_code, wrong_paths(answer)) == (422, ["steps.1.tool"])
    assert not Plan.objects.exists()


@pytest.mark.parametrize("ways", [{"max_level": "cautious"}, {"sources": ["approvals.envelopes.tool"]}])
def test_checks_tell_nothing_of_the_schema_of_a_tool_outside(ways, ada, stage):
    """Neither of a step's own tool, nor of one that an envelope is proposed for."""
    rest = Rest(ada, "calls:create", "plans:write", kind="agent")
    narrow(rest.token, ways)
    guess = [{"path": "guess", "operator": "exists"}]
    proposal = {"purpose": "x", "minutes": 5, "items": [{"tool": "dangerous", "arguments": guess, "count": 1}]}
    answer = rest.post("calls/", {"tool": "propose_envelope", "arguments": proposal})
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:toolgate:outside_limits")
    steps = [step(1, "dangerous", parameters={"guess": 1}), step(2, "propose_envelope", parameters=proposal)]
    for document in ({"goal": "x", "steps": [each]} for each in steps):
        problems = rest.post("plans/", document).json()["errors"]
        assert {problem["code"] for problem in problems} == {"outside_limits"}


def test_limits_narrowed_after_the_plan_was_made_hold_at_the_start(ada, limits, stage):
    rest = Rest(ada, "plans:read", "plans:write", kind="agent")
    answer = rest.post("plans/", {"goal": "Try it", "steps": [act(1), act(2, tool="cautious", dependencies=[1])]})
    narrow(rest.token, limits)
    plan = work_off(Plan.objects.get(public_id=answer.json()["id"]))
    assert [step_of(plan, 1).status, step_of(plan, 2).status] == ["completed", "failed"]
    assert "limits of this token" in step_of(plan, 2).error
    assert stage.values("cautious") == []


def test_limits_narrowed_while_a_call_waited_hold_after_its_approval(ada, rosa, stage):
    rest = Rest(ada, "calls:create", kind="agent")
    rest.post("calls/", {"tool": "dangerous", "arguments": {"value": 1}, "wait_seconds": 0})
    plan = Plan.objects.get()
    narrow(rest.token, {"max_level": "cautious"})
    request = approve(plan, rosa)
    work_off(plan)
    assert (step_of(plan).status, request.status) == ("failed", "approved")
    assert "limits of this token" in step_of(plan).error
    assert ApprovalRequest.objects.get().status == "invalidated"
    assert stage.values("dangerous") == []


def test_changes_retries_and_starts_through_a_token_keep_its_limits(ada, limits, stage):
    by = limited(ada, limits)
    plan = make_plan(ada, act(1), start=False, can_modify=True)
    with pytest.raises(PlanProblems):
        change_plan(plan, read_plan_change({"add": [act(2, tool="cautious")]}), by=by)
    change_plan(plan, read_plan_change({"add": [act(2, tool="cautious")]}), by=Requester(ada))
    rest = Rest(ada)
    narrow(rest.token, limits)
    assert rest.post(f"plans/{plan.public_id}/start/").status_code == 403
    assert rest.post(f"plans/{plan.public_id}/clone/").status_code == 422
    stage.acts["cautious"] = fail
    assert Rest(ada).post(f"plans/{plan.public_id}/start/").status_code == 200
    work_off(plan)
    assert rest.post(f"plans/{plan.public_id}/retry/").status_code == 403
    assert len(stage.values("cautious")) == 1


def fail(value, context):
    """Fail the call."""
    raise ValueError(value)


def test_agent_started_through_a_token_gets_only_its_tools(script, ada, limits):
    make_agent()
    script.says(calls(("safe", {"value": 1}), ("cautious", {"value": 2})), "Done.")
    rest = Rest(ada, "plans:write", kind="agent")
    narrow(rest.token, limits)
    answer = rest.post("plans/", {"goal": "Try it", "steps": [agent_step()]})
    plan = work_off(Plan.objects.get(public_id=answer.json()["id"]))
    tools = tools_allowed(ToolFilter(), Plan.objects.select_related("token", "author").get(pk=plan.pk))
    assert "safe" in tools and "cautious" not in tools
    assert plan.status == "completed"
    assert {child.tool for child in children_of(plan)} == {"agent_turn", "safe"}
    assert "may not call cautious" in script.last_results()[1]


@pytest.mark.parametrize("way", ["start", "retry", "change", "planner"])
def test_agents_of_a_plan_not_made_through_the_token_are_not_its_way_out(script, ada, limits, stage, way):
    """Their calls are made in the name of the plan's own requester, so that no limits would hold for them."""
    make_agent()
    rest = Rest(ada)
    narrow(rest.token, limits)
    script.says(calls(("cautious", {"value": 2})), "Done.")
    steps = [act(1)] if way == "change" else [agent_step()]
    plan = make_plan(ada, *steps, start=way == "retry", can_modify=True)
    if way == "change":
        answer = rest.patch(f"plans/{plan.public_id}/", {"add": [agent_step(step_id=2)]})
        assert (answer.status_code, wrong_paths(answer)) == (422, ["add.0.agent"])
        assert plan.steps.count() == 1
    else:
        if way == "planner":
            plan.steps.update(tool="plan_on", agent="")
        if way == "retry":
            plan.steps.update(status="failed")
            Plan.objects.update(status="failed")
        action = "retry" if way == "retry" else "start"
        assert rest.post(f"plans/{plan.public_id}/{action}/").status_code == 403
    assert stage.values("cautious") == []


def test_limits_bind_a_call_that_a_token_adds_to_a_plan_of_a_person(ada, limits):
    rest = Rest(ada)
    narrow(rest.token, limits)
    plan = make_plan(ada, act(1), can_modify=True)
    order = {"tool": "cautious", "arguments": {}, "plan": plan.public_id}
    assert rest.post("calls/", order).status_code == 403
    assert plan.steps.count() == 1


ACTIONS_THAT_STOP = {"pause", "cancel"}
OTHER_ACTIONS = {
    "start": {},
    "resume": {},
    "retry": {},
    "input": {"step_id": 2, "arguments": {"value": "mine"}},
    "steps/3/skip": {"reason": "Not needed"},
    "steps/2/outcome": {"verdict": "happened", "comment": "Seen"},
}


def test_actions_on_a_plan_keep_the_limits_for_each_unfinished_step(ada, rosa, stage):
    actions = {str(each.pattern).removeprefix(PLAN).strip("/") for each in urlpatterns if is_action(each)}
    known = {re.sub(r"\d", "<number:step_id>", each) for each in OTHER_ACTIONS}
    assert actions == known | ACTIONS_THAT_STOP | {"clone"}

    question = step(3, "ask_user", parameters={"question": "Really?"})
    plan = work_off(make_plan(ada, act(1), act(2, "theirs", "dangerous"), question, act(4, dependencies=[3])))
    send_back(plan, rosa, step_id=2)
    pause_plan(plan, by=Requester(ada))
    rest = Rest(ada)
    narrow(rest.token, {"max_level": "safe"})
    last = Plan.objects.get().last_seq
    answers = [rest.post(f"plans/{plan.public_id}/{action}/", body) for action, body in OTHER_ACTIONS.items()]
    answers += [
        rest.post(f"plans/{plan.public_id}/input/", {"step_id": 3, "text": "Yes"}),
        rest.post(f"plans/{plan.public_id}/retry/", {"step_id": 2, "arguments": {"unknown": 1}}),
        rest.patch(f"plans/{plan.public_id}/", {"edit": [{"step_id": 4, "description": "Otherwise"}]}),
        rest.patch(f"plans/{plan.public_id}/", {"goal": "Another"}),
    ]
    assert [answer.status_code for answer in answers] == [403] * len(answers)
    assert {answer.json()["type"] for answer in answers} == {"urn:toolgate:outside_limits"}
    assert AuditEntry.objects.filter(action="limits.refused", tool_name="dangerous").count() == len(answers)
    assert Plan.objects.get().last_seq == last

    resume_plan(plan, by=Requester(ada))  # a call may only join a plan that is not paused
    assert rest.post("calls/", {"tool": "safe", "arguments": {}, "plan": plan.public_id}).status_code == 403
    assert rest.post(f"plans/{plan.public_id}/pause/").status_code == 200
    assert rest.post(f"plans/{plan.public_id}/cancel/").status_code == 200


def is_action(route):
    """Return whether a route is for POST requests about one plan."""
    return str(route.pattern).startswith(PLAN) and "POST" in route.callback.view_class.required_scopes


def test_plan_without_its_step_outside_goes_on(ada, stage):
    plan = make_plan(ada, act(1), act(2, tool="dangerous"), start=False, can_modify=True)
    rest = Rest(ada)
    narrow(rest.token, {"max_level": "safe"})
    assert rest.patch(f"plans/{plan.public_id}/", {"remove": [2]}).status_code == 200
    assert rest.post(f"plans/{plan.public_id}/start/").status_code == 200
    assert work_off(plan).status == "completed"


def test_reviewers_edit_keeps_the_limits_of_its_token(ada, rosa, stage):
    plan = work_off(make_plan(ada, act(1, "theirs", "dangerous")))
    request = request_of(plan)
    rest, path = Rest(rosa), f"approvals/{request.public_id}/reviews/"
    narrow(rest.token, {"max_level": "safe"})
    approval = {"verdict": "approve", "seen_digest": request.digest}
    assert rest.post(path, approval | {"arguments": {"unknown": 1}}).status_code == 403
    entry = AuditEntry.objects.get(action="limits.refused")
    assert (entry.object_ref, entry.details_json["token"]) == (request.public_id, rest.token.pk)
    assert rest.post(path, approval).status_code == 201  # to decide is no call
    work_off(plan)
    assert stage.values("dangerous") == ["theirs"]


def test_preview_of_an_early_request_keeps_the_limits_of_the_reviewers_token(ada, rosa, stage):
    first, later = act(1, 1, "dangerous"), act(2, 2, "dangerous", dependencies=[1])
    plan = work_off(make_plan(ada, first, later))
    rest = Rest(rosa)
    narrow(rest.token, {"max_level": "safe"})
    answer = rest.post("approvals/slice/preview/", {"plan": plan.public_id, "count": 2}).json()
    assert (answer["results"], [each["step_id"] for each in answer["left"]]) == ([], [2])
    assert "limits of this token" in answer["left"][0]["why"]
    assert AuditEntry.objects.filter(action="limits.refused").exists()


SUGGESTS = "Did you mean"


def test_suggestions_name_no_tool_outside(ada, stage):
    narrow((rest := Rest(ada)).token, {"max_level": "safe"})
    for misspelt, suggested in (("saf", True), ("cautios", False)):
        checked = rest.post("plans/check/", {"goal": "Try it", "steps": [act(1, tool=misspelt)]}).json()
        called = rest.post("calls/", {"tool": misspelt, "arguments": {}})
        assert called.status_code == 422
        assert (SUGGESTS in str(checked), SUGGESTS in called.json()["detail"]) == (suggested, suggested)
        assert "cautious" not in f"{checked} {called.json()}"


def test_suggestions_for_a_change_name_no_tool_outside(ada, stage):
    plan = make_plan(ada, act(1), start=False, can_modify=True)
    rest = Rest(ada)
    narrow(rest.token, {"max_level": "safe"})
    answer = rest.patch(f"plans/{plan.public_id}/", {"add": [act(2, tool="cautios"), act(3) | {"tool": ["cautious"]}]})
    assert (answer.status_code, set(wrong_paths(answer))) == (422, {"add.0.tool", "add.1.tool"})
    assert "cautious" not in str(answer.json())


def test_suggestions_for_an_agent_name_only_its_tools(script, ada, stage):
    make_agent(tools={"names": ["safe"]})
    script.says(calls(("cautios", {"value": 2})), "Done.")
    work_off(make_plan(ada, agent_step()))
    assert "Unknown tool: cautios" in script.last_results()[0] and "cautious" not in script.last_results()[0]


def test_removed_tool_outside_is_unknown(rest):
    Tool.objects.filter(name__in=["safe", "cautious"]).update(registered=False)
    CatalogState.objects.update(revision=101)
    snapshot.drop_snapshot()
    assert rest.post("calls/", {"tool": "safe", "arguments": {}}).status_code == 409
    answer = rest.post("calls/", {"tool": "cautious", "arguments": {}})
    assert (answer.status_code, "elsewhere" in answer.content.decode()) == (422, False)


def test_token_with_limits_cannot_change_limits(ada):
    rest = Rest(ada)
    narrow(rest.token, {"max_level": "safe"})
    answer = rest.patch(f"tokens/{rest.token.pk}/", {"limits": None})
    assert answer.status_code == 403
    assert ApiToken.objects.get(pk=rest.token.pk).limits == {"max_level": "safe"}
