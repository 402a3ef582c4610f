"""Traces of whole calls: from an MCP client's `_meta` through gate, wait and execution to an upstream, and metrics."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from approvals.models import ApprovalRequest
from approvals.requests.deadlines import expire_due
from approvals.requests.lifecycle import withdraw
from catalog.access.tokens import create_token
from catalog.core import tracing
from catalog.inventory.source_sync import sync_source
from catalog.inventory.sources import create_source
from catalog.sources import mcp_client
from catalog.sources.http_requests import Operation, prepare, send
from catalog.sources.mcp_client import run_on_loop
from plans.models import Plan
from tests.builders import approve, reject, work_off
from tests.catalogs import imported_tool
from tests.http_server import taking
from tests.plans.mcp.conftest import ACCEPT, serving_mcp
from tests.rest import Rest
from tests.scripted_upstream import ANY_OBJECT, Reply, ScriptedUpstream, scripted_upstream
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{PARENT}-01"
OTHER = f"00-{'a' * 32}-{'b' * 16}-01"
SECRET = "yrano-canary-94"
VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
}
READ = {"name": "read_page", "inputSchema": ANY_OBJECT, "annotations": {"readOnlyHint": True}}
DROP = {"name": "drop_page", "inputSchema": ANY_OBJECT}


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """The spans that a collector would receive."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "tracer", provider.get_tracer("toolgate"))
    return exporter


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> InMemoryMetricReader:
    """The metrics that a collector would receive."""
    reader = InMemoryMetricReader()
    monkeypatch.setattr(tracing, "durations", tracing.create_durations(MeterProvider([reader])))
    return reader


@pytest.fixture
def recorded(
    spans: InMemorySpanExporter, metrics: InMemoryMetricReader
) -> tuple[InMemorySpanExporter, InMemoryMetricReader]:
    """All that a collector would receive."""
    return spans, metrics


@pytest.fixture
def upstream(transactional_db: None, catalog: None, admin: Any, settings: Any) -> Iterator[ScriptedUpstream]:
    """A trusted source of the catalog with one safe and one dangerous tool."""
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    with scripted_upstream() as served:
        served.tools = [READ, DROP]
        source = create_source({"name": "wiki", "kind": "mcp", "url": served.url, "trusted": True}, by=admin)
        sync_source(source)
        mcp_client.close_connections()
        served.requests.clear()
        yield served
        mcp_client.close_connections()


@pytest.fixture
def ask(ada: Any, catalog: None) -> Iterator[Any]:
    """A way to send an MCP request with a traceparent, and the JSON-RPC answer; a held call is answered at once."""
    text = create_token(user=ada, kind="agent", scopes=["calls:create"], hold_seconds=0)[1]
    with serving_mcp() as url:

        def send(name: str, *, method: str = "tools/call", headers: Any = None, **meta: Any) -> dict[str, Any]:
            params = {"name": name, "arguments": {"value": SECRET}, "_meta": META | meta}
            sent = {**ACCEPT, "authorization": f"Bearer {text}", "mcp-protocol-version": VERSION}
            sent |= {"mcp-method": method, "mcp-name": name, **(headers or {})}
            message = {"jsonrpc": "2.0", "id": "request-7", "method": method, "params": params}
            answer: dict[str, Any] = httpx2.post(url, headers=sent, json=message, timeout=60).json()
            return answer

        yield send


def finished(exporter: InMemorySpanExporter) -> list[Any]:
    """Return the spans once the request has ended: it is answered before."""
    eventually(
        lambda: "request" in {span.name for span in exporter.get_finished_spans()}, what="the end of the request"
    )
    return list(exporter.get_finished_spans())


def run_held(ask: Any, by: Any, **meta: Any) -> str:
    """Let an agent ask for a dangerous call of the upstream, approve and run it; return the tool's name."""
    name = imported_tool("drop_page").name
    pending = ask(name, **meta)
    assert pending["result"]["structuredContent"]["status"] == "pending_approval"
    plan, opened_at = Plan.objects.get(), ApprovalRequest.objects.get().opened_at
    ApprovalRequest.objects.update(opened_at=opened_at - timedelta(days=3))
    approve(plan, by)
    assert work_off(plan).status == "completed"
    return name


def test_a_held_call_of_an_upstream_is_one_trace(spans, upstream, ask, rosa):
    """Also where the client names it in `_meta`, beside another in the HTTP header, and a person takes three days."""
    spans.clear()  # of the import
    session = {"toolgate/session": "s-1"}
    name = run_held(ask, rosa, traceparent=GIVEN, headers={"traceparent": OTHER}, **session)
    served, wait = f"SERVER tools/call {name}", "INTERNAL wait for a person"
    (request,) = [span for span in finished(spans) if span.name == "request"]
    traced = [span for span in finished(spans) if span is not request]
    labels = {span.context.span_id: f"{span.kind.name} {span.name}" for span in traced} | {
        int(PARENT, 16): "the client's"
    }
    named = {labels[span.context.span_id]: span for span in traced}
    assert {span.context.trace_id for span in traced} == {int(TRACE, 16)}
    assert {(labels[span.context.span_id], labels[span.parent.span_id]) for span in traced} == {
        (served, "the client's"), ("INTERNAL gate", served), (wait, served), ("INTERNAL step", served),
        ("INTERNAL tool call", "INTERNAL step"), ("CLIENT tools/list", "INTERNAL tool call"),
        ("CLIENT tools/call drop_page", "INTERNAL tool call"),
    }  # fmt: skip
    assert next(span.attributes["toolgate.verdict"] for span in traced if span.name == "gate") == "hold"

    server = named[served]
    assert dict(server.attributes) == {
        "mcp.method.name": "tools/call", "gen_ai.tool.name": name, "gen_ai.operation.name": "execute_tool",
        "mcp.protocol.version": VERSION, "jsonrpc.request.id": "request-7", "mcp.session.id": "s-1",
        "network.transport": "tcp", "network.protocol.name": "http",
    }  # fmt: skip
    assert [link.context.span_id for link in server.links] == [request.context.span_id]

    held = named[wait]
    assert held.end_time - held.start_time > timedelta(days=3).total_seconds() * 1e9
    asked = ApprovalRequest.objects.get()
    assert held.attributes["toolgate.approval.id"] == asked.public_id
    assert held.attributes["toolgate.approval.status"] == "approved"
    assert held.attributes["toolgate.policy.name"] == asked.policy_revision.policy.name
    assert held.attributes["toolgate.level"] == "dangerous"

    client = named["CLIENT tools/call drop_page"]
    assert client.attributes["toolgate.source"] == "wiki"
    (params,) = [params for method, params, _ in upstream.requests if method == "tools/call"]
    assert params["_meta"]["traceparent"] == f"00-{TRACE}-{client.context.span_id:016x}-01"
    assert [span.name for span in traced if SECRET in span.to_json()] == []


def test_without_a_collector_the_trace_still_reaches_the_upstream(upstream, ask, rosa):
    run_held(ask, rosa, traceparent=GIVEN)
    assert Plan.objects.get().traceparent == GIVEN
    metas = {method: params.get("_meta", {}) for method, params, _ in upstream.requests}
    assert metas["tools/call"]["traceparent"] == GIVEN
    assert "traceparent" not in metas["initialize"]  # the connection serves calls of other traces, too


@pytest.mark.parametrize(
    "given",
    [
        {"traceparent": GIVEN[:-1]},
        {"traceparent": 7},
        {"traceparent": [GIVEN]},
        {"traceparent": GIVEN.replace("00-", "cc-", 1) + "-" + "x" * 1_000_000},
        {"traceparent": None, "tracestate": "a=b"},
    ],
    ids=["cut", "number", "list", "1 MB", "none"],
)
def test_a_malformed_trace_is_none(spans, ask, given):
    """The call runs, in a trace of its own."""
    answer = ask("render_text", **given)
    assert answer["result"]["isError"] is True  # for its arguments
    (server,) = [span for span in finished(spans) if span.kind == SpanKind.SERVER and span.name != "request"]
    assert server.context.trace_id != int(TRACE, 16)


def test_a_tracestate_of_1_mb_is_left_out(upstream, ask, rosa):
    run_held(ask, rosa, traceparent=GIVEN, tracestate=f"vendor={'x' * 1_000_000}", baggage="user=ada")
    (meta,) = [params["_meta"] for method, params, _ in upstream.requests if method == "tools/call"]
    assert meta["traceparent"] == GIVEN
    assert meta.keys().isdisjoint({"tracestate", "baggage"})


PLAIN: dict[str, str] = {}
BY_SDK = {"content-type": "application/json; charset=utf-8"}
"""A header with which a call is left to the SDK."""


@pytest.mark.parametrize(
    ("request_of_client", "span", "error"),
    [
        (("tools/call", "render_text", PLAIN), "tools/call render_text", "tool_error"),
        (("tools/call", "render_text", BY_SDK), "tools/call render_text", "tool_error"),
        (("tools/call", SECRET, PLAIN), "tools/call", "-32602"),
        ((SECRET, "x", PLAIN), "_OTHER", "-32601"),
    ],
    ids=["plain", "sdk", "unknown tool", "unknown method"],
)
def test_a_failure_is_an_error_type(recorded, ask, request_of_client, span, error):
    """Names that a client makes up are neither names of spans nor attributes."""
    (spans, metrics), (method, name, headers) = recorded, request_of_client
    ask(name, method=method, headers=headers, traceparent=GIVEN)
    server = next(each for each in finished(spans) if each.name == span)
    assert server.attributes["error.type"] == error
    assert (server.status.status_code, server.status.description) == (StatusCode.ERROR, None)
    assert server.attributes.get("rpc.response.status_code") == (None if error == "tool_error" else error)
    written = [each.to_json() for each in spans.get_finished_spans()] + [metrics.get_metrics_data().to_json()]
    assert [text for text in written if SECRET in text] == []


def test_requests_of_both_sides_are_timed(metrics, executor, upstream, ask):
    upstream.on("read_page", Reply({"content": [], "isError": True}))
    ask("read_page")
    exported = json.loads(metrics.get_metrics_data().to_json())
    measured = exported["resource_metrics"][0]["scope_metrics"][0]["metrics"]
    points = {metric["name"]: metric["data"]["data_points"] for metric in measured}
    (server,) = points["mcp.server.operation.duration"]
    assert server["explicit_bounds"] == list(tracing.OPERATION_BUCKETS)
    assert server["count"] == 1
    assert server["attributes"].keys().isdisjoint(tracing.SPAN_ONLY)
    (call,) = [
        point
        for point in points["mcp.client.operation.duration"]
        if point["attributes"]["mcp.method.name"] == "tools/call"
    ]
    assert call["attributes"]["error.type"] == "tool_error"
    assert call["attributes"]["gen_ai.tool.name"] == "read_page"


def expire(plan: Plan, by: Any) -> None:
    """Let the request of a plan expire, answered or not."""
    request = ApprovalRequest.objects.get()
    ends = request.not_after or request.expires_at
    assert expire_due(ends + timedelta(seconds=1)) == 1


def withdraw_it(plan: Plan, by: Any) -> None:
    """Let the requester withdraw the request of a plan."""
    withdraw(ApprovalRequest.objects.get(), by=plan.author, reason="")


@pytest.mark.parametrize(
    ("acts", "status"),
    [
        ([reject], "rejected"),
        ([expire], "expired"),
        ([withdraw_it], "withdrawn"),
        ([approve, expire], "approved"),
        ([approve, withdraw_it], "approved"),
    ],
    ids=["rejected", "expired", "withdrawn", "approved and expired", "approved and withdrawn"],
)
@pytest.mark.usefixtures("stage")
def test_a_wait_ends_once(spans, ada, rosa, acts, status):
    """An approval that ends unused was a wait until it was given."""
    call = Rest(ada).post("calls/", {"tool": "dangerous", "arguments": {"value": 1}}).json()
    plan = Plan.objects.get()
    for act in acts:
        act(plan, rosa)
    waits: list[Any] = [span for span in spans.get_finished_spans() if span.name == "wait for a person"]
    assert [span.attributes["toolgate.approval.status"] for span in waits] == [status]
    assert [span.attributes["toolgate.call"] for span in waits] == [call["id"]]


@pytest.mark.parametrize("sends", [True, False])
def test_http_tools_send_the_trace_where_the_operator_says_so(settings, sends):
    settings.TOOLGATE_TRACE_HTTP_TOOLS = sends
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    with taking() as api, tracing.remote_parent(GIVEN):
        operation = Operation(method="POST", url=f"http://127.0.0.1:{api.server_port}/200", body="json")
        run_on_loop(send("shop", prepare(operation, {}, {}), 5), 10)
    ((_, headers, _),) = api.taken
    assert headers["traceparent"] == (GIVEN if sends else None)
