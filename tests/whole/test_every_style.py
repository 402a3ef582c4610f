"""The example module: a tool of each way of declaring is exported, tried on its page, and called in a plan."""

import json
import re
import sys
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.dispatch.arguments import prepare_arguments
from catalog.dispatch.pipeline import run_call, standard_response
from catalog.errors import ToolError
from catalog.exports import providers
from catalog.models import Call, Tool
from catalog.results import STANDARD_FIELDS
from catalog.testing import clean_registry, make_context
from catalog.tools.registry import get_tool
from plans.models import Plan
from tests.builders import call_of, make_plan, step, work_off
from tests.pages import Pages
from tests.whole.factories import CALLS, EXAMPLES, RESULTS


def test_every_style_appears_in_the_catalog(synced):
    rows = Tool.objects.filter(name__in=CALLS, registered=True).select_related("source")
    assert {row.name for row in rows} == set(CALLS)
    assert {row.source.name for row in rows} == {"every_style"}


@pytest.mark.parametrize("provider", providers.PROVIDERS)
def test_every_style_is_exported_to_every_provider(synced, provider):
    for row in Tool.objects.filter(name__in=CALLS).select_related("current_version__tool"):
        assert row.current_version is not None
        shown, _ = providers.export_for_page(provider, row.current_version)
        assert row.name in str(shown) and row.current_version.description in str(shown)


def test_every_style_is_called_in_a_plan_and_answers_in_the_standard_shape(synced, ada):
    steps = [step(number, name, parameters=CALLS[name]) for number, name in enumerate(CALLS, start=1)]
    plan = work_off(make_plan(ada, *steps))
    assert plan.status == "completed", [each.error for each in plan.steps.all()]
    for number, name in enumerate(CALLS, start=1):
        response = call_of(plan, number).response_json
        assert response is not None and set(response) >= STANDARD_FIELDS
        assert (response["success"], response["results"], response["output_key"]) == (True, RESULTS[name], name)
    assert Plan.objects.get(pk=plan.pk).completed_at is not None


@pytest.mark.parametrize("name", list(CALLS))
def test_every_style_is_tried_from_its_page(synced, ada, name):
    pages, path = Pages(ada), f"/tools/{name}/try/"
    assert "Try it" in pages.open(path)
    sent = {"mode": "json", "json": json.dumps(CALLS[name]), "key": pages.field("key"), "do": "call"}
    pages.send(path, sent)
    work_off(Plan.objects.get())
    call = Call.objects.get()
    assert call.response_json is not None
    assert (call.tool_name, call.via, call.response_json["results"]) == (name, "page", RESULTS[name])
    text = pages.open(f"{path}?call={call.public_id}")
    assert "Done" in text and 'class="call-result' in pages.html


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def arguments_near(name: str) -> st.SearchStrategy[object]:
    """Return arguments that are anything, and arguments that nearly fit."""
    right = CALLS[name]
    near = st.fixed_dictionaries({key: st.just(value) | JSON for key, value in right.items()})
    partly = st.builds(
        lambda some, more: {**some, **more}, near, st.dictionaries(st.text(max_size=8), JSON, max_size=2)
    )
    return JSON | near | partly


@pytest.mark.parametrize("name", list(CALLS))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_arguments_find_anything_but_the_contracts_errors(synced, name, data):
    tool = get_tool(name)
    assert tool is not None
    arguments = data.draw(arguments_near(name))
    try:
        checked = prepare_arguments(tool, arguments)
    except ToolError as refused:
        assert refused.user_message()
        return
    outcome = run_call(tool, checked, make_context())
    assert outcome.success, outcome.message
    assert set(standard_response(tool, checked.given, outcome)) >= STANDARD_FIELDS


def test_the_examples_of_the_guide_run(monkeypatch):
    guide = (EXAMPLES.parent / "tools.md").read_text()
    module = ModuleType("guide_for_tool_authors")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with clean_registry():
        for block in re.findall(r"```python\n(.*?)```", guide, re.DOTALL):
            exec(block, vars(module))  # noqa: S102 (the guide is ours)
