"""Requests of HTTP tools: addresses, header parameters, bodies, and answers with redirects and odd character sets."""

import json
from dataclasses import replace
from datetime import timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from catalog.context import ToolContext
from catalog.core import clock
from catalog.errors import EffectUnknown, ParameterError, ToolValidationError, UpstreamError
from catalog.inventory.http_tools import create_http_tool
from catalog.sources.definitions import Definition
from catalog.sources.documents import fetch_document
from catalog.sources.http_requests import Operation, prepare, send
from catalog.sources.loading import build_tool
from catalog.sources.mcp_client import run_on_loop
from catalog.sources.settings import UpstreamSettings
from tests.corpus import faults
from tests.http_server import serving


class Upstream(ThreadingHTTPServer):
    """A server on a free port. `answers` has the status, headers and body by path.

    `taken` has the method and path of each request, and `cookies` its cookies.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.taken: list[tuple[str, str]] = []
        self.cookies: list[str | None] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Answering(BaseHTTPRequestHandler):
    def answer(self) -> None:
        """Answer a request of any method."""
        assert isinstance(self.server, Upstream)
        self.server.taken.append((self.command, self.path))
        self.server.cookies.append(self.headers["Cookie"])
        status, headers, body = self.server.answers[self.path]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    def log_message(self, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def upstream(settings):
    """Serve until the test ends."""
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    with serving(Upstream()) as server:
        yield server


def sent(upstream, path, method="GET"):
    """Return the result of a request."""
    request = prepare(Operation(method=method, url=upstream.url + path), {}, {})
    return run_on_loop(send("shop", request, 5), 10)


HEADERS = Operation(method="GET", url="https://shop.example/", headers={"key": "x-api-key", "mark": "X-Mark"})


def test_argument_that_no_header_can_hold_is_refused():
    def check(value):
        with pytest.raises(ToolValidationError, match="'mark'"):
            prepare(HEADERS, {"mark": value}, {})

    assert faults(check, [" a", "a ", " ", "ä", "\u2003a", ["ä"], "a\tb", "a\r\nb: c", "\x7f"]) == {}
    assert prepare(HEADERS, {"mark": "a b", "key": 7}, {}).headers == {"X-Mark": "a b", "x-api-key": "7"}


def test_argument_does_not_accompany_a_stored_header():
    request = prepare(HEADERS, {"key": "of the agent", "mark": "m"}, {"X-API-Key": "stored"})
    assert {**request.headers, **request.secret_headers} == {"X-Mark": "m", "X-API-Key": "stored"}


@pytest.mark.parametrize("value", ["a", ["a"], 7, None])
def test_form_that_is_no_object_is_refused(value):
    operation = Operation(method="POST", url="https://shop.example/", body="form", body_argument="body")
    with pytest.raises(ToolValidationError, match="'body'"):
        prepare(operation, {"body": value}, {})


@pytest.mark.parametrize("end", ["#part", "#", "?a=b#part"])
def test_address_with_a_fragment_is_refused(admin, end):
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    http = {"method": "GET", "url": f"https://shop.example/x{end}"}
    with pytest.raises(ParameterError) as refused:
        create_http_tool({"name": "x", "description": "x", "schema": schema}, http, safety_level="safe", by=admin)
    assert refused.value.details["field"] == "http.url"


def test_cookie_is_not_sent_with_a_later_request(upstream):
    """Tools with different credentials share the client."""
    cookie = {"Set-Cookie": "session=s3cret; Path=/"}
    upstream.answers = {"/a": (307, {"Location": "/b", **cookie}, b""), "/b": (200, cookie, b"")}
    sent(upstream, "/a")
    sent(upstream, "/a")
    assert upstream.cookies == [None] * 4


CHARSETS = [
    *((each, "é".encode(), "é") for each in ("hex", "zlib", "rot13", "undefined", "idna", "punycode", "unknown", '"')),
    ("utf-8", b"\xff", "\ufffd"),
    ("ISO-8859-1", b"\xe9", "é"),
    ('"windows-1252"', b"\x80", "€"),
    ("utf-16le", "é".encode("utf-16-le"), "é"),
    ("Shift_JIS", "日".encode("shift_jis"), "日"),
]


def test_text_in_any_character_set_is_read(upstream):
    def check(charset, body, text):
        headers = {"Content-Type": f"text/plain; charset={charset}"}
        upstream.answers = {"/200": (200, headers, body), "/400": (400, headers, body)}
        assert sent(upstream, "/200").value == text
        with pytest.raises(UpstreamError, match=text):
            sent(upstream, "/400")
        assert fetch_document(UpstreamSettings(pk=1, name="shop", kind="openapi", url=upstream.url + "/200")) == text

    assert faults(check, CHARSETS) == {}


@pytest.mark.parametrize("headers", [{"Location": "http://["}, {"Location": ""}, {}])
def test_redirect_to_no_valid_address_is_the_answer(upstream, headers):
    upstream.answers["/a"] = (302, headers, b"")
    with pytest.raises(UpstreamError, match="302") as refused:
        sent(upstream, "/a")
    assert refused.value.kind == "upstream_refused"
    assert len(upstream.taken) == 1


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_redirect_after_a_possible_effect_leaves_the_effect_unknown(upstream, method):
    """Servers answer a form that they have processed with a redirect to its result."""
    upstream.answers = {
        "/here": (302, {"Location": "/result"}, b""),
        "/moved": (301, {"Location": "http://10.0.0.1/"}, b""),
        "/elsewhere": (303, {"Location": "http://10.0.0.1/"}, b""),
        "/invalid": (303, {"Location": "http://["}, b""),
        "/missing": (303, {"Location": "/result"}, b""),
        "/result": (404, {}, b""),
    }

    def check(path):
        with pytest.raises(EffectUnknown):
            sent(upstream, path, method)

    assert faults(check, ["/here", "/moved", "/elsewhere", "/invalid", "/missing"]) == {}
    assert [path for each, path in upstream.taken if each == "GET"] == ["/result"]


def test_request_that_was_not_carried_out_is_refused(upstream):
    upstream.answers["/a"] = (307, {"Location": "http://10.0.0.1/"}, b"")
    with pytest.raises(UpstreamError, match="307"):
        sent(upstream, "/a", "POST")


def test_rate_limit_names_the_wait_that_the_server_asks_for(upstream):
    later = format_datetime(clock.now() + timedelta(days=400), usegmt=True)
    cases = [("7", 7), (later, 86_400), ("Wed, 21 Oct 2015 07:28:00 GMT", 0), ("soon", None), ("²", None), ("", None)]

    def check(value, seconds):
        upstream.answers["/a"] = (429, {"Retry-After": value, "Content-Type": "text/plain"}, b"quota")
        with pytest.raises(UpstreamError, match="quota") as refused:
            sent(upstream, "/a", "POST")
        wait = {} if seconds is None else {"retry_after": seconds}
        assert (refused.value.kind, refused.value.details) == ("upstream_rate_limited", {"http_status": 429, **wait})

    assert faults(check, cases) == {}


def test_failure_of_the_server_leaves_the_effect_of_other_methods_unknown(upstream):
    upstream.answers["/a"] = (500, {"Content-Type": "application/json"}, b'{"error": "disk full"}')
    with pytest.raises(EffectUnknown, match="disk full"):
        sent(upstream, "/a", "POST")
    with pytest.raises(UpstreamError, match="disk full") as refused:
        sent(upstream, "/a")
    assert refused.value.kind == "upstream_failed"


def test_shown_body_that_is_cut_says_how_much_is_missing():
    operation = Operation(method="POST", url="https://shop.example/", body="json", body_fields={"a": "a", "to": "to"})
    arguments = {"a": "x" * 30_000, "to": "m"}
    shown = prepare(operation, arguments, {}).shown()
    missing = len(json.dumps(arguments, indent=2)) - 20_000
    assert len(shown) < 21_000 and f"[{missing:,} more characters" in shown
    assert "more characters" not in prepare(operation, {"a": "x" * 10_000, "to": "m"}, {}).shown()


def test_line_breaks_are_encoded_where_requests_can_hold_them():
    operation = Operation(
        method="POST",
        url="https://shop.example/{id}?sql={sql}",
        query={"q": "q"},
        body="form",
        body_fields={"text": "text"},
    )
    request = prepare(operation, {"id": "1", "sql": "a\nb", "q": "\t", "text": "a\nb"}, {})
    assert (request.url, request.body) == ("https://shop.example/1?sql=a%0Ab&q=%09", b"text=a%0Ab")
    with pytest.raises(ToolValidationError, match="'id'"):
        prepare(operation, {"id": "a\nb"}, {})


def test_request_that_is_not_answered_in_time_names_the_setting(settings, monkeypatch):
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    # On a busy machine connecting alone can take more than its half of this short time.
    monkeypatch.setattr("catalog.sources.http_requests.CONNECT_SHARE", 100)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answering) as silent:  # connections wait in its backlog
        request = prepare(Operation(method="GET", url=f"http://127.0.0.1:{silent.server_port}/"), {}, {})
        with pytest.raises(UpstreamError, match="timeout is a setting") as refused:
            run_on_loop(send("shop", request, 0.05), 10)
    assert refused.value.kind == "timeout"


def test_key_of_the_query_is_sent_to_its_server_alone_and_masked(upstream):
    key, quoted = "s3cret key&1", "s3cret%20key%261"
    upstream.answers[f"/a?q=x&api_key={quoted}"] = (200, {"Content-Type": "text/plain"}, f"{key} {quoted}".encode())
    http = Operation(method="GET", url=f"{upstream.url}/a", query={"q": "q"}).as_json()
    definition = Definition(kind="http", upstream="a", description="a", input_schema={"type": "object"}, http=http)
    settings = UpstreamSettings(
        pk=1, name="shop", kind="openapi", api_origin=upstream.url, query={"api_key": key}, timeout=5
    )
    tool = build_tool("a", definition, settings)
    result = run_on_loop(tool.handler({"q": "x"}), 10)
    shown = tool.preview_for({"q": "x"}, ToolContext())
    assert "s3cret" not in f"{result.value}{shown.after}" and "api_key" in str(result.value)
    elsewhere = build_tool("a", definition, replace(settings, api_origin="https://shop.example"))
    with pytest.raises(UpstreamError):
        run_on_loop(elsewhere.handler({"q": "x"}), 10)
    assert len(upstream.taken) == 1


def test_address_of_a_binary_answer_has_no_stored_key(upstream):
    upstream.answers["/a?key=k1"] = (200, {"Content-Type": "application/pdf"}, b"%PDF-\x00")
    request = prepare(Operation(method="GET", url=upstream.url + "/a"), {}, {}, {"key": "k1"})
    result = run_on_loop(send("shop", request, 5), 10)
    assert upstream.url in repr(result) and "k1" not in repr(result)
