"""Detection of texts that satisfy a condition but lead elsewhere: `reports/../secrets` starts with `reports/`.

Conditions compare texts literally, but tools resolve paths and addresses. Grants, and rules that allow, must not cover
such a text. Rules that hold or deny do match it.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

EXACT_OPERATORS = frozenset({"equals", "in", "exists"})
"""Operators that compare the whole text, or allow any text."""
MAX_DECODINGS = 5
"""Maximum levels of percent-encoding; a text with more counts as an attempt to hide its target."""
_URL_PREFIX = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:)?//")
_ADDRESS = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*://)?([^\s/@]+@)?\w[\w-]*(\.[\w-]+)*\.[a-z][a-z-]+(:\d+)?(?P<path>/\S*)?", re.I
)
"""A host, mail address or URL, or the beginning of one."""

_FILE_ARGUMENT = re.compile(r"(path|file|folder|directory)(name)?s?(\.\d+)?$", re.I)
"""Arguments whose values are file names, which look like hosts."""


def escapes(operator: str, value: Any, found: Any) -> bool:
    """Return True if the text `found`, which satisfies the condition, may lead outside of the condition's `value`."""
    if operator in EXACT_OPERATORS or not isinstance(found, str):
        return False
    if _has_parent_segment(found):
        return True
    if operator != "starts_with" or _URL_PREFIX.match(value) is None or value.endswith("/"):
        return False
    # If the prefix ends inside a host or folder name, the URL may lead to a different one.
    return found[len(value) : len(value) + 1] not in ("", "/", "?", "#")


def _has_parent_segment(text: str) -> bool:
    """Return True if a path contains a parent segment, percent-encoded or not."""
    for _ in range(MAX_DECODINGS):
        # URL parsers ignore line breaks. Servers ignore spaces, and text that follows a semicolon.
        segments = re.split(r"[/\\]", re.sub(r"[\t\r\n]", "", text))
        if any(each.partition(";")[0].strip() == ".." for each in segments):
            return True
        before, text = text, unquote(text)
        if before == text:
            return False
    return True


def open_end(row: Mapping[str, Any]) -> str:
    """Return a warning if the host or address of a row is also part of other hosts or addresses; else an empty text."""
    operator, value = row["operator"], row.get("value")
    if not isinstance(value, str) or _FILE_ARGUMENT.search(row["path"]):
        return ""
    if operator == "matches":
        begins, ends = value.startswith("^"), value.endswith("$")
        value = value.removeprefix("^").removesuffix("$").replace("\\", "")
    else:
        begins, ends = operator == "starts_with", operator == "ends_with"
    is_open = operator in ("starts_with", "ends_with", "contains", "matches")
    if not is_open or (operator == "matches" and begins and ends):
        return ""
    address = _ADDRESS.fullmatch(value.lstrip("@.") if ends else value)
    if address is None:
        return ""
    if ends:
        is_whole = value.startswith(("@", ".")) or address["scheme"]
        return "" if is_whole else f"“evil{value}” fits too. Begin with “.” or “@”, or use equals."
    if begins:
        return "" if address["path"] else f"“{value}.evil.example” fits too. End with “/”, or use equals."
    return f"“https://evil.example/?{value}” fits too. Use equals, or starts with and a final “/”."
