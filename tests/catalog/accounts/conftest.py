"""Fixtures of tests of accounts."""

import pytest

from tests.passkeys import HOST


@pytest.fixture(autouse=True)
def host(settings):
    settings.ALLOWED_HOSTS = [HOST, "testserver"]
