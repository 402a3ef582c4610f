"""A world made by the services alone breaks nothing."""

import pytest

from tests.invariants import assert_invariants

pytestmark = pytest.mark.db


def test_what_the_services_make_is_whole(small):
    """Approved, undone, rejected, expired, unknown, settled, edited, skipped, cancelled, withdrawn, tried again."""
    assert_invariants()
