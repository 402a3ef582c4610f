"""Capture of log lines, and an exception whose message must not be logged."""

import io
import json
import logging
from collections.abc import Iterator

from config.operations import logging as operations_logging

CANARY = "yrano-canary-71"


HOSTILE = "a\nb\r\x1b[31m\u202e\u2028\x00"


class Captured:
    """Everything that is logged, at every level, as one style renders it."""

    def __init__(self, style: str) -> None:
        self.stream = io.StringIO()
        self.handler = logging.StreamHandler(self.stream)
        self.handler.setFormatter(operations_logging.formatter(style))

    @property
    def text(self) -> str:
        """All lines so far."""
        return self.stream.getvalue()

    def json(self) -> list[dict[str, object]]:
        """Each line as the object that it is."""
        return [json.loads(line) for line in self.text.splitlines()]


def capture(*styles: str) -> Iterator[list[Captured]]:
    """Capture the lines of the root logger and Toolgate's in each style."""
    root, own = logging.getLogger(), logging.getLogger("toolgate")
    before = root.level, own.level
    captured = [Captured(style) for style in styles]
    for each in captured:
        root.addHandler(each.handler)
    root.setLevel(logging.DEBUG)
    own.setLevel(logging.DEBUG)
    yield captured
    root.setLevel(before[0])
    own.setLevel(before[1])
    for each in captured:
        root.removeHandler(each.handler)


def fail() -> None:
    """Raise what holds an argument."""
    raise ValueError(CANARY)


def raised() -> ValueError:
    """Return such an exception with where it came from."""
    try:
        fail()
    except ValueError as error:
        return error
    raise AssertionError
