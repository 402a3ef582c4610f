"""Tracing: incoming trace contexts, spans of requests and steps, attributes without private data."""

import sys
from importlib.util import find_spec, module_from_spec
from io import StringIO
from types import SimpleNamespace

import pytest
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from catalog.core import tracing
from tests.builders import act, approve, call_of, make_plan, work_off
from tests.corpus import faults
from tests.rest import Rest

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{PARENT}-01"
SECRET = "yrano-canary-72"


@pytest.fixture
def spans(monkeypatch) -> InMemorySpanExporter:
    """The spans that a collector would receive."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "tracer", provider.get_tracer("toolgate"))
    return exporter


def test_a_traceparent_is_taken_as_the_standard_says():
    cases = [
        (GIVEN, GIVEN),
        (GIVEN.replace("00-", "cc-", 1), GIVEN),
        (f"cc-{TRACE}-{PARENT}-01-what-the-future-brings", GIVEN),
        ("", ""),
        (f"00-{TRACE}-{PARENT}-01-more", ""),
        (f"ff-{TRACE}-{PARENT}-01", ""),
        (f"00-{'0' * 32}-{PARENT}-01", ""),
        (f"00-{TRACE}-{'0' * 16}-01", ""),
        (GIVEN.upper(), ""),
        (f" {GIVEN}\n", GIVEN),
        (GIVEN[:-1], ""),
    ]

    def check(given, kept):
        assert tracing.parse_traceparent(given) == kept

    assert faults(check, cases) == {}


def test_new_span_belongs_to_the_incoming_trace():
    with tracing.remote_parent(GIVEN):
        assert tracing.current_traceparent() == GIVEN
    made = tracing.current_traceparent()
    assert tracing.parse_traceparent(made) == made
    assert tracing.trace_id_of(made) not in (TRACE, tracing.trace_id_of(tracing.current_traceparent()))
    assert tracing.trace_id_of("") is None


def test_without_a_collector_there_are_no_spans(monkeypatch):
    for name in tracing.ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    assert (tracing.start_tracing(), tracing.is_exporting()) == ("", False)
    with tracing.span("step", {"step": 1}):
        tracing.add_span_attributes(outcome="completed")


@pytest.mark.parametrize(
    ("environment", "has_spans", "has_metrics"),
    [
        ({tracing.ENDPOINT: "http://127.0.0.1:1"}, True, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1"}, True, False),
        ({tracing.ENDPOINT: "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"}, False, True),
        ({tracing.ENDPOINT: "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}, False, False),
    ],
    ids=["both", "spans", "metrics", "disabled"],
)
def test_variables_choose_what_is_exported(monkeypatch, environment, has_spans, has_metrics):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tracing, "tracer", None)
    monkeypatch.setattr(tracing, "durations", {})
    exporters = SimpleNamespace(
        OTLPSpanExporter=InMemorySpanExporter, OTLPMetricExporter=lambda: ConsoleMetricExporter(out=StringIO())
    )
    monkeypatch.setattr(tracing, "import_module", lambda name: exporters)
    assert tracing.start_tracing() == ""
    assert (tracing.tracer is not None, bool(tracing.durations)) == (has_spans, has_metrics)


def test_collector_without_packages_is_reported(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setitem(sys.modules, tracing.SPAN_EXPORTER, None)
    assert "extra otel" in tracing.start_tracing()
    assert tracing.tracer is None


def test_the_packages_of_the_extra_are_not_needed(monkeypatch):
    for name in [*sys.modules, "opentelemetry.sdk"]:
        if name.startswith("opentelemetry.sdk"):
            monkeypatch.setitem(sys.modules, name, None)
    found = find_spec(tracing.__name__)
    assert found is not None and found.loader is not None
    again = module_from_spec(found)
    found.loader.exec_module(again)
    with again.span("step", {"step": 1}):
        assert again.parse_traceparent(again.current_traceparent())


@pytest.mark.django_db(transaction=True)
def test_a_request_its_steps_and_their_calls_are_one_trace(spans, stage, ada):
    """Steps may run later and in another process: the plan stores its trace."""
    body = {"goal": "Try it", "steps": [act(1, SECRET), act(2, SECRET, tool="cautious", dependencies=[1])]}
    plan_ref = Rest(ada).post("plans/", body, traceparent=GIVEN).json()["id"]
    plan = work_off(ada.plans.get(public_id=plan_ref))
    finished = spans.get_finished_spans()
    gates = [span for span in finished if span.name == "gate"]
    request, *rest = [span for span in finished if span.name != "gate"]
    assert {span.parent.span_id for span in gates} == {request.context.span_id}
    assert [span.name for span in rest] == ["tool call", "step", "tool call", "step"]
    assert (request.name, request.parent.span_id) == ("request", int(PARENT, 16))
    assert {span.context.trace_id for span in (request, *rest)} == {int(TRACE, 16)}
    assert [span.parent.span_id for span in rest[1::2]] == [request.context.span_id] * 2
    assert [span.parent.span_id for span in rest[0::2]] == [span.context.span_id for span in rest[1::2]]
    assert dict(rest[3].attributes) == {
        "toolgate.plan": plan_ref, "toolgate.step": 2, "toolgate.tool": "cautious", "toolgate.outcome": "completed",
        "toolgate.call": call_of(plan, 2).public_id, "toolgate.level": "cautious",
    }  # fmt: skip
    assert request.attributes["http.route"] == "api-plans"
    assert request.attributes["http.response.status_code"] == 201


@pytest.mark.django_db(transaction=True)
def test_spans_hold_no_argument_result_or_message(spans, stage, ada, rosa):
    def fail(value, context):
        raise ValueError(SECRET)

    stage.acts |= {"safe": fail, "dangerous": lambda value, context: SECRET}
    plan = make_plan(ada, act(1, SECRET), act(2, SECRET, tool="dangerous"))
    work_off(plan)
    approve(plan, rosa, step_id=2)
    work_off(plan)
    span_records = [span.to_json() for span in spans.get_finished_spans()]
    assert len(span_records) == 9
    assert [span for span in span_records if SECRET in span] == []
