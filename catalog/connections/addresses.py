"""Addresses of this server in the terms of OAuth: the issuer, and the one resource, `/mcp`.

They follow the host of the request: clients compare them with the address that a person gave them.
"""

from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest

from catalog.connections.models import LOOPBACK_HOSTS

MCP_PATH = "/mcp"
RESOURCE_METADATA_PATH = "/.well-known/oauth-protected-resource"
SERVER_METADATA_PATH = "/.well-known/oauth-authorization-server"
DEFAULT_PORTS = {"http": 80, "https": 443}
MAX_RESOURCE = 2000


def offers_oauth() -> bool:
    """Return whether clients may sign in, as TOOLGATE_OAUTH_CLIENTS says."""
    return bool(settings.TOOLGATE_OAUTH_CLIENTS != "off")


def origin_of(request: HttpRequest) -> str:
    return request.build_absolute_uri("/").rstrip("/")


def own_resource(request: HttpRequest, resources: list[str]) -> str | None:
    """Return the address of `/mcp` that a client names, or the request's own if it names none; None for a foreign one.

    A loopback address has three names, and a person may sign in under another one than the client uses: a passkey needs
    `localhost`.
    """
    mine = origin_of(request)
    origins = {_parsed_origin(mine), _parsed_origin(settings.TOOLGATE_URL)}
    scheme, host, port = _parsed_origin(mine)
    if host in LOOPBACK_HOSTS:
        origins |= {(scheme, name, port) for name in LOOPBACK_HOSTS}
    named = f"{mine}{MCP_PATH}"
    for text in resources:
        try:
            parts, origin = urlsplit(text), _parsed_origin(text)
        except ValueError:
            return None
        is_plain = not {"@", "?", "#"}.intersection(text) and len(text) <= MAX_RESOURCE and text.isprintable()
        if origin not in origins or not is_plain or parts.path not in (MCP_PATH, f"{MCP_PATH}/"):
            return None
        named = f"{parts.scheme}://{parts.netloc}{MCP_PATH}"
    return named


def _parsed_origin(url: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port of a URL. Raises ValueError for an invalid port."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or DEFAULT_PORTS.get(parts.scheme)


def issuer_of(resource: str) -> str:
    """Return the issuer of tokens for a resource of this server: its origin."""
    return resource.removesuffix(MCP_PATH)
