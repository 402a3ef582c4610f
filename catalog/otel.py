"""Spans by OpenTelemetry: imported only where the extra `otel` is installed and a collector is named.

Attributes are ids, names of tools, levels and outcomes: never arguments, results or messages.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from os import environ

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from catalog.tracing import Ids

EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
KINDS = {"request": SpanKind.SERVER}
_propagator = TraceContextTextMapPropagator()


class OtelTracer:
    """Makes spans with one provider; attributes are led by `toolgate.`, unless their names have a dot already."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("toolgate")

    @contextmanager
    def span(self, name: str, ids: Ids, parent: str) -> Iterator[None]:
        """Open a span under the present one, or under the one that a traceparent names."""
        context = _propagator.extract({"traceparent": parent}) if parent else None
        # What was raised is not recorded: its message may hold arguments.
        with self._tracer.start_as_current_span(
            name,
            context,
            KINDS.get(name, SpanKind.INTERNAL),
            _named(ids),
            record_exception=False,
            set_status_on_exception=False,
        ):
            yield

    def note(self, ids: Ids) -> None:
        """Add attributes to the present span."""
        trace.get_current_span().set_attributes(_named(ids))

    def traceparent(self) -> str:
        """Return the present span as a traceparent, empty when there is none."""
        carrier: dict[str, str] = {}
        _propagator.inject(carrier)
        return carrier.get("traceparent", "")


def _named(ids: Ids) -> dict[str, str | int]:
    return {name if "." in name else f"toolgate.{name}": value for name, value in ids.items()}


def exporting_tracer() -> OtelTracer:
    """Return a tracer whose spans go to the collector that the standard variables name. Raises ImportError."""
    exporter = import_module(EXPORTER).OTLPSpanExporter()
    named = {} if environ.get("OTEL_SERVICE_NAME") else {"service.name": "toolgate"}
    provider = TracerProvider(resource=Resource.create(named))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return OtelTracer(provider)
