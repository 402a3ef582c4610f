"""Bodies of successful HTTP answers: whatever is wrong with one, it is kept as the closest value."""

import asyncio

import httpx2
import pytest

from catalog.core.content_blocks import MAX_RESULT
from catalog.sources import http_answers
from catalog.sources.http_answers import MAX_READ, Body, answer_of, read_body
from tests.corpus import faults

BIG = 1917043659912705296
KEPT = [
    ("application/json", b'{"id": %d}' % BIG, {"id": BIG}, []),
    ("application/json", b"\xef\xbb\xbf[1]", [1], []),
    ("application/json", "[é]".replace("é", '"é"').encode("utf-16"), ["é"], []),
    ("application/json", '["é"]'.encode("utf-16-be"), ["é"], []),
    ("application/json; charset=ISO-8859-1", '["é"]'.encode("latin-1"), ["é"], []),
    ("application/json", '["é"]'.encode("cp1252"), ["é"], []),
    ("application/json", b" \r\n", None, []),
    ("application/json", b"", None, []),
    ("application/json", b'[NaN, -Infinity, 1e400, 1.50, "a\\u0000"]', ["NaN", "-Infinity", "1e400", 1.5, "a\0"], []),
    ("application/json", b'{"a": 1, "a": 2}', {"a": 2}, []),
    ("application/json", b'["\\ud83d", "\\ud83d\\ude00"]', ["\ufffd", "😀"], []),
    ("application/json", b"[" + b"9" * 5_000 + b"]", ["9" * 5_000], []),
    ("application/json", b"{'a': 1}", "{'a': 1}", ["not_json"]),
    ("application/vnd.x+json", b"[" * 100 + b"]" * 100, "[" * 100 + "]" * 100, ["not_json"]),
    ("application/json", b"[" * 100_000, "[" * 100_000, ["not_json"]),
    ("", b'{"a": 1}', '{"a": 1}', []),
    ("application/yaml", b"a: 1\n", "a: 1\n", []),
    ("application/x-ndjson", b"{}\n{}\n", "{}\n{}\n", []),
    ("text/event-stream", b"data: 1\n\n", "data: 1\n\n", []),
    ("image/svg+xml", b"<svg/>", "<svg/>", []),
]


def test_body_is_kept_as_the_closest_value():
    def check(content_type, data, value, codes):
        result = answer_of(Body(data, content_type, len(data)), "https://x.example/")
        assert (result.value, [each.code for each in result.warnings]) == (value, codes)
        assert result.success
        assert result.content is None

    assert faults(check, KEPT) == {}


@pytest.mark.parametrize(
    ("content_type", "data", "block"),
    [
        ("image/png", b"\x89PNG\r\n\x1a\n", {"type": "image", "data": b"\x89PNG\r\n\x1a\n", "mimeType": "image/png"}),
        ("", b"a\0b", {"type": "resource", "resource": {"uri": "https://x.example/a", "blob": b"a\0b"}}),
    ],
)
def test_binary_body_is_a_block(content_type, data, block):
    result = answer_of(Body(data, content_type, len(data)), "https://x.example/a?key=s3cret")
    assert result.content == [block]
    assert result.value == {"content_type": content_type or "unknown", "bytes": len(data)}


def test_long_json_is_its_beginning():
    data = b'["' + b"a" * (2 * MAX_RESULT) + b'"]'
    result = answer_of(Body(data, "application/json", len(data)), "https://x.example/")
    assert result.value == data[:MAX_RESULT].decode()
    assert [each.code for each in result.warnings] == ["cut"]
    assert f"{len(data):,}" in result.warnings[0].message


class _Streaming(httpx2.AsyncByteStream):
    """A body that sends chunks, then breaks or goes on for ever."""

    def __init__(self, chunks, then=None):
        self.chunks, self.then = chunks, then

    async def __aiter__(self):
        for each in self.chunks:
            yield each
        if isinstance(self.then, Exception):
            raise self.then
        if self.then is not None:
            await asyncio.Event().wait()

    async def aclose(self):
        """Nothing to close."""


@pytest.mark.parametrize(
    "stream",
    [
        _Streaming([b"a" * 1_000_000] * 50),
        _Streaming([b"a" * 500], httpx2.ReadError("gone")),
        _Streaming([b"a" * 500], "endless"),
    ],
)
def test_body_that_does_not_end_is_cut(stream):
    async def read():
        headers = {"Content-Type": "text/plain", "Content-Length": "50000000"}
        response = httpx2.Response(200, headers=headers, stream=stream)
        return await read_body(response, asyncio.get_running_loop().time() + 0.05)

    body = asyncio.run(read())
    assert (len(body.data), body.size) == (min(MAX_READ, sum(map(len, stream.chunks))), 50_000_000)
    warning = answer_of(body, "https://x.example/").warnings[0]
    assert warning.code == "cut"
    assert "50,000,000" in warning.message


def test_type_is_compared_without_parameters():
    assert http_answers.is_json("Application/Problem+JSON; charset=utf-8")
    assert not http_answers.is_json("application/x-ndjson")
