"""Where requests may go: public addresses and what is allowed by name, judged once, never redirected."""

import ipaddress
import socket
import ssl

import pytest

from catalog.core.egress import RequestNotSent, check_url, is_allowed, post_request
from tests.corpus import faults
from tests.http_server import taking

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
    """However it is written, and whatever carries it."""

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
def test_what_is_allowed_by_name_may_be_reached(settings, entry, host, port, allowed):
    """A host, a host with its port, or a network."""
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


def test_one_address_of_many_that_is_not_public_is_enough(settings, monkeypatch):
    """Else whoever answers for the name chooses."""
    settings.TOOLGATE_EGRESS_ALLOW = []
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 443)) for each in ("93.184.215.14", "127.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("connected"))
    with pytest.raises(RequestNotSent, match="is not public"):
        post_request("https://example.org/", b"{}", {}, seconds=1)


def test_the_name_is_resolved_once(settings, monkeypatch):
    """The connection goes to the address that was judged, whatever the name means a moment later."""
    settings.TOOLGATE_EGRESS_ALLOW = ["hook.test"]
    with taking() as server:
        asked = []

        def resolve(*args: object, **more: object) -> list[tuple[object, ...]]:
            asked.append(args[0])
            assert len(asked) == 1
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.server_port))]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        reached: list[str] = []
        monkeypatch.setattr(socket, "create_connection", lambda to, *rest: _connected(to, reached))
        post_request(f"http://hook.test:{server.server_port}/200", b"{}", {}, seconds=5)
        assert asked == ["hook.test"] and reached == ["127.0.0.1"]
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
def test_what_is_not_taken_says_whether_to_try_again(settings, status, again):
    """A redirect is not followed."""
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


def test_a_server_without_a_certificate_of_its_name_is_not_sent_to(settings):
    """Not even when it may be reached."""
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    with taking() as server, pytest.raises(RequestNotSent, match="could not be reached") as refused:
        post_request(f"https://127.0.0.1:{server.server_port}/200", b"{}", {}, seconds=2)
    assert refused.value.again and ssl.HAS_SNI


def test_nobody_there_is_said_without_the_path(settings):
    """Addresses of chats hold tokens in it."""
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    with pytest.raises(RequestNotSent) as refused:
        post_request("http://127.0.0.1:9/token-abc", b"{}", {}, seconds=2)
    assert "token-abc" not in str(refused.value) and refused.value.again


def test_an_address_is_read_with_its_parts():
    parts = check_url("https://example.org:8443/a?b=c")
    assert (parts.hostname, parts.port, parts.path) == ("example.org", 8443, "/a")
