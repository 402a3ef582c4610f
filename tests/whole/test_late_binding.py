"""Several implementations of a tool: chosen by weight, fixed for an entire plan, and recorded."""

from collections import Counter

import pytest
from django.db.models import F

from catalog.calls.statistics import implementation_stats
from catalog.errors import NoImplementation
from catalog.inventory import snapshot
from catalog.inventory.selectors import get_tool_row
from catalog.inventory.sync import sync_registered_tools
from catalog.models import Call, CatalogState, Implementation
from catalog.testing import clean_registry
from catalog.tools import Preview, ToolContext, tool
from catalog.tools.registry import register_implementation
from plans.actions.call import CallOrder, create_call
from plans.store.requesters import Requester
from tests.builders import approve, call_of, make_plan, request_of, step, step_of, work_off

PLANS = 300


@pytest.fixture(autouse=True)
def greetings(db):
    """A safe and a dangerous tool, each with two implementations."""
    with clean_registry():
        declare("hail", "safe")
        declare("salute", "dangerous")
        sync_registered_tools()
        yield
    snapshot.drop_snapshot()


def declare(name, level):
    """Register a tool that says which of its implementations served it."""

    @tool(name=name, safety_level=level)
    def first(name: str) -> str:
        """Greet someone."""
        return f"first {name}"

    first.preview(lambda name: Preview(summary="first", kind="text"))

    def second(name: str, *, context: ToolContext) -> str:
        return f"second {name}"

    register_implementation(name, second, reference="second").preview(
        lambda name: Preview(summary="second", kind="text")
    )


def code(name, reference):
    """Return the row of an implementation; the tool's own is called `first`."""
    rows = Implementation.objects.filter(tool__name=name)
    return rows.get(reference="second") if reference == "second" else rows.exclude(reference="second").get()


def put(name, reference, **values):
    """Set an implementation's weight or switch, as another process would."""
    Implementation.objects.filter(pk=code(name, reference).pk).update(**values)
    CatalogState.objects.update(revision=F("revision") + 1)
    snapshot.drop_snapshot()


def chosen(name, plan_ref, kept=None):
    """Return the reference of the implementation that serves a plan."""
    found = snapshot.callable_tool(name)
    assert found is not None
    return Implementation.objects.get(pk=found.select_implementation(plan_ref, kept).implementation_pk or 0).reference


def greet(step_id, name="hail", **fields):
    """Return the document of a step that greets Ada."""
    return step(step_id, name, parameters={"name": "Ada"}, **fields)


def test_plans_are_shared_out_by_weight():
    put("hail", "first", weight=300)
    put("hail", "second", weight=100)
    found = snapshot.callable_tool("hail")
    assert found is not None

    counted = Counter(found.select_implementation(f"plan_{number}").implementation_pk for number in range(PLANS))

    assert 0.65 < counted[code("hail", "first").pk] / PLANS < 0.85
    assert sum(counted.values()) == PLANS


def test_the_same_plan_gets_the_same_one_and_two_tools_are_shared_out_apart():
    twice = [[chosen("hail", f"plan_{number}") for number in range(40)] for _ in range(2)]
    other = [chosen("salute", f"plan_{number}") for number in range(40)]

    assert twice[0] == twice[1] != other
    assert len(set(twice[0])) == 2


def test_what_has_no_weight_or_is_switched_off_gets_nothing():
    put("hail", "first", weight=0)
    assert {chosen("hail", f"plan_{number}") for number in range(20)} == {"second"}

    put("hail", "first", weight=5, enabled=True)
    put("hail", "second", enabled=False)
    assert {chosen("hail", f"plan_{number}") for number in range(20)} == {code("hail", "first").reference}


def test_a_stored_call_keeps_its_own_while_that_is_switched_on():
    second = code("hail", "second").pk
    put("hail", "second", weight=0)
    assert chosen("hail", "plan_1", kept=second) == "second"

    put("hail", "second", enabled=False)
    assert chosen("hail", "plan_1", kept=second) != "second"


def test_the_choice_costs_no_query(django_assert_num_queries):
    found = snapshot.callable_tool("hail")
    assert found is not None
    with django_assert_num_queries(0):
        found.select_implementation("plan_1")


def test_every_call_of_a_plan_is_served_by_one_and_says_by_which(ada):
    plan = work_off(make_plan(ada, *(greet(number) for number in range(1, 5))))

    served = {(call.implementation_id, call.response_json["results"][0]) for call in Call.objects.all()}

    assert (plan.status, len(served)) == ("completed", 1)
    [(implementation, said)] = served
    which = "second" if implementation == code("hail", "second").pk else "first"
    assert said == f"{which} Ada"


def test_direct_calls_are_shared_out_too_and_compared(ada):
    for _ in range(10):
        work_off(make_plan(ada, greet(1)))
    calls = [create_call(CallOrder("hail", {"name": "Ada"}), by=Requester(ada)) for _ in range(20)]
    assert len({call.implementation_id for call in calls}) == 2

    first, second = implementation_stats(get_tool_row("hail"))

    assert first.calls + second.calls == 30
    assert first.completed + second.completed == 10
    assert (first.share, second.share, first.success_rate) == (0.5, 0.5, 1.0)
    assert first.p50_ms is not None and first.p95_ms is not None and 0 <= first.p50_ms <= first.p95_ms


def test_a_held_call_shows_and_runs_the_one_it_was_asked_with_whatever_the_weights_become(ada, rosa):
    put("salute", "first", weight=0)
    plan = work_off(make_plan(ada, greet(1, "salute")))
    assert '"summary": "second"' in request_of(plan).rounds.get().preview
    put("salute", "first", weight=1000)
    put("salute", "second", weight=0)

    approve(plan, rosa)
    plan = work_off(plan)

    assert (plan.status, request_of(plan).status) == ("completed", "consumed")
    assert call_of(plan).response_json["results"] == ["second Ada"]


def test_an_approved_call_whose_implementation_was_switched_off_is_asked_about_again(ada, rosa):
    put("salute", "first", weight=0)
    plan = work_off(make_plan(ada, greet(1, "salute")))
    old = request_of(plan)
    put("salute", "first", weight=1)
    put("salute", "second", enabled=False)

    approve(plan, rosa)
    plan = work_off(plan)

    old.refresh_from_db()
    assert (old.status, request_of(plan).status) == ("superseded", "pending")
    assert call_of(plan).implementation_id == code("salute", "first").pk
    assert step_of(plan).waiting_for == "approval"


def test_a_call_that_nothing_serves_fails(ada):
    put("hail", "first", enabled=False)
    put("hail", "second", weight=0)

    with pytest.raises(NoImplementation):
        create_call(CallOrder("hail", {"name": "Ada"}), by=Requester(ada))
    plan = work_off(make_plan(ada, greet(1)))

    assert (plan.status, step_of(plan).status) == ("failed", "failed")
    assert "hail" in step_of(plan).error


def test_a_stored_call_is_run_by_another_when_its_own_was_switched_off(ada):
    put("hail", "first", weight=0)
    call = create_call(CallOrder("hail", {"name": "Ada"}), by=Requester(ada))
    put("hail", "first", weight=1)
    put("hail", "second", enabled=False)

    plan = work_off(call.steps.get().plan)

    call.refresh_from_db()
    assert (plan.status, call.response_json["results"]) == ("completed", ["first Ada"])
    assert call.implementation_id == code("hail", "first").pk


def test_an_implementation_that_is_other_code_here_is_left_to_others(ada):
    put("hail", "first", weight=0)
    put("hail", "second", digest="another")

    assert create_call(CallOrder("hail", {"name": "Ada"}), by=Requester(ada)).status == "created"
    put("hail", "first", weight=1)
    put("hail", "second", weight=0)
    assert work_off(make_plan(ada, greet(1))).status == "completed"


def test_an_implementation_that_vanishes_is_kept_and_serves_nothing_until_it_is_back(ada):
    put("hail", "second", weight=7)
    with clean_registry():

        @tool(name="hail")
        def alone(name: str) -> str:
            """Greet someone."""
            return f"alone {name}"

        assert "changed hail" in sync_registered_tools().lines()
        assert not code("hail", "second").registered
        plan = work_off(make_plan(ada, greet(1)))
        assert call_of(plan).response_json["results"] == ["alone Ada"]

    assert "changed hail" in sync_registered_tools().lines()
    assert (code("hail", "second").registered, code("hail", "second").weight) == (True, 7)
