"""What is told of every HTTP request: one log line, one measurement, one span; and the id by which they are found.

Outermost of the middleware, so that it sees what the others refuse and every line that is logged inside carries the
request's id.
"""

import logging
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from time import perf_counter

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.template.loader import render_to_string
from structlog.contextvars import bound_contextvars

from catalog.core import tracing
from catalog.core.tracing import log_extra
from catalog.models import ApiToken
from config.operations import metrics

SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
UNLOGGED_VIEWS = frozenset({"healthz", "readyz", "metrics", "static"})
"""What asks so often, and says so little, that its lines are for DEBUG."""

MIN_COMPRESSED_BYTES = 1000
"""Bytes; less fits into one packet anyway."""
COMPRESSED_TYPES = re.compile(
    r"text/.+|application/((.+\+)?json|x-ndjson|javascript|yaml|(.+\+)?xml)|.+\+(json|xml|yaml)"
)
PARTIAL_CONTENT = 206

REFUSED_BODY_KEY = "toolgate.refused_body"
"""Key of a request's ASGI scope under which the handler notes the status with which it stopped reading the body."""

log = logging.getLogger("toolgate.http")


class RequestLogMiddleware:
    """Wraps everything that Django does for one request."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answer one request, and say so."""
        headers = request.headers
        with request_ids(headers.get("X-Request-ID", ""), headers.get("traceparent", "")) as request_id:
            response = self._answer(request)
        response["X-Request-ID"] = request_id
        return response

    def _answer(self, request: HttpRequest) -> HttpResponseBase:
        began = perf_counter()
        response = self._get_response(request)
        seconds = perf_counter() - began
        view, method = view_label(request), request.method if request.method in METHODS else "other"
        metrics.observe_request(view, str(method), response.status_code, seconds)
        tracing.add_span_attributes(**{"http.request.method": str(method), "http.route": view})
        tracing.add_span_attributes(**{"http.response.status_code": response.status_code})
        response._has_been_logged = True  # type: ignore[attr-defined] # Django would log a bare second line
        level = (
            logging.DEBUG if view in UNLOGGED_VIEWS else logging.ERROR if response.status_code >= 500 else logging.INFO
        )
        if log.isEnabledFor(level):
            facts = {"method": method, "view": view, "path": request.path, "status": response.status_code}
            log.log(
                level,
                "request",
                extra=log_extra(**facts, duration_ms=round(seconds * 1000, 1), **requester_label(request)),
            )
        return response


@contextmanager
def request_ids(given_id: str, given_traceparent: str) -> Iterator[str]:
    """Let what is logged and made inside belong to one request and its caller's trace; give the request's id.

    The id is the one that was given if it is harmless, else a new one.
    """
    request_id = given_id if SAFE_ID.fullmatch(given_id) else secrets.token_hex(8)
    traceparent = tracing.parse_traceparent(given_traceparent)
    ids = {"request_id": request_id}
    if traceparent:
        ids["trace_id"] = traceparent[3:35]
    with ExitStack() as inside:
        inside.enter_context(bound_contextvars(**ids))
        inside.enter_context(tracing.remote_parent(traceparent))
        inside.enter_context(tracing.span("request", {"request_id": request_id}, traceparent))
        yield request_id


def view_label(request: HttpRequest) -> str:
    """Return the name of the view that was asked: never a path, of which there is no end."""
    if request.resolver_match is not None:
        return request.resolver_match.view_name or "unnamed"
    return "static" if request.path_info.startswith("/static/") else "none"


def requester_label(request: HttpRequest) -> dict[str, int]:
    """Return who asked as far as that is known already: the user's id, or the token's; nothing is looked up."""
    token = getattr(request, "auth", None)
    if isinstance(token, ApiToken):
        return {"token": token.pk, "user": token.user_id}
    user = request.__dict__.get("_cached_user")
    return {"user": user.pk} if user is not None and user.pk else {}


class CompressionMiddleware(GZipMiddleware):
    """Compresses texts for clients that take gzip, with padding of random length against BREACH.

    Left alone: short answers, content that is compressed already, parts of files, and streams of events, which must
    arrive piece by piece.
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Compress the response where that is worth it."""
        is_short = isinstance(response, HttpResponse) and len(response.content) < MIN_COMPRESSED_BYTES
        if is_short or response.status_code == PARTIAL_CONTENT or request.method == "HEAD":
            return response
        media_type = response.get("Content-Type", "").partition(";")[0].strip().lower()
        if not COMPRESSED_TYPES.fullmatch(media_type) or media_type == "text/event-stream":
            return response
        return super().process_response(request, response)


class RefusedBodyMiddleware:
    """Answers requests whose body was not read to its end: 413 or 408, and the connection is closed."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answer before anything looks at the request."""
        status = getattr(request, "scope", {}).get(REFUSED_BODY_KEY)
        if status is None:
            return self._get_response(request)
        page = render_to_string(f"{status}.html")
        return HttpResponse(page, status=status, headers={"Connection": "close"})
