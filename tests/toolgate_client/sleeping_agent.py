"""A process that behaves as `claude -p --resume SESSION` does, with one tool call in its turn: a command.

`python sleeping_agent.py FOLDER URL SESSION`, the token in TOOLGATE_TOKEN. It asks its hook and ends on `defer`;
allowed, it appends the session and the command to the file `runs` and reports that. Whatever is no explicit answer
blocks the call, as `onFailure: "block"` does. Its process id is a file in `processes` while it lives.
"""

import json
import os
import secrets
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

FOLDER, URL, SESSION = Path(sys.argv[1]), sys.argv[2], sys.argv[3]


def hook(event: str, command: str, **fields: Any) -> dict[str, Any]:
    """Send the body of a hook and return the answer."""
    body = {
        "session_id": SESSION,
        "cwd": str(FOLDER),
        "permission_mode": "default",
        "hook_event_name": event,
        "tool_name": "Bash",
        "tool_use_id": f"toolu_{SESSION}",
        "tool_input": {"command": command},
        **fields,
    }
    headers = {"Authorization": f"Bearer {os.environ['TOOLGATE_TOKEN']}", "Content-Type": "application/json"}
    url = f"{URL}/api/v1/hooks/claude-code/?may_defer=true&wait_seconds=0"
    request = Request(url, json.dumps(body).encode(), headers)  # noqa: S310 - the test's own address
    with urlopen(request, timeout=30) as answer:  # noqa: S310 - as above
        found: dict[str, Any] = json.load(answer)
    return found


def linger() -> None:
    """Wait for a moment in which the process may be killed."""
    time.sleep(secrets.randbelow(50) / 1000)


def main() -> int:
    """Take the turn and return the exit code."""
    try:
        output = hook("PreToolUse", f"delete {SESSION}")["hookSpecificOutput"]
        if output["permissionDecision"] != "allow":
            return 0
        command = output["updatedInput"]["command"]
    except (OSError, ValueError, KeyError, TypeError):
        return 1
    linger()
    runs = os.open(FOLDER / "runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(runs, f"{SESSION} {command}\n".encode())
    linger()
    for _ in range(20):
        try:
            hook("PostToolUse", command, tool_response={"stdout": ""}, duration_ms=1)
        except OSError:
            time.sleep(0.2)
        else:
            return 0
    return 1


if __name__ == "__main__":
    life = FOLDER / "processes" / str(os.getpid())
    life.touch()
    code = main()
    life.unlink(missing_ok=True)
    sys.exit(code)
