"""Management commands in processes of their own: run, served, and their address read."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


SHIPPED_SETS = (
    "catalog.toolsets.finance,catalog.toolsets.introspection,catalog.toolsets.text,catalog.toolsets.workspace"
)
"""The value of TOOLGATE_TOOLS that enables these sets in a new installation."""
SET_UP = """
from django.contrib.auth.models import Group, User
from catalog.access.tokens import create_token
user = User.objects.create_user("ada", password="secret-ada")
user.groups.add(Group.objects.get(name="operator"))
print(create_token(user=user, kind="personal", scopes=["plans:read", "plans:write", "calls:create"])[1])
"""


def manage(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a management command to its end."""
    command = [sys.executable, "manage.py", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180)


def address_of(process: subprocess.Popen[str]) -> str:
    """Return the address that a server prints once it serves."""
    assert process.stdout is not None
    return next(found[0] for line in process.stdout if (found := re.search(r"http://\S+", line)))
