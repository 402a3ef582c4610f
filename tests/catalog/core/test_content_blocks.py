"""Content blocks: storage within a limit, and images told by their bytes."""

import pytest

from catalog.core.content_blocks import Blob, decode_block, described_block, picture_type, stored_content

IMAGE = {"type": "image", "data": b"x" * 500, "mimeType": "image/png"}


def test_bytes_are_stored_apart():
    link = {"type": "resource", "resource": {"uri": "a://b", "blob": b"yy"}, "bytes": 7, "url": "javascript:x"}
    stored = stored_content([{"type": "text", "text": "a"}, IMAGE, link])
    assert [*stored.blocks] == [
        {"type": "text", "text": "a"},
        {"type": "image", "mimeType": "image/png", "bytes": 500},
        {"type": "resource", "resource": {"uri": "a://b"}, "bytes": 2},
    ]
    assert [*stored.blobs] == [Blob(1, b"x" * 500), Blob(2, b"yy")]
    assert not stored.is_cut


def test_content_beyond_the_limit_is_cut():
    text = {"type": "text", "text": 'é"' * 1_000}
    stored = stored_content([IMAGE, IMAGE, text, text], 1_000)
    first, second, third = stored.blocks
    assert (first.get("cut"), second["cut"], third["cut"]) == (None, True, True)
    assert [each.number for each in stored.blobs] == [0]
    assert third["bytes"] == 3_000
    assert text["text"].startswith(third["text"])
    assert third["text"]
    assert stored.is_cut
    assert described_block(second).startswith("image/png, 500 bytes")


@pytest.mark.parametrize("text", ["+/9h\r\nYQ==", "-_9hYQ", "+/9hYQ=="])
def test_base64_is_read_as_servers_write_it(text):
    assert decode_block({"type": "audio", "data": text})["data"] == b"\xfb\xffaa"


def test_media_block_with_a_resource_is_stored():
    block = decode_block({"type": "image", "data": "YWE=", "resource": {"blob": "YmI="}})
    stored = stored_content([block])
    assert [*stored.blocks] == [{"type": "image", "resource": {"blob": "YmI="}, "bytes": 2}]
    assert [*stored.blobs] == [Blob(0, b"aa")]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\0\0\0\0WAVE", ""),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", ""),
        (b"", ""),
    ],
)
def test_image_is_told_by_its_bytes(data, kind):
    assert picture_type(data) == kind
