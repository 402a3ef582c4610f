"""Requests: what is sent again, and answers that are not Toolgate's."""

import gzip
import ssl

import httpx
import pytest

from tests.certificates import server_context, write_authority
from tests.http_server import serving
from tests.plans.client_setup.answers import AnsweringServer, as_json
from tests.toolgate_client.conftest import CALL, PROBLEM_TYPE, TOKEN, problem
from toolgate_client import (
    AsyncClient,
    Client,
    ConfigurationError,
    Conflict,
    ConnectionLost,
    Forbidden,
    InvalidRequest,
    MalformedAnswer,
    NotFound,
    Problem,
    RateLimited,
    Refused,
    ServerError,
    Unauthorized,
)
from toolgate_client import transport as client_transport

PROXY_VARIABLES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
JSON_TYPE = {"content-type": "application/json"}


def untrusted():
    error = httpx.ConnectError("no")
    error.__cause__ = ssl.SSLCertVerificationError("no")
    return error


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (problem(400), InvalidRequest),
        (problem(401), Unauthorized),
        (problem(403, "permission_denied"), Forbidden),
        (problem(403, "refused"), Refused),
        (problem(404), NotFound),
        (problem(409), Conflict),
        (problem(413), InvalidRequest),
        (problem(418), Problem),
        (problem(422), InvalidRequest),
        (problem(429), RateLimited),
        (problem(500), ServerError),
        (problem(503, "stopped"), ServerError),
        (httpx.Response(500, html="<h1>500</h1>"), ServerError),
        (httpx.Response(500, content=b"{", headers=PROBLEM_TYPE), ServerError),
        (httpx.Response(302, headers={"location": "https://elsewhere.example/"}), MalformedAnswer),
        (httpx.Response(200, html="<h1>Welcome</h1>"), MalformedAnswer),
        (httpx.Response(200), MalformedAnswer),
        (httpx.Response(200, content=b'{"id": NaN}', headers=JSON_TYPE), MalformedAnswer),
        (httpx.Response(200, content=b'{"id": 1, "id": 2}', headers=JSON_TYPE), MalformedAnswer),
        (httpx.Response(200, content=b"[" * 100_000, headers=JSON_TYPE), MalformedAnswer),
        (httpx.Response(200, json=[]), MalformedAnswer),
        (httpx.Response(200, json={**CALL, "status": None}), MalformedAnswer),
        (httpx.Response(200, json={**CALL, "id": 3}), MalformedAnswer),
        (
            httpx.Response(200, content=gzip.compress(b"{}"), headers={**JSON_TYPE, "content-encoding": "gzip"}),
            MalformedAnswer,
        ),
        (untrusted(), ConnectionLost),
        (httpx.UnsupportedProtocol("no"), ConnectionLost),
    ],
)
def test_an_error_is_typed_and_final(toolgate, script, outcome, answer, error):
    script.replies = [answer]
    with pytest.raises(error) as raised:
        outcome(toolgate.wait("call_1"))
    assert len(script.requests) == 1
    assert TOKEN not in f"{raised.value!r} {raised.value.__cause__!r} {raised.value.__context__!r}"


@pytest.mark.parametrize(
    "lost",
    [
        httpx.ConnectError("no"),
        httpx.ReadTimeout("no"),
        httpx.RemoteProtocolError("no"),
        httpx.Response(502, html="<h1>Bad gateway</h1>"),
        problem(503, "database_away", **{"retry-after": "5"}),
        problem(429, "throttled", **{"retry-after": "2"}),
        problem(409, "still_running", **{"retry-after": "1"}),
    ],
)
def test_a_request_is_repeated_with_its_key(toolgate, script, outcome, lost):
    script.replies = [lost, lost, httpx.Response(201, json=CALL)]
    assert outcome(toolgate.call("write_file", {})).succeeded
    keys = {request.headers["idempotency-key"] for request in script.requests}
    assert (len(script.requests), len(keys), len(script.pauses)) == (3, 1, 2)


def test_repeating_ends(toolgate, script, outcome):
    toolgate.retry_seconds = 3
    script.replies = [problem(503, "database_away", **{"retry-after": "5"})]
    with pytest.raises(ServerError):
        outcome(toolgate.wait("call_1"))


def test_a_large_answer_is_not_read(toolgate, script, outcome, monkeypatch):
    monkeypatch.setattr(client_transport, "MAX_ANSWER_BYTES", 100)
    script.replies = [httpx.Response(200, json={**CALL, "message": "x" * 200})]
    with pytest.raises(MalformedAnswer):
        outcome(toolgate.wait("call_1"))


@pytest.mark.parametrize("call", ["", "..", "a/b", "call_1?x=1", "call_1\n", "x" * 200])
def test_an_id_is_no_path(toolgate, script, outcome, call):
    with pytest.raises(ValueError, match="not an id"):
        outcome(toolgate.wait(call))
    assert script.requests == []


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("host", ["toolgate.invalid", "127.0.0.1:1"])
def test_a_proxy_is_asked_only_if_it_is_named(monkeypatch, outcome, kind, host):
    """It gets the token, and can answer in Toolgate's place."""
    with serving(AnsweringServer({"": as_json(CALL)})) as proxy:
        address = f"http://127.0.0.1:{proxy.server_port}"
        for name in PROXY_VARIABLES:
            monkeypatch.setenv(name, address)
        with pytest.raises(ConnectionLost):
            outcome(kind(f"http://{host}", TOKEN, retry_seconds=0).wait("call_1"))
        assert proxy.taken == []
        found = outcome(kind(f"http://{host}", TOKEN, retry_seconds=0, proxy=address).wait("call_1"))
        assert (found.id, len(proxy.taken)) == ("call_1", 1)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_certificates_are_trusted_only_if_they_are_named(tmp_path, monkeypatch, outcome, kind):
    trusted = tmp_path / "authority.pem"
    context = server_context(tmp_path, write_authority(trusted))
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    server = AnsweringServer({"api": as_json(CALL)})
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server):
        url = f"https://localhost:{server.server_port}"
        with pytest.raises(ConnectionLost):
            outcome(kind(url, TOKEN, retry_seconds=0).wait("call_1"))
        assert server.taken == []
        assert outcome(kind(url, TOKEN, retry_seconds=0, certificates=trusted).wait("call_1")).id == "call_1"


def test_certificates_that_cannot_be_read_are_a_fault_of_the_configuration(tmp_path):
    with pytest.raises(ConfigurationError):
        Client("https://toolgate.example", TOKEN, certificates=tmp_path / "none.pem")
