"""Middleware of the addresses that MCP clients call."""

from collections.abc import Callable

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from catalog.connections.endpoints import json_error, not_found_response
from catalog.rest.problems import KEPT_HEADERS, STATUS_DETAILS
from catalog.rest.program_paths import is_client_path


class ClientErrorMiddleware:
    """Turns HTML error pages into errors in OAuth's form. Outermost, to see errors of all middleware.

    A client would report the HTML as the error, and hide the reason, such as that its token was refused.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        status, is_page = response.status_code, response.get("Content-Type", "").startswith("text/html")
        if status < 400 or not is_page or not is_client_path(request.path_info):
            return response
        if status == 404:
            return not_found_response()
        error = "invalid_request" if status < 500 else "temporarily_unavailable" if status == 503 else "server_error"
        words = STATUS_DETAILS.get(status, "An unexpected error occurred. It has been logged.")
        return json_error(error, words, status, **{name: response[name] for name in KEPT_HEADERS if name in response})
