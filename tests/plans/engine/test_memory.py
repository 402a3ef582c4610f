"""Memory of plans: stored results, references, and steps skipped because their work is done."""

import pytest

from plans.models import MemoryItem, Plan
from plans.store.selectors import memory_of
from tests.builders import act, call_of, events_of, make_plan, step_of, work_off


def values(plan: Plan) -> dict[str, object]:
    """Return the plan's memory by key."""
    return dict(memory_of(plan)["values"])


def test_the_whole_response_is_kept(stage, ada):
    """Under the expected key, in the standard shape."""
    plan = work_off(make_plan(ada, act(1, "x", expected_key="answer")))
    kept = values(plan)["answer"]
    assert isinstance(kept, dict)
    assert (kept["success"], kept["results"], kept["parameters"]) == (True, ["x"], {"value": "x"})
    assert "1 memory.written" in events_of(plan)


@pytest.mark.parametrize(
    ("path", "kept"),
    [(["results"], [{"deep": [False]}]), (["results", "0", "deep", "0"], False), (["results", "7"], None)],
)
def test_output_path_selects_the_stored_value(stage, ada, path, kept):
    """Falsy values are kept; a path without a value stores null."""
    plan = make_plan(ada, act(1, {"deep": [False]}, expected_key="answer", output_path=path))
    assert values(work_off(plan)) == {"answer": kept}


def test_default_key_is_the_tools_own(stage, ada):
    """A tool without one stores nothing."""
    plan = make_plan(ada, act(1, "x", "keeping", output_path=["results", "0"]), act(2, "y"))
    assert values(work_off(plan)) == {"kept": "x"}


def test_expected_key_takes_precedence_over_the_tools_own(stage, ada):
    plan = make_plan(ada, act(1, "x", "keeping", expected_key="mine", output_path=["results", "0"]))
    assert values(work_off(plan)) == {"mine": "x"}


def test_references_become_values(stage, ada):
    """From the plan's own memory and earlier steps; typed if alone, as text inside text."""
    first = act(1, {"n": 7}, expected_key="found", output_path=["results", "0"])
    second = act(2, {"n": "${found.n}", "text": "${given}: ${found}", "as_is": "$${x}"}, dependencies=[1])
    plan = work_off(make_plan(ada, first, second, memory={"given": "Ada"}))
    assert stage.values("safe")[1] == {"n": 7, "text": 'Ada: {"n":7}', "as_is": "${x}"}
    assert call_of(plan, 2).arguments == '{"value":{"as_is":"${x}","n":7,"text":"Ada: {\\"n\\":7}"}}'


def test_unresolvable_reference_fails_its_step(stage, ada):
    """Before anything runs; the message names the reference."""
    first = act(1, {}, expected_key="found", output_path=["results", "0"])
    plan = work_off(make_plan(ada, first, act(2, "${found.n}", dependencies=[1])))
    assert (plan.status, stage.values("safe")) == ("failed", [{}])
    assert "${found.n}" in step_of(plan, 2).error
    assert step_of(plan, 2).call is None


def test_a_step_whose_check_holds_is_skipped(stage, ada):
    """The existing value is kept, dependents continue, and one note describes the skip."""
    document = act(1, "x", expected_key="answer", output_path=["results"], done_check="answer == 42")
    plan = work_off(make_plan(ada, document, act(2, "${answer}", dependencies=[1]), memory={"answer": 42}))
    skipped = step_of(plan)
    assert (plan.status, skipped.status, skipped.skipped) == ("completed", "completed", True)
    assert (stage.values("safe"), values(plan)) == ([42], {"answer": 42})
    note = [item for item in memory_of(plan)["items"] if item["type"] == "step_skipped"]
    assert [{**each, "at": None} for each in note] == [
        {"type": "step_skipped", "step_id": 1, "key": "answer", "expected_key": "answer", "at": None, "tool": "safe",
         "description": "Step 1", "output_path": ["results"], "done_check": "answer == 42"}
    ]  # fmt: skip
    assert events_of(plan)[2:4] == ["1 step.started", "1 step.skipped"]


def test_skipped_step_without_a_value_stores_a_marker(stage, ada):
    """So that references to it resolve."""
    plan = work_off(make_plan(ada, act(1, "x", expected_key="answer", done_check="1 == 1")))
    assert values(plan) == {"answer": {"skipped": True, "reason": "Success criterion already satisfied"}}
    assert MemoryItem.objects.filter(plan=plan, type="value", step_id=1).count() == 1


@pytest.mark.parametrize("check", ["answer is not None", "missing > 1", "answer / 0 == 1"])
def test_a_check_that_does_not_hold_runs_the_step(stage, ada, check):
    """Also a check with an error; the event has the reason."""
    plan = work_off(make_plan(ada, act(1, "x", done_check=check), memory={"answer": None}))
    started = plan.events.get(type="step.started")
    assert (stage.values("safe"), step_of(plan).skipped) == (["x"], False)
    assert started.data_json["check"]


def test_check_can_read_the_steps_own_value(stage, ada):
    """As `value`, whatever its key."""
    plan = make_plan(ada, act(1, "x", expected_key="answer", done_check="value == 42"), memory={"answer": 42})
    assert step_of(work_off(plan)).skipped


def test_handlers_read_memory(stage, ada):
    """Also async ones, which cannot use the database."""
    seen = []
    stage.acts["safe"] = lambda value, context: seen.append(context.memory["given"])

    async def read(context):
        seen.append(dict(context.memory))

    stage.acts["hasty_async"] = lambda value, context: read(context)
    plan = work_off(make_plan(ada, act(1), act(2, tool="hasty_async", dependencies=[1]), memory={"given": 1}))
    assert (plan.status, seen) == ("completed", [1, {"given": 1}])
