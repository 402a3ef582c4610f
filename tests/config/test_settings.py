"""Settings that make no sense refuse to start and say which they are."""

import os
import subprocess
import sys

import pytest
from django.conf import settings

MANAGE = [sys.executable, "manage.py", "check"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"TOOLGATE_LEASE_SECONDS": "nan"},
        {"TOOLGATE_UNDO_SECONDS": "-1"},
        {"TOOLGATE_UNDO_SECONDS": "inf"},
        {"TOOLGATE_THREADS": "0"},
        {"TOOLGATE_RUN_WINDOW_SECONDS": "1e3"},
        {"TOOLGATE_APPROVAL_TTL_SECONDS": "999999999999"},
        {"ALLOWED_HOSTS": "*"},
        {"SECRET_KEY": "short"},
    ],
    ids=lambda wrong: "=".join(*wrong.items()),
)
def test_what_makes_no_sense_is_refused_by_name(wrong: dict[str, str]) -> None:
    """Before anything is served."""
    environment = {**os.environ, "DEBUG": "0", **wrong}
    done = subprocess.run(MANAGE, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert all(name in done.stderr for name in wrong)
