"""Hooks as Codex itself lists them, with their trust: it skips a hook that nobody trusted, without a word."""

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SECONDS = 20
TRUSTED = ("trusted", "managed")


class NoAnswer(Exception):
    """Codex cannot be asked; the text says why."""


def list_hooks(program: str, folder: Path, environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the hooks that hold in a working directory, by `codex app-server`. Raises NoAnswer.

    Each has `key`, `eventName`, `command`, `enabled`, `currentHash` and `trustStatus`.
    """
    messages = [
        {"id": 0, "method": "initialize", "params": {"clientInfo": {"name": "toolgate", "version": "1"}}},
        {"method": "initialized"},
        {"id": 1, "method": "hooks/list", "params": {"cwds": [str(folder)]}},
    ]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    try:
        command = [program, "app-server"]
        process = subprocess.Popen(command, cwd=folder, env=dict(environment), text=True, **pipes)  # noqa: S603
    except OSError as error:
        raise NoAnswer(f"{program} cannot be started ({error.strerror}).") from None
    timer = threading.Timer(SECONDS, process.kill)
    timer.start()
    try:
        with process:
            assert process.stdin is not None and process.stdout is not None  # noqa: S101 - they are pipes
            process.stdin.write("".join(json.dumps(message) + "\n" for message in messages))
            process.stdin.flush()
            for line in process.stdout:
                answer = json.loads(line)
                if answer.get("id") == 1:
                    process.kill()
                    return list(answer["result"]["data"][0]["hooks"])
    except (OSError, ValueError, LookupError, TypeError):
        pass
    finally:
        timer.cancel()
        process.kill()
    raise NoAnswer(f"{program} app-server does not list its hooks.")


def trust_of(program: str, hooks: bytes, place: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return key and hash of each hook in a `hooks.json` that will stand at `place`. Raises NoAnswer.

    Codex computes the hashes, from a copy in a folder of its own, before anything is changed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "hooks.json").write_bytes(hooks)
        alone = {**environment, "CODEX_HOME": str(folder), "HOME": str(folder)}
        listed = list_hooks(program, folder, alone)
        prefix = f"{folder}{os.sep}hooks.json:"
        return {
            f"{place}:{hook['key'].removeprefix(prefix)}": hook["currentHash"]
            for hook in listed
            if hook["key"].startswith(prefix)
        }
