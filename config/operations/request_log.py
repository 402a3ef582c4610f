"""Log line, metric and span of every HTTP request; the outermost middleware, so that it sees what others refuse."""

import logging
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from time import perf_counter

from django.core.exceptions import BadRequest
from django.db import DataError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.template.loader import render_to_string
from opentelemetry.trace import SpanKind
from structlog.contextvars import bound_contextvars

from catalog.core import tracing
from catalog.core.tracing import log_extra
from catalog.models import ApiToken
from config.operations import metrics

SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
UNLOGGED_VIEWS = frozenset({"healthz", "readyz", "metrics", "static"})
"""Frequent, uninteresting paths, logged at level DEBUG."""

MIN_COMPRESSED_BYTES = 1000
"""Bytes; smaller responses fit into one packet anyway."""
COMPRESSED_TYPES = re.compile(
    r"text/.+|font/ttf|application/((.+\+)?json|x-ndjson|javascript|yaml|(.+\+)?xml)|.+\+(json|xml|yaml)"
)
PARTIAL_CONTENT = 206

REFUSED_BODY_KEY = "toolgate.refused_body"
"""Key in a request's ASGI scope of the status with which the handler stopped reading its body."""

log = logging.getLogger("toolgate.http")


class RequestLogMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        headers = request.headers
        with request_ids(headers.get("X-Request-ID", ""), headers.get("traceparent", "")) as request_id:
            began = perf_counter()
            response = self._get_response(request)
            seconds = perf_counter() - began
            view, method = view_label(request), request.method if request.method in METHODS else "other"
            metrics.observe_request(view, str(method), response.status_code, seconds)
            tracing.add_span_attributes(**{"http.request.method": str(method), "http.route": view})
            tracing.add_span_attributes(**{"http.response.status_code": response.status_code})
            response._has_been_logged = True  # type: ignore[attr-defined] # Django would log a bare second line
            level = (
                logging.DEBUG
                if view in UNLOGGED_VIEWS
                else logging.ERROR
                if response.status_code >= 500
                else logging.INFO
            )
            if log.isEnabledFor(level):
                facts = {"method": method, "view": view, "path": request.path, "status": response.status_code}
                log.log(
                    level,
                    "request",
                    extra=log_extra(**facts, duration_ms=round(seconds * 1000, 1), **requester_label(request)),
                )
        response["X-Request-ID"] = request_id
        return response


@contextmanager
def request_ids(given_id: str, given_traceparent: str) -> Iterator[str]:
    """Give log lines and spans in the body the request's id and the caller's trace; yield the request's id.

    The caller's id is used if it is harmless, else a new one.
    """
    request_id = given_id if SAFE_ID.fullmatch(given_id) else secrets.token_hex(8)
    traceparent = tracing.parse_traceparent(given_traceparent)
    ids = {"request_id": request_id}
    if traceparent:
        ids["trace_id"] = traceparent[3:35]
    with ExitStack() as inside:
        inside.enter_context(bound_contextvars(**ids))
        inside.enter_context(tracing.remote_parent(traceparent))
        inside.enter_context(tracing.span("request", {"request_id": request_id}, traceparent, SpanKind.SERVER))
        yield request_id


def view_label(request: HttpRequest) -> str:
    """Return the name of the request's view, for metrics: with paths, the number of labels would have no limit."""
    if request.resolver_match is not None:
        return request.resolver_match.view_name or "unnamed"
    return "static" if request.path_info.startswith("/static/") else "none"


def requester_label(request: HttpRequest) -> dict[str, int]:
    """Return the id of the requesting user or token if it is known already; loads nothing."""
    token = getattr(request, "auth", None)
    if isinstance(token, ApiToken):
        return {"token": token.pk, "user": token.user_id}
    user = request.__dict__.get("_cached_user")
    return {"user": user.pk} if user is not None and user.pk else {}


class CompressionMiddleware(GZipMiddleware):
    """Compresses text and fonts for clients that accept gzip, with padding of random length against BREACH.

    Not compressed: short responses, already compressed content, partial content, and event streams, which must arrive
    piece by piece.
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        is_short = isinstance(response, HttpResponse) and len(response.content) < MIN_COMPRESSED_BYTES
        if is_short or response.status_code == PARTIAL_CONTENT or request.method == "HEAD":
            return response
        media_type = response.get("Content-Type", "").partition(";")[0].strip().lower()
        if not COMPRESSED_TYPES.fullmatch(media_type) or media_type == "text/event-stream":
            return response
        return super().process_response(request, response)


class RefusedBodyMiddleware:
    """Responds to requests whose body was not read completely: 413 or 408, and the connection is closed."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        status = getattr(request, "scope", {}).get(REFUSED_BODY_KEY)
        if status is None:
            return self._get_response(request)
        page = render_to_string(f"{status}.html")
        return HttpResponse(page, status=status, headers={"Connection": "close"})


class RefusedTextMiddleware:
    """Responds 400 to a request whose text PostgreSQL refused for a NUL character, which no keyboard enters.

    Forms and serializers report such a text at its field. This is for values that are read without one: names of
    buttons, keys, nonces. SQLite finds nothing that equals them.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> None:
        """Raise BadRequest, whose page handler400 returns, in place of the database's error."""
        if isinstance(exception, DataError) and "NUL" in str(exception):
            raise BadRequest("A text in this request has a NUL character.") from exception
