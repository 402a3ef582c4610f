"""Answers under /api/ that no API view gave: Django's own HTML errors become problem documents."""

from collections.abc import Mapping

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from catalog.problems import AWAY, MEDIA_TYPE, Problem

API_PREFIX = "/api/"
KEPT_HEADERS = ("Allow", "Connection", "Retry-After", "WWW-Authenticate")
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
DETAILS: Mapping[int, str] = {
    400: "The request was refused as malformed.",
    403: "You may not do this.",
    404: "There is nothing at this path.",
    405: "This path does not take that method.",
    408: "The request body came too slowly. Send it again.",
    413: "The request body is too large.",
    503: AWAY.detail,
}


class ApiProblems(MiddlewareMixin):
    """Outermost of the middleware, so that it sees what the others refuse."""

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        """Refuse to send a body on to the path with a slash: a redirect would lose it."""
        path = request.path_info
        if path.startswith(API_PREFIX) and not path.endswith("/") and request.method not in SAFE_METHODS:
            return _answer(Problem(404, f"There is nothing at this path; paths end with a slash: {path}/"))
        return None

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Put a problem document in the place of an error page."""
        is_page = response.get("Content-Type", "").startswith("text/html")
        if response.status_code < 400 or not request.path_info.startswith(API_PREFIX) or not is_page:
            return response
        detail = DETAILS.get(response.status_code, "Something went wrong here; it has been logged.")
        kept = {name: response[name] for name in KEPT_HEADERS if name in response}
        code = AWAY.code if response.status_code == AWAY.status else ""
        return _answer(Problem(response.status_code, detail, code, headers=kept))


def _answer(problem: Problem) -> JsonResponse:
    return JsonResponse(problem.as_json(), status=problem.status, content_type=MEDIA_TYPE, headers=problem.headers)
