"""Files that are given to the check, read line by line: whatever is in them, the worst that comes is a clear error."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plans.invariants.base import CannotCheck

LONGEST_LINE = 64 * 1024


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file that are not empty, with their numbers. Raises CannotCheck, naming the line."""
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise CannotCheck(f"{path}, line {number}: a line has at most {LONGEST_LINE:,} bytes.")
                text = _text(line, path, number).strip()
                if text:
                    yield number, text
    except OSError as error:
        raise CannotCheck(f"{path} cannot be read: {error.strerror or type(error).__name__}.") from None


def _text(line: bytes, path: Path, number: int) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise CannotCheck(f"{path}, line {number}: this is not UTF-8.") from None


def objects_of(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the JSON objects of a file that has one a line, with their lines. Raises CannotCheck, naming the line."""
    for number, line in lines_of(path):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            raise CannotCheck(f"{path}, line {number}: this is not JSON.") from None
        if not isinstance(value, dict):
            raise CannotCheck(f"{path}, line {number}: this is not a JSON object.")
        if not can_be_stored(json.dumps(value, ensure_ascii=False)) or "\\u0000" in line:
            raise CannotCheck(f"{path}, line {number}: this holds characters that no database keeps.")
        yield number, value


def can_be_stored(text: str) -> bool:
    """Say whether a text is one that a database can be asked for: no half of a surrogate pair, no NUL."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in text
