"""Rules that look back: calls counted in a window, and calls of another kind that came before."""

from datetime import timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.contrib.auth.models import User

from approvals.models import ApprovalRequest, AuditEntry, CallHistory, RecentCall, TrialResult
from approvals.policies import history
from approvals.policies.history import clear_recent_calls, kept_history
from approvals.policies.rulebook import compile_match
from approvals.policies.services import change_policy
from approvals.requests.queries import earlier_calls
from approvals.reviews.decisions import Decision, decide
from approvals.states import RequestStatus, ReviewVerdict
from catalog.connections.models import Client, Connection
from catalog.core import clock
from catalog.dispatch.arguments import CallArguments
from catalog.errors import PolicyRefusal
from catalog.inventory.http_tools import create_http_tool
from catalog.models import ApiToken, Call, Category, Source, Tool
from plans.actions.call import CallOrder, create_call
from plans.actions.slices import prepare_slice
from plans.coding_agents.permissions import PermissionQuestion, ask
from plans.engine import loop
from plans.engine.loop import TimeSlice
from plans.engine.work import HeldCall, WorkItem
from plans.models import Plan
from plans.store.requesters import Requester
from tests.approvals.factories import add_policy, grant, let_be_granted
from tests.builders import act, approve, call_of, make_plan, reject, request_of, step, work_off
from tests.pages import Pages
from tests.plans.agents.scripted import agent_plan, calls, children_of, make_agent
from tests.rest import Rest

HELD = {"effect": "hold", "stages": [{"group": "reviewer", "count": 1}]}

pytestmark = pytest.mark.usefixtures("stage", "read_anew")


def third(by: str = "requester", tool: str = "cautious", **more: Any) -> Any:
    """Add a policy that holds the third call of a tool within an hour and all later ones."""
    return add_policy(1, tool=tool, recent={"count": 3, "seconds": 3600, "by": by}, **{**HELD, **more})


def call(by: User, value: Any = "x", tool: str = "cautious", **more: Any) -> Call:
    token, session = more.pop("token", None), more.pop("session", "")
    return create_call(CallOrder(tool, {"value": value}, **more), by=Requester(by, token, "rest", session))


def statuses(*calls: Call) -> list[str]:
    return [Call.objects.get(pk=each.pk).status for each in calls]


def token_of(person: User, client: str = "", registered: Client | None = None) -> ApiToken:
    """Make an agent's token, of a connection if a client is named."""
    number = ApiToken.objects.count()
    ends = clock.now() + timedelta(days=1)
    token = ApiToken.objects.create(
        name=f"t{number}", user=person, kind="agent", secret_digest=f"{number:064}", expires_at=ends
    )
    if client:
        Connection.objects.create(token=token, client=registered, client_name=client, client_host="agents.example")
    return token


def moved_back(**by: float) -> None:
    """Let everything that is counted have happened earlier."""
    for row in RecentCall.objects.all():
        RecentCall.objects.filter(pk=row.pk).update(at=row.at - timedelta(**by))


def test_calls_from_the_third_on_are_held(ada, ben, rosa):
    """Direct calls and steps of plans count together, for each requester."""
    third()
    assert statuses(call(ada), call(ben)) == ["created", "created"]
    plan = work_off(make_plan(ada, act(1, "y", "cautious"), act(2, "z", "cautious")))
    assert statuses(call_of(plan, 1), call_of(plan, 2)) == ["completed", "held"]
    last = call(ada)
    assert (last.status, call(ben).status) == ("held", "created")
    [finding] = CallHistory.objects.get(call=last).findings
    assert (finding["fits"], finding["count"], len(finding["calls"])) == (True, 4, 3)


def test_calls_counted_under_the_old_and_the_new_key_count_together(ada, settings):
    third()
    first = call(ada)
    rotate_keys(settings)
    assert statuses(first, call(ada), call(ada)) == ["created", "created", "held"]


def rotate_keys(settings: Any) -> None:
    settings.TOOLGATE_SECRET_KEYS = [Fernet.generate_key().decode(), *settings.TOOLGATE_SECRET_KEYS]


def test_findings_are_kept_when_a_new_key_comes_first(ada, rosa, settings):
    """Neither is the approved call judged again, nor does it count itself."""
    add_policy(2, tool="cautious", effect="hold", stages=HELD["stages"])
    third(effect="deny", stages=[])
    plan = work_off(make_plan(ada, act(1, "x", "cautious")))
    call(ada)
    approve(plan, rosa)
    rotate_keys(settings)
    work_off(plan)
    assert call_of(plan).status == "completed"
    assert RecentCall.objects.filter(call=call_of(plan)).count() == 1


def test_own_row_of_a_call_is_not_counted(ada):
    third()
    held = [call(ada) for _ in range(3)][-1]
    CallHistory.objects.all().delete()
    rule = compile_match(held.approval.policy_revision)
    assert (
        kept_history(held, CallArguments({"value": "x"}), now=clock.now()).answers([rule])[rule.revision_id].count == 3
    )


def test_renamed_client_stays_the_same(ada):
    """Connections have the name of their consent. Counts and earlier calls agree on which client made a call."""
    third("token")
    add_policy(2, tool="cautious", seen={"tool": "safe", "within": 3600}, effect="deny", message="After reading.")
    registered = Client.objects.create(client_id="c1", name="Agent")
    before = token_of(ada, "Agent", registered)
    by_name = token_of(ada, "Agent")  # registered anew, its old registration is gone
    after, other = token_of(ada, "Renamed", registered), token_of(ada, "Other")
    read(ada, token=by_name)
    for token in (before, after):
        with pytest.raises(PolicyRefusal, match="After reading"):
            call(ada, token=token)
    assert call(ada, token=other).status == "created"


def test_calls_of_a_renamed_client_count_together(ada, ben):
    third("token")
    registered = Client.objects.create(client_id="c1", name="Agent")
    before, after = token_of(ada, "Agent", registered), token_of(ada, "Renamed", registered)
    anew = token_of(ada, "Renamed")
    assert statuses(*(call(ada, token=token) for token in (before, after, anew))) == ["created", "created", "held"]
    assert call(ben, token=token_of(ben, "Agent", registered)).status == "created"


def test_earlier_calls_under_an_old_key_are_shown_to_reviewers(ada, settings):
    third()
    first = call(ada)
    rotate_keys(settings)
    second, held = call(ada), call(ada)
    assert CallHistory.objects.get(call=held).findings[0]["calls"] == [second.pk, first.pk]


def test_denied_call_is_refused_and_not_counted(ada):
    third(effect="deny", stages=[], message="Too many.")
    call(ada), call(ada)
    for _ in range(2):
        with pytest.raises(PolicyRefusal, match="Too many"):
            call(ada)
    assert RecentCall.objects.count() == 2
    plan = work_off(make_plan(ada, act(1, "y", "cautious")))
    assert plan.status == "failed"


@pytest.mark.parametrize(
    ("by", "values", "held"),
    [
        ("tool", ["a", "b", "c"], [False, False, True]),
        ("plan", ["a", "b", "c"], [False, False, False]),
        ("argument:value.to", [{"to": 1}, {"to": 2}, {"to": 1}, {"to": 1}, {"to": True}], [False] * 3 + [True, False]),
        ("argument:value.to", [{"to": None}, {"to": [1]}, "x", {"to": "x"}], [False, False, True, False]),
    ],
)
def test_calls_are_counted_by_a_value(by, values, held, ada):
    """Calls without a text, number or truth value at the path are counted together."""
    third(by)
    assert [call(ada, value).status == "held" for value in values] == held


LARGE = 10**21


@pytest.mark.parametrize(
    ("argument", "first", "again"),
    [
        ("amount", {"amount": 5}, {"amount": 5.0}),
        ("amount", {"amount": LARGE}, {"amount": str(LARGE)}),
        ("amount", {"amount": str(LARGE)}, {"amount": f"+0{LARGE}"}),
        ("kind", {"kind": "all"}, {}),
    ],
)
def test_forms_of_one_value_are_counted_together(argument, first, again, ada, admin):
    """A tool that is called over HTTP gets its arguments as given, without the default."""
    properties = {"amount": {"type": "integer"}, "kind": {"type": "string", "default": "all"}}
    schema = {"type": "object", "properties": properties}
    specification = {"name": "spend", "description": "Spend an amount.", "schema": schema}
    http = {"method": "POST", "url": "https://shop.invalid/"}
    create_http_tool(specification, http, safety_level="cautious", by=admin)
    add_policy(1, tool="spend", recent={"count": 2, "seconds": 3600, "by": f"argument:{argument}"}, **HELD)
    orders = [CallOrder("spend", arguments) for arguments in (first, again)]
    assert statuses(*(create_call(order, by=Requester(ada)) for order in orders)) == ["created", "held"]


def test_connections_of_one_client_are_counted_together(ada, ben):
    third("token")
    first, again, other = token_of(ada, "Agent"), token_of(ada, "Agent"), token_of(ada, "Other")
    calls = [call(ada, token=token) for token in (first, again, other, first, again, token_of(ada))]
    assert [each.status == "held" for each in calls] == [False, False, False, True, True, False]
    assert call(ada).status == "created"  # without a token, the person's calls are counted


def test_rejected_call_is_no_longer_counted(ada, rosa):
    """It has neither started nor does it wait; an approved one counts from its start."""
    add_policy(2, tool="cautious", conditions=[{"path": "value", "operator": "equals", "value": "no"}], **HELD)
    third(effect="deny", stages=[])
    plan = work_off(make_plan(ada, act(1, "no", "cautious")))
    call(ada)
    with pytest.raises(PolicyRefusal):
        call(ada)
    reject(plan, rosa)
    assert call(ada).status == "created"


def test_changed_rule_counts_from_its_own_beginning(ada, admin):
    revision = third()
    call(ada), call(ada)
    change_policy(revision.policy, {"message": "Slower."}, by=admin)
    assert [call(ada).status for _ in range(3)] == ["created", "created", "held"]


def test_approved_call_runs_although_the_window_has_moved(ada, rosa):
    """It was judged once; the approval stays valid, and the call counts again from its start."""
    third(tool="dangerous", expires_seconds=7200)
    plans = [work_off(make_plan(ada, act(1, str(number), "dangerous"))) for number in range(3)]
    revision = request_of(plans[2]).policy_revision
    assert revision.recent is not None
    assert request_of(plans[0]).policy_revision.recent is None
    moved_back(hours=2)
    approve(plans[2], rosa)
    work_off(plans[2])
    assert call_of(plans[2]).status == "completed"
    assert RecentCall.objects.get(call=call_of(plans[2])).at > clock.now() - timedelta(minutes=5)
    approve(plans[0], rosa)  # held by another rule; this one found that it does not fit, whatever came since
    work_off(plans[0])
    assert call_of(plans[0]).status == "completed"


def test_edited_call_is_judged_by_its_new_value(ada, rosa):
    third("argument:value", tool="dangerous", stages=[{"group": "reviewer", "count": 2}])
    for _ in range(2):
        call(ada, "often", "dangerous")
    plan = work_off(make_plan(ada, act(1, "once", "dangerous")))
    request = request_of(plan)
    assert request.policy_revision.recent is None
    decide(request, by=rosa, decision=Decision(ReviewVerdict.APPROVE, request.digest, arguments={"value": "often"}))
    request = request_of(plan)
    assert (request.policy_revision.recent is not None, request.status) == (True, RequestStatus.PENDING)
    assert RecentCall.objects.filter(call=call_of(plan)).count() == 2


def test_early_request_counts_while_it_waits(ada, rosa):
    third(tool="dangerous")
    plan = make_plan(ada, act(1, "a"), act(2, "b", "dangerous", dependencies=[1]))
    prepare_slice(plan, 1, by=rosa)
    call(ada, "c", "dangerous")
    assert call(ada, "d", "dangerous").approval.policy_revision.recent is not None
    approve(plan, rosa, 2)
    assert work_off(plan).status == "completed"


def test_retried_call_is_counted_once(ada, stage):
    """Further attempts of the same call are the same call."""
    third(tool="cautious_patient")
    tries: list[int] = []

    def fail_once(value: Any, context: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("once more")
        return value

    stage.acts["cautious_patient"] = fail_once
    plan = work_off(make_plan(ada, act(1, "x", "cautious_patient")))
    assert call(ada, tool="cautious_patient").status == "created"
    assert RecentCall.objects.filter(call__step__plan=plan).count() == 1


def test_calls_that_a_client_runs_are_counted_from_their_allowance(ada):
    """A call that was handed out counts; the same question again is the same call."""
    reads = [{"path": "command.effects", "operator": "in", "value": ["reads"]}]
    add_policy(2, tool="Read*", conditions=reads, effect="allow")
    third("token", tool="Read*", expires_seconds=7200)
    by = Requester(ada, token_of(ada, "Agent"), "rest", "s1")

    def question(path: str) -> str:
        asked = PermissionQuestion("claude-code", "s1", "Read", {"file_path": path}, call_id=path, cwd="/srv")
        return str(ask(asked, by=by).decision)

    assert [question(path) for path in ("a", "b", "b", "a")] == ["allow"] * 4
    assert question("c") == "wait"
    assert RecentCall.objects.count() == 3
    moved_back(hours=2)
    assert question("d") == "allow"


def test_calls_of_an_agents_turn_are_counted_one_by_one(script, ada, stage):
    third("plan")
    make_agent()
    script.says(calls(*(("cautious", {"value": number}) for number in range(4))), "Done.")
    plan = work_off(agent_plan(ada))
    made = [each.call.status for each in children_of(plan) if each.tool == "cautious" and each.call]
    assert sorted(made) == ["completed", "completed", "held", "held"]


def test_step_whose_count_is_busy_is_given_back_and_claimed_anew(ada, monkeypatch):
    """After the lock of the audit log, a transaction does not wait for the lock of a count."""
    third(tool="dangerous")
    waits: list[bool] = []
    monkeypatch.setattr(history, "lock_all_until_commit", lambda *_, waits: waits_for(waits))

    def waits_for(may_wait: bool) -> bool:
        waits.append(may_wait)
        return may_wait

    plan = work_off(make_plan(ada, step(1, None), act(2, "x", "dangerous")))
    assert waits[:2] == [False, True]
    assert call_of(plan, 2).status == "held"
    assert RecentCall.objects.count() == 1


def test_refused_calls_are_judged_on_trial_and_not_counted(ada, rosa):
    """Neither a denied call nor one that is rejected like an earlier one takes part in a count."""
    revision = third(tool="*", mode="trial")
    add_policy(2, tool="cautious", effect="deny")
    for _ in range(3):
        with pytest.raises(PolicyRefusal):
            call(ada)
    plan = work_off(make_plan(ada, act(1, "x", "dangerous"), act(2, "y", "dangerous")))
    reject(plan, rosa, 1)
    assert statuses(call(ada, "x", "dangerous", plan_ref=plan.public_id)) == ["failed"]
    call(ada, tool="safe")
    results = TrialResult.objects.filter(revision=revision).order_by("pk").values_list("tool_name", "would", "was")
    assert not results
    call(ada, tool="safe")
    with pytest.raises(PolicyRefusal):
        call(ada)
    assert list(results.all()) == [("safe", "hold", "allow"), ("cautious", "hold", "deny")]


@pytest.fixture
def previewed(ada, admin, settings, monkeypatch) -> HeldCall:
    """A direct call that a grant let be stored, claimed and about to be previewed."""
    let_be_granted(admin, settings, monkeypatch)
    grant(admin)
    made = call(ada, tool="dangerous")
    work = loop.claim_work(Plan.objects.get(public_id=made.plan_ref).pk, owner="tests")
    assert isinstance(work, HeldCall)
    assert work.call == made
    return work


def after_its_preview(work: HeldCall) -> Call:
    """Do the rest of a call that is about to be previewed."""
    following: WorkItem | None = work
    while following is not None:
        following = loop.advance(following, TimeSlice("tests", until=float("inf"), steps_left=1000))
    return Call.objects.get(step=work.step.pk)


FIRST = {"count": 1, "seconds": 60, "by": "tool"}


def test_rule_that_came_during_its_preview_refuses_a_stored_call(previewed, stage):
    add_policy(1, tool="dangerous", recent=FIRST, effect="deny", message="No.")
    made = after_its_preview(previewed)
    assert (made.status, stage.values("dangerous")) == ("failed", [])
    assert made.message.startswith("No.")
    assert AuditEntry.objects.filter(action="policy.refused").count() == 1


def test_rule_that_came_during_its_preview_holds_a_stored_call(previewed, stage):
    stages = [{"group": "reviewer", "count": 2}]  # more than a grant stands for
    revision = add_policy(1, tool="dangerous", recent=FIRST, **HELD | {"stages": stages})
    made = after_its_preview(previewed)
    assert (made.status, made.approval.policy_revision, stage.values("dangerous")) == ("held", revision, [])


def test_safe_call_does_not_run_before_it_is_judged(executor, ada, stage):
    add_policy(1, tool="safe", recent={"count": 2, "seconds": 60, "by": "tool"}, **HELD)
    assert call(ada, tool="safe").status != "held"
    assert call(ada, tool="safe").status == "held"
    assert len(stage.values("safe")) <= 1


def test_without_such_rules_nothing_is_stored(ada):
    third(tool="dangerous")
    call(ada)
    assert (RecentCall.objects.count(), CallHistory.objects.count()) == (0, 0)


def test_counted_calls_are_cleared_when_no_window_reaches_them(ada):
    third()
    call(ada), call(ada)
    assert clear_recent_calls(now=clock.now()) == 0
    moved_back(hours=1)
    assert clear_recent_calls(now=clock.now()) == 2


# Rules with `seen`


def after_reading(**seen: Any) -> Any:
    """Add a policy that holds cautious calls after a call of the tool `safe`, or of what is named, within an hour."""
    return add_policy(1, tool="cautious", seen={**(seen or {"tool": "safe"}), "within": 3600}, **HELD)


def read(by: User, **more: Any) -> Call:
    """Let someone make a call of the tool `safe`, and run it."""
    made = call(by, tool="safe", **more)
    work_off(Plan.objects.get(public_id=made.plan_ref))
    assert Call.objects.get(pk=made.pk).status == "completed"
    return made


def test_call_after_another_kind_is_held(ada, ben):
    after_reading()
    assert call(ada).status == "created"
    first = read(ada)
    held = call(ada)
    assert (held.status, call(ben).status) == ("held", "created")
    assert CallHistory.objects.get(call=held).findings[0]["calls"] == [first.pk]
    Call.objects.filter(pk=first.pk).update(finished_at=clock.now() - timedelta(hours=2))
    assert call(ada).status == "created"


@pytest.mark.parametrize("kind", ["category", "source"])
def test_kind_is_that_of_the_tool_now(kind, ada):
    tool = Tool.objects.get(name="safe")
    tool.categories.set([Category.objects.get_or_create(name="web")[0]])
    after_reading(**{kind: "web" if kind == "category" else Source.objects.get(tools=tool).name})
    read(ada)
    assert call(ada).status == "held"


def test_another_session_or_connection_does_not_help(ada):
    """A new connection of the same client and person inherits; another token of the person does not."""
    after_reading()
    first, again, other = token_of(ada, "Agent"), token_of(ada, "Agent"), token_of(ada, "Other")
    read(ada, token=first, session="one")
    assert call(ada, token=first, session="two").status == "held"
    assert call(ada, token=again).status == "held"
    assert call(ada, token=other).status == "created"
    assert call(ada, token=other, session="one").status == "held"
    assert call(ada).status == "held"  # the person


def test_step_after_a_step_of_the_same_plan_is_held(ada):
    after_reading()
    plan = work_off(make_plan(ada, act(1, "a"), act(2, "b", "cautious", dependencies=[1])))
    assert call_of(plan, 2).status == "held"


def test_calls_that_failed_count_and_those_that_never_ran_do_not(ada, rosa, stage):
    after_reading(tool="dangerous")
    plan = work_off(make_plan(ada, act(1, "x", "dangerous")))
    reject(plan, rosa)
    assert call(ada).status == "created"

    def fail(value: Any, context: Any) -> None:
        raise ValueError("broken")

    stage.acts["dangerous"] = fail
    plan = work_off(make_plan(ada, act(1, "y", "dangerous")))
    approve(plan, rosa)
    work_off(plan)
    assert call_of(plan).status == "failed"
    assert call(ada).status == "held"


def test_calls_of_a_client_count_from_their_allowance(ada):
    add_policy(
        0, tool="Read*", conditions=[{"path": "command.effects", "operator": "in", "value": ["reads"]}], effect="allow"
    )
    question = PermissionQuestion("claude-code", "s1", "Read", {"file_path": "/srv/a.txt"}, call_id="c1", cwd="/srv")
    answer = ask(question, by=Requester(ada))
    assert answer.decision == "allow", answer
    add_policy(1, tool="cautious", seen={"source": "claude-code", "within": 60}, **HELD)
    assert call(ada).status == "held"


def test_rule_on_trial_records_what_would_have_waited(ada):
    revision = after_reading_on_trial()
    assert call(ada).status == "created"
    read(ada)
    assert call(ada).status == "created"
    results = TrialResult.objects.filter(revision=revision).values_list("tool_name", "would", "was")
    assert list(results) == [("cautious", "hold", "allow")]


def after_reading_on_trial() -> Any:
    return add_policy(1, tool="cautious", seen={"tool": "safe", "within": 3600}, mode="trial", **HELD)


def test_agent_that_has_read_waits_with_its_next_call(script, ada):
    """Its calls are steps of one plan, whatever turn they belong to."""
    after_reading()
    make_agent()
    script.says(calls(("cautious", {"value": 1})), calls(("safe", {"value": 2})), calls(("cautious", {"value": 3})))
    plan = work_off(agent_plan(ada))
    made = [(each.tool, each.call and each.call.status) for each in children_of(plan) if each.tool != "agent_turn"]
    assert made == [("cautious", "completed"), ("safe", "completed"), ("cautious", "held")]


def test_rule_asked_too_late_does_not_end_an_approval(ada, rosa):
    """A call that was stored when nothing had come before runs, although something came since."""
    add_policy(1, tool="dangerous", seen={"tool": "safe", "within": 3600}, effect="deny")
    plan = work_off(make_plan(ada, act(1, "x", "dangerous")))
    assert ApprovalRequest.objects.filter(call=call_of(plan)).exists()
    read(ada)
    approve(plan, rosa)
    work_off(plan)
    assert call_of(plan).status == "completed"


def test_reviewer_sees_the_calls_that_came_before(ada, ben, rosa):
    """Those that the viewer may read are listed, others only counted."""
    third("tool")
    calls = [call(ada), call(ben)]
    held = call(ada)
    seen = Rest(rosa).get(f"approvals/{held.approval.public_id}/").json()["earlier_calls"]
    assert seen == {"count": 3, "calls": [each.public_id for each in reversed(calls)], "others": 0}
    viewer = earlier_calls(held.approval, User.objects.create(username="nobody"))
    assert viewer is not None
    assert (viewer.calls, viewer.others) == ([], 2)
    pages = Pages(rosa)
    assert "number 3 of the calls that the policy counts" in pages.open(f"/approvals/?item={held.approval.public_id}")
    assert f"/plans/{calls[0].plan_ref}/?step=1" in pages.html
