"""The planning tools: every message and rule of the session's list, in memory."""

import re
from dataclasses import replace
from typing import Any

import pytest

from catalog.errors import PromptEvaluationError, ToolDefinitionError, ToolValidationError
from catalog.results import ToolResult, render
from catalog.testing import clean_registry, invoke, make_context
from catalog.tools import ToolContext, register_implementation, register_tool, tool
from catalog.tools.registry import get_tool, initialize_tools
from plans.planning_tools import AddStep, Plan, PlanningToolsSection, PlanStep, ReadPlan, Session, SetupPlan, UpdateStep
from plans.planning_tools.todo_list import MAX_STEPS, carry_out
from plans.planning_tools.tools import planning_tools
from plans.prompts import Prompt, PromptTemplate
from plans.strategies import PlanningStrategy, guidance

NAMES = ["planning_setup_plan", "planning_add_step", "planning_update_step", "planning_read_plan"]
SETUP, ADD, UPDATE, READ = planning_tools()


class Chat:
    """One session, with short methods for its tools."""

    def __init__(self) -> None:
        self.session = Session()

    def setup(self, objective: str = "Try it", *steps: str) -> ToolResult[object]:
        return invoke(SETUP, {"objective": objective, "initial_steps": list(steps)}, session=self.session)

    def add(self, *steps: str) -> ToolResult[object]:
        return invoke(ADD, {"steps": list(steps)}, session=self.session)

    def update(self, step_id: int, **changes: object) -> ToolResult[object]:
        return invoke(UPDATE, {"step_id": step_id, **changes}, session=self.session)

    def read(self) -> ToolResult[object]:
        return invoke(READ, {}, session=self.session)

    @property
    def plan(self) -> Plan:
        plan = self.session[Plan].latest()
        assert plan is not None
        return plan


@pytest.fixture
def chat() -> Chat:
    """Return a new session."""
    return Chat()


def refusal(result: ToolResult[object]) -> str:
    """Return why a call failed, without the pipeline's prefix."""
    assert not result.success and result.value is None
    return result.message.removeprefix("Tool validation failed: ")


def test_the_four_tools_come_in_their_order_with_their_descriptions():
    assert [each.name for each in planning_tools()] == NAMES
    assert [each.description for each in planning_tools()] == [
        "Create or replace the session plan with an objective and optional initial steps.",
        "Append one or more steps to the active plan.",
        "Update a step's title or status by its ID.",
        "Return the latest plan snapshot.",
    ]


@pytest.mark.parametrize(("steps", "said"), [([], "0 steps"), (["a"], "1 step"), (["a", "b"], "2 steps")])
def test_setup_counts_its_steps(chat, steps, said):
    assert chat.setup("Try it", *steps).message == f"Plan initialised with {said}."
    assert chat.plan == Plan("Try it", "active", tuple(PlanStep(i, t, "pending") for i, t in enumerate(steps, 1)))


@pytest.mark.parametrize(("steps", "said"), [(["a"], "1 step"), (["a", "b"], "2 steps")])
def test_add_counts_what_it_added(chat, steps, said):
    chat.setup("Try it", "first")
    assert chat.add(*steps).message == f"Added {said}."
    assert [step.step_id for step in chat.plan.steps] == list(range(1, len(steps) + 2))


def test_update_names_the_step(chat):
    chat.setup("Try it", "a", "b")
    assert chat.update(2, status="in_progress").message == "Step 2 updated."
    assert chat.update(1, title=" new ").message == "Step 1 updated."
    assert chat.plan.steps == (PlanStep(1, "new", "pending"), PlanStep(2, "b", "in_progress"))


def test_read_counts_the_steps_and_says_when_there_are_none(chat):
    chat.setup()
    assert chat.read().message == "Retrieved the current plan (no steps recorded)."
    chat.add("a")
    assert chat.read().message == "Retrieved the current plan with 1 step."
    chat.add("b")
    assert chat.read().message == "Retrieved the current plan with 2 steps."


def test_every_tool_returns_the_plan(chat):
    plan = Plan("Try it", "active", (PlanStep(1, "a", "pending"),))
    assert chat.setup("Try it", "a").value == plan
    assert chat.read().value == plan
    assert plan.render() in render(chat.read())
    assert chat.update(1, title="b").value == replace(plan, steps=(PlanStep(1, "b", "pending"),))
    assert chat.add("c").value.steps[1] == PlanStep(2, "c", "pending")


@pytest.mark.parametrize("call", ["add", "update", "read"])
def test_without_a_plan_nothing_but_setup_works(chat, call):
    asked = {"add": lambda: chat.add(), "update": lambda: chat.update(1), "read": chat.read}[call]
    assert refusal(asked()) == "No plan is currently initialised."


def test_add_and_update_need_an_active_plan_and_read_does_not(chat):
    chat.setup("Try it", "a")
    chat.update(1, status="done")
    assert chat.plan.status == "completed"
    assert refusal(chat.add()) == "Plan must be active. Current status: completed."
    assert refusal(chat.update(999, title=" ")) == "Plan must be active. Current status: completed."
    assert chat.read().message == "Retrieved the current plan with 1 step."


def test_add_needs_a_step(chat):
    chat.setup()
    assert refusal(chat.add()) == "Provide at least one step to add."


def test_an_update_that_changes_nothing_is_refused_before_its_step_is_looked_for(chat):
    chat.setup("Try it", "a")
    assert refusal(chat.update(999)) == "Provide a new title or status to update a step."
    assert refusal(chat.update(1, title=None, status=None)) == "Provide a new title or status to update a step."


def test_an_updates_title_is_judged_before_its_step_is_looked_for(chat):
    chat.setup("Try it", "a")
    assert refusal(chat.update(999, title="  ")) == "Title must not be empty."


@pytest.mark.parametrize("step_id", [999, 0, -1])
def test_a_step_that_does_not_exist_is_named(chat, step_id):
    chat.setup("Try it", "a")
    assert refusal(chat.update(step_id, status="done")) == f"Step {step_id} does not exist."


@pytest.mark.parametrize("text", ["", "   ", "\n\t"])
def test_texts_must_not_be_empty(chat, text):
    assert refusal(chat.setup(text)) == "Objective must not be empty."
    assert refusal(chat.setup("Try it", "a", text)) == "Title must not be empty."
    chat.setup("Try it", "a")
    assert refusal(chat.add("b", text)) == "Title must not be empty."
    assert refusal(chat.update(1, title=text)) == "Title must not be empty."


def test_texts_have_at_most_500_characters_after_they_are_stripped(chat):
    assert chat.setup(" " + "x" * 500 + "\n", "  " + "y" * 500).success
    assert (chat.plan.objective, chat.plan.steps[0].title) == ("x" * 500, "y" * 500)
    assert refusal(chat.setup("x" * 501)) == "Objective must be <= 500 characters."
    assert refusal(chat.add("x" * 501)) == "Title must be <= 500 characters."
    assert refusal(chat.update(1, title="x" * 501)) == "Title must be <= 500 characters."


def test_a_refused_call_changes_nothing_at_all(chat):
    chat.setup("Try it", "a", "b")
    before = chat.plan
    for refused in (chat.add("good", " "), chat.update(2, title="good", status="wrong"), chat.setup("New", " ")):
        assert not refused.success
    assert chat.plan is before


def test_a_new_setup_replaces_even_a_completed_plan_and_counts_from_1_again(chat):
    chat.setup("Old", "a", "b")
    chat.add("c")
    for step_id in (1, 2, 3):
        chat.update(step_id, status="done")
    chat.setup("New", "x")
    assert chat.plan == Plan("New", "active", (PlanStep(1, "x", "pending"),))


def test_a_plan_is_completed_by_the_update_that_ends_its_last_step_only(chat):
    chat.setup("Try it")
    assert chat.plan.status == "active"
    chat.add("a", "b")
    chat.update(2, status="done")
    assert chat.plan.status == "active"
    chat.update(1, title="also done", status="done")
    assert chat.plan.status == "completed"


def test_a_done_step_is_reopened_while_the_plan_is_active(chat):
    chat.setup("Try it", "a", "b")
    chat.update(1, status="done")
    assert chat.update(1, status="pending").success
    assert [step.status for step in chat.plan.steps] == ["pending", "pending"]


def test_a_plan_renders_as_a_list(chat):
    chat.setup("Try it", "a", "b")
    chat.update(1, status="in_progress")
    text = "Objective: Try it\nStatus: active\n\n1 [in_progress] a\n2 [pending] b"
    assert chat.plan.render() == text
    assert render(ToolResult.ok(chat.plan, message="Here.")) == f"Here.\n\n{text}"
    chat.setup("Empty")
    assert chat.plan.render() == "Objective: Empty\nStatus: active\n\n<no steps>"


MISFITS: list[tuple[Any, dict[str, Any], str]] = [
    (SETUP, {}, "Missing required field: 'objective'"),
    (SETUP, {"objective": None}, "objective: value cannot be None"),
    (SETUP, {"objective": 5}, "objective: expected text"),
    (SETUP, {"objective": "x", "x": 1}, "Extra keys not permitted: ['x']"),
    (SETUP, {"objective": "x", "y": 1, "x": 1}, "Extra keys not permitted: ['y', 'x']"),
    (SETUP, {"objective": "x", "initial_steps": "a"}, "initial_steps: expected a list"),
    (SETUP, {"objective": "x", "initial_steps": ["a", None]}, "initial_steps.1: value cannot be None"),
    (ADD, {}, "Missing required field: 'steps'"),
    (ADD, {"steps": None}, "steps: value cannot be None"),
    (UPDATE, {}, "Missing required field: 'step_id'"),
    (UPDATE, {"step_id": None}, "step_id: value cannot be None"),
    (UPDATE, {"step_id": "1", "status": "done"}, "step_id: expected an integer"),
    (UPDATE, {"step_id": True, "status": "done"}, "step_id: expected an integer"),
    (UPDATE, {"step_id": 1, "status": "finished"}, "status: expected one of ['pending', 'in_progress', 'done']"),
    (UPDATE, {"step_id": 1, "status": ["done"]}, "status: expected one of ['pending', 'in_progress', 'done']"),
    (UPDATE, {"step_id": 1, "notes": "n"}, "Extra keys not permitted: ['notes']"),
    (READ, {"query": None}, "Extra keys not permitted: ['query']"),
]


def test_arguments_that_do_not_fit_are_refused_in_the_words_of_the_contract(chat):
    chat.setup("Try it", "a")
    said = [(of, arguments, invoke(of, arguments, session=chat.session).message) for of, arguments, _ in MISFITS]
    assert said == [(of, arguments, f"Tool validation failed: {text}") for of, arguments, text in MISFITS]


def test_a_null_for_what_is_optional_counts_as_left_out(chat):
    assert invoke(SETUP, {"objective": "x", "initial_steps": None}, session=chat.session).success
    assert chat.plan.steps == ()


def test_a_plan_has_at_most_500_steps(chat):
    assert chat.setup("Try it", *["x"] * MAX_STEPS).success
    assert refusal(chat.add("one more")) == "A plan has at most 500 steps."
    assert refusal(chat.setup("Try it", *["x"] * (MAX_STEPS + 1))) == "A plan has at most 500 steps."


def test_numbers_go_on_from_the_highest():
    plan = Plan("x", "active", (PlanStep(1, "a", "done"), PlanStep(7, "b", "pending")))
    assert [step.step_id for step in carry_out(plan, AddStep(("c", "d")))[0].steps] == [1, 7, 8, 9]


def test_a_section_offers_the_tools_to_its_session_and_guides_in_the_words_of_its_strategy():
    session = Session()
    section = PlanningToolsSection(session, strategy=PlanningStrategy.PLAN_ACT_REFLECT)
    rendered = Prompt(PromptTemplate("tests", "plan", [section])).render()
    assert [each.name for each in rendered.tools] == NAMES
    assert rendered.text == guidance(PlanningStrategy.PLAN_ACT_REFLECT)
    invoke(section.own_tools[0], {"objective": "Try it"}, session=session)
    assert session[Plan].latest() == Plan("Try it", "active")


@pytest.mark.parametrize("accepts", [True, False])
def test_a_sections_tools_accept_overrides_when_it_says_so(accepts):
    section = PlanningToolsSection(session=Session(), accepts_overrides=accepts)
    assert {each.accepts_overrides for each in section.own_tools} == {accepts}
    assert not any(each.accepts_overrides for each in PlanningToolsSection(Session()).own_tools)


@pytest.mark.parametrize(
    ("number", "params"),
    list(enumerate([SetupPlan("x"), AddStep(("x",)), UpdateStep(1, title="x"), ReadPlan()])),
)
def test_a_handler_that_is_bound_to_another_session_raises(number, params):
    handler = PlanningToolsSection(Session()).own_tools[number].handler
    for other in (Session(), None, "name"):
        with pytest.raises(RuntimeError, match=re.escape("These planning tools are bound to another session.")):
            handler(params, context=make_context(session=other))


def test_a_handler_raises_its_refusals_as_validation_errors():
    with pytest.raises(ToolValidationError, match="No plan is currently initialised"):
        READ.handler(ReadPlan(), context=make_context(session=Session()))


def test_a_call_that_names_no_session_has_one_of_its_own():
    assert invoke(SETUP, {"objective": "Try it"}).success
    assert refusal(invoke(READ, {})) == "No plan is currently initialised."
    with pytest.raises(PromptEvaluationError):
        READ.handler(ReadPlan(), context=ToolContext())


def test_a_reducer_that_fails_leaves_everything_as_it_was_and_the_result_says_so(chat):
    def broken(plan: Plan | None, command: SetupPlan) -> Plan:
        raise KeyError("colour")

    chat.setup("Old", "a")
    before = chat.plan
    chat.session[Plan].register(SetupPlan, broken)
    result = chat.setup("New")
    assert result.success and result.message.startswith("Reducer errors prevented applying tool result: KeyError")
    assert chat.plan is before
    assert chat.add("b").message == "Added 1 step."


def test_what_a_failed_call_sent_is_undone(chat):
    @tool(name="plans_and_fails")
    def plans_and_fails(*, context: object) -> ToolResult[None]:
        """Send a plan, then fail."""
        chat.session.send(SetupPlan("New"))
        return ToolResult.error("No.")

    chat.setup("Old")
    assert not invoke(plans_and_fails, {}, session=chat.session).success
    assert chat.plan.objective == "Old"


def test_the_catalogs_tools_serve_whichever_session_calls():
    with clean_registry():
        initialize_tools()
        for objective in ("One", "Two"):
            session = Session()
            invoke("planning_setup_plan", {"objective": objective}, session=session)
            assert session[Plan].latest() == Plan(objective, "active")


def test_nobody_elses_tool_may_take_their_names():
    with clean_registry():
        initialize_tools()
        ours = get_tool("planning_setup_plan")
        with pytest.raises(ToolDefinitionError, match="'planning_setup_plan' is reserved"):
            register_tool(SETUP)
        with pytest.raises(ToolDefinitionError, match="There is no tool"):
            register_implementation("planning_setup_plan", lambda params: None)
        assert get_tool("planning_setup_plan") is ours
