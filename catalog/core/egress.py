"""Requests that leave this installation for an address somebody typed: only where they may go, and nowhere else.

A name is resolved once; every address it has must be public or allowed by TOOLGATE_EGRESS_ALLOW, and the connection
goes to the very address that was judged. Redirects are not followed, proxies of the environment are not used, and of
an answer only its status is read.
"""

import http.client
import ipaddress
import socket
import ssl
from collections.abc import Iterator, Mapping
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

DEFAULT_PORTS = {"http": 80, "https": 443}
MAX_URL_LENGTH = 2000
NOT_ACCEPTED_STATUS = 503
"""Of what servers answer when they fail: that they took nothing."""
EXTRA_RESERVED_NETWORKS = tuple(
    map(
        ipaddress.ip_network,
        ("192.0.0.0/24", "192.88.99.0/24", "64:ff9b:1::/48", "2001::/23", "3fff::/20", "5f00::/16"),
    )
)
"""Not public, and not known as such to every Python that Toolgate runs on."""
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class RequestNotSent(Exception):
    """A request was not made, or not taken; `again` says whether it may be taken later. Its words hold no secret.

    `unsure`: it was handed over, and whether it arrived is not known.
    """

    def __init__(self, message: str, *, again: bool = True, unsure: bool = False) -> None:
        super().__init__(message)
        self.again = again
        self.unsure = unsure


def check_url(url: str) -> SplitResult:
    """Return the parts of an address that requests could go to, without resolving it. Raises RequestNotSent."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise RequestNotSent("The address cannot be read.", again=False) from None
    plain = url.isascii() and url.isprintable() and " " not in url and len(url) <= MAX_URL_LENGTH
    if not plain or parts.scheme not in DEFAULT_PORTS or not parts.hostname or port == 0:
        raise RequestNotSent("An address begins with https:// or http:// and names a host.", again=False)
    if parts.username is not None or parts.password is not None:
        raise RequestNotSent("An address holds no user or password.", again=False)
    return parts


def post_request(url: str, body: bytes, headers: Mapping[str, str], *, seconds: float) -> None:
    """POST a body. Raises RequestNotSent unless it is answered with a status of 200 to 299."""
    parts = check_url(url)
    address = resolve_allowed_address(str(parts.hostname), parts.port or DEFAULT_PORTS[parts.scheme])
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection = _PinnedConnection(parts, address, seconds)
    is_connected = False
    try:
        connection.connect()
        is_connected = True
        connection.request("POST", path, body, {"User-Agent": "Toolgate", "Connection": "close", **headers})
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        message = f"{parts.hostname} could not be reached: {type(error).__name__}."
        raise RequestNotSent(message, unsure=is_connected) from None
    finally:
        connection.close()
    if not 200 <= status < 300:
        again, unsure = status >= 500 or status in (408, 425, 429), status >= 500 and status != NOT_ACCEPTED_STATUS
        raise RequestNotSent(f"{parts.hostname} answered {status}.", again=again, unsure=unsure)


def resolve_allowed_address(host: str, port: int) -> Address:
    """Resolve a host and return its first address. Raises RequestNotSent unless all of them may be reached."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [ipaddress.ip_address(each[4][0]) for each in found]
    except (OSError, UnicodeError, ValueError):
        raise RequestNotSent(f"{host} has no address.") from None
    if not addresses:
        raise RequestNotSent(f"{host} has no address.")
    for address in addresses:
        if not is_allowed(host, port, address):
            message = (
                f"{host} is not public: TOOLGATE_EGRESS_ALLOW must name it, or its network, for requests to go there."
            )
            raise RequestNotSent(message, again=False)
    return addresses[0]


def is_allowed(host: str, port: int, address: Address) -> bool:
    """Say whether requests may go to this address of a host."""
    inner = _embedded_addresses(address)
    if _is_public(address) and all(map(_is_public, inner)):
        return True
    return any(_entry_matches(entry, host, port, address) for entry in settings.TOOLGATE_EGRESS_ALLOW)


def _is_public(address: Address) -> bool:
    if any(address in network for network in EXTRA_RESERVED_NETWORKS):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _embedded_addresses(address: Address) -> list[Address]:
    """Return the IPv4 addresses that an IPv6 address carries, whichever way it is translated."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    return list(_embedded_address(address))


def _embedded_address(address: ipaddress.IPv6Address) -> Iterator[Address]:
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    if address in ipaddress.ip_network("64:ff9b::/96"):
        yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)


def _entry_matches(entry: str, host: str, port: int, address: Address) -> bool:
    """Say whether an entry of TOOLGATE_EGRESS_ALLOW (`host`, `host:port` or a network) names this."""
    try:
        return address in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        name, _, wanted = entry.rpartition(":") if entry.rpartition(":")[2].isdigit() else (entry, "", "")
        return name.strip("[]").lower() == host.lower() and wanted in ("", str(port))


class _PinnedConnection(http.client.HTTPConnection):
    """A connection to an address that was judged; certificates are still those of the name."""

    def __init__(self, parts: SplitResult, address: Address, seconds: float) -> None:
        super().__init__(str(parts.hostname), parts.port or DEFAULT_PORTS[parts.scheme], timeout=seconds)
        self._address = str(address)
        self._context = ssl.create_default_context() if parts.scheme == "https" else None

    def connect(self) -> None:
        """Connect to the address, whatever the name would resolve to by now."""
        self.sock = socket.create_connection((self._address, self.port), self.timeout)
        if self._context is not None:
            self.sock = self._context.wrap_socket(self.sock, server_hostname=self.host)
