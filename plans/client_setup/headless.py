"""One run of a coding agent without a terminal, against the scripted model: by the check, and by tests."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from plans.client_setup.clients import CodingAgent
from plans.client_setup.configuration import parse_settings, read_bytes, write_settings
from plans.client_setup.scripted_model import MODEL, ScriptedUse

PROMPT = "Follow the script."
KEY = "toolgate-check"
CODEX_MODEL = "gpt-5.5"
"""A model to which Codex offers its tools as they are; to newer ones it offers one tool that runs JavaScript."""


@dataclass(frozen=True, slots=True)
class HeadlessRun:
    command: list[str]
    environment: dict[str, str]


def headless_run(agent: CodingAgent, program: str, model_url: str, folder: Path) -> HeadlessRun:
    """Return the run of a client with its own configuration, but with the scripted model in place of its provider.

    The client may use its shell without asking anybody but its hooks: where these are missing, the tool runs.
    `folder` takes files that the run needs; they must stay until it ends.
    """
    return _RUNS[agent.slug](agent, program, model_url, folder)


def shell_use(slug: str, command: str) -> ScriptedUse:
    """Return the call by which a client's model runs a command."""
    tool, name = SHELL_TOOLS[slug]
    described = {} if slug == "codex" else {"description": "Canary of Toolgate"}
    return ScriptedUse(tool, {name: command, **described})


SHELL_TOOLS = {
    "claude-code": ("Bash", "command"),
    "codex": ("exec_command", "cmd"),
    "gemini-cli": ("run_shell_command", "command"),
    "opencode": ("bash", "command"),
}
"""By client: its shell's name, and the parameter of the command."""


def _claude_code(agent: CodingAgent, program: str, model_url: str, folder: Path) -> HeadlessRun:
    more = {
        "ANTHROPIC_BASE_URL": model_url,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "ENABLE_TOOL_SEARCH": "false",
    }
    others = ("ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX")
    kept = {name: value for name, value in agent.environment.items() if name not in others}
    # Variables in the settings of the user win over those of the process; those of --settings win over both.
    settings = json.dumps({"env": more})
    command = [program, "-p", PROMPT, "--settings", settings, "--allowedTools", "Bash", "--output-format", "json"]
    return HeadlessRun(command, kept | more)


def _codex(agent: CodingAgent, program: str, model_url: str, folder: Path) -> HeadlessRun:
    provider = (
        f'{{name = "check", base_url = "{model_url}/v1", wire_api = "responses", env_key = "TOOLGATE_CHECK_KEY"}}'
    )
    options = {
        "model": f'"{CODEX_MODEL}"',
        "model_provider": '"toolgate_check"',
        "model_providers.toolgate_check": provider,
        "approval_policy": '"never"',
    }
    settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    command = [program, "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", *settings, PROMPT]
    return HeadlessRun(command, {**agent.environment, "TOOLGATE_CHECK_KEY": KEY})


def _gemini_cli(agent: CodingAgent, program: str, model_url: str, folder: Path) -> HeadlessRun:
    """Return a run with a copy of the user's settings, in which the way to sign in is an API key."""
    path = agent.folder / "settings.json"
    settings = parse_settings(path, read_bytes(path))
    settings.setdefault("security", {}).setdefault("auth", {})["selectedType"] = "gemini-api-key"
    home = folder / "gemini-home"
    (home / ".gemini").mkdir(parents=True)
    (home / ".gemini" / "settings.json").write_bytes(write_settings(settings, None))
    more = {
        "GEMINI_CLI_HOME": str(home),
        "GOOGLE_GEMINI_BASE_URL": model_url,
        "GEMINI_API_KEY": KEY,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }
    # With a model of its own choice the client asks a model first which one to take.
    command = [program, "-p", PROMPT, "-m", "gemini-2.5-flash", "--approval-mode", "yolo", "-o", "json"]
    return HeadlessRun(command, {**agent.environment, **more})


def _opencode(agent: CodingAgent, program: str, model_url: str, folder: Path) -> HeadlessRun:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "check",
        "options": {"baseURL": f"{model_url}/v1", "apiKey": KEY},
        "models": {MODEL: {"name": MODEL, "tool_call": True}},
    }
    model = f"toolgate-check/{MODEL}"
    settings = {
        "provider": {"toolgate-check": provider},
        "model": model,
        "small_model": model,
        "permission": {"bash": "allow", "edit": "allow"},
    }
    more = {
        "OPENCODE_CONFIG_CONTENT": json.dumps(settings),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
    }
    return HeadlessRun([program, "run", "--model", model, PROMPT], {**agent.environment, **more})


_Build = Callable[[CodingAgent, str, str, Path], HeadlessRun]
_RUNS: dict[str, _Build] = {
    "claude-code": _claude_code,
    "codex": _codex,
    "gemini-cli": _gemini_cli,
    "opencode": _opencode,
}
