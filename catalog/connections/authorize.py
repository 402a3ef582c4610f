"""The page on which a person connects a client (`/oauth/authorize/`).

GET shows what the client asks for; only a POST with a CSRF token decides. `AuthorizeView` checks the request and
answers the client. A subclass in a higher layer shows what the client would get.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

from csp.constants import SELF
from django import forms
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.http import urlencode as encode_query
from django.utils.translation import gettext as _
from django.views import View
from oauth2_provider.exceptions import OAuthToolkitError
from oauth2_provider.views.mixins import OAuthLibMixin
from oauthlib.oauth2.rfc6749 import errors

from catalog.access.roles import signed_in_at
from catalog.connections.addresses import issuer_of, offers_oauth, own_resource
from catalog.connections.backend import QueryCore
from catalog.connections.clients import ClientRefused, needs_permission, resolve_client
from catalog.connections.models import LOOPBACK_HOSTS, Client, redirect_host
from catalog.connections.scopes import held_scopes
from catalog.connections.services import ConsentTerms
from catalog.connections.steps import ATTEMPT_KEY, Attempt, record_step
from catalog.core import clock
from catalog.ui.requests import PageRequest, sign_in_required

SIGN_IN_AGE = timedelta(hours=1)
"""Age of a session after which a person signs in again before they connect a client."""
CHALLENGE_PATTERN = re.compile(r"[A-Za-z0-9_-]{43}")
"""A SHA-256 in base64url without padding (RFC 7636)."""
MAX_STATE = 4096


@dataclass(frozen=True, slots=True)
class Authorization:
    """A valid request of a client to be connected by this person."""

    client: Client
    redirect_uri: str
    scopes: tuple[str, ...]
    """Scopes that the client asks for and the person's roles allow."""
    beyond: tuple[str, ...]
    """Scopes that the client asks for and the person's roles do not allow."""
    resource: str
    credentials: dict[str, Any]

    @property
    def host(self) -> str:
        """Host to which the person is sent, or the scheme of a native application."""
        return redirect_host(self.redirect_uri)

    @property
    def is_local(self) -> bool:
        return self.host in LOOPBACK_HOSTS


class Refused(Exception):
    """The request is not valid. `location` is where the client is told, empty if that address cannot be trusted."""

    def __init__(self, words: str, *, location: str = "", status: int = 400) -> None:
        super().__init__(words)
        self.words = words
        self.location = location
        self.status = status


@method_decorator(sign_in_required, name="dispatch")
class AuthorizeView(OAuthLibMixin, View, ABC):
    """The protocol of the page; a subclass has the form of the person, the template and the terms that follow from it.

    The form's button `decision` has the value `allow`, or any other to refuse.
    """

    oauthlib_backend_class = QueryCore
    form_class: ClassVar[type[forms.Form]]
    template_name: ClassVar[str]

    # --- for subclasses ---

    def make_form(self, authorization: Authorization, data: Any = None) -> forms.Form:
        """Return the form of the page; `data` is the POST, None for a new form."""
        return self.form_class(data)

    def context(self, authorization: Authorization, form: forms.Form) -> dict[str, Any]:
        """Return the template's context."""
        return {"authorization": authorization, "form": form}

    @abstractmethod
    def terms(self, authorization: Authorization, form: forms.Form) -> ConsentTerms:
        """Return what the person consents to by a valid form."""

    # --- the protocol ---

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        page_request = cast("PageRequest", request)
        if not offers_oauth():
            return self._refuse(request, Refused(_("This server has no OAuth: use a token."), status=404))
        signed_in = signed_in_at(page_request.user)
        if signed_in is None or signed_in < clock.now() - SIGN_IN_AGE:
            if page_request.htmx:  # the form, when it is sent, leads to the sign-in page
                return HttpResponse(status=403)
            query = encode_query({"again": "1", "next": request.get_full_path()})
            return redirect(f"{reverse('sign-in')}?{query}")
        attempt = request.META[ATTEMPT_KEY] = Attempt("authorize", user=page_request.user)
        try:
            return super().dispatch(request, *args, **kwargs)
        except Refused as refused:
            record_step(attempt, succeeded=False, words=refused.words)
            return self._refuse(request, refused)

    def get(self, request: PageRequest) -> HttpResponse:
        authorization = self._read(request)
        return self._page(authorization, self.make_form(authorization))

    def post(self, request: PageRequest) -> HttpResponse:
        authorization = self._read(request)
        attempt: Attempt = request.META[ATTEMPT_KEY]
        if request.POST.get("decision") != "allow":
            record_step(attempt, succeeded=False, words="The person refused to connect the client.")
            return _leave(self._error_location(authorization, errors.AccessDeniedError()))
        form = self.make_form(authorization, request.POST)
        if not form.is_valid():
            return self._page(authorization, form, status=422)
        credentials = {**authorization.credentials, "resource": [authorization.resource]}
        credentials["terms"] = self.terms(authorization, form)
        try:
            location, *_rest = self.create_authorization_response(
                request, " ".join(authorization.scopes), credentials, allow=True
            )
        except OAuthToolkitError as error:
            raise _refusal(error, authorization.resource) from None
        record_step(attempt, succeeded=True, words="The person consented. A code was sent to the client.")
        return _leave(_with_issuer(authorization.redirect_uri, location, authorization.resource))

    def _read(self, request: PageRequest) -> Authorization:
        """Check the client's parameters. Raises Refused."""
        attempt: Attempt = request.META[ATTEMPT_KEY]
        try:
            client = resolve_client(request.GET.get("client_id", ""), person=f"user:{request.user.pk}")
        except ClientRefused as refusal:
            raise Refused(refusal.message, status=refusal.status) from None
        attempt.client = client
        resource = own_resource(request, request.GET.getlist("resource"))
        try:
            scopes, credentials = self.validate_authorization_request(request)
        except OAuthToolkitError as error:
            raise _refusal(error, resource or own_resource(request, []) or "") from None
        assert client is not None  # noqa: S101 - the library has found it
        held = held_scopes(request.user, scopes)
        authorization = Authorization(
            client=client,
            redirect_uri=credentials["redirect_uri"],
            scopes=tuple(held),
            beyond=tuple(scope for scope in scopes if scope not in held),
            resource=resource or own_resource(request, []) or "",
            credentials=_known(credentials),
        )
        if needs_permission(client):
            message = _("An administrator must allow %(client)s before people can connect it. Ask one, then try again.")
            raise Refused(message % {"client": client}, status=403)
        fault = _fault_of(authorization, has_resource=resource is not None)
        if fault is not None:
            raise Refused(fault.description, location=self._error_location(authorization, fault))
        return authorization

    def _error_location(self, authorization: Authorization, error: errors.OAuth2Error) -> str:
        error.state = authorization.credentials.get("state")
        uri = authorization.redirect_uri
        return _with_issuer(uri, error.in_uri(uri), authorization.resource)

    def _page(self, authorization: Authorization, form: forms.Form, *, status: int = 200) -> HttpResponse:
        context = self.context(authorization, form)
        response = render(self.request, self.template_name, context, status=status)
        # Without it, the browser would stop the redirect to the client after the form was sent.
        source = form_action_source(authorization.redirect_uri)
        response._csp_update = {"form-action": [SELF, source]}  # type: ignore[attr-defined] # read by CSPMiddleware
        return response

    def _refuse(self, request: HttpRequest, refused: Refused) -> HttpResponse:
        if refused.location:
            return _leave(refused.location)
        context = {"words": refused.words, "status": refused.status}
        return render(request, "connections/refused.html", context, status=refused.status)


def form_action_source(redirect_uri: str) -> str:
    """Return the source for CSP's form-action that permits a redirect to the address."""
    parts = urlsplit(redirect_uri)
    if parts.scheme not in ("http", "https"):
        return f"{parts.scheme}:"
    if ":" in (parts.hostname or ""):  # sources have no IPv6 addresses
        return f"{parts.scheme}://*:{parts.port or 80}"
    return f"{parts.scheme}://{parts.netloc}"


def _fault_of(authorization: Authorization, *, has_resource: bool) -> errors.OAuth2Error | None:
    """Return the error of a request whose client and redirect address are known, if it has one."""
    credentials = authorization.credentials
    if not has_resource:
        return errors.CustomOAuth2Error("invalid_target", "The resource is not /mcp of this server.")
    if credentials.get("code_challenge_method") != "S256":
        return errors.InvalidRequestError("The code_challenge_method must be S256.")
    if not CHALLENGE_PATTERN.fullmatch(credentials.get("code_challenge") or ""):
        return errors.InvalidRequestError("The code_challenge must be a SHA-256 in base64url.")
    if len(credentials.get("state") or "") > MAX_STATE:
        return errors.InvalidRequestError(f"The state has at most {MAX_STATE} characters.")
    if not authorization.scopes:
        return errors.AccessDeniedError("The roles of this person allow none of these scopes.")
    return None


def _known(credentials: dict[str, Any]) -> dict[str, Any]:
    """Return what the library needs to answer; not its request, which holds all of this one."""
    names = ("client_id", "redirect_uri", "response_type", "state", "code_challenge", "code_challenge_method")
    return {name: credentials.get(name) for name in names}


def _refusal(error: OAuthToolkitError, resource: str) -> Refused:
    """Return the refusal for an error of the library, which says whether the redirect address is the client's."""
    fault: errors.OAuth2Error = error.oauthlib_error
    words = fault.description or fault.error
    if isinstance(fault, errors.FatalClientError) or not fault.redirect_uri:
        return Refused(_FATAL_WORDS.get(type(fault), words))
    return Refused(words, location=_with_issuer(fault.redirect_uri, fault.in_uri(fault.redirect_uri), resource))


_FATAL_WORDS: dict[type[errors.OAuth2Error], str] = {
    errors.MissingClientIdError: "The client did not say who it is: client_id is missing.",
    errors.InvalidClientIdError: "This client is unknown here. Start again in the client, so that it registers anew.",
    errors.MissingRedirectURIError: "The client named no redirect address, and has registered several.",
    errors.InvalidRedirectURIError: "The redirect address is not a valid address.",
    errors.MismatchingRedirectURIError: "The redirect address is not one that the client has registered.",
}


def _with_issuer(redirect_uri: str, location: str, resource: str) -> str:
    """Return the address of an answer with the issuer (RFC 9207), in the place of one that is there.

    Of `location` only the query is taken: the OAuth library would return `app:///back` as `app:/back`.
    """
    sent = parse_qsl(urlsplit(location).query, keep_blank_values=True)
    query = [(name, value) for name, value in sent if name != "iss"]
    return f"{redirect_uri.partition('?')[0]}?{urlencode([*query, ('iss', issuer_of(resource))])}"


def _leave(location: str) -> HttpResponse:
    """Send the browser to the client, whose address has been checked: it may have the scheme of an application."""
    response = HttpResponse(status=303)
    response["Location"] = location
    response["Referrer-Policy"] = "no-referrer"
    return response
