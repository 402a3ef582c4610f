"""Outgoing HTTP requests to addresses that people typed, guarded against server-side request forgery.

All addresses of a host must be public or listed in TOOLGATE_EGRESS_ALLOW. Every connection, also after a redirect, goes
to an address that was checked. Proxies from the environment are not used.
"""

import asyncio
import functools
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from math import ceil, isfinite
from time import monotonic
from urllib.parse import SplitResult, urlsplit

import httpcore2
import httpx2
from django.conf import settings

from catalog.core import clock

DEFAULT_PORTS = {"http": 80, "https": 443}
ALLOWED_PORTS = {80, 443, 8000, 8080, 8443}
"""Ports of public addresses; an entry of TOOLGATE_EGRESS_ALLOW allows others."""
MAX_URL_LENGTH = 2000
MAX_RESPONSE_BYTES = 1024 * 1024
MAX_CONNECTIONS = 100
KEEPALIVE_SECONDS = 3.0
"""Lifetime of an unused connection: less than the 5 seconds after which many servers close it."""
MAX_SECONDS = 60.0
"""Time in seconds for a request that names none."""
MAX_RETRY_AFTER = 86_400
NOT_ACCEPTED_STATUS = 503
"""The one 5xx status that says the request was not processed."""
EXTRA_RESERVED_NETWORKS = tuple(
    map(
        ipaddress.ip_network,
        ("192.0.0.0/24", "192.88.99.0/24", "64:ff9b:1::/48", "2001::/23", "3fff::/20", "5f00::/16", "fec0::/10"),
    )
)
"""Networks that are not public although some supported Python versions say so."""
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
SocketOption = tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]


class RequestNotSent(Exception):
    """A request was not sent, or not accepted. The message contains no path, query or secret.

    `again` is true if a later attempt may succeed. `unsure` is true if the request may have arrived. `status` is that
    of the answer, if there was one.
    """

    def __init__(self, message: str, *, again: bool = True, unsure: bool = False, status: int | None = None) -> None:
        super().__init__(message)
        self.again = again
        self.unsure = unsure
        self.status = status


class ResponseTooLarge(Exception):
    """A response is larger than its limit, or compressed; `status` is its HTTP status, if known."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


def check_url(url: str) -> SplitResult:
    """Parse a URL and check that requests may be sent to it; its host is not resolved. Raises RequestNotSent."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise RequestNotSent("The URL is invalid.", again=False) from None
    plain = url.isascii() and url.isprintable() and " " not in url and "\\" not in url and len(url) <= MAX_URL_LENGTH
    if not plain or parts.scheme not in DEFAULT_PORTS or not parts.hostname or port == 0:
        raise RequestNotSent("A URL starts with https:// or http:// and contains a host.", again=False)
    if parts.username is not None or parts.password is not None:
        raise RequestNotSent("A URL must not contain a user name or password.", again=False)
    return parts


def post_request(url: str, body: bytes, headers: Mapping[str, str], *, seconds: float) -> None:
    """POST a body. Raises RequestNotSent unless the answer has a status from 200 to 299; redirects are not followed."""
    parts = check_url(url)
    try:
        with _webhook_client().stream(
            "POST", url, content=body, headers={"User-Agent": "Toolgate", **headers}, timeout=seconds
        ) as response:
            status = response.status_code
    except (httpx2.TransportError, httpx2.InvalidURL) as error:
        never_connected = isinstance(
            error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout | httpx2.InvalidURL
        )
        message = f"{parts.hostname} could not be reached: {type(error).__name__}."
        raise RequestNotSent(message, unsure=not never_connected) from None
    if not 200 <= status < 300:
        again, unsure = status >= 500 or status in (408, 425, 429), status >= 500 and status != NOT_ACCEPTED_STATUS
        raise RequestNotSent(f"{parts.hostname} answered {status}.", again=again, unsure=unsure, status=status)


def get_document(url: str, *, accept: str, seconds: float, max_bytes: int) -> httpx2.Response:
    """GET a small document and return the response, whatever its status; redirects are not followed.

    Raises RequestNotSent, also after `seconds` in all, and ResponseTooLarge, also for a compressed response.
    """
    return exchange("GET", url, b"", {"Accept": accept}, seconds=seconds, max_bytes=max_bytes)


def exchange(  # noqa: PLR0913 - the parts of a request and its limits
    method: str, url: str, body: bytes, headers: Mapping[str, str], *, seconds: float, max_bytes: int
) -> httpx2.Response:
    """Send a request and return its small response, as `get_document` does."""
    parts = check_url(url)
    sent = {"User-Agent": "Toolgate", **headers, "Accept-Encoding": "identity"}
    try:
        with _webhook_client().stream(method, url, content=body, headers=sent, timeout=seconds) as response:
            if response.headers.get("Content-Encoding", "identity") != "identity":
                message = "The response is compressed although no compression was offered."
                raise ResponseTooLarge(message, status=response.status_code)
            received = bytearray()
            for chunk in response.iter_raw():
                received += chunk
                if len(received) > max_bytes:
                    raise ResponseTooLarge(f"The response has more than {max_bytes:,} bytes.")
            return httpx2.Response(response.status_code, headers=response.headers, content=bytes(received))
    except (httpx2.TransportError, httpx2.InvalidURL) as error:
        raise RequestNotSent(f"{parts.hostname} could not be reached: {describe_failure(error)}.") from None


@functools.cache
def _webhook_client() -> httpx2.Client:
    """Return the one client of this process; cached, because building a TLS context takes 20 ms."""
    return httpx2.Client(transport=GuardedTransport(), trust_env=False, follow_redirects=False, cookies=no_cookies())


def describe_failure(error: BaseException) -> str:
    """Return a description of a failed request without its address, such as "it did not answer in time"."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return f"TLS failed ({cause.reason or type(cause).__name__})"
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, TimeoutError | httpx2.TimeoutException):
        return "it did not answer in time"
    if isinstance(error, httpx2.ConnectError):
        return "nothing answers at its address"
    return type(error).__name__


def retry_after(value: str) -> int | None:
    """Return how many seconds a Retry-After header asks to wait, rounded up; None for a missing or invalid value."""
    if value.isascii() and value.strip().isdigit():
        seconds = float(value)
    else:
        try:
            until = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
        seconds = (until.replace(tzinfo=until.tzinfo or UTC) - clock.now()).total_seconds()
    return min(max(0, ceil(seconds)), MAX_RETRY_AFTER) if isfinite(seconds) else None


def no_cookies() -> CookieJar:
    """Return a cookie jar that stores nothing, for a client whose requests have different credentials."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=[]))


def resolve_allowed_addresses(host: str, port: int) -> list[Address]:
    """Resolve a host and return its addresses. Raises RequestNotSent unless all of them may be reached."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise RequestNotSent(f"{host} has no address.") from None
    return _check_addresses(host, port, found)


async def resolve_allowed_addresses_async(host: str, port: int) -> list[Address]:
    """As `resolve_allowed_addresses`, without blocking the event loop."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise RequestNotSent(f"{host} has no address.") from None
    return _check_addresses(host, port, found)


def _check_addresses(host: str, port: int, found: Iterable[tuple[object, ...]]) -> list[Address]:
    try:
        addresses = list(dict.fromkeys(ipaddress.ip_address(each[4][0]) for each in found))  # type: ignore[index]
    except ValueError:
        addresses = []
    if not addresses:
        raise RequestNotSent(f"{host} has no address.")
    for address in addresses:
        if not is_allowed(host, port, address):
            if _is_public(address) and all(map(_is_public, _embedded_addresses(address))):
                message = f"Port {port} is not allowed: add {host}:{port} to TOOLGATE_EGRESS_ALLOW."
            else:
                message = f"{host} is not public: add it, or its network, to TOOLGATE_EGRESS_ALLOW."
            raise RequestNotSent(message, again=False)
    return addresses


def is_allowed(host: str, port: int, address: Address) -> bool:
    inner = _embedded_addresses(address)
    if port in ALLOWED_PORTS and _is_public(address) and all(map(_is_public, inner)):
        return True
    return any(_entry_matches(entry, host, port, address) for entry in settings.TOOLGATE_EGRESS_ALLOW)


def _is_public(address: Address) -> bool:
    if any(address in network for network in EXTRA_RESERVED_NETWORKS):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _embedded_addresses(address: Address) -> list[Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found: list[Address | None] = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in ipaddress.ip_network("64:ff9b::/96"):
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [each for each in found if each is not None]


def _entry_matches(entry: str, host: str, port: int, address: Address) -> bool:
    """Return whether an entry of TOOLGATE_EGRESS_ALLOW (`host`, `host:port` or a network) matches."""
    try:
        return address in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        name, _, allowed_port = entry.rpartition(":") if entry.rpartition(":")[2].isdigit() else (entry, "", "")
        return name.strip("[]").lower() == host.lower() and allowed_port in ("", str(port))


class _TimedStream(httpcore2.NetworkStream):
    """A connection that ends at a fixed time. A timeout for each read alone would let a slow sender hold it on."""

    def __init__(self, inner: httpcore2.NetworkStream, until: float) -> None:
        self._inner = inner
        self._until = until

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if monotonic() >= self._until:
            raise httpcore2.ReadTimeout
        return self._inner.read(max_bytes, _seconds_until(self._until))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, _seconds_until(self._until))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        inner = self._inner.start_tls(ssl_context, server_hostname, _seconds_until(self._until))
        return _TimedStream(inner, self._until)

    def close(self) -> None:
        self._inner.close()

    def get_extra_info(self, info: str) -> object:
        return self._inner.get_extra_info(info)


def _seconds_until(end: float) -> float:
    return max(0.001, end - monotonic())


class _GuardedBackend(httpcore2.NetworkBackend):
    """Opens connections to checked addresses only; TLS still verifies the host name.

    The timeout for connecting is that of the whole connection, which serves one request.
    """

    def __init__(self) -> None:
        self._inner = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore2.NetworkStream:
        """Connect to the first checked address that answers. Raises RequestNotSent and httpcore2.ConnectError."""
        until = monotonic() + (timeout or MAX_SECONDS)

        def connect(address: str) -> httpcore2.NetworkStream:
            options = local_address, socket_options
            return _TimedStream(self._inner.connect_tcp(address, port, _seconds_until(until), *options), until)

        *earlier, last = map(str, resolve_allowed_addresses(host, port))
        for address in earlier:
            try:
                return connect(address)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return connect(last)


class _AsyncGuardedBackend(httpcore2.AsyncNetworkBackend):
    def __init__(self) -> None:
        self._inner = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """As in `_GuardedBackend`. The timeout includes resolving, so it also raises httpcore2.ConnectTimeout."""
        try:
            async with asyncio.timeout(timeout):
                *earlier, last = map(str, await resolve_allowed_addresses_async(host, port))
        except TimeoutError:
            raise httpcore2.ConnectTimeout from None
        for address in earlier:
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await self._inner.connect_tcp(last, port, timeout, local_address, socket_options)


@functools.cache
def _tls_context() -> ssl.SSLContext:
    return ssl.create_default_context()


class GuardedTransport(httpx2.HTTPTransport):
    """Transport of httpx2 whose connections are guarded. Each request opens its own, so none meets a stale one."""

    def __init__(self) -> None:
        super().__init__(verify=_tls_context(), trust_env=False)
        # httpx2 has no parameter for the network backend; its pool has.
        self._pool = httpcore2.ConnectionPool(
            ssl_context=_tls_context(),
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=0,
            network_backend=_GuardedBackend(),
        )


class AsyncGuardedTransport(httpx2.AsyncHTTPTransport):
    """Guarded transport for one event loop. Raises ResponseTooLarge after `max_bytes` of a response.

    Compressed responses are refused, because a small one can decompress to any size.
    """

    def __init__(self, *, max_bytes: int = MAX_RESPONSE_BYTES) -> None:
        super().__init__(verify=_tls_context(), trust_env=False)
        self._max_bytes = max_bytes
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=_tls_context(),
            max_connections=MAX_CONNECTIONS,
            keepalive_expiry=KEEPALIVE_SECONDS,
            network_backend=_AsyncGuardedBackend(),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Raises RequestNotSent, ResponseTooLarge and httpx2.TransportError."""
        request.headers["Accept-Encoding"] = "identity"
        response = await super().handle_async_request(request)
        if response.headers.get("Content-Encoding", "identity") != "identity":
            await response.aclose()
            message = "The response is compressed although no compression was offered."
            raise ResponseTooLarge(message, status=response.status_code)
        response.stream = _LimitedStream(response.stream, self._max_bytes)  # type: ignore[arg-type]
        return response


class _LimitedStream(httpx2.AsyncByteStream):
    """A response body; reading more than `max_bytes` of it raises ResponseTooLarge."""

    def __init__(self, inner: httpx2.AsyncByteStream, max_bytes: int) -> None:
        self._inner = inner
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > self._max_bytes:
                raise ResponseTooLarge(f"The response has more than {self._max_bytes:,} bytes.")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
