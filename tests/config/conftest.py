"""Log fixtures of the configuration's tests."""

from collections.abc import Iterator

import pytest

from tests.config.factories import Captured, capture


@pytest.fixture
def both() -> Iterator[list[Captured]]:
    """All lines, as text and as JSON."""
    yield from capture("text", "json")


@pytest.fixture
def lines() -> Iterator[Captured]:
    """All lines as JSON."""
    for [captured] in capture("json"):
        yield captured


@pytest.fixture
def words() -> Iterator[Captured]:
    """All lines as text."""
    for [captured] in capture("text"):
        yield captured
