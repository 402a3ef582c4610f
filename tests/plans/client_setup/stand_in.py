"""A stand-in for Claude Code without a terminal: it does one turn of its model, and runs the hooks of its settings.

`STAND_IN` says which client it is: `gated`, `ungated` (no hook runs), `refusing` (it runs nothing, and asks nobody),
`silent` (the run is not reported) or `idle` (it asks no model).
"""

import json
import os
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

KIND = os.environ["STAND_IN"]
HOOKS = json.loads((Path(os.environ["HOME"]) / ".claude/settings.json").read_text())["hooks"]


def ask_model(*messages: dict[str, Any]) -> str:
    body = json.dumps({"tools": [{"name": "Bash"}], "messages": messages}).encode()
    request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", body)  # noqa: S310
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        text: str = answer.read().decode()
    return text


def run_hook(event: str, **more: Any) -> str:
    body = {"hook_event_name": event, "session_id": f"stand-in-{os.getpid()}", "cwd": str(Path.cwd()), **more}
    command = HOOKS[event][0]["hooks"][0]["command"]
    done = subprocess.run(["sh", "-c", command], input=json.dumps(body), capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def use_tool(call: dict[str, Any]) -> None:
    if KIND in ("gated", "silent"):
        output = json.loads(run_hook("PreToolUse", **call) or "{}").get("hookSpecificOutput", {})
        if output.get("permissionDecision") != "allow":
            return
    elif KIND == "refusing":
        return
    subprocess.run(["sh", "-c", call["tool_input"]["command"]], check=True)
    if KIND == "gated":
        run_hook("PostToolUse", tool_response="", **call)


if KIND != "idle":
    events = ask_model({"role": "user", "content": "Go."})
    given = next(json.loads(line[6:]) for line in events.splitlines() if "input_json_delta" in line)
    given = json.loads(given["delta"]["partial_json"])
    use_tool({"tool_name": "Bash", "tool_input": given, "tool_use_id": "toolu_1"})
    ask_model({"role": "assistant", "content": [{"type": "tool_use"}]})
