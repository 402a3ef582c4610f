"""Fixtures of the catalog's tests."""

from collections.abc import Iterator

import pytest

from catalog.inventory import snapshot
from catalog.testing import clean_registry


@pytest.fixture
def own_tools_only(db: None) -> Iterator[None]:
    """Register no tools but those of the test."""
    with clean_registry():
        yield
    snapshot.drop_snapshot()
