"""Tracing: W3C trace context of requests and plans, and OpenTelemetry spans.

Plans store their trace, so that steps which run later or in another process belong to it. Attributes of spans are ids,
tool names, levels and outcomes: never arguments, results or messages.
"""

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module

from opentelemetry import context, trace
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
SPAN_KINDS = {"request": SpanKind.SERVER}

SpanAttributes = Mapping[str, str | int]

tracer: trace.Tracer | None = None
_propagator = TraceContextTextMapPropagator()


def start_tracing() -> str:
    """Start exporting spans if a collector is configured; return why that failed, or an empty text."""
    global tracer
    if tracer is not None or not any(os.environ.get(name) for name in ENDPOINTS):
        return ""
    try:
        exporter = import_module(EXPORTER).OTLPSpanExporter()
        # Installed by the extra, like the exporter.
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

        named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "toolgate"}
        provider = TracerProvider(resource=Resource.create(named))
        provider.add_span_processor(BatchSpanProcessor(exporter))
        tracer = provider.get_tracer("toolgate")
    except ImportError:
        return "A trace collector is configured, but the packages of the extra otel are not installed."
    return ""


def log_extra(**facts: object) -> dict[str, dict[str, object]]:
    """Return `extra` for a log call: ids, names and numbers logged as fields; never arguments."""
    return {"facts": facts}


def parse_traceparent(traceparent: str) -> str:
    """Return a traceparent as version 00; empty if it is invalid."""
    return _traceparent_in(_propagator.extract({"traceparent": traceparent})) if traceparent else ""


@contextmanager
def remote_parent(traceparent: str) -> Iterator[None]:
    """Attach spans opened in the body to the caller's trace; an empty traceparent means there is no caller's trace."""
    token = context.attach(_propagator.extract({"traceparent": traceparent}))
    try:
        yield
    finally:
        context.detach(token)


def current_traceparent() -> str:
    """Return the traceparent of the current span, else of the current request, else a new one."""
    return _traceparent_in(None) or f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"


def _traceparent_in(place: context.Context | None) -> str:
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, place)
    return carrier.get("traceparent", "")


def trace_id_of(traceparent: str) -> str | None:
    return traceparent[3:35] or None


def span(name: str, ids: SpanAttributes, parent: str = "") -> AbstractContextManager[object]:
    """Open a span if spans are exported; `parent` is a traceparent. Keys without a dot get the prefix `toolgate.`."""
    if tracer is None:
        return nullcontext()
    # Exceptions are not recorded: their messages may contain arguments.
    return tracer.start_as_current_span(
        name,
        _propagator.extract({"traceparent": parent}) if parent else None,
        SPAN_KINDS.get(name, SpanKind.INTERNAL),
        _prefixed(ids),
        record_exception=False,
        set_status_on_exception=False,
    )


def add_span_attributes(**ids: str | int) -> None:
    if tracer is not None:
        trace.get_current_span().set_attributes(_prefixed(ids))


def _prefixed(ids: SpanAttributes) -> dict[str, str | int]:
    return {name if "." in name else f"toolgate.{name}": value for name, value in ids.items()}
