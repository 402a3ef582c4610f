"""Content blocks of results, as MCP defines them: bytes under `data` (image, audio) or `blob` (resource).

In the database a block has only the number of its bytes as `bytes`, and `cut` if bytes or text were not kept in full.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from catalog.core.canonical_json import json_size
from catalog.core.lenient_json import cut_text

Block = Mapping[str, Any]

MAX_RESULT = 1024 * 1024
"""Bytes stored of a result's value, and of its content blocks together."""
OWN_KEYS = frozenset({"bytes", "cut", "url"})
"""Keys that Toolgate adds to blocks; MCP has none of these names."""
PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Types of images that browsers and models show. SVG is a document with scripts and is not among them."""


@dataclass(frozen=True, slots=True)
class Blob:
    number: int
    data: bytes


@dataclass(frozen=True, slots=True)
class StoredContent:
    """Blocks in stored form, and their bytes, which are stored separately; `is_cut` if anything was left out."""

    blocks: Sequence[dict[str, Any]]
    blobs: Sequence[Blob]
    is_cut: bool


def picture_type(data: bytes) -> str:
    """Return the media type of a PNG, JPEG, GIF or WebP image by its first bytes; empty for anything else."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else ""


def decode_block(block: Block) -> dict[str, Any]:
    """Return a received block with its base64 data decoded to bytes; text that is not valid base64 stays text."""
    changed = dict(block)
    if is_media(block):
        if "data" in block:
            changed["data"] = _decoded(block["data"])
    elif isinstance(block.get("resource"), Mapping) and "blob" in block["resource"]:
        changed["resource"] = {**block["resource"], "blob": _decoded(block["resource"]["blob"])}
    return changed


def _decoded(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    # Some servers break lines, leave the padding out, or use the alphabet of URLs.
    plain = text.translate(_USUAL_FORM).rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return text


_USUAL_FORM = str.maketrans("-_", "+/", "\r\n")


def is_media(block: Block) -> bool:
    """Return whether this is an image or audio block, which holds its bytes under `data`; a resource uses `blob`."""
    return block.get("type") in ("image", "audio")


def binary_of(block: Block) -> bytes | None:
    resource = block.get("resource")
    data = block.get("data") if is_media(block) else resource.get("blob") if isinstance(resource, Mapping) else None
    return data if isinstance(data, bytes) else None


def with_binary(block: Block, data: object) -> dict[str, Any]:
    """Return a copy of a block whose binary data is replaced by `data`."""
    return {**block, "data": data} if is_media(block) else {**block, "resource": {**block["resource"], "blob": data}}


def without_binary(block: Block) -> dict[str, Any]:
    if is_media(block):
        return {name: each for name, each in block.items() if name != "data"}
    return {**block, "resource": {name: each for name, each in block["resource"].items() if name != "blob"}}


def text_of(block: Block) -> str | None:
    """Return the text of a text block or of a resource that is text; None for any other block."""
    resource = block.get("resource")
    text = resource.get("text") if isinstance(resource, Mapping) else block.get("text")
    return text if isinstance(text, str) else None


def media_type_of(block: Block) -> str:
    resource = block.get("resource")
    named = (resource if isinstance(resource, Mapping) else block).get("mimeType")
    return named if isinstance(named, str) else ""


def described_block(block: Block) -> str:
    """Return a line that describes a block without text, such as `image/png, 300,000 bytes`."""
    data, size = binary_of(block), block.get("bytes")
    size = len(data) if data is not None else size
    kind = media_type_of(block) or str(block.get("type", "block"))
    resource = block.get("resource") if isinstance(block.get("resource"), Mapping) else block
    uri = resource.get("uri") if isinstance(resource, Mapping) else None
    parts = [kind[:80], *([str(uri)[:300]] if uri else []), *([f"{size:,} bytes"] if isinstance(size, int) else [])]
    return ", ".join(parts) + (", not kept: too large" if block.get("cut") else "")


def text_of_content(blocks: Iterable[Block]) -> str:
    """Return blocks as one text; each block without text becomes a line in brackets that describes it."""
    return "\n".join(text if (text := text_of(each)) is not None else f"[{described_block(each)}]" for each in blocks)


def holds_json(blocks: Iterable[Block], value: object) -> bool:
    for each in blocks:
        text = each.get("text")
        if each.get("type") == "text" and isinstance(text, str) and text.lstrip()[:1] in ("{", "["):
            try:
                if json.loads(text) == value:
                    return True
            except (ValueError, RecursionError):
                continue
    return False


def says(blocks: Sequence[Block], value: object) -> bool:
    """Return whether blocks already express a value: as JSON, as their texts or, without texts, by a description."""
    if not isinstance(value, str):
        return holds_json(blocks, value)
    texts = [each for each in blocks if each.get("type") == "text"]
    told = text_of_content(texts or blocks)
    if min(len(told), len(value)) < COMPARED_LENGTH:
        return told == value
    return told[:COMPARED_LENGTH] == value[:COMPARED_LENGTH]


COMPARED_LENGTH = 20_000
"""Characters of long texts that are compared: both are cut, each at another place."""


def stored_content(blocks: Sequence[Block], limit: int = MAX_RESULT) -> StoredContent:
    """Return blocks in stored form, in their order, with at most `limit` bytes in total.

    Binary data that exceeds the limit is left out entirely, because the beginning of an image is of no use. A text that
    exceeds it is cut, and the blocks after that text are left out.
    """
    kept: list[dict[str, Any]] = []
    blobs: list[Blob] = []
    left, is_cut = limit, False
    for each in blocks:
        block = {name: value for name, value in each.items() if name not in OWN_KEYS}
        data = binary_of(block)
        plain = without_binary(block) if data is not None else block
        size = json_size(plain)
        if data is not None:
            plain["bytes"] = len(data)
            if len(data) + size <= left:
                blobs.append(Blob(len(kept), data))
                size += len(data)
            else:
                plain["cut"] = is_cut = True
        elif size > left:
            shorter = _cut_block(plain, left)
            return StoredContent([*kept, *([shorter] if json_size(shorter) <= left else [])], blobs, is_cut=True)
        if size > left:
            return StoredContent(kept, blobs, is_cut=True)
        kept.append(plain)
        left -= size
    return StoredContent(kept, blobs, is_cut)


def _cut_block(block: dict[str, Any], limit: int) -> dict[str, Any]:
    """Return a text block whose text is cut so that the block has at most about `limit` bytes."""
    text, resource = text_of(block), block.get("resource")
    if text is None:
        return block
    # Escapes make JSON longer than the text, at most six times.
    room = limit - json_size({**block, "text": "", "resource": None}) - 200
    shorter = cut_text(text, max(0, room))
    if json_size(shorter) - len('""') > room:
        shorter = cut_text(text, max(0, room // 6))
    cut = {"bytes": len(text.encode("utf-8", "replace")), "cut": True}
    if isinstance(resource, Mapping):
        return {**block, "resource": {**resource, "text": shorter}, **cut}
    return {**block, "text": shorter, **cut}
