"""Bodies of HTTP answers as values: read up to a limit, in any character set, JSON leniently.

An answer with a 2xx status is always a success, because the call has had its effect; defects add warnings.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx2

from catalog.core.content_blocks import MAX_RESULT
from catalog.core.lenient_json import cut_text, decode_text, read_lenient_json
from catalog.errors import MalformedJSON
from catalog.results import NO_MESSAGE, ResultWarning, UpstreamResult

MAX_READ = 8 * 1024 * 1024
"""Bytes read of an answer."""
CHARSET = re.compile(r';\s*charset\s*=\s*"?([A-Za-z0-9_.:-]+)', re.IGNORECASE)
TEXT_TYPES = frozenset(
    {
        *("xml", "yaml", "x-yaml", "x-ndjson", "ndjson", "jsonl", "json-lines", "json-seq", "csv", "toml", "sql"),
        *("javascript", "ecmascript", "graphql", "x-www-form-urlencoded", "problem", "rtf", "x-sh"),
    }
)
"""Subtypes of `application/` that are text."""


@dataclass(frozen=True, slots=True)
class Body:
    """The part of an answer's body that was read; `size` is the length of the whole body, None if unknown."""

    data: bytes
    content_type: str
    size: int | None
    interrupted: str = ""
    """A sentence on why the body was not read to its end; empty if it was."""

    @property
    def media_type(self) -> str:
        return without_parameters(self.content_type)

    @property
    def is_text(self) -> bool:
        """True if the Content-Type is a text type; without a Content-Type, if the bytes are UTF-8 without NUL."""
        kind = self.media_type
        if not kind:
            try:
                self.data.decode()
            except UnicodeDecodeError as error:  # of the last character, if the body was cut
                if not error.start or error.end < len(self.data) or error.reason != "unexpected end of data":
                    return False
            return b"\0" not in self.data
        main, _, subtype = kind.partition("/")
        suffix = subtype.rpartition("+")[2]
        return (
            main == "text" or is_json(kind) or (main == "application" and subtype in TEXT_TYPES) or suffix in _SUFFIXES
        )

    @property
    def text(self) -> str:
        named = CHARSET.search(self.content_type)
        return decode_text(self.data, named[1] if named else "", is_json=is_json(self.content_type))


_SUFFIXES = ("xml", "yaml", "json", "json-seq")


async def read_body(response: httpx2.Response, ends: float) -> Body:
    """Read at most MAX_READ bytes of an answer, until `ends` on the loop's clock or until the connection breaks."""
    data, interrupted = bytearray(), ""
    try:
        async with asyncio.timeout_at(ends):
            async for chunk in response.aiter_raw():
                data += chunk
                if len(data) > MAX_READ:
                    interrupted = f"The answer is too long: {MAX_READ:,} bytes of it were read."
                    break
    except TimeoutError:
        interrupted = "The answer did not end in time."
    except httpx2.TransportError:
        interrupted = "The connection broke during the answer."
    named = response.headers.get("Content-Length", "")
    announced = int(named) if named.isascii() and named.isdigit() and len(named) < 16 else None
    size = announced if interrupted else len(data)
    return Body(bytes(data[:MAX_READ]), response.headers.get("Content-Type", ""), size, interrupted)


def response_text(response: httpx2.Response) -> str:
    """Return the body of a completely received answer as text, decoded with the character set that it names."""
    return Body(response.content, response.headers.get("Content-Type", ""), len(response.content)).text


def answer_of(body: Body, url: str) -> UpstreamResult[Any]:
    if not body.data or not body.is_text:
        kept = len(body.data) if len(body.data) <= MAX_RESULT else 0  # of longer binary data nothing is stored
        warnings = [_cut_warning(body, kept)] if body.interrupted or kept < len(body.data) else []
        if not body.data:
            return _success(None, *warnings)
        main = body.media_type.partition("/")[0]
        if main in ("image", "audio"):
            block: dict[str, Any] = {"type": main, "data": body.data, "mimeType": body.media_type}
        else:
            place = urlunsplit((*urlsplit(url)[:3], "", ""))  # a query may hold secrets
            kind = {"mimeType": body.media_type} if body.media_type else {}
            block = {"type": "resource", "resource": {"uri": place, **kind, "blob": body.data}}
        value = {"content_type": body.media_type or "unknown", "bytes": body.size}
        return _success(value, *warnings, content=[block])
    text = body.text
    if len(body.data) > MAX_RESULT or body.interrupted:
        beginning = cut_text(text, MAX_RESULT)
        return _success(beginning, _cut_warning(body, len(beginning.encode("utf-8", "replace"))))
    if not is_json(body.content_type) or not text.strip("\ufeff \t\r\n"):
        return _success(None if is_json(body.content_type) else text)
    try:
        return _success(read_lenient_json(text))
    except MalformedJSON as error:
        reason = f"The answer is kept as text, because it is not JSON: {error}"
        return _success(text, ResultWarning("not_json", reason))


def _success(
    value: Any, *warnings: ResultWarning, content: Sequence[dict[str, Any]] | None = None
) -> UpstreamResult[Any]:
    return UpstreamResult(message=NO_MESSAGE, value=value, warnings=warnings, content=content)


def _cut_warning(body: Body, kept: int) -> ResultWarning:
    size = f"The answer has {body.size:,} bytes" if body.size is not None else "The length of the answer is unknown"
    rest = f"the first {kept:,} are kept" if kept else "nothing of it is kept"
    return ResultWarning("cut", f"{body.interrupted} {size}; {rest}.".strip())


def without_parameters(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()


def is_json(media_type: str) -> bool:
    plain = without_parameters(media_type)
    return plain == "application/json" or plain == "text/json" or plain.endswith("+json")
