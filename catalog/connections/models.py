"""Tables of the OAuth server: clients, codes, tokens, connections, and the log of what clients attempted.

All models of the OAuth library are swapped for these, so that it has no table and its migrations are not run.
"""

from __future__ import annotations

import re
from typing import ClassVar
from urllib.parse import SplitResult, urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from oauth2_provider.models import (
    AbstractAccessToken,
    AbstractApplication,
    AbstractGrant,
    AbstractRefreshToken,
)

from catalog.models import ApiToken

MAX_CLIENT_NAME = 128
MAX_HOST = 255
MAX_WORDS = 400
MAX_REDIRECT_URIS = 10
MAX_URI = 2000
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})
HOST_PATTERN = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[1-9][0-9]{0,4})?")
"""Host and port of a redirect address: it is shown to the person, and becomes a part of the page's security policy."""
SCHEME_PATTERN = re.compile(r"[a-z][a-z0-9+.-]{1,63}")
# Browsers and operating systems act on these themselves, or they are other protocols: none belongs to a client.
# Clients have schemes of one word, such as `cursor`, so that not all have the dot of RFC 8252, section 7.1.
FORBIDDEN_SCHEMES = frozenset(
    {
        *("about", "blob", "chrome", "data", "file", "filesystem", "ftp", "ftps", "hcp", "intent", "jar", "javascript"),
        *("ldap", "mailto", "mk", "res", "resource", "search", "search-ms", "shell", "sms", "ssh", "tel", "telnet"),
        *("urn", "vbscript", "view-source", "ws", "wss"),
    }
)
FORBIDDEN_PREFIX = "ms-"
"""Schemes that begin so are programs of Windows, some of which run what an address says."""


class Client(AbstractApplication):
    """An application that connects: it registered itself, or its client id is the address of its metadata document."""

    user = None  # clients belong to nobody
    allowed_at = models.DateTimeField(null=True, help_text="When an administrator allowed the client.")
    allowed_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="allowed_clients")

    class Meta:
        indexes: ClassVar = [models.Index(fields=["registration_source", "created"], name="client_by_age")]

    def __str__(self) -> str:
        return str(self.name or self.client_id)

    def clean(self) -> None:
        """Check the redirect addresses. Raises ValidationError; the library's own check knows fixed schemes only."""
        uris = self.redirect_uris.split()
        if not uris or len(uris) > MAX_REDIRECT_URIS:
            raise ValidationError({"redirect_uris": f"Name 1 to {MAX_REDIRECT_URIS} redirect addresses."})
        for uri in uris:
            if fault := redirect_fault(uri):
                raise ValidationError({"redirect_uris": fault})

    def get_allowed_schemes(self) -> list[str]:
        return sorted({urlsplit(uri).scheme for uri in self.redirect_uris.split()})

    def redirect_uri_allowed(self, uri: str) -> bool:
        """Return whether `uri` is a registered address, character by character.

        A loopback address may have any port (RFC 8252, section 7.3).
        """
        registered = self.redirect_uris.split()
        if uri in registered:
            return True
        wanted = _without_loopback_port(uri)
        return wanted is not None and wanted in map(_without_loopback_port, registered)


def redirect_fault(uri: str) -> str:  # noqa: PLR0911 - one return for each fault
    """Return why an address cannot be redirected to; empty if it can.

    Allowed are https, http on a loopback host, and the private schemes of native applications.
    """
    if len(uri) > MAX_URI:
        return f"A redirect address has at most {MAX_URI} characters."
    if not uri.isascii() or not uri.isprintable() or set(uri) & set(' \\"<>^`{|}') or "*" in uri:
        return "A redirect address has no spaces, wildcards or special characters."
    parts = _split(uri)
    if parts is None:
        return "A redirect address must be a complete URL."
    if "#" in uri:
        return "A redirect address has no fragment (#)."
    if "@" in parts.netloc:
        return "A redirect address has no user name or password."
    if parts.scheme in ("http", "https") and not HOST_PATTERN.fullmatch(parts.netloc):
        return "A redirect address must be a complete URL, with the name or address of a host."
    if parts.scheme == "https":
        return ""
    if parts.scheme == "http":
        if parts.hostname in LOOPBACK_HOSTS:
            return ""
        return "A redirect address begins with https://, unless it leads to 127.0.0.1, [::1] or localhost."
    is_forbidden = parts.scheme in FORBIDDEN_SCHEMES or parts.scheme.startswith(FORBIDDEN_PREFIX)
    if is_forbidden or not SCHEME_PATTERN.fullmatch(parts.scheme):
        return "A redirect address begins with https://, or with the private scheme of an application."
    return ""


def redirect_host(uri: str) -> str:
    """Return the host to which an address leads, or the scheme of a native application, such as `cursor:`."""
    parts = urlsplit(uri)
    host = parts.hostname if parts.scheme in ("http", "https") else f"{parts.scheme}:"
    return (host or "")[:MAX_HOST]


def _split(uri: str) -> SplitResult | None:
    try:
        parts = urlsplit(uri)
        _ = parts.port  # raises ValueError if it is out of range
    except ValueError:
        return None
    return parts if parts.scheme else None


def _without_loopback_port(uri: str) -> str | None:
    """Return a loopback address without its port; None for every other address."""
    parts = _split(uri)
    if parts is None or parts.scheme != "http" or parts.hostname not in LOOPBACK_HOSTS or "@" in parts.netloc:
        return None
    begin, host = f"http://{parts.netloc}", f"[{parts.hostname}]" if parts.hostname == "::1" else parts.hostname
    return f"http://{host}{uri[len(begin) :]}" if uri.startswith(begin) else None


class Connection(models.Model):
    """The client of a token that OAuth made. Scopes, limits, end and last use are those of the token."""

    token = models.OneToOneField(ApiToken, models.CASCADE, related_name="connection")
    client = models.ForeignKey(Client, models.SET_NULL, null=True, related_name="connections")
    client_name = models.CharField(max_length=MAX_CLIENT_NAME, help_text="Name at the time of the consent.")
    client_host = models.CharField(max_length=MAX_HOST, help_text="Host of the redirect address.")

    def __str__(self) -> str:
        return f"{self.client_name} ({self.client_host})"

    @property
    def is_local(self) -> bool:
        return self.client_host in LOOPBACK_HOSTS


class Grant(AbstractGrant):
    """A code that a client exchanges for its first tokens. It is kept after its use, so that a second one is noticed.

    The code itself is stored: within its minute it is of no use without the client's PKCE verifier.
    """

    terms = models.JSONField(default=dict, help_text="What the person consented to: scopes, days, limits.")
    used_at = models.DateTimeField(null=True)
    api_token = models.ForeignKey(ApiToken, models.CASCADE, null=True, related_name="+")

    class Meta(AbstractGrant.Meta):
        abstract = False
        indexes: ClassVar = [models.Index(fields=["expires"], name="grant_by_end")]


class AccessToken(AbstractAccessToken):
    """An access token of a connection. `token` is empty: only the checksum is stored."""

    # The connection says which tokens belong together; OpenID Connect is off.
    source_refresh_token = None
    id_token = None
    api_token = models.ForeignKey(ApiToken, models.CASCADE, null=True, related_name="+")

    class Meta(AbstractAccessToken.Meta):
        abstract = False
        indexes: ClassVar = [models.Index(fields=["expires"], name="access_token_by_end")]


class RefreshToken(AbstractRefreshToken):
    """A refresh token of a connection; `revoked` is when a newer one superseded it.

    It is kept until it would have expired, so that a later use of it is noticed.
    """

    api_token = models.ForeignKey(ApiToken, models.CASCADE, null=True, related_name="+")
    expires = models.DateTimeField()

    class Meta(AbstractRefreshToken.Meta):
        abstract = False
        unique_together: ClassVar[list[str]] = []
        constraints: ClassVar = [models.UniqueConstraint(fields=["token_checksum"], name="refresh_token_once")]
        indexes: ClassVar = [models.Index(fields=["expires"], name="refresh_token_by_end")]


class Step(models.Model):
    """One step of a client's attempt to connect, in words. It never holds a secret."""

    at = models.DateTimeField(auto_now_add=True)
    name = models.CharField(max_length=32, help_text="register, authorize, token, refresh, revoke or end.")
    succeeded = models.BooleanField()
    words = models.CharField(max_length=MAX_WORDS)
    client = models.ForeignKey(Client, models.SET_NULL, null=True, related_name="steps")
    client_name = models.CharField(max_length=MAX_CLIENT_NAME, blank=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, null=True, related_name="connection_steps")
    token = models.ForeignKey(ApiToken, models.CASCADE, null=True, related_name="connection_steps")

    class Meta:
        indexes: ClassVar = [models.Index(fields=["client", "at"], name="step_by_client")]

    def __str__(self) -> str:
        return self.words
