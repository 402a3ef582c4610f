"""A world made only by the services breaks no invariant."""

import pytest

from tests.invariants import assert_invariants

pytestmark = pytest.mark.db


def test_services_break_no_invariant(small):
    """Approved, undone, rejected, expired, unknown, settled, edited, skipped, cancelled, withdrawn, tried again."""
    assert_invariants()
