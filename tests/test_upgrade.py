"""Databases made before the migrations of today keep their rows when they are upgraded."""

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests import migrated


@pytest.mark.nightly
def test_an_older_database_keeps_its_rows(tmp_path: Path) -> None:
    """Of each table, on the database that the suite runs on."""
    url, name = f"sqlite:///{tmp_path / 'old.sqlite3'}", "test_toolgate_upgraded"
    if migrated.is_for_postgresql():
        migrated.drop(name)
        migrated.execute("CREATE DATABASE {}", name)
        url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}").geturl()
    environment = {
        **os.environ,
        "DATABASE_URL": url,
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "TOOLGATE_AUDIT_CHECKPOINTS": str(tmp_path / "checkpoints"),
    }
    try:
        command = [sys.executable, "-m", "tests.upgraded"]
        done = subprocess.run(command, cwd=migrated.ROOT, env=environment, capture_output=True, text=True, timeout=180)
        assert done.stdout, done.stderr[-2000:]
        found = json.loads(done.stdout.splitlines()[-1])
        assert (found["changed"], done.returncode) == ({}, 0)
        assert found["tables"] > 50
    finally:
        if migrated.is_for_postgresql():
            migrated.drop(name)
