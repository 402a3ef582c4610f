"""Settings that make no sense refuse to start and say which they are."""

import os
import subprocess
import sys

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from config.limits import read_tool_limits

MANAGE = [sys.executable, "manage.py", "check"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"TOOLGATE_LEASE_SECONDS": "nan"},
        {"TOOLGATE_UNDO_SECONDS": "-1"},
        {"TOOLGATE_UNDO_SECONDS": "inf"},
        {"TOOLGATE_THREADS": "0"},
        {"TOOLGATE_MAX_RUNNING_PER_PLAN": "-1"},
        {"TOOLGATE_MAX_RUNNING_PER_TOOL": "send_mail"},
        {"TOOLGATE_RUN_WINDOW_SECONDS": "1e3"},
        {"TOOLGATE_APPROVAL_TTL_SECONDS": "999999999999"},
        {"ALLOWED_HOSTS": "*"},
        {"SECRET_KEY": "short"},
        {"TOOLGATE_LOG_FORMAT": "xml"},
        {"TOOLGATE_LOG_LEVEL": "loud"},
        {"TOOLGATE_METRICS_TOKEN": "short"},
    ],
    ids=lambda wrong: "=".join(*wrong.items()),
)
def test_what_makes_no_sense_is_refused_by_name(wrong: dict[str, str]) -> None:
    """Before anything is served."""
    environment = {**os.environ, "DEBUG": "0", **wrong}
    done = subprocess.run(MANAGE, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert all(name in done.stderr for name in wrong)


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("", {}),
        ("0", {}),
        ("4", {"*": 4}),
        (" 4, send_mail=1,", {"*": 4, "send_mail": 1}),
        ("2,free=0", {"*": 2, "free": 0}),
    ],
)
def test_limits_of_tools_are_a_number_for_all_and_for_each(text: str, limits: dict[str, int]) -> None:
    """None where all of them are 0."""
    assert read_tool_limits(text) == limits


@pytest.mark.parametrize("text", ["-1", "1.5", "a=", "=1", "a=1,a=2", "1,2", "a b=1", "a=1;b=2"])
def test_other_limits_of_tools_are_refused(text: str) -> None:
    """With an example of what could stand there."""
    with pytest.raises(ImproperlyConfigured, match="4,send_mail=1"):
        read_tool_limits(text)
