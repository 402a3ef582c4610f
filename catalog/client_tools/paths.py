"""Paths that a coding agent names: resolved against the working directory that its client claims, and classified.

No file is read, so links are unknown: a path inside of the working directory may lead elsewhere.
"""

import posixpath
import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

MAX_PATH = 4096

OUTSIDE, CREDENTIALS, CLIENT_SETTINGS, GIT, CI = "outside", "credentials", "client_settings", "git", "ci"
"""Effects of touching a path: outside of the working directory, or one that needs care wherever it is."""
SENSITIVE = frozenset({OUTSIDE, CREDENTIALS, CLIENT_SETTINGS, GIT, CI})

_CLIENT_SETTINGS = re.compile(
    r"\.(claude|codex|gemini|opencode|cursor|vscode|idea|continue|windsurf|roo|cline|clinerules|zed|kiro|amazonq|junie|agents)"
    r"|\.(qwen|trae|crush|goose|augment|factory|kilocode|openhands|copilot|iflow|tabnine|codeium|warp|amp|qodo|rovodev)"
    r"|\.(crush\.json|goosehints|gooseignore|rules|roomodes|rooignore|kilocodemodes|augment-guidelines|replit)"
    r"|\.(cursor|cline|crush|augment|codeium|ai|qwen|trae|kilocode)(indexing)?ignore|\.aiexclude|crush\.json"
    r"|\.(claude|claude-plugin|mcp|cursorrules|windsurfrules|aider.*|envrc|miserc|mise|exrc|nvim|devcontainer|geminiignore|claudeignore)(\.jsonc?|\.ya?ml|\.md|\.toml|\.lua)?"
    r"|(claude|agents?|gemini|qwen|crush|warp|iflow)(\.local|\.override)?\.md|mise\.toml|copilot-instructions\.md|opencode\.jsonc?|mcp\.json|\.toolgate.*"
    r"|toolgate_hook\.py|toolgate\.js(on)?"
    r"|\.(bash|zsh|k?sh)(rc|_?profile|_login|_logout|env|_aliases)|\.(profile|zprofile|zlogin|zlogout|t?cshrc|login|inputrc|tmux\.conf|config|local)|launchagents|autostart"
)
_GIT = re.compile(
    r"\.git|git~[0-9]+|\.git(modules|attributes|config|hooks)|\.?githooks|\.husky|packed-refs|commondir|gitdir|(pre|post)-(commit|push|checkout|merge|rewrite|index-change|applypatch|rebase|receive|update|auto-gc)|(applypatch|prepare-commit|commit)-msg|fsmonitor-watchman|\.pre-commit-config\.ya?ml|\.?lefthook(-local)?\.(ya?ml|toml|json)|\.huskyrc.*|\.lintstagedrc.*"
)
"""Git's own files and hooks. HEAD is one as well: with it, a directory is a repository whose settings git obeys."""
_CI = re.compile(
    r"\.(github|gitlab|circleci|buildkite|forgejo|gitea|woodpecker|teamcity|semaphore|azuredevops|azure-pipelines)"
    r"|\.(gitlab-ci.*|travis|drone|woodpecker|cirrus|appveyor)\.(ya?ml|star)|\.?appveyor\.ya?ml|jenkinsfile.*"
    r"|azure-pipelines.*\.ya?ml|bitbucket-pipelines\.ya?ml|cloudbuild\.(ya?ml|json)|buildspec\.ya?ml|codemagic\.ya?ml"
    r"|wercker\.ya?ml|\.drone\.jsonnet|\.gitlab-ci.*"
)
_CREDENTIALS = re.compile(
    r"\.(ssh|gnupg|aws|azure|kube|docker|gcloud|password-store|secrets?|vault-token|netrc|npmrc|pypirc|pgpass|my\.cnf"
    r"|git-credentials|htpasswd|dockercfg|yarnrc(\.yml)?|boto|s3cfg|databricks.*|terraformrc|.*_?history)"
    r"|\.envs?([._~-].*)?|.*\.(env(\..*)?|pem|key|p12|p8|pfx|jks|keystore|kdbx?|ppk|asc|gpg|ovpn|tfstate(\..*)?|tfvars(\.json)?)"
    r"|_netrc|.*id_(rsa|dsa|ecdsa|ed25519)(_sk)?[^.]*(\.(?!pub$).*)?|service[-_]?account.*\.json|g?shadow|environ"
    r"|.*deploy[._-]?key([._-](?!pub$).*)?|(.*[._-])?kubeconfig([._-].*)?|\.?vault[._-]?pass(word)?([._-].*)?"
    r"|application_default_credentials.*|login\.keychain.*|logins\.json|auth\.json|key[34]\.db|cookies(\.sqlite)?"
)
_LIKELY_CREDENTIALS = re.compile(
    r"(.*[._-])?(credentials?|creds|secrets?|passwords?)([._-].*)?"
    r"|(.*[._-])?token(\.(txt|json))?|tokens\.txt|\.tokens|.*[_-](rsa|dsa|ecdsa|ed25519)"
)
"""Names of files and directories with secrets, unless they hold source code: `secrets/detectors.py`."""
_HARMLESS = re.compile(r"\.?env[._-](example|sample|template|dist)")
"""Templates of files with secrets, which hold none."""

_CODE = "c|cc|cpp|cs|dart|erl|exs?|go|h|hpp|hs|java|jl|jsx?|kt|lua|mjs|ml|php|pl|py|pyi|r|rb|rs|scala|swift|tsx?|zig"
_CODE_FILE = re.compile(rf".*\.({_CODE})")
_SOURCE_FILE = re.compile(
    rf".*\.({_CODE}|css|html|m|md|proto|rst|sass|scss|svelte|tex|txt|vue)",
    re.I,
)
_WORKTREE = re.compile(r"/\.(claude|codex|cursor)/worktrees(?=/[^/]+/.)")
"""Directories in which clients put copies of a repository to work in, before the name of a copy and what is in it."""


def is_absolute_directory(text: str) -> bool:
    """Return True if a client's working directory is an absolute path of a POSIX system that can be resolved."""
    return text.startswith("/") and len(text) <= MAX_PATH and not set(text) & {"\0", "\n", "\\"}


def resolve_path(text: str, cwd: str) -> str:
    """Return the path without `.` and `..`, absolute unless it begins with `~`, which stays: no home is known."""
    if text.startswith("~"):
        home, _, rest = text.partition("/")
        below = posixpath.normpath(f"/{rest}") if not _leaves(rest) else f"/../{rest}"
        return home if below == "/" else f"{home}{below}"
    joined = posixpath.normpath(posixpath.join(cwd or "/", text))
    return f"/{joined.lstrip('/')}"


def _leaves(relative: str) -> bool:
    return posixpath.normpath(f"./{relative}").startswith("..")


def is_inside(path: str, cwd: str) -> bool:
    """Return True if a resolved path is the working directory or lies in it."""
    base = posixpath.normpath(cwd).rstrip("/")
    return bool(base) and (path == base or path.startswith(f"{base}/"))


def effects_of_path(path: str, cwd: str) -> set[str]:
    """Return the effects of touching a resolved path, whatever is done with it; of one that is too long, all."""
    if len(path) > MAX_PATH:
        return set(SENSITIVE)
    found = set() if is_inside(path, cwd) else {OUTSIDE}
    base = posixpath.normpath(cwd).rstrip("/") if not found else ""
    # The working directory itself is one; any other copy as a whole may be a file, such as instructions to all copies.
    judged = _WORKTREE.sub("", f"{path}/." if path == base else path, count=1)
    names = [forms for name in judged.split("/") if (forms := _forms(name))]
    found.update(*(_effects_of_name(form) for forms in names for form in forms))
    if names and "head" in names[-1]:
        found.add(GIT)
    # Directories above the working directory have names that the agent did not choose.
    inner = [forms for name in path[len(base) :].split("/") if (forms := _forms(name))]
    is_code = bool(inner) and all(_CODE_FILE.fullmatch(form) for form in inner[-1])
    if not is_code and any(_LIKELY_CREDENTIALS.fullmatch(form) for forms in inner for form in forms):
        found.add(CREDENTIALS)
    return found


@lru_cache(maxsize=1024)  # the paths of one call mostly share their directories
def _effects_of_name(name: str) -> frozenset[str]:
    patterns = ((_CLIENT_SETTINGS, CLIENT_SETTINGS), (_GIT, GIT), (_CI, CI), (_CREDENTIALS, CREDENTIALS))
    if _HARMLESS.fullmatch(name):
        return frozenset()
    return frozenset(effect for pattern, effect in patterns if pattern.fullmatch(name))


def _forms(name: str) -> tuple[str, ...]:
    """Return a name without what some file systems ignore: case, invisible characters, dots or spaces at its end.

    On some systems a colon begins a stream of the file, on others it is a letter: both forms are returned.
    """
    if not (name.isascii() and name.isprintable()):
        plain = unicodedata.normalize("NFKC", name)
        name = "".join(letter for letter in plain if unicodedata.category(letter) not in ("Cf", "Cc", "Mn")).casefold()
    whole = name.lower().rstrip(". ")
    return tuple(form for form in unique((whole.partition(":")[0].rstrip(". "), whole)) if form)


def is_source_file(text: str) -> bool:
    """Return True if a path has the ending of a file of source code or text, which is no directory."""
    name = text.rpartition("/")[2]
    return _SOURCE_FILE.fullmatch(name) is not None


def unique(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
