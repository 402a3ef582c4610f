"""Clients: registration (RFC 7591), and client ids that are addresses of metadata documents (CIMD).

Anybody may register, so that both are limited. A registered client may do nothing before a person connects it.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from threading import BoundedSemaphore
from typing import Any
from urllib.parse import urlsplit

import httpx2
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from catalog.connections import services
from catalog.connections.credentials import checksum_of, new_client_secret
from catalog.connections.models import MAX_CLIENT_NAME, Client, redirect_host
from catalog.core import clock, egress
from catalog.core.canonical_json import parse_json
from catalog.core.rate_limits import RateLimit, RateLimitKey, acquire_use, release_use
from catalog.errors import MalformedJSON, RateLimited, TooLarge
from catalog.models import RateBucket

AUTH_METHODS = ("none", "client_secret_post", "client_secret_basic")
GRANT_TYPES = ("authorization_code", "refresh_token")
MAX_DOCUMENT_BYTES = 16 * 1024
MAX_CLIENT_ID = 255
MAX_UNUSED_CLIENTS = 500
"""Registered clients that nobody has connected. Beyond it the oldest gives way, if it had its time."""
PROTECTED_FOR = timedelta(minutes=10)
"""Time that a new client has to be connected before another one may take its place."""
REGISTRATION_RATE = (RateLimit(50, "h"),)
FETCH_RATE = (RateLimit(60, "h"),)
FAILED_FETCH_RATE = (RateLimit(3, "min"),)
FETCH_SECONDS = 4.0
UNREACHABLE, UNREACHABLE_RATE = "oauth.unreachable", (RateLimit(1, "h"),)
"""Counts that a document could not be fetched; see `reads_documents`."""
LEAST_AGE, GREATEST_AGE = 300, 24 * 3600
"""Bounds in seconds of how long a metadata document is valid, whatever its Cache-Control says."""
MAX_AGE_PATTERN = re.compile(r"max-age\s*=\s*(\d{1,9})", re.IGNORECASE)
DYNAMIC, DOCUMENT = Client.RegistrationSource.DCR, Client.RegistrationSource.CIMD

_fetches = BoundedSemaphore(3)


class ClientRefused(Exception):
    """A client may not register or connect; `code` is OAuth's, and the message says why."""

    def __init__(self, message: str, *, code: str = "invalid_client_metadata", status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status


class _Unavailable(ClientRefused):
    """A client's metadata document cannot be read at the moment."""


class _Unreachable(_Unavailable):
    """No request for it could be sent."""


@dataclass(frozen=True, slots=True)
class ClientMetadata:
    """The part of a client's metadata that matters here."""

    name: str
    redirect_uris: tuple[str, ...]
    auth_method: str


def find_client(client_id: str | None) -> Client | None:
    if not client_id or "\0" in client_id or len(client_id) > MAX_CLIENT_ID:
        return None
    found: Client | None = Client.objects.filter(client_id=client_id).first()
    return found


def needs_permission(client: Client) -> bool:
    """Return whether an administrator must allow the client before people can connect it."""
    return bool(settings.TOOLGATE_OAUTH_CLIENTS == "known" and client.allowed_at is None)


def clients_to_allow() -> QuerySet[Client]:
    """Return the clients that no administrator has allowed and that a person tried to connect, newest first.

    Anybody can register clients, and would otherwise hide those that people asked for.
    """
    waiting: QuerySet[Client] = Client.objects.filter(services.tried_by_people(), allowed_at=None).order_by("-pk")
    return waiting


def read_metadata(content: object, *, default_auth_method: str) -> ClientMetadata:
    """Check a client's metadata. Raises ClientRefused."""
    if not isinstance(content, dict):
        raise ClientRefused("The metadata must be a JSON object.")
    uris = content.get("redirect_uris")
    if not isinstance(uris, list) or not uris or not all(isinstance(uri, str) and uri for uri in uris):
        raise ClientRefused("redirect_uris must be a list of at least one address.", code="invalid_redirect_uri")
    name = content.get("client_name") or ""
    if not isinstance(name, str) or len(name) > MAX_CLIENT_NAME or not name.isprintable():
        raise ClientRefused(f"client_name must be a line of at most {MAX_CLIENT_NAME} characters.")
    method = content.get("token_endpoint_auth_method") or default_auth_method
    if method not in AUTH_METHODS:
        raise ClientRefused(f"token_endpoint_auth_method must be one of {', '.join(AUTH_METHODS)}.")
    for field, needed in (("grant_types", "authorization_code"), ("response_types", "code")):
        given = content.get(field) or [needed]
        if not isinstance(given, list) or needed not in given:
            raise ClientRefused(f"{field} must contain {needed}.")
    try:
        Client(redirect_uris=" ".join(uris)).clean()
    except ValidationError as error:
        raise ClientRefused(" ".join(error.messages), code="invalid_redirect_uri") from None
    return ClientMetadata(name.strip(), tuple(uris), method)


def register_client(content: object, *, network: str) -> tuple[Client, str]:
    """Register a client as RFC 7591 says; return it with its secret, empty for a public client. Raises ClientRefused.

    `network` is the network of its address, of which only a digest is kept.
    """
    metadata = read_metadata(content, default_auth_method="client_secret_basic")
    owner = f"network:{sha256(network.encode()).hexdigest()[:40]}"
    try:
        acquire_use(RateLimitKey("oauth.register", REGISTRATION_RATE, owner), now=clock.now())
    except RateLimited as error:
        raise ClientRefused(error.message, code="temporarily_unavailable", status=429) from None
    _make_room()
    is_public = metadata.auth_method == "none"
    secret = "" if is_public else new_client_secret()
    client = Client.objects.create(
        registration_source=DYNAMIC,
        name=metadata.name or redirect_host(metadata.redirect_uris[0]),
        redirect_uris=" ".join(metadata.redirect_uris),
        client_type=Client.CLIENT_PUBLIC if is_public else Client.CLIENT_CONFIDENTIAL,
        authorization_grant_type=Client.GRANT_AUTHORIZATION_CODE,
        client_secret=checksum_of(secret) if secret else "",
        hash_client_secret=False,  # it is hashed: see `checksum_of`
    )
    return client, secret


def _make_room() -> None:
    """Delete the oldest unused client if there are too many. Raises ClientRefused if all of them are new."""
    unused = services.unused_clients()
    if unused.count() < MAX_UNUSED_CLIENTS:
        return
    oldest = unused.filter(updated__lt=clock.now() - PROTECTED_FOR).order_by("updated", "pk").first()
    if oldest is None:
        message = "Too many clients have registered that nobody has connected. Try again in ten minutes."
        raise ClientRefused(message, code="temporarily_unavailable", status=429)
    services.delete_unused([oldest.pk])


def resolve_client(client_id: str, *, person: str) -> Client | None:
    """Return a client, whose metadata document is fetched if it is new or too old. Raises ClientRefused.

    Call it for a person who has signed in only: it sends a request to an address that a stranger chose. `person` is
    the key by which the requests are counted.
    """
    client = find_client(client_id)
    if client is None and not client_id.startswith("https://"):
        return None
    if client is not None and (client.registration_source != DOCUMENT or not _is_outdated(client)):
        return client
    _check_document_url(client_id)
    now, failure_key = clock.now(), RateLimitKey("oauth.document", FAILED_FETCH_RATE, _digest_owner(client_id))
    try:
        response = _fetch_document(client_id, person=person, failure_key=failure_key, now=now)
    except _Unavailable as refusal:
        if client is not None:  # a moment's failure must not lock a known client out
            Client.objects.filter(pk=client.pk).update(cimd_expires_at=now + timedelta(seconds=LEAST_AGE))
            return client
        if isinstance(refusal, _Unreachable):
            _note_unreachable()
            if not reads_documents():
                refusal.message = f"{refusal.message} Start again in the client: it is now told to register instead."
        raise
    metadata = _read_document(client_id, response)
    release_use(failure_key, counted_at=now)
    return _store_document(client_id, metadata, response.headers)


def _fetch_document(client_id: str, *, person: str, failure_key: RateLimitKey, now: datetime) -> httpx2.Response:
    """Fetch a metadata document, counted among the failures until it is read. Raises ClientRefused."""
    try:
        acquire_use(RateLimitKey("oauth.documents", FETCH_RATE, person), now=now)
    except RateLimited as error:
        raise _Unavailable(error.message, code="temporarily_unavailable", status=429) from None
    if not _fetches.acquire(blocking=False):
        raise _Unavailable("Too many metadata documents are being read. Try again.", status=429)
    try:
        acquire_use(failure_key, now=now)
        response = egress.get_document(
            client_id, accept="application/json", seconds=FETCH_SECONDS, max_bytes=MAX_DOCUMENT_BYTES
        )
    except RateLimited as error:
        raise ClientRefused(error.message, code="temporarily_unavailable", status=429) from None
    except egress.RequestNotSent as error:
        kind = _Unreachable if error.again else ClientRefused
        raise kind(f"The client's metadata document cannot be read: {error}") from None
    except egress.ResponseTooLarge as error:
        raise ClientRefused(f"The client's metadata document cannot be read: {error}") from None
    finally:
        _fetches.release()
    if response.status_code == 429 or response.status_code >= 500:
        raise _Unavailable(f"The client's metadata document was answered with status {response.status_code}.")
    return response


def reads_documents() -> bool:
    """Return whether clients may use addresses of metadata documents as their ids: not while none can be fetched.

    A server without a way out would otherwise turn such clients away that could register. One that has read a document
    within a day has a way out, whichever addresses do not answer.
    """
    now = clock.now()
    failed = RateBucket.objects.filter(
        group__startswith=UNREACHABLE, window_started_at__gt=now - UNREACHABLE_RATE[0].window
    )
    read = Client.objects.filter(registration_source=DOCUMENT, updated__gt=now - timedelta(seconds=GREATEST_AGE))
    return not failed.exists() or read.exists()


def _note_unreachable() -> None:
    with suppress(RateLimited):
        acquire_use(RateLimitKey(UNREACHABLE, UNREACHABLE_RATE, "server"), now=clock.now())


def _is_outdated(client: Client) -> bool:
    return client.cimd_expires_at is None or client.cimd_expires_at <= clock.now()


def _digest_owner(client_id: str) -> str:
    return f"client:{sha256(client_id.encode()).hexdigest()[:40]}"


def _check_document_url(client_id: str) -> None:
    """Raise ClientRefused unless the address is one that a client id may be."""
    try:
        parts = egress.check_url(client_id)
    except egress.RequestNotSent as error:
        raise ClientRefused(f"The client id is not an address of a metadata document: {error}") from None
    is_plain = not parts.fragment and "#" not in client_id and len(client_id) <= MAX_CLIENT_ID
    if parts.path in ("", "/") or {".", ".."}.intersection(parts.path.split("/")) or not is_plain:
        raise ClientRefused("The client id is not an address of a metadata document: it needs a path.")


def _read_document(client_id: str, response: httpx2.Response) -> ClientMetadata:
    if response.status_code != 200:
        raise ClientRefused(f"The client's metadata document was answered with status {response.status_code}.")
    media_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and not re.fullmatch(r"application/[a-z0-9.+-]+\+json", media_type):
        raise ClientRefused("The client's metadata document is not JSON.")
    try:
        content = parse_json(response.content, max_bytes=MAX_DOCUMENT_BYTES)
    except (MalformedJSON, TooLarge):
        raise ClientRefused("The client's metadata document is not strict JSON.") from None
    if not isinstance(content, dict) or content.get("client_id") != client_id:
        raise ClientRefused("The client's metadata document names another client id.")
    if "client_secret" in content:
        raise ClientRefused("The client's metadata document contains a secret.")
    metadata = read_metadata(content, default_auth_method="none")
    if metadata.auth_method != "none":
        raise ClientRefused("A client with a metadata document must use token_endpoint_auth_method none.")
    return metadata


def _store_document(client_id: str, metadata: ClientMetadata, headers: Mapping[str, Any]) -> Client:
    until = clock.now() + timedelta(seconds=_seconds_valid(headers.get("Cache-Control", "")))
    columns = {
        "name": metadata.name or urlsplit(client_id).hostname or "",
        "redirect_uris": " ".join(metadata.redirect_uris),
        "cimd_expires_at": until,
        "updated": clock.now(),
    }
    if not Client.objects.filter(client_id=client_id, registration_source=DOCUMENT).update(**columns):
        with suppress(IntegrityError), transaction.atomic():  # another request may be first
            Client.objects.create(
                **columns,
                client_id=client_id,
                registration_source=DOCUMENT,
                client_type=Client.CLIENT_PUBLIC,
                authorization_grant_type=Client.GRANT_AUTHORIZATION_CODE,
                client_secret="",
                hash_client_secret=False,
            )
    stored: Client = Client.objects.get(client_id=client_id)
    return stored


def _seconds_valid(cache_control: str) -> int:
    if "no-store" in cache_control.lower() or "no-cache" in cache_control.lower():
        return LEAST_AGE
    found = MAX_AGE_PATTERN.search(cache_control)
    return max(LEAST_AGE, min(int(found[1]) if found else GREATEST_AGE, GREATEST_AGE))
