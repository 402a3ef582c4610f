"""Tests of contract C's nodes and of plans built from answers."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from approvals.audit import restore_guard
from catalog.access.tokens import create_token
from catalog.models import Call
from catalog.testing import clean_registry
from catalog.tools import BaseTool
from catalog.tools.registry import register_tool
from plans.actions.create import check_document
from plans.planner import PlannerOutput, execute_tools, nodes, should_execute_tools
from plans.planner.steps import StepPlacement, plan_document, steps_of_calls
from plans.store.requesters import Requester
from tests.catalogs import fill_catalog


class Noting(BaseTool):
    """Tool that records its input."""

    name = "noting"
    description = "Note it."

    def __init__(self) -> None:
        self.given: list[object] = []
        self.contexts: list[dict[str, Any]] = []

    async def execute(self, args, context):
        """Fail for a text, raise for None."""
        self.given.append((args, context["trace_id"]))
        self.contexts.append(context)
        if "none" in args:
            raise RuntimeError("kaboom")
        return {"success": "value" in args, "data": args.get("value"), "error": None if "value" in args else "empty"}


class Cautious(Noting):
    """Cautious tool."""

    name = "cautious_noting"
    safety_level = "cautious"


class Dangerous(Noting):
    """Dangerous tool."""

    name = "dangerous_noting"
    safety_level = "dangerous"


@pytest.fixture
def noting():
    with clean_registry():
        made = Noting()
        register_tool(made)
        register_tool(Cautious())
        register_tool(Dangerous())
        yield made


def call(tool="noting", **args):
    return {"tool": tool, "args": args, "reason": "It is needed."}


def run(*calls, **state):
    return asyncio.run(execute_tools({"tool_calls": list(calls), "trace_id": "t-1", **state}))


@pytest.mark.parametrize(
    ("state", "route"),
    [
        ({"tool_calls": [call()], "needs_user_input": True, "queries": ["x"]}, "execute_tools"),
        ({"tool_calls": [], "needs_user_input": True, "queries": ["x"]}, "generate_response"),
        ({"tool_calls": None, "needs_user_input": False, "queries": []}, "execute_queries"),
        ({}, "execute_queries"),
    ],
)
def test_tools_precede_questions_and_searches(state, route):
    assert should_execute_tools(state) == route


@pytest.mark.parametrize("state", [{}, {"tool_calls": None}, {"tool_calls": []}])
def test_no_calls_return_no_results(state):
    assert asyncio.run(execute_tools(state)) == {"tool_results": {}, "results": []}


def test_calls_run_in_order_and_last_result_of_name_wins(noting):
    ran = run(call(value=1), call(value=2))
    assert [args for args, _ in noting.given] == [{"value": 1}, {"value": 2}]
    assert ran["tool_results"]["noting"]["data"] == 2
    assert [each["result"]["data"] for each in ran["results"]] == [1, 2]
    assert len({each["call"] for each in ran["results"]}) == 2


def test_failures_do_not_stop_other_calls(noting):
    ran = run(call("nowhere"), call(none=1), call(), call(value=3))
    told = [(each["result"]["success"], each["result"]["error"]) for each in ran["results"]]
    assert told == [
        (False, "Unknown tool: nowhere"),
        (False, "Tool 'noting' encountered an error"),
        (False, "empty"),
        (True, None),
    ]
    assert ran["tool_results"]["nowhere"]["success"] is False


NO_CALLS: list[Any] = [
    *(None, 5, "noting", ["noting"], {}, {"tool": None}, {"tool": ["noting"]}),
    *({"tool": "noting", "args": args} for args in ("x", [1], 5, [], "")),
]


def test_malformed_calls_leave_other_results(noting):
    ran = run(call(value=1), *NO_CALLS, call(value=2))
    assert [each["result"]["success"] for each in ran["results"]] == [True, *[False] * len(NO_CALLS), True]
    assert {each["result"]["error"] for each in ran["results"][1:-1]} == {nodes.NO_CALL, nodes.NO_ARGUMENTS}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("fault", ["", "The database was set back."])
def test_refused_call_leaves_other_results(noting, ada, monkeypatch, fault):
    monkeypatch.setattr(restore_guard, "_cached_fault", fault)
    ran = run(call(value=1), call("nowhere"), requester=Requester(ada))
    assert [each["result"]["success"] for each in ran["results"]] == [False, False]
    assert [each["result"]["error"] for each in ran["results"]][1] == "Unknown tool: nowhere"
    assert fault in ran["results"][0]["result"]["error"]
    assert not Call.objects.exists()


@pytest.mark.parametrize("tool", ["cautious_noting", "dangerous_noting"])
def test_only_safe_tools_run_without_requester(noting, tool):
    result = run(call(tool, value=1))["tool_results"][tool]
    assert (result["success"], result["error"]) == (False, nodes.REQUESTER_MISSING)


def test_tool_gets_ids_of_state(noting):
    state = {"conversation_context": {"conversation_id": 7}, "user_context": {"conference_id": 3}}
    asyncio.run(execute_tools({"tool_calls": [call(value=1)], **state}))
    run(call(value=2))
    ids = ("trace_id", "conversation_id", "conference_id")
    assert [[context[name] for name in ids] for context in noting.contexts] == [[None, 7, 3], ["t-1", None, None]]


@pytest.mark.django_db(transaction=True)
def test_call_for_requester_gets_ids_of_state(executor, noting, ada):
    fill_catalog()
    conversation, conference = {"conversation_id": 7}, UUID(int=3)
    state = {"conversation_context": conversation, "user_context": {"conference_id": conference}, "requester": ada}
    assert run(call(value=1), **state)["results"][0]["result"]["success"]
    run(call(value=2), requester=ada, trace_id=None)
    ids = ("trace_id", "conversation_id", "conference_id")
    given = [[context[name] for name in ids] for context in noting.contexts]
    assert given == [["t-1", 7, str(conference)], [None, None, None]]
    assert noting.contexts[0]["tool_context"].trace_id == "t-1"


@pytest.mark.django_db(transaction=True)
def test_calls_are_recorded_for_requester(executor, workspace, ada, vera):
    agent, _ = create_token(user=ada, kind="agent", scopes=["calls:create"])
    reads_only, _ = create_token(user=ada, kind="agent", scopes=["plans:read"])
    search, state = call("apropos_search", query="dumps"), {"conversation_context": {"conversation_id": "chat"}}
    ran = [run(search, requester=by, **state)["results"][0] for by in (ada, agent, reads_only, vera)]
    assert [each["result"]["success"] for each in ran] == [True, True, False, False]
    recorded = list(Call.objects.order_by("pk").values_list("public_id", "requested_by", "token", "session"))
    assert recorded == [(ran[0]["call"], ada.pk, None, "chat"), (ran[1]["call"], ada.pk, agent.pk, "chat")]
    with pytest.raises(TypeError):
        run(search, requester="ada")


@pytest.mark.django_db(transaction=True)
def test_calls_for_requester_pass_the_gate(executor, workspace, ada):
    searching = call("apropos_search", query="dumps")
    writing = call("write_file", path="a.txt", content="b")
    wrong = call("apropos_search")
    ran = run(searching, writing, wrong, requester=Requester(ada))["results"]
    assert [each["result"]["success"] for each in ran] == [True, False, False]
    assert ran[0]["result"]["data"]
    assert ran[1]["result"]["error"] == "waiting_for_approval"
    assert "query" in ran[2]["result"]["error"]
    assert not (workspace / "a.txt").exists()
    assert Call.objects.get(public_id=ran[1]["call"]).status == "held"


def output(**fields):
    return PlannerOutput.model_validate({"intent": "registration_data_request", **fields})


def planned(by, **fields):
    """Return the plan built from an answer, after checking that it can be stored."""
    document = plan_document(output(**fields), by=Requester(by))
    assert [problem for problem in check_document(document) if problem.severity == "error"] == []
    return document


@pytest.mark.django_db
def test_calls_become_steps_with_unique_keys(configured, ada):
    search = {"tool": "apropos_search", "args": {"query": "dumps"}, "reason": "Look for it\nfirst"}
    document = planned(ada, needs_tools=True, tool_calls=[search, search | {"reason": ""}])
    assert document["goal"] == "Registration data request"
    steps = document["steps"]
    assert [step["tool"] for step in steps] == ["apropos_search", "apropos_search", "compose_reply"]
    assert [step["dependencies"] for step in steps] == [[], [], [1, 2]]
    assert [step.get("expected_key") for step in steps] == ["apropos_search", "apropos_search_2", None]
    assert steps[0]["description"] == "Look for it first"


@pytest.mark.django_db
def test_call_depends_on_referenced_call(configured, ada):
    search = {"tool": "apropos_search", "args": {"query": "dumps"}, "reason": "Look"}
    second = search | {"args": {"query": "${apropos_search.results.0.name} $${x}"}}
    steps = planned(ada, needs_tools=True, tool_calls=[search, search, second])["steps"]
    assert [step["dependencies"] for step in steps] == [[], [], [1], [2, 3]]
    placed = steps_of_calls(output(tool_calls=[search, second, search]), StepPlacement(7, (6,)))
    assert [step["dependencies"] for step in placed] == [[6], [7], [6], [8, 9]]


@pytest.mark.django_db
def test_question_precedes_everything_else(configured, ada):
    document = planned(ada, needs_user_input=True, input_request="Your ${email}?", queries=["badge"])
    asks, plans_on = document["steps"]
    assert (asks["tool"], asks["parameters"]) == ("ask_user", {"question": "Your $${email}?"})
    assert (plans_on["tool"], plans_on["dependencies"]) == ("plan_on", [1])


@pytest.mark.django_db
def test_queries_run_over_every_search_tool(configured, ada):
    steps = planned(ada, queries=["json", "${x}"])["steps"]
    assert [step["tool"] for step in steps[:-1]] == ["search_files"] * 2
    assert steps[1]["parameters"] == {"text": "$${x}"}
    assert steps[-1] | {"description": ""} == {
        "step_id": 3, "description": "", "tool": "compose_reply", "parameters": {}, "dependencies": [1, 2],
    }  # fmt: skip


@pytest.mark.django_db
def test_complete_plan_keeps_references_and_gets_reply(configured, ada):
    first = {"step_id": 1, "description": "a", "tool": "apropos_search", "parameters": {"query": "x1"}}
    second = first | {"step_id": 2, "dependencies": [1], "parameters": {"query": "${found}"}}
    other = first | {"step_id": 3}
    document = planned(ada, plan={"goal": "Find it", "steps": [first | {"expected_key": "found"}, second, other]})
    assert document["goal"] == "Find it"
    assert document["steps"][1]["parameters"] == {"query": "${found}"}
    assert (document["steps"][3]["tool"], document["steps"][3]["dependencies"]) == ("compose_reply", [2, 3])


@pytest.mark.django_db
def test_greeting_is_only_replied_to(configured, ada):
    assert [step["tool"] for step in planned(ada)["steps"]] == ["compose_reply"]


@pytest.mark.django_db
def test_malformed_plan_is_left_to_validation(configured, ada):
    wrong = output(plan={"steps": [5, {"step_id": "1", "dependencies": "2"}, None]})
    document = plan_document(wrong, by=Requester(ada))
    assert [problem for problem in check_document(document) if problem.severity == "error"]
