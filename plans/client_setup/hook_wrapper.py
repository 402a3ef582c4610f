"""Ask Toolgate before a coding agent runs one of its own tools, and report the run afterwards.

`manage.py connect` copies this file beside the configuration of the client, which runs it as a hook:

    python3 -I toolgate_hook.py CLIENT ask      before a tool runs: prints the decision, or refuses
    python3 -I toolgate_hook.py CLIENT report   after it ran
    python3 -I toolgate_hook.py CLIENT headers  prints the headers for Toolgate's MCP server

The hook's body comes on stdin. Address and token are in `toolgate.json` beside this file, and the `proxy` and the file
of `certificates` to trust, if there are any: the client's environment decides neither. Only a well-formed answer
with an explicit decision lets a tool run. On any doubt (no connection, an error, a redirect, an answer that is not
understood, or none in time) the program writes the reason to stderr and ends with status 2, by which the clients
refuse the tool. It needs Python 3.9 and nothing else.
"""

import http.client
import json
import os
import ssl
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any, NoReturn

SECONDS = 590
"""Seconds for everything. The hook's own timeout is longer: some clients run the tool when a hook is too slow."""
MAX_BYTES = 8 * 1024 * 1024
"""Size at which a body or an answer is refused."""
REPORT_ATTEMPTS = 3
TRANSCRIPT_BYTES = 4 * 1024 * 1024
TRANSCRIPT_LINES = 200
MAY_DEFER = "TOOLGATE_MAY_DEFER"
"""Environment variable: with `1`, a session of `claude -p` may end at a held call, to be resumed by a runner."""
ASKING_EVENT = {"claude-code": "PreToolUse", "codex": "PreToolUse", "gemini-cli": "BeforeTool"}


class Refused(Exception):
    """The tool must not run; the text is for the model and for people."""


def main() -> None:
    watchdog = threading.Timer(SECONDS, refuse, ["Toolgate did not answer in time."])
    watchdog.daemon = True
    watchdog.start()
    try:
        client, action = sys.argv[1:]
        if action == "ask":
            sys.stdout.write(json.dumps(decision(client, sys.stdin.buffer.read(MAX_BYTES + 1))))
        elif action == "report":
            report(client, sys.stdin.buffer.read(MAX_BYTES + 1))
        elif action == "headers":
            sys.stdout.write(json.dumps({"Authorization": "Bearer " + read_settings()["token"]}))
        else:
            raise Refused("The hook is set up wrongly: write ask, report or headers.")
        sys.stdout.flush()
    except Refused as refusal:
        refuse(str(refusal))
    except BaseException as error:  # noqa: BLE001 - uncaught, it would end with 1, and the tool would run
        refuse(f"Toolgate could not be asked ({type(error).__name__}).")
    os._exit(0)


def refuse(reason: str) -> NoReturn:
    """End with status 2. The reason is never empty: Codex runs a tool whose hook wrote nothing to stderr."""
    try:
        os.write(2, (reason + "\n").encode("utf-8", "replace"))
    finally:
        os._exit(2)


def decision(client: str, body: bytes) -> dict[str, Any]:
    """Ask about a tool, and return the answer in the client's form, made anew from its checked parts."""
    question = parsed(body, "the hook's body")
    event, tool = ASKING_EVENT[client], question.get("tool_name")
    if question.get("hook_event_name") == "PreSkillShellCommand":
        raise Refused("Toolgate allows no shell command in a skill or slash command. Run it with the Bash tool.")
    if question.get("hook_event_name") != event or not isinstance(tool, str) or not tool:
        raise Refused("The hook's body is not a question about a tool.")
    may_defer = client == "claude-code" and can_end(question)
    if client == "codex":
        body = with_session_directory(question)
    status, content_type, text = post(client, body, "?may_defer=true" if may_defer else "")
    if status != 200:
        raise Refused(problem(status, text))
    if content_type != "application/json":
        raise Refused("Toolgate's address answers with something else than JSON.")
    answer = parsed(text, "Toolgate's answer")
    if client == "gemini-cli":
        return gemini_decision(answer, question)
    return claude_decision(client, answer, may_defer=may_defer)


def with_session_directory(question: dict[str, Any]) -> bytes:
    """Return the body of a Codex hook with the session's directory: its `cwd` is what the model chose for a command.

    Codex starts its hooks in the session's directory. PWD names it as Codex does, without following links.
    """
    named = os.environ.get("PWD", "")
    try:
        directory = named if os.path.isabs(named) and os.path.samefile(named, ".") else os.getcwd()  # noqa: PTH109, PTH117, PTH121
    except OSError:  # it was removed: nothing is then said about it
        return json.dumps(question).encode()
    return json.dumps({**question, "session_directory": directory}).encode()


def can_end(question: dict[str, Any]) -> bool:
    """Return whether Claude Code can end at this question and be resumed: without a terminal, at a message's only call.

    Anywhere else it would take a deferral for no answer, and might run the tool.
    """
    is_headless = os.environ.get("CLAUDE_CODE_ENTRYPOINT") == "sdk-cli"
    return os.environ.get(MAY_DEFER) == "1" and is_headless and calls_beside(question) == 1


def calls_beside(question: dict[str, Any]) -> int:
    """Return the number of tool calls in the message of this call, as the transcript has it; 0 if it is not found."""
    messages: dict[str, set[str]] = {}
    try:
        with open(question["transcript_path"], "rb") as transcript:  # noqa: PTH123 - bytes from the end
            transcript.seek(max(0, transcript.seek(0, os.SEEK_END) - TRANSCRIPT_BYTES))
            lines = [line for line in transcript.read().splitlines() if b'"tool_use"' in line]
        for line in lines[-TRANSCRIPT_LINES:]:
            try:
                message = json.loads(line)["message"]
                calls = {block["id"] for block in message["content"] if block["type"] == "tool_use"}
                messages.setdefault(message["id"], set()).update(calls)
            except (ValueError, LookupError, TypeError):  # another kind of line, or half of one
                continue
    except (OSError, LookupError, TypeError, ValueError):
        return 0
    return next((len(calls) for calls in messages.values() if question.get("tool_use_id") in calls), 0)


def claude_decision(client: str, answer: dict[str, Any], *, may_defer: bool) -> dict[str, Any]:
    """Check an answer in the form of Claude Code, which Codex shares."""
    output = answer.get("hookSpecificOutput")
    if not isinstance(output, dict) or output.get("hookEventName") != ASKING_EVENT[client]:
        raise Refused("Toolgate's answer holds no decision.")
    verdict, reason, edited = (
        output.get(name) for name in ("permissionDecision", "permissionDecisionReason", "updatedInput")
    )
    if verdict == "allow" and (edited is None or isinstance(edited, dict)):
        return allowed(client, edited)
    if verdict == "deny" or (verdict == "defer" and may_defer):
        told = {"hookEventName": ASKING_EVENT[client], "permissionDecision": verdict}
        told["permissionDecisionReason"] = reason if isinstance(reason, str) and reason else "Refused by Toolgate."
        return {"hookSpecificOutput": told}
    raise Refused("Toolgate's answer holds no decision.")


def gemini_decision(answer: dict[str, Any], question: dict[str, Any]) -> dict[str, Any]:
    """Check an answer in the form of Gemini CLI, which merges an edited input over the input of its model."""
    verdict, reason, output = answer.get("decision"), answer.get("reason"), answer.get("hookSpecificOutput", {})
    if verdict == "deny":
        return {"decision": "deny", "reason": reason if isinstance(reason, str) and reason else "Refused by Toolgate."}
    edited = output.get("tool_input") if isinstance(output, dict) else 0
    if verdict != "allow" or not (edited is None or isinstance(edited, dict)):
        raise Refused("Toolgate's answer holds no decision.")
    if edited is not None:
        asked = question.get("tool_input")
        dropped = sorted(set(asked) - set(edited)) if isinstance(asked, dict) else []
        if dropped:
            raise Refused(f"It was approved without {', '.join(dropped)}, which Gemini CLI cannot leave out.")
    return allowed("gemini-cli", edited)


def allowed(client: str, edited: "dict[str, Any] | None") -> dict[str, Any]:
    if client == "gemini-cli":
        more = {"hookEventName": "BeforeTool", "tool_input": edited}
        return {"decision": "allow"} if edited is None else {"decision": "allow", "hookSpecificOutput": more}
    output: dict[str, Any] = {"hookEventName": ASKING_EVENT[client], "permissionDecision": "allow"}
    if edited is not None:
        output["updatedInput"] = edited
    return {"hookSpecificOutput": output}


def report(client: str, body: bytes) -> None:
    """Report a run. A report that cannot be sent is lost: the outcome of the call is then unknown at Toolgate."""
    event = parsed(body, "the hook's body")
    if client == "codex":  # as it was asked about: Toolgate compares tool and input
        body = with_session_directory(event)
    for attempt in range(REPORT_ATTEMPTS):
        try:
            if post(client, body)[0] < 500:
                return
        except Refused:
            pass
        time.sleep(attempt)
    os.write(2, b"The run could not be reported to Toolgate.\n")


def parsed(text: bytes, name: str) -> dict[str, Any]:
    if len(text) > MAX_BYTES:
        raise Refused(f"{name.capitalize()} is too large.")
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=without_repeats)
    except (ValueError, RecursionError):
        raise Refused(f"{name.capitalize()} is not JSON.") from None
    if not isinstance(value, dict):
        raise Refused(f"{name.capitalize()} is not a JSON object.")
    return value


def without_repeats(pairs: Any) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("A key is repeated.")
    return found


def problem(status: int, text: bytes) -> str:
    """Return the sentence of a problem document, which names what is wrong; or one about the status."""
    try:
        detail = json.loads(text)["detail"]
    except (ValueError, LookupError, TypeError):
        detail = None
    return f"Toolgate answered {status}. {detail[:500] if isinstance(detail, str) else ''}"


class NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Follow none: the token would be sent elsewhere, and elsewhere would decide."""


class AllStatuses(urllib.request.HTTPErrorProcessor):
    def http_response(self, request: Any, response: Any) -> Any:
        """Return every answer, whatever its status is; its caller reads the status."""
        return response

    https_response = http_response


def post(client: str, body: bytes, query: str = "") -> tuple[int, str, bytes]:
    """Send a body; return status, content type and text of the answer. Raises Refused without an answer."""
    settings = read_settings()
    proxy = settings["proxy"]
    # Without a dictionary it would take a proxy of the environment, which would get the token and could answer itself.
    proxies = urllib.request.ProxyHandler({"http": proxy, "https": proxy} if proxy else {})
    trusted = urllib.request.HTTPSHandler(context=tls_context(settings["certificates"]))
    headers = {
        "Authorization": "Bearer " + settings["token"],
        "Content-Type": "application/json",
        "Accept": "application/json",
        "User-Agent": "toolgate-hook",
    }
    address = settings["url"] + "/api/v1/hooks/" + client + "/" + query
    request = urllib.request.Request(address, body, headers)  # noqa: S310 - `connect` checks the address
    opener = urllib.request.build_opener(proxies, trusted, NoRedirects, AllStatuses)
    try:
        with opener.open(request, timeout=SECONDS) as response:
            content_type = response.headers.get_content_type()
            return response.status, content_type, response.read(MAX_BYTES + 1)
    except (OSError, http.client.HTTPException) as error:
        cause = getattr(error, "reason", None) or error
        raise Refused(f"Toolgate does not answer at {settings['url']} ({cause}).") from None


def tls_context(certificates: str) -> ssl.SSLContext:
    """Return the context that trusts the authorities in a file, or else those of the system."""
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):  # else in place of the system's
        os.environ.pop(name, None)
    try:
        return ssl.create_default_context(cafile=certificates or None)
    except OSError as error:
        raise Refused(f"The certificates {certificates} in toolgate.json cannot be read ({error}).") from None


def read_settings() -> dict[str, str]:
    try:
        settings = json.loads((Path(__file__).parent / "toolgate.json").read_text(encoding="utf-8"))
        route = {name: str(settings.get(name) or "") for name in ("proxy", "certificates")}
        return {"url": str(settings["url"]).rstrip("/"), "token": str(settings["token"]), **route}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        raise Refused("toolgate.json beside the hook cannot be read. Run the command connect again.") from None


if __name__ == "__main__":
    main()
