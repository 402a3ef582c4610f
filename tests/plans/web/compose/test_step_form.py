"""Tests of the form of a step: document → form → document, choices, references and bad input. No page is drawn."""

from typing import Any

import pytest
from django.http import QueryDict

from catalog.errors import ParameterError
from catalog.models import Tool
from catalog.tools import registry
from catalog.tools.registry import register_tool
from plans.actions.create import check_document
from plans.web.compose.argument_form import insert_at, is_whole_reference, sample_of
from plans.web.compose.step_form import StepForm, sample_text, suggest_key
from plans.web.compose.step_results import MAX_LISTED, StepResult, load_examples, path_text
from plans.web.compose.tool_choice import find_tools
from tests.catalogs import fill_catalog
from tests.tools_to_try import TOOLS

pytestmark = pytest.mark.django_db
TRIP = {
    "title": "Along ${river}",
    "stops": [{"place": {"kind": "town", "name": "Bonn"}, "nights": "${nights.results.0}"}, "${stop}"],
    "labels": "${labels}",
    "by_train": "${train}",
}


@pytest.fixture(autouse=True)
def to_try(catalog):
    for each in TOOLS:
        register_tool(each)
    fill_catalog()
    yield
    for each in TOOLS:
        registry._TOOLS.pop(each.name)


def document_of(*steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"goal": "A trip", "steps": list(steps), **fields}


def step(number: int, **fields: Any) -> dict[str, Any]:
    return {"step_id": number, "description": f"Step {number}", **fields}


def form_of(document, number, viewer) -> Any:
    form = StepForm(document=document, step_id=number, viewer=viewer)
    form.fill()
    form.draw()
    return form


def sent_by(form: StepForm, **changes: str | list[str]) -> QueryDict:
    """Return what a browser sends for a form that was drawn."""
    form.draw()
    sent = QueryDict(mutable=True)
    fields = {
        "kind": form.kind,
        "drawn": form.drawn,
        "tool": form.tool.name,
        "version": str(form.tool.version.number) if form.tool.version else "",
        "agent": form.agent,
        "description": form.description,
        "expected_key": form.expected_key,
        "output_path": form.output_path,
        "mode": form.arguments.mode,
        "json": form.arguments.text,
        "panel": form.panel,
        "check_mode": form.check.mode,
        "check_text": form.check.text,
    }
    for name, value in {**fields, **form.arguments.fields._fields}.items():
        sent[name] = value
    sent.setlist("needs", [choice.value for choice in form.choices if choice.chosen])
    for name in ("subject", "operator", "kind", "value", "joiner"):
        sent.setlist(f"check_{name}", [getattr(row, name) for row in form.check.rows])
    for name, given in changes.items():
        sent.setlist(name, given if isinstance(given, list) else [given])
    return sent


def read_again(form: StepForm, **changes: str | list[str]) -> Any:
    again = StepForm(document=form.document, step_id=form.step_id, viewer=form.viewer)
    again.read(sent_by(form, **changes))
    return again


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tool": "plan_trip", "parameters": TRIP, "dependencies": [2], "expected_key": "trip"},
        {"tool": "plan_trip", "parameters": {"title": 5, "unknown": ["x"]}, "output_path": ["results", "0"]},
        {"tool": "no_such_tool", "parameters": {"a": {"b": 1}, "c": "${d}"}, "done_check": "(a or b) and c"},
        {"agent": "researcher", "parameters": {"topic": "${river}"}, "done_check": "value is not None"},
        {"tool": "sec_financial_data", "parameters": {"query_type": "financial_facts", "parameters": {"ticker": "A"}}},
        {"tool": "plan_trip", "parameters": [], "dependencies": [99, 2], "output_path": ["a.b", ""]},
        {"description": "שלום 🚆 " + "x" * 1000, "tool": "book_trip", "parameters": {"title": "🚆" * 500}},
        {"tool": "plan_trip", "parameters": {}, "dependencies": [], "unknown": True},
    ],
)
def test_untouched_form_changes_nothing(ada, fields):
    document = document_of(step(1, **fields), step(2))
    again = read_again(form_of(document, 1, ada))
    if isinstance(fields.get("parameters"), list):
        with pytest.raises(ParameterError):
            again.changed_document()
    else:
        assert again.changed_document() == document


def test_constants_of_a_chosen_tool_are_stored(ada):
    form = form_of(document_of(step(1)), 1, ada)
    form.press("pick", "sec_financial_data")
    again = read_again(form, **{"value:parameters.ticker": "AAPL"})
    parameters = again.step_document()["parameters"]
    assert parameters["query_type"] == "financial_facts" and parameters["parameters"]["ticker"] == "AAPL"


def test_constants_inside_an_object_that_nobody_touched_are_stored(ada):
    kind = {"type": "object", "properties": {"of": {"const": "town"}, "size": {"type": "integer"}}, "required": ["of"]}
    schema = {"type": "object", "properties": {"to": {"type": "string"}, "kind": kind}, "required": ["to", "kind"]}
    Tool.objects.get(name="book_trip").versions.update(input_schema=schema)
    form = form_of(document_of(step(1, tool="book_trip", parameters={})), 1, ada)
    assert form.step_document()["parameters"] == {}
    again = read_again(form, **{"value:to": "Bonn"})
    assert again.step_document()["parameters"] == {"to": "Bonn", "kind": {"of": "town"}}


def test_references_are_fields_of_their_own(ada):
    form = form_of(document_of(step(1, tool="plan_trip", parameters=TRIP)), 1, ada)
    kinds = {node.path: node.kind for node in form.arguments.form.every()}
    assert [kinds[path] for path in ("title", "labels", "by_train", "stops.0.nights", "stops.1")] == [
        "text" if kinds["title"] == "text" else "area",
        *["reference"] * 4,
    ]


def test_result_is_put_into_any_field(ada):
    document = document_of(
        step(1, tool="book_trip", expected_key="booked"),
        step(
            2, tool="plan_trip", parameters={"title": "To Bonn", "stops": [{"place": {"kind": "town", "name": "Bonn"}}]}
        ),
    )
    form = form_of(document, 2, ada)
    for place in ("stops.0.nights", "pace", "stops"):
        again = read_again(form)
        again.press("use", f"{place} ${{booked.results.0}}")
        parameters = again.step_document()["parameters"]
        assert "${booked.results.0}" in str(parameters) and again.needs == [1], place
    again = read_again(form)
    again.press("use", "title ${booked}", "3")
    assert again.step_document()["parameters"]["title"] == "To ${booked}Bonn"
    again.press("use", "labels ${booked}")
    again = read_again(again)
    again.press("value", "labels")
    assert "labels" not in again.step_document()["parameters"]
    with pytest.raises(ParameterError):
        again.press("use", "nowhere ${booked}")


@pytest.mark.parametrize(
    ("caret", "text"), [("", "a🚆b${k}"), ("1", "a${k}🚆b"), ("2", "a${k}🚆b"), ("3", "a🚆${k}b"), ("99", "a🚆b${k}")]
)
def test_reference_is_inserted_at_the_caret(caret, text):
    assert insert_at("a🚆b", "${k}", caret) == text


def test_picker_compares_types_and_leaves_out_later_steps(ada):
    document = document_of(
        step(1, tool="plan_trip", expected_key="nights", output_path=["results", "0"]),
        step(2, tool="wait_for_train", dependencies=[1], expected_key="train"),
        step(3, tool="plan_trip", parameters={"title": ""}, dependencies=[2]),
        step(4, tool="book_trip", dependencies=[3], expected_key="booked"),
        memory={"budget": 5, "secret.key": 1},
    )
    form = form_of(document, 3, ada)
    form.press("refer", "budget")
    form.draw()
    found = {result.key: result for result in form.arguments.picker.results}
    assert found.keys() == {"nights", "train", "budget", "secret.key"}
    assert found["nights"].is_before and found["nights"].whole.type_label == "integer"
    assert found["nights"].whole.fit == "fits" and found["budget"].whole.fit == "fits"
    assert found["train"].whole.fit == "misfits"
    assert {part.path: part.fit for part in found["train"].parts}["results", "0"] == "misfits"
    assert found["secret.key"].whole.reference == ""


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("", {"first": ["a", "a.value"], "second": ["b", "b.0", "b.0.value"]}),
        ("second", {"second": ["b", "b.0", "b.0.value"]}),
        ("${second.b.0.value}", {"second": ["b.0.value"]}),
        ("value", {"first": ["a.value"], "second": ["b.0.value"]}),
        ("nothing", {}),
    ],
)
def test_results_and_parts_inside_them_are_searched(ada, search, found):
    memory = {"first": {"a": {"value": "x"}}, "second": {"b": [{"value": "y"}]}}
    form = form_of(document_of(step(1, tool="book_trip", parameters={"title": ""}), memory=memory), 1, ada)
    form.result_search = search
    form.press("refer", "title")
    form.draw()
    results = form.arguments.picker.results
    assert {result.key: [part.path_text for part in result.found_parts] for result in results} == found
    assert [result.is_open for result in results] == [bool(search) or not place for place in range(len(results))]


def test_new_tool_keeps_what_fits_and_shows_what_is_left(ada):
    document = document_of(step(1, tool="plan_trip", parameters={"title": "Rhine", "pace": "slow", "remark": "${x}"}))
    form = read_again(form_of(document, 1, ada))
    form.press("pick", "book_trip")
    assert [node.path for node in form.arguments.left_over] == ["pace", "remark"]
    assert form.step_document()["parameters"] == document["steps"][0]["parameters"]
    form.arguments.draw()
    again = read_again(form)
    again.press("remove", again_place(again, "pace"))
    assert again.step_document()["parameters"] == {"title": "Rhine", "remark": "${x}"}


def again_place(form: StepForm, path: str) -> str:
    form.arguments.arguments()
    return next(node.name for node in form.arguments.left_over if node.path == path)


def test_tool_that_changes_or_vanishes_while_its_form_is_open(ada):
    document = document_of(step(1, tool="book_trip", parameters={"title": "Rome"}))
    form = form_of(document, 1, ada)
    sent = sent_by(form, **{"value:title": "Oslo"})
    tool = Tool.objects.get(name="book_trip")
    new = tool.versions.get()
    new.pk, new.number, new.fingerprint = None, new.number + 1, "f" * 64
    new.input_schema = {"type": "object", "properties": {"to": {"type": "string"}}, "additionalProperties": False}
    new.save()
    tool.current_version, tool.registered = new, False
    tool.save()
    again = StepForm(document=document, step_id=1, viewer=ada)
    again.read(sent)
    assert again.step_document()["parameters"] == {"title": "Oslo"}
    assert [node.path for node in again.arguments.left_over] == ["title"] and again.tool.problem
    tool.current_version = None
    tool.save()
    assert find_tools("book")[0] == []
    gone = form_of(document, 1, ada)
    assert gone.tool.problem and gone.step_document() == document["steps"][0]


def test_waiting_for_a_later_step_would_make_a_circle(ada):
    document = document_of(step(1), step(2, dependencies=[1]), step(3, dependencies=[2]), step(4))
    choices = {choice.value: choice for choice in form_of(document, 1, ada).choices}
    assert (choices["3"].would_circle, choices["3"].chain) == (True, (3, 2, 1)) and not choices["4"].would_circle
    document["steps"][0]["dependencies"] = [3, 9, "x", [1]]
    form = form_of(document, 1, ada)
    chosen = [(choice.value, choice.is_missing, choice.would_circle) for choice in form.choices if choice.chosen]
    assert chosen == [("3", False, False), ("9", True, False), ('"x"', True, False), ("[1]", True, False)]
    assert read_again(form, needs=["9", '"x"', "4", "no"]).needs == [9, "x", 4]


def test_500_steps_are_searched(ada):
    document = document_of(*(step(number, dependencies=[number - 1] if number > 1 else []) for number in range(1, 501)))
    form = form_of(document, 250, ada)
    assert len(form.choices) == 13 and form.more_choices == 486
    assert form.choices[0].value == "249" and form.choices[0].chosen
    assert [choice.value for choice in form.choices[1:4]] == ["248", "247", "246"]
    form.needs_search = "step 500"
    form.draw()
    assert [choice.value for choice in form.choices] == ["249", "500"]
    assert form.choices[1].chain == (500, 499, 498, 497, 496, 495, 250)


def test_renamed_key_is_renamed_in_other_steps(ada):
    document = document_of(
        step(1, expected_key="old", tool="book_trip"),
        step(2, parameters={"a": "${old.b} $${old} ${older}"}, done_check="old.x", dependencies=[1]),
        step(3, done_check="old['x'] == older"),
    )
    changed = read_again(form_of(document, 1, ada), expected_key="new").changed_document()
    assert changed["steps"][1]["parameters"] == {"a": "${new.b} $${old} ${older}"}
    assert changed["steps"][1]["done_check"] == "old.x"
    assert changed["steps"][2]["done_check"] == 'new["x"] == older'


@pytest.mark.parametrize(
    ("description", "key"),
    [
        ("Get Apple's revenue for 2022", "get_apple_revenue_2022"),
        ("Übersetzen", "ubersetzen"),
        ("2022 figures", "_2022_figures"),
        ("שלום", ""),
        ("x" * 600, "x" * 40),
        ("the", "the_2"),
    ],
)
def test_key_is_suggested(description, key):
    assert suggest_key(description, {"the"}) == key


def test_problems_are_at_their_fields_and_fixed_in_one_press(ada):
    document = document_of(
        step(1, tool="book_trip", parameters={"title": "x"}, expected_key="booked"),
        step(2, tool="plan_tripp", parameters={"title": "${boked}", "stops": []}, expected_key="booked"),
        step(3, tool="plan_trip", parameters={"title": "${booked}", "stops": 5}),
    )
    problems = check_document(document)
    form = form_of(document, 2, ada)
    form.judge(problems)
    assert form.problems.keys() == {"tool", "expected_key"} and form.tool.similar == ["plan_trip"]
    form = form_of(document, 3, ada)
    form.judge(problems)
    form.draw()
    nodes = {node.path: node for node in form.arguments.form.every()}
    assert nodes["stops"].problems and nodes["title"].problems
    (fix,) = nodes["title"].extra.fixes
    fixed = form.fixed_document(fix.name, problems, document)
    assert fixed["steps"][2]["dependencies"] == [1]
    assert form.fixed_document("no such fix", problems, document) is None


def test_what_has_no_value_is_refused_at_its_field(ada):
    document = document_of(step(1, tool="plan_trip", parameters={"title": "x"}))
    form = read_again(form_of(document, 1, ada), **{"json:anything": "{", "output_path": "[1]"})
    with pytest.raises(ParameterError) as caught:
        form.changed_document()
    assert form.show_error(caught.value) == 422 and form.errors == 1
    form = read_again(form_of(document, 1, ada), output_path="[1]")
    with pytest.raises(ParameterError) as caught:
        form.changed_document()
    form.show_error(caught.value)
    assert form.problems["output_path"]


def test_samples_stand_for_references(ada):
    document = document_of(
        step(1, tool="book_trip", parameters={"title": "a ${x.y} and ${x}"}, expected_key="booked"),
        memory={"x": {"y": "5", "z": 1}},
    )
    form = form_of(document, 1, ada)
    form.press("panel", "try")
    form.draw()
    assert [(sample.reference, sample.text) for sample in form.samples] == [
        ("${x.y}", '"5"'),
        ("${x}", '{\n  "y": "5",\n  "z": 1\n}'),
    ]
    assert form.tried_arguments(document["steps"][0]["parameters"]) == {"title": 'a 5 and {"y":"5","z":1}'}
    form.samples[0].text = "six"
    assert form.tried_arguments(document["steps"][0]["parameters"])["title"].startswith("a six and")
    del document["memory"]
    form = form_of(document, 1, ada)
    with pytest.raises(ParameterError):
        form.tried_arguments(document["steps"][0]["parameters"])
    assert all(sample.problem for sample in form.samples)


@pytest.mark.parametrize(
    "value", ["", " ", "5", "true", "plain", "{", 5, None, True, [1], {"a": "b"}, '"quoted"', "a\nb"]
)
def test_sample_survives_as_text(value):
    assert sample_of(sample_text(value)) == value


@pytest.mark.parametrize("path", [["results", "0"], ["a.b"], [""], ["[x"], [" a"], []])
def test_path_survives_as_text(ada, path):
    document = document_of(step(1, tool="book_trip", parameters={"title": "x"}, output_path=path))
    form = form_of(document, 1, ada)
    assert form.output_path == path_text(path)
    assert read_again(form).changed_document() == document


def test_schema_with_hundreds_of_properties_and_recursion(ada):
    version = Tool.objects.get(name="book_trip").versions.get()
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "v": {"type": "integer"}}}
    names = {f"p{number}": {"$ref": "#/$defs/node"} for number in range(500)}
    version.input_schema = {"type": "object", "properties": names, "$defs": {"node": node}}
    version.save()
    value: Any = "${k}"
    for _ in range(30):
        value = {"next": value}
    document = document_of(step(1, tool="book_trip", parameters={"p1": value}))
    form = read_again(form_of(document, 1, ada))
    assert form.changed_document() == document


def test_whole_references():
    assert is_whole_reference("${a.b}")
    assert not any(map(is_whole_reference, ("", "a", "${a} ", "${a}${b}", "$${a}", "${")))


def test_tools_are_found_by_name_description_and_category(ada):
    hits, _ = find_tools("", ["book_trip", "gone"])
    assert hits[0].name == "book_trip" and hits[0].is_used and hits[0].asks == "Asks for title."
    assert len(hits) <= 20
    assert [hit.name for hit in find_tools("count the nights")[0]] == ["plan_trip"]
    assert find_tools("\0 nothing%like")[0] == []


def test_examples_of_many_query_types_cost_few_queries(ada, django_assert_max_num_queries):
    results = [StepResult(key=f"k{number}", tool="safe", query_type=f"q{number}") for number in range(300)]
    with django_assert_max_num_queries(3 * MAX_LISTED):
        load_examples(results, ada)
