"""Tests of the questions of clients that run their tools themselves."""

from datetime import timedelta

import pytest

from approvals.audit import checkpoint_file, checkpoints
from approvals.models import AuditEntry, PolicyRevision, RefusedCall
from approvals.requests import deadlines
from approvals.stops.services import lift_stop, parse_scope, set_stop
from catalog.access.limits import Limits
from catalog.client_tools import known_tools
from catalog.core import clock
from catalog.errors import Conflict, ParameterError, ToolError
from catalog.inventory import snapshot
from catalog.inventory.overrides import apply_overrides
from catalog.models import Call, ClientRun, Source, Tool
from plans.actions.call import CallOrder, create_call
from plans.actions.control import cancel_plan
from plans.actions.retry import retry_plan
from plans.actions.settle import Settlement, settle_outcome
from plans.coding_agents.permissions import OTHER_DIRECTORY, OTHER_INPUT, ask, tell_to_ask_again
from plans.engine import client_runs
from plans.models import Plan, Step
from plans.store.requesters import Requester
from tests.approvals.factories import add_policy
from tests.builders import assert_gapless, work_off
from tests.conftest import forget_what_was_read
from tests.invariants import assert_invariants
from tests.plans.coding_agents.conftest import COMMAND, answer_request, call_of, request_for, run_of


def plan_of(answer):
    return Plan.objects.get(public_id=call_of(answer).plan_ref)


def allow_bash(admin):
    """Let calls of Bash run without a person."""
    apply_overrides("Bash", {"safety_level": "safe"}, by=admin, reason="A sandbox.")
    snapshot.drop_snapshot()


def test_first_question_makes_source_and_dangerous_tool(agent):
    answer = agent.ask("Bash")
    tool = Tool.objects.select_related("current_version", "source").get(name="Bash")
    assert (answer.decision, tool.source.kind, tool.source.name) == ("wait", Source.Kind.CLIENT, "claude-code")
    version = tool.current_version
    assert version is not None and version.safety_level == "dangerous"
    assert request_for(answer).status == "pending"
    assert_invariants()


def test_name_that_is_taken_gets_the_name_of_its_client(agent):
    agent.ask("dangerous")
    assert Tool.objects.filter(name="claude-code__dangerous", source__name="claude-code").exists()


def test_approved_call_is_handed_out_once_and_ended_by_its_report(agent, rosa):
    first = agent.ask()
    assert agent.ask() == first
    answer_request(first, rosa)
    assert work_off(plan_of(first)).status == "in_progress"
    step = Step.objects.get(plan=plan_of(first))
    assert (step.waiting_for, step.ready_at, call_of(first).status) == ("client", None, "ready")
    allowed = agent.ask()
    assert (allowed.decision, allowed.input, allowed.call) == ("allow", COMMAND, first.call)
    assert agent.ask() == allowed
    assert call_of(first).attempt == 1
    assert agent.report(output={"stdout": "gone"}).effect == "ended"
    call = call_of(first)
    assert (call.status, call.response_json["results"]) == ("completed", [{"stdout": "gone"}])
    assert plan_of(first).status == "completed"
    assert agent.ask().decision == "deny"
    assert_gapless(plan_of(first))
    assert_invariants()


def test_allowed_call_is_handed_out_at_once(agent, admin):
    agent.ask()
    allow_bash(admin)
    answer = agent.ask(call_id="toolu_2", input={"command": "ls"})
    assert (answer.decision, answer.input) == ("allow", {"command": "ls"})
    assert call_of(answer).status == "running"
    assert agent.report("toolu_2", succeeded=False, message="No such directory").effect == "ended"
    assert (call_of(answer).status, call_of(answer).message) == ("failed", "No such directory")
    assert_invariants()


def test_call_id_is_bound_to_tool_and_input(agent):
    agent.ask()
    for more in ({"input": {"command": "ls"}}, {"tool": "Other"}):
        answer = agent.ask(**more)
        assert (answer.decision, answer.message, answer.call) == ("deny", OTHER_INPUT, None)


def test_allowance_stays_in_its_working_directory(agent, rosa):
    answer = agent.ask()
    tell_to_ask_again(answer.call, by=agent.by)
    answer_request(answer, rosa)
    elsewhere = [agent.ask(call_id=call_id, cwd="/srv/other") for call_id in ("", "toolu_2")]
    assert [each.decision for each in elsewhere] == ["wait", "wait"]
    assert answer.call not in [each.call for each in elsewhere]
    assert agent.ask(cwd="/srv/other").message == OTHER_DIRECTORY
    assert agent.ask(call_id="toolu_3").call == answer.call


def test_edited_input_is_what_runs(agent, rosa):
    answer = agent.ask()
    answer_request(answer, rosa, arguments={"command": "rm -r build/cache"})
    allowed = agent.ask()
    assert (allowed.decision, allowed.input) == ("allow", {"command": "rm -r build/cache"})
    assert "Rosa" in allowed.message
    assert agent.ask(input={"command": "rm -r build/cache"}).decision == "allow"
    assert agent.report().effect == "ended"
    assert call_of(answer).response_json["edited"] == {"by": ["Rosa"], "fields": ["command"]}


@pytest.mark.parametrize(
    ("verdict", "more", "words"),
    [
        ("reject", {"comment": "Not today."}, "Not today."),
        ("respond", {"response": {"done": "by hand"}, "comment": "I did it."}, "by hand"),
        ("request_changes", {"comment": "Smaller."}, "Smaller."),
    ],
)
def test_other_answers_are_told_to_the_agent(agent, rosa, verdict, more, words):
    first = agent.ask()
    answer_request(first, rosa, verdict, **more)
    answer = agent.ask()
    assert (answer.decision, answer.call) == ("deny", first.call)
    assert words in answer.message
    assert_invariants()


def test_without_call_id_an_allowance_is_used_once(agent, rosa):
    first = agent.ask(call_id="")
    assert agent.ask(call_id="").call == first.call
    answer_request(first, rosa)
    assert agent.ask(call_id="").decision == "allow"
    second = agent.ask(call_id="")
    assert (second.decision, second.call != first.call) == ("wait", True)
    assert agent.report("", output="done").call == first.call


def test_rejection_reaches_the_question_that_waited_without_call_id(agent, rosa):
    first = agent.ask(call_id="")
    answer_request(first, rosa, "reject", comment="No.")
    waited = ask(agent.question(call_id=""), by=agent.by, waited_for=first.call)
    assert (waited.decision, waited.call) == ("deny", first.call)


def test_unreported_call_becomes_unknown_and_a_late_report_settles_it(agent, rosa):
    answer = agent.ask()
    answer_request(answer, rosa)
    agent.ask()
    assert client_runs.expire_unreported(clock.now()) == 0
    ClientRun.objects.update(allowed_until=clock.now() - timedelta(seconds=1))
    assert agent.ask().decision == "deny"
    assert client_runs.expire_unreported(clock.now()) == 1
    assert (call_of(answer).status, Step.objects.get(plan=plan_of(answer)).waiting_for) == (
        "outcome_unknown",
        "outcome",
    )
    assert agent.ask().decision == "deny"
    assert_invariants()
    assert agent.report(output="late").effect == "late"
    assert (call_of(answer).status, plan_of(answer).status) == ("completed", "completed")
    assert agent.report(output="again").effect == "repeated"
    assert_invariants()


def test_approval_that_is_not_used_in_time_expires(agent, rosa):
    answer = agent.ask()
    answer_request(answer, rosa)
    request = request_for(answer)
    assert request.not_after is not None
    deadlines.expire_due(request.not_after + timedelta(seconds=1))
    assert agent.ask().decision == "deny"
    assert (call_of(answer).status, run_of(answer).allowed_at) == ("failed", None)
    assert_invariants()


def test_policy_that_denies_is_told_and_nothing_is_stored(agent, admin):
    agent.ask()
    add_policy(0, effect="deny", tool="Bash", message="No shell here.")
    forget_what_was_read()
    answer = agent.ask(call_id="toolu_2")
    assert (answer.decision, answer.call) == ("deny", None)
    assert "No shell here." in answer.message


def test_policy_that_denies_after_the_approval_stops_the_start(agent, rosa):
    answer = agent.ask()
    answer_request(answer, rosa)
    add_policy(0, effect="deny", tool="Bash", message="No shell here.")
    forget_what_was_read()
    later = agent.ask()
    assert later.decision == "deny"
    assert run_of(answer).allowed_at is None


def test_refusal_of_a_call_that_was_taken_back_is_recorded(agent, monkeypatch):
    """The refusal that ends the call stays in the audit log, and counts for the policy's stop."""
    exactly = [{"path": "command", "operator": "equals", "value": COMMAND["command"]}]
    rule = add_policy(0, effect="allow", tool="Bash", conditions=exactly)
    forget_what_was_read()
    monkeypatch.setattr(checkpoints, "ensure_start_checkpoint", lambda call: False)
    assert agent.ask().decision == "deny"
    assert Call.objects.get().status == "ready"
    PolicyRevision.objects.filter(pk=rule.pk).update(effect="deny", stop_after={"count": 5, "seconds": 60})
    forget_what_was_read()
    assert agent.ask().decision == "deny"
    assert Call.objects.get().status == "failed"
    assert AuditEntry.objects.filter(action="policy.refused").count() == 1
    assert RefusedCall.objects.get().token == agent.token


def test_changed_definition_opens_a_new_request(agent, admin, rosa):
    first = agent.ask()
    answer_request(first, rosa)
    apply_overrides("Bash", {"safety_level": "cautious"}, by=admin, reason="A sandbox.")
    snapshot.drop_snapshot()
    allowed = agent.ask()
    assert (allowed.decision, allowed.call != first.call) == ("allow", True)
    assert [run.is_current for run in ClientRun.objects.order_by("call")] == [False, True]
    assert_invariants()


def test_disabled_tool_is_told(agent, admin, rosa):
    answer = agent.ask()
    answer_request(answer, rosa)
    apply_overrides("Bash", {"enabled": False}, by=admin)
    snapshot.drop_snapshot()
    assert (agent.ask().decision, call_of(answer).status) == ("deny", "ready")


def test_cancelled_plan_is_told(agent, ada):
    answer = agent.ask()
    cancel_plan(plan_of(answer), by=Requester(ada))
    assert agent.ask().decision == "deny"
    assert_invariants()


def test_calls_of_other_tokens_and_sessions_are_their_own(agent, ada, rosa):
    first = agent.ask()
    answer_request(first, rosa)
    agent.session = "s2"
    other = agent.ask()
    assert (other.decision, other.call != first.call) == ("wait", True)


def test_token_limits_hold(agent):
    agent.ask()
    limits: Limits = {"max_level": "cautious"}
    agent.token.limits = limits
    agent.token.save()
    assert agent.ask(call_id="toolu_2").decision == "deny"


def test_deferred_question_marks_its_call(agent):
    answer = agent.ask(may_defer=True)
    assert answer.decision == "defer"
    assert run_of(answer).deferred_at is not None


def test_dangerous_start_that_no_checkpoint_covers_is_not_told(agent, rosa, monkeypatch):
    answer = agent.ask()
    answer_request(answer, rosa)

    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_file, "append_checkpoint", fail)
    assert agent.ask().decision == "wait"
    assert (call_of(answer).status, call_of(answer).attempt) == ("ready", 0)
    monkeypatch.undo()
    checkpoints.write_checkpoint()
    assert agent.ask().decision == "allow"
    assert_invariants()


@pytest.mark.parametrize(
    "more",
    [
        {"client": "Claude Code"},
        {"session": "a/b"},
        {"tool": "two\nlines"},
        {"call_id": "x" * 201},
        {"cwd": "/" * 4097},
    ],
)
def test_question_with_invalid_names_is_refused(agent, more):
    names = {"client": agent.client, "session": "s1", "tool": "Bash", "input": {}, **more}
    with pytest.raises(ParameterError):
        ask(type(agent.question())(**names), by=agent.by)
    assert not Call.objects.exists()


def test_tool_of_a_client_cannot_be_called_here(agent, ada):
    agent.ask()
    with pytest.raises(ToolError):
        create_call(CallOrder("Bash", COMMAND), by=Requester(ada))


def test_number_of_new_tools_is_limited(agent, monkeypatch):
    monkeypatch.setattr("catalog.inventory.client_tools.NEW_TOOLS_RATE", "2/h")
    decisions = [agent.ask(f"Tool{number}", f"toolu_{number}").decision for number in range(3)]
    assert decisions == ["wait", "wait", "deny"]
    assert Tool.objects.filter(source__name="claude-code").count() == 2


def test_call_that_runs_while_its_plan_is_cancelled_is_ended_by_its_report(agent, ada, rosa):
    answer = agent.ask()
    answer_request(answer, rosa)
    agent.ask()
    cancel_plan(plan_of(answer), by=Requester(ada))
    assert call_of(answer).status == "running"
    assert agent.report(output="done").effect == "ended"
    assert (call_of(answer).status, plan_of(answer).status) == ("completed", "cancelled")
    assert_invariants()


def test_rejected_call_cannot_be_retried_here(agent, ada, rosa):
    answer = agent.ask()
    answer_request(answer, rosa, "reject", comment="No.")
    with pytest.raises(Conflict):
        retry_plan(plan_of(answer), None, by=Requester(ada))


def test_unknown_outcome_is_settled_by_a_person_but_not_requested_again(agent, ada, rosa):
    answer = agent.ask()
    answer_request(answer, rosa)
    agent.ask()
    ClientRun.objects.update(allowed_until=clock.now() - timedelta(seconds=1))
    client_runs.expire_unreported(clock.now())
    with pytest.raises(Conflict):
        settle_outcome(plan_of(answer), 1, settlement=Settlement("request_again"), by=Requester(ada))
    settle_outcome(plan_of(answer), 1, settlement=Settlement("happened", comment="I looked."), by=Requester(ada))
    assert agent.ask().decision == "deny"
    assert agent.report(output="late").effect == "kept"
    assert "late" in call_of(answer).late_evidence
    assert_invariants()


def test_secret_in_the_input_is_masked_and_handed_out(agent, rosa):
    """The client gets its own input back; the stored call and its result have placeholders."""
    secret = "ghp_" + "a1B2" * 9
    given = {"command": f"curl -H 'Authorization: Bearer {secret}' https://api.github.com"}
    answer = agent.ask(input=given)
    answer_request(answer, rosa)
    assert agent.ask(input=given).input == given
    agent.report(output={"stdout": f"token {secret}"})
    call = call_of(answer)
    assert secret not in call.arguments and secret not in call.response
    assert_invariants()


def test_unknown_tool_gets_an_open_schema(agent):
    agent.ask("Unheard", input={"a": 1})
    version = Tool.objects.get(name="Unheard").current_version
    assert version is not None and version.input_schema == {"type": "object"}


def test_known_tools_get_fields_and_a_fitting_level(agent):
    agent.ask()
    version = Tool.objects.get(name="Bash").current_version
    assert version is not None and set(version.input_schema["properties"]) >= {"command", "timeout"}
    assert (version.safety_level, version.reversibility) == ("dangerous", "irreversible")
    agent.ask("Read", "toolu_2", input={"file_path": "/etc/passwd"})
    version = Tool.objects.get(name="Read").current_version
    assert version is not None and (version.safety_level, version.reversibility) == ("dangerous", "reversible")


@pytest.mark.parametrize("tool", ["Bash", "TodoWrite"])
def test_tool_stored_before_its_fields_were_known_gets_them(agent, admin, rosa, monkeypatch, tool):
    with monkeypatch.context() as before:
        before.setitem(known_tools.KNOWN_TOOLS, "claude-code", {})
        waiting = agent.ask(tool, input={"command": "make"})
    assert agent.ask(tool, input={"command": "make"}) == waiting
    stored = Tool.objects.get(name=tool).current_version
    assert stored is not None and stored.input_schema == {"type": "object"}  # its approval is bound to this version
    answer_request(waiting, rosa, "reject", comment="No.")
    apply_overrides(tool, {"safety_level": "cautious", "description_override": "Ours."}, by=admin, reason="Seen.")
    snapshot.drop_snapshot()
    agent.ask(tool, "toolu_2", input={})
    row = Tool.objects.select_related("current_version").get(name=tool)
    version = row.current_version
    assert version is not None and version.input_schema == known_tools.KNOWN_TOOLS["claude-code"][tool].schema
    assert (row.declared_level, version.safety_level, version.description) == ("dangerous", "cautious", "Ours.")
    versions = row.versions.count()
    agent.ask(tool, "toolu_3", input={})
    assert row.versions.count() == versions
    assert_invariants()


@pytest.mark.parametrize(
    ("tool", "sent"), [("TodoWrite", {"todos": [{"content": "a"}], "field_of_a_later_version": 1}), ("TaskList", {})]
)
def test_tools_that_touch_only_what_the_client_keeps_run_at_once(agent, tool, sent):
    assert agent.ask(tool, input=sent).decision == "allow"
    assert agent.ask("ExitPlanMode", "toolu_2", input={"plan": "a"}).decision == "wait"


def test_input_that_does_not_fit_the_fields_is_refused_in_words(agent):
    answer = agent.ask(input={"command": ["rm"]})
    assert (answer.decision, "command" in answer.message) == ("deny", True)


def test_stop_denies_with_its_reason_and_leaves_the_call_for_later(agent, rosa, admin):
    first = agent.ask()
    answer_request(first, rosa)
    stop = set_stop(parse_scope({"source": "claude-code"}), "A bad day.", by=admin)
    for call_id in ("toolu_1", "toolu_2"):
        denied = agent.ask(call_id=call_id)
        assert (denied.decision, denied.message) == ("deny", "Stopped: A bad day. Do not retry.")
    assert (call_of(first).status, Call.objects.count()) == ("ready", 1)
    lift_stop(stop, "Over.", by=admin)
    assert agent.ask().decision == "allow"
