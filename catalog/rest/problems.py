"""Errors of the API as `application/problem+json` (RFC 9457). Unexpected exceptions are logged and become bare 500s."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin
from drf_spectacular.utils import OpenApiResponse
from rest_framework import exceptions, serializers
from rest_framework.response import Response

from catalog import errors
from catalog.core.canonical_json import MAX_JSON_BYTES
from catalog.core.transactions import is_unavailable, log_unexpected

MEDIA_TYPE = "application/problem+json"
MAX_ERRORS = 100
RETRY_AFTER_SECONDS = 5
"""Suggested wait after the database was unavailable, about the duration of a restart."""


@dataclass(frozen=True, slots=True)
class ProblemDetails:
    """An error response. `errors` have path, code and message; `policy` has name and rule of the refusing policy."""

    status: int
    detail: str
    code: str = ""
    errors: Sequence[Mapping[str, Any]] = ()
    headers: Mapping[str, str] | None = None
    policy: Mapping[str, str] | None = None

    def as_json(self) -> dict[str, Any]:
        phrase = HTTPStatus(self.status).phrase
        return {
            "type": f"urn:toolgate:{self.code or phrase.lower().replace(' ', '_')}",
            "title": phrase,
            "status": self.status,
            "detail": self.detail,
            "errors": list(self.errors)[:MAX_ERRORS],
            **({"policy": self.policy} if self.policy else {}),
        }

    def response(self) -> Response:
        return Response(self.as_json(), self.status, headers=self.headers, content_type=MEDIA_TYPE)


class FieldErrorSerializer(serializers.Serializer[Any]):
    """One invalid field; `path` is dotted and relative to the body."""

    path = serializers.CharField(allow_blank=True)
    code = serializers.CharField()
    message = serializers.CharField()


class RefusingPolicySerializer(serializers.Serializer[Any]):
    """Name and rule of the policy that refused a call."""

    name = serializers.CharField()
    rule = serializers.CharField()


class ProblemSerializer(serializers.Serializer[Any]):
    """An error (RFC 9457); `errors` lists the invalid fields, `policy` identifies a policy that refused a call."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    errors: Any = FieldErrorSerializer(many=True)
    policy = RefusingPolicySerializer(required=False)


def refusal_responses(*statuses: int) -> dict[tuple[int, str], OpenApiResponse]:
    return {
        (status, MEDIA_TYPE): OpenApiResponse(ProblemSerializer, description=HTTPStatus(status).phrase)
        for status in statuses
    }


EXPECTED_FAILURES = (errors.RestoredDatabase, errors.SourceProblem, errors.Stopped, errors.UpstreamUnavailable)
"""Failures with a 5xx status that are no fault of this installation's code."""


def exception_handler(error: Exception, context: Mapping[str, Any]) -> Response:
    """Return the response for an exception. An unexpected one is logged without its message and becomes a bare 500."""
    problem = problem_for(error)
    if problem is None or (problem.status >= 500 and not isinstance(error, EXPECTED_FAILURES)):
        log_unexpected(error)
    if problem is None:
        problem = ProblemDetails(500, "An unexpected error occurred. It has been logged.")
    return problem.response()


def problem_for(error: Exception) -> ProblemDetails | None:
    """Return the problem document for an exception; None for an unexpected exception."""
    if is_unavailable(error):
        return DATABASE_UNAVAILABLE
    for kind, make in PROBLEM_FACTORIES:
        if isinstance(error, kind):
            return make(error)
    return None


NOT_FOUND = "No such object exists, or you may not see it."
DATABASE_UNAVAILABLE = ProblemDetails(
    503,
    "The database is temporarily unavailable. Retry in a few seconds, with the same Idempotency-Key for a POST.",
    "database_away",
    headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
)


def _problem_factory(status: int, code: str) -> Callable[[Any], ProblemDetails]:
    return lambda error: ProblemDetails(status, error.message, code)


def _field_problem_factory(code: str, field: str = "") -> Callable[[Any], ProblemDetails]:
    """Return a function that makes a 422 problem of an error. If the error names no field, it names `field`."""

    def make(error: errors.ToolError) -> ProblemDetails:
        message = error.user_message()
        own = [{"path": field, "code": code, "message": message}] if field else []
        return ProblemDetails(422, message, code, error.details.get("errors", own))

    return make


def _validation_problem(error: exceptions.ValidationError) -> ProblemDetails:
    found = list(_flatten_errors(error.detail))
    return ProblemDetails(422, first_error_detail(found), "invalid", found)


def first_error_detail(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the first error as a sentence, with its path unless it concerns the whole body."""
    if not found:
        return "The request is not valid."
    first = found[0]
    return f"{first['path']}: {first['message']}" if first["path"] else str(first["message"])


def _flatten_errors(detail: object, path: str = "") -> Iterator[dict[str, str]]:
    if isinstance(detail, Mapping):
        for key, inner in detail.items():
            yield from _flatten_errors(inner, path if key == "non_field_errors" else f"{path}.{key}".lstrip("."))
    elif isinstance(detail, list):
        nested = any(isinstance(inner, Mapping) for inner in detail)
        for index, inner in enumerate(detail):
            yield from _flatten_errors(inner, f"{path}.{index}".lstrip(".") if nested else path)
    else:
        yield {"path": path, "code": getattr(detail, "code", "invalid"), "message": str(detail)}


def _throttled_problem(error: exceptions.Throttled) -> ProblemDetails:
    seconds = max(1, round(getattr(error, "wait", None) or 1))
    return ProblemDetails(429, str(error.detail), "throttled", headers={"Retry-After": str(seconds)})


def _drf_problem(error: exceptions.APIException) -> ProblemDetails:
    challenge = getattr(error, "auth_header", None)
    headers = {"WWW-Authenticate": challenge} if challenge else None
    codes = error.get_codes()
    return ProblemDetails(
        error.status_code, str(error.detail), codes if isinstance(codes, str) else "", headers=headers
    )


PROBLEM_FACTORIES: list[tuple[type[Exception], Callable[[Any], ProblemDetails]]] = [
    (
        errors.MalformedJSON,
        lambda error: ProblemDetails(
            400,
            error.message,
            "malformed_json",
            [{"path": error.path, "code": error.code, "message": error.message}],
        ),
    ),
    (errors.TooLarge, _problem_factory(413, "too_large")),
    (errors.RestoredDatabase, _problem_factory(503, "restored")),
    (errors.SourceProblem, _problem_factory(502, "source_problem")),
    (errors.UpstreamUnavailable, _problem_factory(502, "upstream_unavailable")),
    (errors.Conflict, _problem_factory(409, "conflict")),
    (
        errors.PolicyRefusal,
        lambda error: ProblemDetails(
            403,
            error.message,
            error.kind,
            policy={"name": error.policy, "rule": error.rule} if error.policy else None,
        ),
    ),
    (errors.Stopped, _problem_factory(503, "stopped")),
    (errors.ToolDisabled, _problem_factory(409, "tool_disabled")),
    (errors.ToolDrifted, _problem_factory(409, "drifted")),
    (errors.NoImplementation, _problem_factory(409, "no_implementation")),
    (errors.UnknownTool, _field_problem_factory("unknown_tool", "tool")),
    (errors.QueryTypeUnsupported, _field_problem_factory("query_type_unsupported", "query_type")),
    (
        errors.RateLimited,
        lambda error: ProblemDetails(429, error.message, error.code, headers={"Retry-After": str(error.retry_after)}),
    ),
    (errors.ToolError, _field_problem_factory("invalid")),
    (exceptions.ValidationError, _validation_problem),
    (exceptions.Throttled, _throttled_problem),
    (exceptions.APIException, _drf_problem),
    (Http404, lambda error: ProblemDetails(404, NOT_FOUND, "not_found")),
    (
        PermissionDenied,
        lambda error: ProblemDetails(403, str(error) or "You do not have permission to do this.", "permission_denied"),
    ),
    (
        RequestDataTooBig,
        lambda error: ProblemDetails(413, f"The request body may have at most {MAX_JSON_BYTES:,} bytes.", "too_large"),
    ),
    (MultiPartParserError, lambda error: ProblemDetails(400, "The request is malformed.", "bad_request")),
    (
        UnreadablePostError,
        lambda error: ProblemDetails(400, "The connection closed before the whole body arrived.", "bad_request"),
    ),
    (SuspiciousOperation, lambda error: ProblemDetails(400, "The request is malformed.", "bad_request")),
]


API_PREFIX = "/api/"
KEPT_HEADERS = ("Allow", "Connection", "Retry-After", "WWW-Authenticate")
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
STATUS_DETAILS: Mapping[int, str] = {
    400: "The request is malformed.",
    403: "You do not have permission to do this.",
    404: "This path does not exist.",
    405: "This path does not support that method.",
    408: "The request body arrived too slowly. Send it again.",
    413: "The request body is too large.",
    503: DATABASE_UNAVAILABLE.detail,
}


class ProblemDetailsMiddleware(MiddlewareMixin):
    """Turns HTML error pages under /api/ into problem documents. Outermost, to see errors of all middleware."""

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        """Return 404 for a write to a path without its final slash, since Django's redirect would lose the body."""
        path = request.path_info
        if path.startswith(API_PREFIX) and not path.endswith("/") and request.method not in SAFE_METHODS:
            return problem_response(ProblemDetails(404, f"This path does not exist. Paths end with a slash: {path}/"))
        return None

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        is_page = response.get("Content-Type", "").startswith("text/html")
        if response.status_code < 400 or not request.path_info.startswith(API_PREFIX) or not is_page:
            return response
        detail = STATUS_DETAILS.get(response.status_code, "An unexpected error occurred. It has been logged.")
        kept = {name: response[name] for name in KEPT_HEADERS if name in response}
        code = DATABASE_UNAVAILABLE.code if response.status_code == DATABASE_UNAVAILABLE.status else ""
        return problem_response(ProblemDetails(response.status_code, detail, code, headers=kept))


def problem_response(problem: ProblemDetails) -> JsonResponse:
    return JsonResponse(problem.as_json(), status=problem.status, content_type=MEDIA_TYPE, headers=problem.headers)
