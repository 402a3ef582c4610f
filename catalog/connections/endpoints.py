"""Endpoints that clients call themselves: metadata, registration, tokens and revocation. All answers are JSON."""

import json
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from oauth2_provider.views.mixins import OAuthLibMixin

from catalog.access.sign_in import client_address, network_of
from catalog.connections.addresses import (
    MCP_PATH,
    offers_oauth,
    origin_of,
    own_resource,
)
from catalog.connections.clients import (
    AUTH_METHODS,
    GRANT_TYPES,
    MAX_DOCUMENT_BYTES,
    ClientRefused,
    reads_documents,
    register_client,
)
from catalog.connections.scopes import OFFERED_SCOPES
from catalog.connections.steps import ATTEMPT_KEY, Attempt, record_step
from catalog.core.canonical_json import parse_json
from catalog.errors import MalformedJSON, TooLarge

View = Callable[[HttpRequest], HttpResponseBase]
NO_OAUTH = (
    "Toolgate has no OAuth here. The bearer token of the request to /mcp is missing, unknown, expired or revoked: make "
    "one on the page /connect/ and send it in the header Authorization."
)
NO_SUCH_DOCUMENT = "Toolgate has no such document. Its OAuth metadata is at /.well-known/oauth-protected-resource/mcp."
UNDESCRIBED_ERRORS = {"invalid_client": "The secret of the client is missing or wrong."}
"""Reasons for errors that the OAuth library does not describe."""


def json_error(error: str, description: str, status: int, **headers: str) -> JsonResponse:
    """Return an error in OAuth's form."""
    response = JsonResponse({"error": error, "error_description": description}, status=status)
    response["Cache-Control"] = "no-store"
    for name, value in headers.items():
        response[name.replace("_", "-")] = value
    return response


def not_found_response() -> JsonResponse:
    """Return the answer for a client that looks for an OAuth server where there is none; HTML would hide why."""
    return json_error("not_found", NO_SUCH_DOCUMENT if offers_oauth() else NO_OAUTH, 404)


def client_endpoint(*methods: str) -> Callable[[View], View]:
    """Decorate a view that clients call: no CSRF token, JSON for other methods, and nothing if OAuth is off."""

    def decorate(view: View) -> View:
        @csrf_exempt
        @wraps(view)
        def guarded(request: HttpRequest) -> HttpResponseBase:
            if not offers_oauth():
                return not_found_response()
            if request.method not in methods:
                allowed = ", ".join(methods)
                return json_error("invalid_request", f"Send {methods[0]} to this address.", 405, Allow=allowed)
            return view(request)

        return guarded

    return decorate


@client_endpoint("GET", "HEAD")
def resource_metadata(request: HttpRequest) -> HttpResponse:
    """Describe `/mcp` as a protected resource (RFC 9728)."""
    content = {
        "resource": f"{origin_of(request)}{MCP_PATH}",
        "authorization_servers": [origin_of(request)],
        "scopes_supported": list(OFFERED_SCOPES),
        "bearer_methods_supported": ["header"],
        "resource_name": "Toolgate",
    }
    return JsonResponse(content, headers={"Cache-Control": "no-cache"})


@client_endpoint("GET", "HEAD")
def server_metadata(request: HttpRequest) -> HttpResponse:
    """Describe the authorization server (RFC 8414)."""
    origin = origin_of(request)
    content = {
        "issuer": origin,
        "authorization_endpoint": f"{origin}/oauth/authorize/",
        "token_endpoint": f"{origin}/oauth/token/",
        "registration_endpoint": f"{origin}/oauth/register/",
        "revocation_endpoint": f"{origin}/oauth/revoke/",
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": list(GRANT_TYPES),
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": list(AUTH_METHODS),
        "revocation_endpoint_auth_methods_supported": list(AUTH_METHODS),
        "scopes_supported": list(OFFERED_SCOPES),
        "authorization_response_iss_parameter_supported": True,
        "client_id_metadata_document_supported": reads_documents(),
    }
    return JsonResponse(content, headers={"Cache-Control": "no-cache"})


@client_endpoint("POST")
def register(request: HttpRequest) -> HttpResponse:
    """Register a client (RFC 7591). There is no registration access token: a client that changes registers anew."""
    attempt = Attempt("register")
    try:
        content = parse_json(request.body, max_bytes=MAX_DOCUMENT_BYTES)
        client, secret = register_client(content, network=network_of(client_address(request)))
    except (MalformedJSON, TooLarge) as error:
        return _refuse_registration(attempt, ClientRefused(f"The body must be a JSON object. {error.message}"))
    except ClientRefused as refusal:
        return _refuse_registration(attempt, refusal)
    attempt.client = client
    record_step(attempt, succeeded=True, words=f"Registered {client}.")
    answer: dict[str, Any] = {
        "client_id": client.client_id,
        "client_id_issued_at": int(client.created.timestamp()),
        "client_name": client.name,
        "redirect_uris": client.redirect_uris.split(),
        "grant_types": list(GRANT_TYPES),
        "response_types": ["code"],
        "scope": " ".join(OFFERED_SCOPES),
        "token_endpoint_auth_method": "none",
    }
    if secret:
        asked = content.get("token_endpoint_auth_method") if isinstance(content, dict) else None
        method = asked or "client_secret_basic"
        answer |= {"client_secret": secret, "client_secret_expires_at": 0, "token_endpoint_auth_method": method}
    response = JsonResponse(answer, status=201)
    response["Cache-Control"] = "no-store"
    return response


def _refuse_registration(attempt: Attempt, refused: ClientRefused) -> HttpResponse:
    record_step(attempt, succeeded=False, words=refused.message)
    response = json_error(refused.code, refused.message, refused.status)
    if refused.status == 429:
        response["Retry-After"] = "600"
    return response


@client_endpoint("POST")
def token(request: HttpRequest) -> HttpResponse:
    """Exchange a code or a refresh token for a new pair of tokens."""
    attempt = Attempt("refresh" if request.POST.get("grant_type") == "refresh_token" else "token")
    request.META[ATTEMPT_KEY] = attempt
    if own_resource(request, request.POST.getlist("resource")) is None:
        body = {"error": "invalid_target", "error_description": "The resource is not /mcp of this server."}
        return _finish(attempt, json.dumps(body), 400, {})
    if request.POST.get("grant_type") not in (None, *GRANT_TYPES):
        body = {"error": "unsupported_grant_type", "error_description": f"Use one of {', '.join(GRANT_TYPES)}."}
        return _finish(attempt, json.dumps(body), 400, {})
    _, headers, text, status = OAuthLibMixin().create_token_response(request)
    return _finish(attempt, text, status, headers)


@client_endpoint("POST")
def revoke(request: HttpRequest) -> HttpResponse:
    """End the connection of a token (RFC 7009); an unknown token is no error."""
    attempt = request.META[ATTEMPT_KEY] = Attempt("revoke")
    _, headers, text, status = OAuthLibMixin().create_revocation_response(request)
    return _finish(attempt, text, status, headers)


def _finish(attempt: Attempt, text: str | None, status: int, headers: dict[str, str]) -> HttpResponse:
    """Write the attempt's step and return the answer of the OAuth library."""
    words = {"token": "Received its first tokens.", "refresh": "Refreshed its tokens."}
    if status == 200:
        if attempt.token is not None and attempt.name in words:  # the end of a connection writes its own step
            record_step(attempt, succeeded=True, words=words[attempt.name])
    else:
        answer = json.loads(text or "{}")
        reason = attempt.words or UNDESCRIBED_ERRORS.get(answer.get("error", "")) or answer.get("error") or "Refused."
        described = str(answer.get("error_description") or reason)
        answer["error_description"] = described
        text = json.dumps(answer)
        record_step(attempt, succeeded=False, words=described)
    response = HttpResponse(text or "{}", status=status, content_type="application/json")
    for name, value in headers.items():
        response[name] = value
    response["Cache-Control"], response["Pragma"] = "no-store", "no-cache"
    return response
