"""What tests of the catalog share beside the cast."""

from collections.abc import Iterator

import pytest

from catalog import snapshot
from catalog.testing import clean_registry


@pytest.fixture
def own_tools_only(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only the tools that a test registers are there to be synced."""
    monkeypatch.setattr("catalog.sync.initialize_tools", lambda: None)
    with clean_registry():
        yield
    snapshot.forget()
