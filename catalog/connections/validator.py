"""Rules of the OAuth server, called by the OAuth library: which codes and tokens are accepted, and what they become.

Every refusal says why, to the client and in the log of the connection. A connection is live while its token is: ending
that ends all its access and refresh tokens.
"""

import hmac
import uuid
from datetime import timedelta
from typing import Any

from oauth2_provider.oauth2_validators import OAuth2Validator
from oauthlib.common import Request
from oauthlib.oauth2.rfc6749 import errors

from catalog.access.roles import NotAllowed
from catalog.connections import services
from catalog.connections.clients import find_client
from catalog.connections.credentials import ACCESS_PREFIX, checksum_of
from catalog.connections.models import AccessToken, Client, Grant, RefreshToken
from catalog.connections.services import ConsentTerms
from catalog.connections.steps import attempt_of
from catalog.core import clock
from catalog.core.rate_limits import RateLimit, RateLimitKey, acquire_use
from catalog.errors import ParameterError, RateLimited
from catalog.models import ApiToken

CODE_LIFETIME = timedelta(minutes=1)
ACCESS_LIFETIME = timedelta(hours=12)
REFRESH_LIFETIME = timedelta(days=30)
GRACE = timedelta(minutes=5)
"""Time for which a superseded refresh token still gives a new pair, to the other sessions of the same client."""
SUPERSEDED_ACCESS_LIFETIME = GRACE - timedelta(seconds=30)
"""An access token outlives its refresh token's use by less than the grace, so that an active session that still holds
both is refused, and refreshes, while that is possible."""
REFRESH_RATE = (RateLimit(30, "h"),)
"""Refreshes of one connection. Each leaves a row for REFRESH_LIFETIME, and its access token lasts for hours."""

USED_TWICE = "The code was used twice. The connection that it made has ended."


class _UsedMeanwhile(errors.InvalidGrantError):
    """Another request used the code after this one had checked it."""


class ConnectionValidator(OAuth2Validator):
    """The library's validator, with Toolgate's rules for clients, codes, rotation and revocation."""

    def _load_application(self, client_id: str, request: Request) -> Client | None:
        """Return the client and set it on the request. Unlike the library's, it fetches no metadata document."""
        if isinstance(request.client, Client) and request.client.client_id == client_id:
            return request.client
        request.client = client = find_client(client_id)
        attempt_of(request).client = client
        return client

    def _check_secret(self, provided_secret: str, stored_secret: str) -> bool:
        return hmac.compare_digest(checksum_of(provided_secret), stored_secret)

    def authenticate_client_id(self, client_id: str, request: Request, *args: Any, **kwargs: Any) -> bool:
        if self._load_application(client_id, request) is None:
            raise errors.InvalidClientError("This client is unknown here: it must register again.", request=request)
        return bool(super().authenticate_client_id(client_id, request, *args, **kwargs))

    # --- codes ---

    def _create_authorization_code(self, request: Request, code: dict[str, str], expires: Any = None) -> Grant:
        request.nonce, request.claims = "", {}  # of OpenID Connect: nothing reads them
        grant: Grant = super()._create_authorization_code(request, code, clock.now() + CODE_LIFETIME)
        Grant.objects.filter(pk=grant.pk).update(terms=request.terms.as_json())
        return grant

    def validate_code(self, client_id: str, code: str, client: Client, request: Request, *args: Any, **kw: Any) -> bool:
        """Return True for a code that this client may exchange now. Raises InvalidGrantError, which says why not."""
        attempt = attempt_of(request)
        grant = _find_grant(code)
        if grant is None:
            raise _refused(request, "The code is unknown, or too old to be known.")
        attempt.user, attempt.token = grant.user, grant.api_token
        if grant.application_id != client.pk:
            raise _refused(request, "The code was issued to another client.")
        if grant.used_at is not None:
            _end_connection_of(grant)
            raise _refused(request, USED_TWICE)
        if grant.expires <= clock.now():
            raise _refused(request, "The code has expired: it is valid for one minute.")
        if not grant.user.is_active:
            raise _refused(request, "The account of this person is deactivated.")
        attempt.words = "The code verifier does not match the code challenge (PKCE)."
        request.user, request.scopes = grant.user, grant.scope.split()
        return True

    def confirm_redirect_uri(
        self, client_id: str, code: str, redirect_uri: str, client: Client, *a: Any, **k: Any
    ) -> bool:
        grant = _find_grant(code)
        return grant is not None and redirect_uri == grant.redirect_uri

    def invalidate_authorization_code(self, client_id: str, code: str, request: Request, *a: Any, **k: Any) -> None:
        """Do nothing: the transaction that issued the tokens has marked the code as used."""

    # --- tokens ---

    def save_bearer_token(self, token: dict[str, Any], request: Request, *args: Any, **kwargs: Any) -> None:
        """Store the tokens of an answer. If another request used the code meanwhile, what that one made ends."""
        try:
            super().save_bearer_token(token, request, *args, **kwargs)
        except _UsedMeanwhile:  # the transaction of this request has ended
            _end_connection_of(_find_grant(request.code))
            raise

    def validate_refresh_token(self, refresh_token: str, client: Client, request: Request, *a: Any, **k: Any) -> bool:
        """Return True for a refresh token that is live, or superseded within its grace.

        Raises InvalidGrantError. A token used after its grace may be a stolen copy: its connection ends.
        """
        attempt = attempt_of(request)
        rows = RefreshToken.objects.select_related("api_token__user")
        used = rows.filter(token_checksum=checksum_of(refresh_token)).first()
        if used is None or used.api_token is None:
            raise _refused(request, "The refresh token is unknown, or its time has long passed.")
        token, now = used.api_token, clock.now()
        attempt.user, attempt.token = token.user, token
        if used.application_id != client.pk:
            raise _refused(request, "The refresh token was issued to another client.")
        if not token.is_live:
            raise _refused(request, "The connection has ended.")
        if used.revoked is not None and used.revoked <= now - GRACE:
            reason = "A refresh token was used again after its grace."
            services.end_for_client(token, reason=reason, kind="token.reused")
            raise _refused(request, f"{reason} It may have been stolen, so the connection has ended.")
        if used.expires <= now:
            raise _refused(request, "The refresh token has expired: the client was not used for 30 days.")
        if not token.user.is_active:
            raise _refused(request, "The account of this person is deactivated.")
        try:
            acquire_use(RateLimitKey("oauth.refresh", REFRESH_RATE, f"token:{token.pk}"), now=now)
        except RateLimited as error:
            raise errors.TemporarilyUnavailableError(error.message, request=request) from None
        request.user, request.refresh_token, request.refresh_token_instance = token.user, refresh_token, used
        return True

    def get_original_scopes(self, refresh_token: str, request: Request, *args: Any, **kwargs: Any) -> list[str]:
        return list(request.refresh_token_instance.api_token.scopes)

    def _save_bearer_token(self, token: dict[str, Any], request: Request, *args: Any, **kwargs: Any) -> None:
        """Issue an access and a refresh token, in the caller's transaction; `token` becomes the answer.

        The first pair makes the connection. A later pair supersedes the refresh token that was used.
        """
        now, used = clock.now(), getattr(request, "refresh_token_instance", None)
        if used is None:
            grant = _find_grant(request.code)
            owner, family, resource = _connect(request, grant), uuid.uuid4(), grant.resource if grant else []
        else:
            owner, family, resource = used.api_token, used.token_family, used.resource
        attempt = attempt_of(request)
        attempt.user, attempt.token = owner.user, owner
        ends = min(now + ACCESS_LIFETIME, owner.expires_at)
        row = {"user": owner.user, "application": request.client, "api_token": owner, "resource": resource}
        access = AccessToken(**row, scope=" ".join(owner.scopes), expires=ends)
        self._set_token_value(access, token["access_token"])
        refresh = RefreshToken(**row, token_family=family, expires=min(now + REFRESH_LIFETIME, owner.expires_at))
        self._set_token_value(refresh, token["refresh_token"])
        with services.changing_tokens_of(owner.pk, "connection.issued" if used is None else "connection.refreshed"):
            if used is not None and RefreshToken.objects.filter(pk=used.pk, revoked=None).update(revoked=now):
                late = AccessToken.objects.filter(pk=used.access_token_id, expires__gt=now + SUPERSEDED_ACCESS_LIFETIME)
                late.update(expires=now + SUPERSEDED_ACCESS_LIFETIME)
            access.save()
            refresh.access_token = access
            refresh.save()
        token["expires_in"], token["scope"] = int((ends - now).total_seconds()), access.scope

    def revoke_token(self, token: str, token_type_hint: str, request: Request, *args: Any, **kwargs: Any) -> None:
        """End the connection of an access or refresh token of this client; an unknown token changes nothing."""
        model = AccessToken if token.startswith(ACCESS_PREFIX) else RefreshToken
        found = model._default_manager.select_related("api_token__user").filter(
            token_checksum=checksum_of(token), application=request.client
        )
        row = found.first()
        if row is not None and row.api_token is not None:
            attempt = attempt_of(request)
            attempt.user, attempt.token = row.api_token.user, row.api_token
            services.end_for_client(row.api_token, reason="The client asked for it.")


def _connect(request: Request, grant: Grant | None) -> ApiToken:
    """Use up a code and return the token of the connection that it makes. Raises InvalidGrantError."""
    if grant is None or not Grant.objects.filter(pk=grant.pk, used_at=None).update(used_at=clock.now()):
        attempt_of(request).words = USED_TWICE
        raise _UsedMeanwhile(USED_TWICE, request=request)
    try:
        connection = services.create_connection(
            user=grant.user,
            client=request.client,
            redirect_uri=grant.redirect_uri,
            terms=ConsentTerms.from_json(grant.terms),
        )
    except (NotAllowed, ParameterError) as error:
        raise _refused(request, error.message) from None
    Grant.objects.filter(pk=grant.pk).update(api_token=connection.token)
    return connection.token


def _end_connection_of(grant: Grant | None) -> None:
    """End the connection that a code made which was used twice: somebody else may have used it first (RFC 6749)."""
    if grant is not None and grant.api_token is not None:
        services.end_for_client(grant.api_token, reason="A code was used twice.", kind="token.reused")


def _find_grant(code: str) -> Grant | None:
    if "\0" in code:
        return None
    grants = Grant.objects.select_related("user", "api_token__user", "application")
    found: Grant | None = grants.filter(code=code).first()
    return found


def _refused(request: Request, words: str) -> errors.InvalidGrantError:
    attempt_of(request).words = words
    return errors.InvalidGrantError(words, request=request)
