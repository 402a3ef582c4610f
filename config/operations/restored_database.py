"""Middleware that refuses all changes after a restore from a backup, until an administrator starts a new epoch.

Requests that are open in the restored copy may have been answered after the backup, and their calls may have run. MCP
calls bypass Django's middleware; `plans.actions.call` and `approvals.requests.lifecycle` check for themselves.
"""

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django_htmx.http import reselect, reswap, retarget

from approvals.audit.restore_guard import cached_fault
from catalog.connections.endpoints import json_error
from catalog.rest.problems import API_PREFIX, SAFE_METHODS, ProblemDetails, problem_response
from catalog.rest.program_paths import is_client_path
from catalog.ui.requests import render_rejected_form

READING_ROUTES = frozenset(
    {
        *("api-plan-check", "api-tool-validate", "api-policies-back-test"),
        *("policy-simulator", "policy-sentence", "api-policies-simulate", "api-policies-sentence"),
    }
)
"""Routes whose POST changes nothing."""
ALLOWED_ROUTES = READING_ROUTES | {
    *("sign-in", "sign-in-code", "sign-in-passkey", "account_login", "mfa_authenticate", "sign-out"),
    *("audit", "api-audit-verify", "audit-export", "api-audit-export"),
    *("plan-pause", "api-plan-pause", "plan-cancel", "api-plan-cancel", "draft-cancel"),
    "token-revoke",
}
"""Names of the routes that accept unsafe methods: they read, stop something, or export the audit log."""
REVOKING_ROUTES = frozenset({"api-token", "api-token-current"})
"""Routes whose DELETE revokes a token; their PATCH is refused."""


class RestoredDatabaseMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Pass the request on; only `process_view`, which knows the route, can decide to refuse it."""
        return self._get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponseBase | None:
        """Refuse with an error document or a page that gives the evidence; None lets the view respond."""
        fault, match = cached_fault(), request.resolver_match
        route = match.view_name if match is not None else ""
        is_revoked = request.method == "DELETE" and route in REVOKING_ROUTES
        if not fault or request.method in SAFE_METHODS or route in ALLOWED_ROUTES or is_revoked:
            return None
        if request.path_info.startswith(API_PREFIX):
            return problem_response(ProblemDetails(503, fault, "restored"))
        if is_client_path(request.path_info):
            return json_error("temporarily_unavailable", fault, 503)
        page = render_rejected_form(request, "restored_database.html", status=409, more=fault)
        return retarget(reselect(reswap(page, "outerHTML"), "#main"), "#main")
