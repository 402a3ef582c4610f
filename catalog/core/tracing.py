"""Tracing: W3C trace context of requests and plans, OpenTelemetry spans, and the durations of MCP requests.

Plans store their trace, so that steps which run later or in another process belong to it. Attributes of spans are ids,
names of tools and policies, levels and outcomes: never arguments, results or messages.
"""

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from importlib import import_module
from time import perf_counter
from uuid import uuid4

from opentelemetry import context, trace
from opentelemetry.metrics import Histogram
from opentelemetry.trace import Link, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

SIGNALS = ("TRACES", "METRICS")
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
ENDPOINTS = (ENDPOINT, *(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT" for signal in SIGNALS))
SPAN_EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
METRIC_EXPORTER = "opentelemetry.exporter.otlp.proto.http.metric_exporter"
NOT_INSTALLED = "A trace collector is configured, but the packages of the extra otel are not installed."

MAX_TRACEPARENT = 512
"""Characters of a traceparent that is read at all; version 00 has 55, later versions may have more."""
OPERATION_BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""Upper bounds in seconds, as the conventions for MCP recommend."""
OPERATIONS = {
    SpanKind.SERVER: ("mcp.server.operation.duration", "Duration of requests of MCP clients, until they are answered."),
    SpanKind.CLIENT: ("mcp.client.operation.duration", "Duration of requests to upstream MCP servers."),
}
"""The name and the description of the metric for each side of MCP."""
SPAN_ONLY = frozenset({"jsonrpc.request.id", "mcp.session.id"})
"""Attributes of an MCP request that its metric leaves out: they differ in every request or session."""

FOREIGN = ("error.", "gen_ai.", "http.", "jsonrpc.", "mcp.", "network.", "rpc.", "server.", "toolgate.")
"""Beginnings of the names of attributes that the conventions define; others are Toolgate's own."""

SpanAttributes = Mapping[str, str | int]

tracer: trace.Tracer | None = None
durations: Mapping[SpanKind, Histogram] = {}
_propagator = TraceContextTextMapPropagator()


def start_tracing() -> str:
    """Start exporting spans and metrics if a collector is configured; return why that failed, or an empty text."""
    global tracer, durations
    if tracer is not None or durations or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ""
    exported = [signal for signal in SIGNALS if _is_exported(signal)]
    if not exported:
        return ""
    try:
        # Installed by the extra, like the exporters.
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

        # Several processes count the same metric: the instance keeps their numbers apart.
        named = {"service.instance.id": str(uuid4())}
        if not os.environ.get("OTEL_SERVICE_NAME"):
            named["service.name"] = "toolgate"
        resource = Resource.create(named)
        if "TRACES" in exported:
            provider = TracerProvider(resource=resource)
            provider.add_span_processor(BatchSpanProcessor(import_module(SPAN_EXPORTER).OTLPSpanExporter()))
            tracer = provider.get_tracer("toolgate")
        if "METRICS" in exported:
            reader = PeriodicExportingMetricReader(import_module(METRIC_EXPORTER).OTLPMetricExporter())
            durations = create_durations(MeterProvider([reader], resource))
    except ImportError:
        return NOT_INSTALLED
    return ""


def _is_exported(signal: str) -> bool:
    """Return whether a collector is configured for a signal, and its exporter not set to `none`."""
    collectors = (os.environ.get(ENDPOINT), os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"))
    return any(collectors) and os.environ.get(f"OTEL_{signal}_EXPORTER", "").strip().lower() != "none"


def create_durations(provider: object) -> Mapping[SpanKind, Histogram]:
    """Return the histograms of MCP requests, created with a MeterProvider."""
    meter = provider.get_meter("toolgate")  # type: ignore[attr-defined] # its type is in the extra
    return {
        kind: meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=OPERATION_BUCKETS)
        for kind, (name, description) in OPERATIONS.items()
    }


def log_extra(**facts: object) -> dict[str, dict[str, object]]:
    """Return `extra` for a log call: ids, names and numbers logged as fields; never arguments."""
    return {"facts": facts}


def parse_traceparent(traceparent: object) -> str:
    """Return a traceparent as version 00; empty if it is no text or invalid."""
    if not isinstance(traceparent, str) or not 0 < len(traceparent) <= MAX_TRACEPARENT:
        return ""
    return _traceparent_in(_propagator.extract({"traceparent": traceparent}))


@contextmanager
def remote_parent(traceparent: str) -> Iterator[None]:
    """Attach spans opened in the body to the caller's trace; an empty traceparent means there is no caller's trace."""
    token = context.attach(_propagator.extract({"traceparent": traceparent}))
    try:
        yield
    finally:
        context.detach(token)


def leave_trace() -> None:
    """Leave the caller's trace for the rest of this asyncio task: it outlives the request that started it."""
    context.attach(context.Context())


def current_traceparent() -> str:
    """Return the traceparent of the current span, else of the current request, else a new one."""
    return _traceparent_in(None) or f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"


def trace_headers() -> dict[str, str]:
    """Return the header that passes the current trace on to an HTTP server; empty if there is none."""
    traceparent = _traceparent_in(None)
    return {"traceparent": traceparent} if traceparent else {}


def _traceparent_in(place: context.Context | None) -> str:
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, place)
    return carrier.get("traceparent", "")


def trace_id_of(traceparent: str) -> str | None:
    return traceparent[3:35] or None


def is_exporting() -> bool:
    """Return whether spans or metrics of MCP requests are exported."""
    return tracer is not None or bool(durations)


def span(
    name: str, ids: SpanAttributes, parent: str = "", kind: SpanKind = SpanKind.INTERNAL, *, links_around: bool = False
) -> AbstractContextManager[object]:
    """Open a span if spans are exported. Keys outside the conventions get the prefix `toolgate.`.

    `parent` is a traceparent; if it is given, `links_around` links the span of the surrounding code.
    """
    if tracer is None:
        return nullcontext()
    place, links = None, []
    if parent:
        place, around = _propagator.extract({"traceparent": parent}), trace.get_current_span().get_span_context()
        links = [Link(around)] if links_around and around.is_valid else []
    # Exceptions are not recorded: their messages may contain arguments.
    return tracer.start_as_current_span(
        name, place, kind, _prefixed(ids), links, record_exception=False, set_status_on_exception=False
    )


def add_past_span(name: str, ids: SpanAttributes, parent: str, *, began: datetime, ended: datetime) -> None:
    """Add a span that has ended already, such as a wait of days, if spans are exported."""
    if tracer is not None:
        place = _propagator.extract({"traceparent": parent})
        past = tracer.start_span(name, place, attributes=_prefixed(ids), start_time=_nanoseconds(began))
        past.end(_nanoseconds(max(began, ended)))


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1000


def add_span_attributes(**ids: str | int) -> None:
    if tracer is not None:
        trace.get_current_span().set_attributes(_prefixed(ids))


def fail_span(error_type: str) -> None:
    """Mark the current span as failed. `error_type` is one of few values, never a message."""
    if tracer is not None:
        current = trace.get_current_span()
        current.set_attribute("error.type", error_type)
        current.set_status(StatusCode.ERROR)


class McpOperation:
    """One MCP request, served or sent, while it is traced and timed; `error` is the type of its failure."""

    __slots__ = ("code", "error")

    def __init__(self) -> None:
        self.error, self.code = "", ""

    def fail(self, error: str, code: str = "") -> None:
        """Record a failure. `error` is one of few values, never a message; `code` is that of a JSON-RPC error."""
        self.error, self.code = error, code


@contextmanager
def mcp_operation(
    kind: SpanKind, method: str, attributes: SpanAttributes, *, tool: str = "", parent: str = ""
) -> Iterator[McpOperation]:
    """Trace and time an MCP request, as the OpenTelemetry conventions for MCP name it; call it if `is_exporting`."""
    facts: dict[str, str | int] = {"mcp.method.name": method, **attributes}
    if tool:
        facts |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
    operation, began = McpOperation(), perf_counter()
    with span(f"{method} {tool}".rstrip(), facts, parent, kind, links_around=True):
        try:
            yield operation
        except BaseException as error:
            if not operation.error:
                operation.fail(type(error).__name__)
            raise
        finally:
            failure: dict[str, str | int] = {}
            if operation.error:
                failure["error.type"] = operation.error
                fail_span(operation.error)
            if operation.code:
                failure["rpc.response.status_code"] = operation.code
                add_span_attributes(**{"rpc.response.status_code": operation.code})
            if kind in durations:
                measured = {name: value for name, value in (facts | failure).items() if name not in SPAN_ONLY}
                durations[kind].record(perf_counter() - began, _prefixed(measured))


def _prefixed(ids: SpanAttributes) -> dict[str, str | int]:
    return {name if name.startswith(FOREIGN) else f"toolgate.{name}": value for name, value in ids.items()}
