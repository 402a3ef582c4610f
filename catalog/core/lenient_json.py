"""Lenient reading of answers: JSON that is not strict, texts in any character set, bodies that are too long.

An answer reports something that has happened, so whatever arrived is kept in the closest form that can be stored.
"""

import codecs
import json
import re
from math import isfinite
from typing import Any

from catalog.core.canonical_json import MAX_JSON_DEPTH, malformed_json
from catalog.errors import MalformedJSON

MAX_DIGITS = 4_300
"""Digits of the longest integer that Python reads and writes; longer ones stay text."""
CHARSETS = frozenset(
    {
        *("utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "koi8-r", "koi8-u"),
        *(f"iso8859-{part}" for part in range(1, 17)),
        *(f"cp{page}" for page in range(1250, 1259)),
        *("gb2312", "gbk", "gb18030", "big5", "euc_jp", "shift_jis", "iso2022_jp", "euc_kr"),
    }
)
"""Python's names of the character sets that answers are decoded with. Its other codecs include `hex` and `zlib`."""
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
SURROGATES = re.compile("[\ud800-\udfff]")


def read_lenient_json(text: str, *, keep_below: int = 0) -> Any:
    """Return the value of JSON text; of repeated keys, the last counts. Raises MalformedJSON.

    Integers are exact. Numbers that JSON or Python cannot hold, such as NaN, 1e400 and integers of more than 4,300
    digits, are kept as text. Values nested deeper than `keep_below` levels are kept as JSON text; if it is 0, a value
    that is nested too deeply is refused.
    """
    try:
        return _storable(_decoder.decode(text), keep_below or MAX_JSON_DEPTH, keeps=keep_below > 0)
    except json.JSONDecodeError as error:
        raise malformed_json(error) from None
    except RecursionError:
        raise _too_deep() from None


def storable_json(value: Any) -> Any:
    """Return a parsed value as JSON that can be stored. Raises MalformedJSON if it is nested too deeply.

    Lone surrogates become replacement characters; infinite numbers and NaN become texts such as "Infinity".
    """
    return _storable(value, MAX_JSON_DEPTH)


def _storable(value: Any, depth: int, *, keeps: bool = False) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else SURROGATES.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, dict | list) and depth <= 0:
        if not keeps:
            raise _too_deep()
        return json.dumps(value)
    if isinstance(value, dict):
        return {_storable(str(key), 0): _storable(each, depth - 1, keeps=keeps) for key, each in value.items()}
    if isinstance(value, list):
        return [_storable(each, depth - 1, keeps=keeps) for each in value]
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


def _too_deep() -> MalformedJSON:
    return MalformedJSON(f"The document is nested deeper than {MAX_JSON_DEPTH} levels.", code="too_deep")


_decoder = json.JSONDecoder(
    parse_constant=str,
    parse_float=lambda text: number if isfinite(number := float(text)) else text,
    parse_int=lambda text: int(text) if len(text.lstrip("-")) <= MAX_DIGITS else text,
    strict=False,
)


def decode_text(data: bytes, charset: str = "", *, is_json: bool = False) -> str:
    """Decode bytes by their byte order mark, else in the character set `charset`, else as UTF-8 or Windows-1252.

    A `charset` outside CHARSETS is ignored. With `is_json`, UTF-16 and UTF-32 are recognised without a mark.
    """
    marked = next((name for mark, name in BYTE_ORDER_MARKS.items() if data.startswith(mark)), "")
    if marked:
        return data.decode(marked, "replace")
    try:
        named = codecs.lookup(charset).name if charset else ""
    except LookupError:
        named = ""
    if named in CHARSETS:
        return data.decode(named, "replace")
    if is_json and (detected := json.detect_encoding(data)) != "utf-8":
        return data.decode(detected, "replace")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        # A character that was cut off at the end is no sign of another character set.
        is_cut_off = error.end == len(data) and error.start > 0 and error.reason == "unexpected end of data"
        return data.decode("utf-8", "replace") if is_cut_off else data.decode("cp1252", "replace")


def cut_text(text: str, limit: int) -> str:
    if len(text) * 4 <= limit:
        return text
    data = text.encode("utf-8", "replace")
    return text if len(data) <= limit else data[:limit].decode("utf-8", "ignore")
