"""Bytes of the content blocks of calls: storage, reading, and their HTTP answers."""

import base64
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.db.models import BinaryField
from django.db.models.functions import Substr
from django.http import Http404, HttpResponse

from catalog.core.content_blocks import Blob, Block, media_type_of, picture_type, with_binary
from catalog.models import Call, CallBlob

CONTENT_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "Cache-Control": "private, no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every answer with the bytes of a block: whatever they are, they run nothing and stay here."""


def store_blobs(call: Call, blobs: Iterable[Blob]) -> None:
    """Store the bytes of a call's blocks, in the transaction that ends the call."""
    rows = [CallBlob(call_id=call.pk, number=each.number, data=each.data) for each in blobs]
    if rows:
        # They may exist if the lease was lost, which is detected later.
        CallBlob.objects.bulk_create(rows, ignore_conflicts=True)


def load_blobs(call: Call) -> dict[int, bytes]:
    """Return the bytes of a call's blocks by index. Makes no query if none are stored."""
    if not any("bytes" in each for each in call.content_json):
        return {}
    return {number: bytes(data) for number, data in CallBlob.objects.filter(call=call).values_list("number", "data")}


def pictures_of(call: Call) -> dict[int, str]:
    """Return the media types, by index, of those blocks of a call whose bytes are PNG, JPEG, GIF or WebP images."""
    if not any(has_bytes(each) for each in call.content_json):
        return {}
    begins = CallBlob.objects.filter(call=call).annotate(head=Substr("data", 1, 16, output_field=BinaryField()))
    kinds = {number: picture_type(bytes(head)) for number, head in begins.values_list("number", "head")}
    return {number: kind for number, kind in sorted(kinds.items()) if kind}


def served_blocks(call: Call) -> list[dict[str, Any]]:
    """Return the content blocks of a call for the API: those with stored bytes have the `url` of the bytes."""
    blocks = call.content_json
    for number, each in enumerate(blocks):
        if has_bytes(each):
            each["url"] = f"{settings.TOOLGATE_URL}/api/v1/calls/{call.public_id}/content/{number}/"
    return blocks


def has_bytes(block: Block) -> bool:
    return "bytes" in block and not block.get("cut")


def content_response(call: Call, number: int) -> HttpResponse:
    """Return the bytes of one block: PNG, JPEG, GIF and WebP images inline, everything else as an attachment.

    An image's type is found from its bytes, whatever type its upstream names. Raises Http404 for a block without bytes.
    """
    row = CallBlob.objects.filter(call=call, number=number).first()
    if row is None:
        raise Http404
    data, blocks = bytes(row.data), call.content_json
    picture = picture_type(data)
    named = picture or (media_type_of(blocks[number]) if number < len(blocks) else "")
    response = HttpResponse(data, content_type=picture or "application/octet-stream", headers=CONTENT_HEADERS)
    subtype = named.partition(";")[0].rpartition("/")[2].partition("+")[0].lower()
    extension = subtype if subtype.isascii() and subtype.isalnum() and len(subtype) <= 10 else "bin"
    name = f"{call.tool_name}-{number}.{extension}"
    kind = "inline" if picture else "attachment"
    response["Content-Disposition"] = f"{kind}; filename*=UTF-8''{quote(name)}"
    return response


def complete_blocks(call: Call, blobs: dict[int, bytes] | None = None) -> Sequence[dict[str, Any]]:
    """Return the blocks of a call as received, with base64 text for bytes; incomplete blocks keep their `cut`."""
    blocks, stored = call.content_json, load_blobs(call) if blobs is None else blobs
    for number, block in enumerate(blocks):
        if number in stored:
            del block["bytes"]
            blocks[number] = with_binary(block, base64.b64encode(stored[number]).decode())
    return blocks
