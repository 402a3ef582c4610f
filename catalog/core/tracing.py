"""The ids that log lines carry, and the W3C trace that a request or plan goes on with.

A trace comes in with a request (`traceparent`) or begins here; plans keep it, so that steps which run later, also in
another process, belong to it. Spans are made where the packages of the extra `otel` are installed and the standard
variable OTEL_EXPORTER_OTLP_ENDPOINT names a collector; without them everything here costs next to nothing. Attributes
are ids, names of tools, levels and outcomes: never arguments, results or messages.
"""

import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from importlib import import_module
from os import environ
from typing import Protocol, cast

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?")
TRACEPARENT_LENGTH = 55
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

Ids = Mapping[str, str | int]
_ids: ContextVar[Ids] = ContextVar("toolgate_ids")
_parent: ContextVar[str] = ContextVar("toolgate_traceparent", default="")


class Tracer(Protocol):
    """Who makes spans; `catalog.core.tracing` has the one there is."""

    def span(self, name: str, ids: Ids, parent: str) -> AbstractContextManager[None]:
        """Open a span under the present one, or under the one that a traceparent names."""

    def note(self, ids: Ids) -> None:
        """Add attributes to the present span."""

    def traceparent(self) -> str:
        """Return the present span as a traceparent, empty when there is none."""


tracer: Tracer | None = None


def start() -> str:
    """Make spans from now on, where a collector is named; return why there are none although one is, else nothing."""
    global tracer
    if tracer is not None or not any(os.environ.get(name) for name in ENDPOINTS):
        return ""
    try:
        tracer = cast("Tracer", import_module("catalog.core.tracing").exporting_tracer())
    except ImportError:
        return "A collector for traces is named, but the packages of the extra otel are not installed."
    return ""


@contextmanager
def about(**ids: str | int) -> Iterator[None]:
    """Let every log line inside carry these ids beside those of the block around."""
    token = _ids.set({**_ids.get({}), **ids})
    try:
        yield
    finally:
        _ids.reset(token)


def ids() -> Ids:
    """Return the ids of what is being done here."""
    return _ids.get({})


def told(**facts: object) -> dict[str, dict[str, object]]:
    """Return `extra` for a log line: ids, names and numbers that stand beside its words; never arguments."""
    return {"facts": facts}


def accepted(traceparent: str) -> str:
    """Return a traceparent as it is kept: empty when it is not one; of a later version what this one knows of it."""
    found = TRACEPARENT.fullmatch(traceparent)
    if found is None or (traceparent.startswith("00") and len(traceparent) != TRACEPARENT_LENGTH):
        return ""
    return "00" + traceparent[2:TRACEPARENT_LENGTH]


@contextmanager
def belonging_to(traceparent: str) -> Iterator[None]:
    """Let what is made inside belong to a trace that began elsewhere; empty: to none."""
    token = _parent.set(traceparent)
    try:
        yield
    finally:
        _parent.reset(token)


def here() -> str:
    """Return the traceparent of what is being done here: of the span, else what the request named, else a new one."""
    mine = tracer.traceparent() if tracer is not None else ""
    return mine or _parent.get() or f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"


def trace_id_of(traceparent: str) -> str | None:
    """Return the trace id in a traceparent, None when there is none."""
    return traceparent[3:35] or None


def span(name: str, ids: Ids, parent: str = "") -> AbstractContextManager[None]:
    """Open a span, where spans are made; `parent` is a traceparent, empty for the span that is open here."""
    return nullcontext() if tracer is None else tracer.span(name, ids, parent)


def note(**ids: str | int) -> None:
    """Add attributes to the span that is open here, where spans are made."""
    if tracer is not None:
        tracer.note(ids)


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
