"""Egress guard: public and explicitly allowed addresses, one resolution, no redirects."""

import ipaddress
import socket
import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import sleep

import httpx2
import pytest

from catalog.core.egress import (
    AsyncGuardedTransport,
    RequestNotSent,
    ResponseTooLarge,
    check_url,
    get_document,
    is_allowed,
    post_request,
)
from tests.corpus import faults
from tests.http_server import Taker, serving, taking

PUBLIC = ["93.184.215.14", "8.8.8.8", "2606:4700:4700::1111"]
NOT_PUBLIC = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",  # noqa: S104 (nobody binds to it)
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.0.8",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fc00::1",
    "fec0::1",
    "fd12::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::",
    "2002:a00:1::1",
    "2001:db8::1",
    "2001::1",
    "3fff::1",
    "192.88.99.1",
    "100::1",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_may_be_reached(settings, address):
    settings.TOOLGATE_EGRESS_ALLOW = []
    assert is_allowed("example.org", 443, ipaddress.ip_address(address))


def test_address_that_is_not_public_is_refused(settings):
    def check(address):
        settings.TOOLGATE_EGRESS_ALLOW = []
        assert not is_allowed("example.org", 443, ipaddress.ip_address(address))

    assert faults(check, NOT_PUBLIC) == {}


@pytest.mark.parametrize(
    ("entry", "host", "port", "allowed"),
    [
        ("10.1.0.0/16", "a.internal", 443, True),
        ("10.2.0.0/16", "a.internal", 443, False),
        ("10.1.2.3", "a.internal", 443, True),
        ("a.internal", "a.internal", 443, True),
        ("A.internal", "a.INTERNAL", 80, True),
        ("a.internal:443", "a.internal", 443, True),
        ("a.internal:443", "a.internal", 80, False),
        ("b.internal", "a.internal", 443, False),
        ("internal", "a.internal", 443, False),
    ],
)
def test_listed_address_is_allowed(settings, entry, host, port, allowed):
    settings.TOOLGATE_EGRESS_ALLOW = [entry]
    assert is_allowed(host, port, ipaddress.ip_address("10.1.2.3")) is allowed


def test_invalid_url_is_refused_before_it_is_resolved(monkeypatch):
    cases = [
        "",
        "ftp://example.org/",
        "file:///etc/passwd",
        "example.org",
        "https://",
        "https:///path",
        "https://user:word@example.org/",
        "https://example.org:0/",
        "https://example.org:99999/",
        "https://exam ple.org/",
        "https://example.org/\r\nHost: x",
        "https://exämple.org/",
        "https://example.org/" + "x" * 2000,
        "http://[::1",
    ]

    def check(url):
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("resolved"))
        with pytest.raises(RequestNotSent) as refused:
            post_request(url, b"{}", {}, seconds=1)
        assert not refused.value.again

    assert faults(check, cases) == {}


def test_one_private_address_of_many_is_refused(settings, monkeypatch):
    """Otherwise the owner of the name could choose the address."""
    settings.TOOLGATE_EGRESS_ALLOW = []
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 443)) for each in ("93.184.215.14", "127.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("connected"))
    with pytest.raises(RequestNotSent, match="is not public"):
        post_request("https://example.org/", b"{}", {}, seconds=1)


def test_the_name_is_resolved_once(settings, monkeypatch):
    """The connection goes to the checked address even if the name resolves differently later."""
    settings.TOOLGATE_EGRESS_ALLOW = ["hook.test"]
    with taking() as server:
        lookups = []

        def resolve(*args: object, **more: object) -> list[tuple[object, ...]]:
            lookups.append(args[0])
            assert len(lookups) == 1
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.server_port))]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        reached: list[str] = []
        monkeypatch.setattr(socket, "create_connection", lambda to, *_, **__: _connected(to, reached))
        post_request(f"http://hook.test:{server.server_port}/200", b"{}", {}, seconds=5)
        assert lookups == ["hook.test"] and reached == ["127.0.0.1"]
        assert server.taken[0][1]["Host"] == f"hook.test:{server.server_port}"


def _connected(to: tuple[str, int], reached: list[str]) -> socket.socket:
    """Connect without resolving, and note where to."""
    reached.append(to[0])
    made = socket.socket()
    made.settimeout(5)
    made.connect(to)
    return made


@pytest.mark.parametrize(
    ("status", "again"), [(301, False), (400, False), (404, False), (408, True), (429, True), (500, True), (503, True)]
)
def test_error_status_says_whether_to_retry(settings, status, again):
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    with taking() as server:
        with pytest.raises(RequestNotSent, match=f"127.0.0.1 answered {status}") as refused:
            post_request(f"http://127.0.0.1:{server.server_port}/{status}", b"{}", {}, seconds=5)
        assert refused.value.again is again
        assert len(server.taken) == 1


def test_what_is_taken_arrives_whole(settings):
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    with taking() as server:
        post_request(f"http://127.0.0.1:{server.server_port}/201", b'{"a":1}', {"X-One": "1"}, seconds=5)
        path, headers, body = server.taken[0]
    assert (path, headers["X-One"], body) == ("/201", "1", b'{"a":1}')


class _CookieSetting(Taker):
    """Sets a cookie with each answer."""

    def end_headers(self) -> None:
        """Add the cookie to the headers."""
        self.send_header("Set-Cookie", "session=s3cret; Path=/")
        super().end_headers()


def test_cookie_is_not_sent_with_a_later_request(settings):
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    with taking() as server:
        server.RequestHandlerClass = _CookieSetting
        for _ in range(2):
            post_request(f"http://127.0.0.1:{server.server_port}/200", b"{}", {}, seconds=5)
        assert [headers["Cookie"] for _, headers, _ in server.taken] == [None, None]


def test_server_without_valid_certificate_is_refused(settings):
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    with taking() as server, pytest.raises(RequestNotSent, match="could not be reached") as refused:
        post_request(f"https://127.0.0.1:{server.server_port}/200", b"{}", {}, seconds=2)
    assert refused.value.again and ssl.HAS_SNI


class _SlowServer(ThreadingHTTPServer):
    """A server that knows whether it sent all that it had."""

    outlasted = False


class _Slow(BaseHTTPRequestHandler):
    """Sends headers for 20 seconds, each part within the timeout of a read."""

    def do_GET(self) -> None:
        for number in range(400):
            try:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX: " if number == 0 else b"x")
            except OSError:
                return
            sleep(0.05)
        assert isinstance(self.server, _SlowServer)
        self.server.outlasted = True

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def test_slow_headers_end_with_the_time_of_the_request(settings):
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    slow = serving(_SlowServer(("127.0.0.1", 0), _Slow))
    with slow as server, pytest.raises(RequestNotSent, match="did not answer in time"):
        get_document(f"http://127.0.0.1:{server.server_port}/", accept="*/*", seconds=0.3, max_bytes=100)
    assert not server.outlasted


def test_connection_error_omits_the_path(settings):
    """URLs of chat services contain tokens."""
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    with pytest.raises(RequestNotSent) as refused:
        post_request("http://127.0.0.1:9/token-abc", b"{}", {}, seconds=2)
    assert "token-abc" not in str(refused.value) and refused.value.again


def test_an_address_is_read_with_its_parts():
    parts = check_url("https://example.org:8443/a?b=c")
    assert (parts.hostname, parts.port, parts.path) == ("example.org", 8443, "/a")


LOOPBACK = ["127.0.0.1", "10.0.0.1", "192.168.0.1", "172.16.0.9", "169.254.169.254", "100.64.0.1", "0.0.0.0"]  # noqa: S104
NAMES = ["localhost", "localhost.", "LOCALHOST", "a.localhost", "metadata.google.internal", "169.254.169.254.nip.io"]


def _spellings(address: str) -> list[str]:
    """Return ways to write an IPv4 address that some parser takes for it."""
    a, b, c, d = map(int, address.split("."))
    number = int(ipaddress.ip_address(address))
    return [
        address,
        f"{address}.",
        str(number),
        hex(number),
        hex(number).upper(),
        oct(number).replace("0o", "0"),
        f"{a:#x}.{b:#x}.{c:#x}.{d:#x}",
        f"0{a:o}.0{b:o}.0{c:o}.0{d:o}",
        f"{a:08o}.{b:08o}.{c:08o}.{d:08o}",
        f"{a}.{b}.{c * 256 + d}",
        f"{a}.{(b * 256 + c) * 256 + d}",
        f"%{ord(address[0]):x}{address[1:]}",
        "".join(f"%{ord(each):x}" for each in address),
        f"[::{address}]",
        f"[::ffff:{address}]",
        f"[::ffff:0:{address}]",
        f"[64:ff9b::{address}]",
        f"[2002:{a:02x}{b:02x}:{c:02x}{d:02x}::1]",
        f"[::ffff:{a:02x}{b:02x}:{c:02x}{d:02x}]",
        f"[::ffff:{address}%25eth0]",
        f"user@{address}",
        f"example.org@{address}",
        f"example.org:80@{address}",
        f"example.org\\@{address}",
        f"{address}\\@example.org:81",
        f"{address}#@example.org:22",
        f"{address}?@example.org",
    ]


HOSTS = [*(spelling for address in LOOPBACK for spelling in _spellings(address)), *NAMES]
HOSTILE = [
    *(f"{scheme}://{host}/" for scheme in ("http", "https") for host in HOSTS),
    *(f"http://93.184.215.14:{port}/" for port in (1, 21, 22, 23, 25, 110, 143, 445, 3306, 5432, 6379, 9200, 11211)),
    *(f"{scheme}://127.0.0.1/" for scheme in ("file", "ftp", "gopher", "dict", "ldap", "jar", "data", "unix", "ws")),
    *("http:127.0.0.1", "http:/127.0.0.1", "//127.0.0.1/", "http://", "http://[::1", "http://127.1", "http://[::]/"),
    "http://[fec0::1]/",
    *(
        "http://①②⑦.⓪.⓪.①/",
        "http://127。0。0。1/",
        "http://127.0.0.1\t/",
        "http://127.0.0.1\r\nHost: a/",
        "\x00http://a/",
    ),
]


@pytest.fixture
def no_sockets(monkeypatch):
    """Resolve addresses as the system does, names to loopback, and fail when a socket connects."""
    resolve = socket.getaddrinfo

    def without_dns(host, port, *args, **more):
        try:
            return resolve(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", without_dns)
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("a socket was opened"))
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a socket was opened"))


def test_hostile_url_opens_no_socket(settings, no_sockets):
    settings.TOOLGATE_EGRESS_ALLOW = []

    def check(url):
        with pytest.raises(RequestNotSent):
            post_request(url, b"{}", {}, seconds=1)

    assert len(HOSTILE) >= 300
    assert faults(check, HOSTILE) == {}


async def test_hostile_url_opens_no_socket_in_an_event_loop(settings, no_sockets):
    settings.TOOLGATE_EGRESS_ALLOW = []
    async with httpx2.AsyncClient(transport=AsyncGuardedTransport(), trust_env=False) as client:
        reached = []
        for host in HOSTS:
            try:
                await client.get(f"http://{host}/", follow_redirects=True)
                reached.append(host)
            except (RequestNotSent, httpx2.InvalidURL):
                continue
    assert reached == []


class _Answering(BaseHTTPRequestHandler):
    """Redirects to another host, or sends a large, a compressed or an endless body."""

    def do_GET(self) -> None:
        """Answer by path."""
        self.send_response(302 if self.path == "/redirect" else 200)
        self.send_header("Location", "http://10.0.0.1/")
        if self.path == "/compressed":
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        if self.path == "/large":
            self.wfile.write(b"x" * 5000)

    def log_message(self, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def answering():
    """Serve on a free port of this machine, and return its URL."""
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), _Answering)) as server:
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.mark.parametrize(
    ("path", "raised"), [("/redirect", RequestNotSent), ("/large", ResponseTooLarge), ("/compressed", ResponseTooLarge)]
)
async def test_redirect_and_size_are_guarded(settings, answering, path, raised):
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    async with httpx2.AsyncClient(transport=AsyncGuardedTransport(max_bytes=4000), trust_env=False) as client:
        assert (await client.get(f"{answering}/small")).status_code == 200
        with pytest.raises(raised):
            await client.get(answering + path, follow_redirects=True)


async def test_name_that_changes_its_address_is_checked_for_each_connection(settings, monkeypatch, answering):
    """A public name that later resolves to this machine is not connected to."""
    settings.TOOLGATE_EGRESS_ALLOW = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port, *_, **__: [(2, 1, 6, "", ("127.0.0.1", port))])
    async with httpx2.AsyncClient(transport=AsyncGuardedTransport(), trust_env=False) as client:
        with pytest.raises(RequestNotSent):
            await client.get("http://public.example/")
