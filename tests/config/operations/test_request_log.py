"""Request log lines and request ids."""

import gzip
import json
import logging
import re

import pytest
from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.test import Client, RequestFactory
from django.urls import path

from config.operations.request_log import CompressionMiddleware
from config.urls import urlpatterns as real
from tests.config.factories import CANARY, Captured, fail
from tests.rest import Rest


def broken(request):
    """End as no view should, saying something of its own first."""
    logging.getLogger("toolgate.mine").info("inside")
    fail()


urlpatterns = [*real, path("broken/", broken, name="broken")]


def requests(lines: Captured) -> list[dict[str, object]]:
    """Return the lines about requests."""
    return [line for line in lines.json() if line["logger"] == "toolgate.http"]


@pytest.mark.django_db(transaction=True)
def test_a_request_leaves_one_line(lines, ada):
    rest = Rest(ada)
    rest.get("tools/", q=CANARY)
    [line] = requests(lines)
    assert {name: line[name] for name in ("level", "event", "method", "view", "path", "status")} == {
        "level": "info", "event": "request", "method": "GET", "view": "api-tools", "path": "/api/v1/tools/",
        "status": 200,
    }  # fmt: skip
    assert (line["user"], line["token"]) == (ada.pk, rest.token.pk)
    assert isinstance(line["duration_ms"], float)
    assert CANARY not in lines.text


@pytest.mark.django_db(transaction=True)
def test_signed_in_user_is_logged(lines, ada, client):
    client.get("/sign-in/")
    client.force_login(ada)
    client.get("/plans/")
    anonymous, signed_in = requests(lines)
    assert ("user" in anonymous, signed_in["user"]) == (False, ada.pk)


@pytest.mark.parametrize("given", ["a", "0123-ABC_x.y", "x" * 64])
def test_a_harmless_id_is_kept_and_sent_back(client, lines, given):
    assert client.get("/healthz", headers={"X-Request-ID": given})["X-Request-ID"] == given
    assert [line["request_id"] for line in requests(lines)] == [given]


@pytest.mark.parametrize("given", ["", "x" * 65, "a b", "a\tb", "é", "a/b", '"'])
def test_invalid_request_id_is_replaced(client, lines, given):
    made = client.get("/healthz", headers={"X-Request-ID": given})["X-Request-ID"]
    assert re.fullmatch("[0-9a-f]{16}", made)
    assert [line["request_id"] for line in requests(lines)] == [made]


@pytest.mark.urls("tests.config.operations.test_request_log")
def test_inner_lines_have_the_id_and_errors_are_logged_once(lines, db):
    Client(raise_request_exception=False).get("/broken/", headers={"X-Request-ID": "r1"})
    found = [(line["logger"], line["level"], line["request_id"]) for line in lines.json()]
    assert found == [
        ("toolgate.mine", "info", "r1"), ("django.request", "error", "r1"), ("toolgate.http", "error", "r1"),
    ]  # fmt: skip
    assert CANARY not in lines.text
    assert "ValueError" in lines.text


def test_probes_are_logged_at_debug_level(client, lines, db):
    client.get("/healthz"), client.get("/static/nothing.css"), client.get("/nowhere/\x1b")
    assert [(line["view"], line["level"], line["status"]) for line in requests(lines)] == [
        ("healthz", "debug", 200), ("static", "debug", 404), ("none", "info", 404),
    ]  # fmt: skip
    assert json.loads(lines.text.splitlines()[-1])["path"] == "/nowhere/\x1b"


def test_a_trace_that_comes_in_is_named(client, lines):
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    client.get("/healthz", headers={"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"})
    client.get("/healthz", headers={"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01\n{CANARY}"})
    assert [line.get("trace_id") for line in requests(lines)] == [trace_id, None]


def compressed(response: HttpResponseBase, **headers: str) -> HttpResponseBase:
    """Return what becomes of a response to a client that takes gzip."""
    request = RequestFactory().get("/", headers={"Accept-Encoding": "gzip", **headers})
    return CompressionMiddleware(lambda request: response).process_response(request, response)


def test_long_texts_are_compressed_with_padding_of_random_length() -> None:
    text = "a" * 5000
    for media_type in ("text/html; charset=utf-8", "application/json", "application/problem+json", "text/css"):
        for response in (HttpResponse(text, media_type), StreamingHttpResponse([text], content_type=media_type)):
            answer = compressed(response)
            assert answer["Content-Encoding"] == "gzip"
            assert "Accept-Encoding" in answer["Vary"]
            assert gzip.decompress(b"".join(answer)).decode() == text
    assert len({len(b"".join(compressed(HttpResponse(text)))) for _ in range(20)}) > 1


@pytest.mark.parametrize(
    "response",
    [
        HttpResponse("a" * 100),
        HttpResponse("a" * 5000, "application/zip"),
        HttpResponse("a" * 5000, "image/png"),
        HttpResponse("a" * 5000, "text/plain", status=206),
        StreamingHttpResponse(["data: a\n\n"], content_type="text/event-stream"),
    ],
)
def test_unsuitable_responses_are_not_compressed(response: HttpResponseBase) -> None:
    assert "Content-Encoding" not in compressed(response)
