"""Traces: the W3C trace that a request or plan goes on with, and the spans of what is done for it.

A trace comes in with a request (`traceparent`) or begins here; plans keep it, so that steps which run later, also in
another process, belong to it. Spans are made where the packages of the extra `otel` are installed and the standard
variable OTEL_EXPORTER_OTLP_ENDPOINT names a collector; without them everything here costs next to nothing. Attributes
are ids, names of tools, levels and outcomes: never arguments, results or messages.
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
"""Makes the spans; None where nobody collects them."""
_propagator = TraceContextTextMapPropagator()


def start_tracing() -> str:
    """Make spans from now on, where a collector is named; return why there are none although one is, else nothing."""
    global tracer
    if tracer is not None or not any(os.environ.get(name) for name in ENDPOINTS):
        return ""
    try:
        tracer = _exporting_tracer()
    except ImportError:
        return "A collector for traces is named, but the packages of the extra otel are not installed."
    return ""


def _exporting_tracer() -> trace.Tracer:
    """Return a tracer whose spans go to the collector that the standard variables name. Raises ImportError."""
    exporter = import_module(EXPORTER).OTLPSpanExporter()
    # Of the extra, as the exporter is.
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "toolgate"}
    provider = TracerProvider(resource=Resource.create(named))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider.get_tracer("toolgate")


def log_extra(**facts: object) -> dict[str, dict[str, object]]:
    """Return `extra` for a log line: ids, names and numbers that stand beside its words; never arguments."""
    return {"facts": facts}


def parse_traceparent(traceparent: str) -> str:
    """Return a traceparent as it is kept: empty when it is not one; of a later version what this one knows of it."""
    return _traceparent_in(_propagator.extract({"traceparent": traceparent})) if traceparent else ""


@contextmanager
def remote_parent(traceparent: str) -> Iterator[None]:
    """Let what is made inside belong to a trace that began elsewhere; empty: to none."""
    token = context.attach(_propagator.extract({"traceparent": traceparent}))
    try:
        yield
    finally:
        context.detach(token)


def current_traceparent() -> str:
    """Return the traceparent of what is being done here: of the span, else what the request named, else a new one."""
    return _traceparent_in(None) or f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"


def _traceparent_in(place: context.Context | None) -> str:
    """Return the span of a context, of the present one for None, as a traceparent; empty when it has none."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, place)
    return carrier.get("traceparent", "")


def trace_id_of(traceparent: str) -> str | None:
    """Return the trace id in a traceparent, None when there is none."""
    return traceparent[3:35] or None


def span(name: str, ids: SpanAttributes, parent: str = "") -> AbstractContextManager[object]:
    """Open a span, where spans are made; `parent` is a traceparent, empty for the span that is open here.

    Attributes are led by `toolgate.`, unless their names have a dot already.
    """
    if tracer is None:
        return nullcontext()
    # What was raised is not recorded: its message may hold arguments.
    return tracer.start_as_current_span(
        name,
        _propagator.extract({"traceparent": parent}) if parent else None,
        SPAN_KINDS.get(name, SpanKind.INTERNAL),
        _prefixed(ids),
        record_exception=False,
        set_status_on_exception=False,
    )


def add_span_attributes(**ids: str | int) -> None:
    """Add attributes to the span that is open here, where spans are made."""
    if tracer is not None:
        trace.get_current_span().set_attributes(_prefixed(ids))


def _prefixed(ids: SpanAttributes) -> dict[str, str | int]:
    return {name if "." in name else f"toolgate.{name}": value for name, value in ids.items()}
