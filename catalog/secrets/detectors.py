"""Detection of secrets with a known shape. Patterns run in linear time: repetitions are bounded or possessive."""

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from pydantic_core import SchemaValidator, core_schema

PLACEHOLDER = '"$secret"'
_TOKEN_START, _TOKEN_END = r"(?<![A-Za-z0-9_-])", r"(?![A-Za-z0-9])"


def _accept_any(text: str) -> bool:
    return True


def _is_basic(text: str) -> bool:
    """Return whether a text is a user name and a password in base64, as in HTTP Basic authentication."""
    try:
        return b":" in base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False


def _is_literal(text: str) -> bool:
    """Return whether a text is a real password, not a stand-in such as `${…}`, `<password>`, `***`."""
    return text[0] not in "$<{*[%"


@dataclass(frozen=True, slots=True)
class SecretPattern:
    """One shape of secrets: name, hint that a text must contain (for a linear matcher), and pattern.

    The secret is the last group of the pattern, or the entire match; `judge` then decides whether it is a secret.
    """

    name: str
    hint: str
    hint_matches: Callable[[str], bool]
    pattern: "re.Pattern[str]"
    judge: Callable[[str], bool] = _accept_any


def _hint_matcher(hint: str) -> Callable[[str], bool]:
    """Return a matcher using the linear regex engine in pydantic, several times faster than Python's."""
    schema = core_schema.str_schema(pattern=hint, regex_engine="rust-regex")
    return cast("Callable[[str], bool]", SchemaValidator(schema).isinstance_python)


def _secret_pattern(name: str, hint: str, pattern: str, judge: Callable[[str], bool] = _accept_any) -> SecretPattern:
    return SecretPattern(name, hint, _hint_matcher(hint), re.compile(pattern), judge)


def _token_pattern(name: str, hint: str, pattern: str) -> SecretPattern:
    return _secret_pattern(name, hint, f"{_TOKEN_START}{pattern}{_TOKEN_END}")


SECRET_PATTERNS: tuple[SecretPattern, ...] = (
    _secret_pattern(
        "private_key",
        "PRIVATE KEY",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-(?!----))*+"
        r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?",
    ),
    _token_pattern("age_key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[A-Z0-9]{40,80}"),
    _token_pattern("aws_access_key", "AKIA|ASIA|ABIA|ACCA", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}"),
    _secret_pattern(
        "aws_secret_key",
        "(?i:secret_?access_?key)",
        r"(?i:secret_?access_?key)[\"'\\\s:=]{1,12}([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])",
    ),
    _token_pattern(
        "github_token", "gh[pousr]_|github_pat_", r"(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_\w{22,255})"
    ),
    _token_pattern(
        "gitlab_token", "gl[a-z]{2,6}-", r"gl(?:pat|ptt|dt|rt|cbt|oas|ft|imt|agent|soat)-[A-Za-z0-9_-]{20,300}"
    ),
    _token_pattern("slack_token", "xox[a-z]|xapp-", r"(?:xox[abeoprs](?:\.xox[a-z])?-|xapp-\d-)[A-Za-z0-9-]{10,300}"),
    _secret_pattern(
        "slack_webhook", "hooks.slack.com/", r"hooks\.slack\.com/services/([A-Za-z0-9]{8,16}/[A-Za-z0-9/]{16,64})"
    ),
    _token_pattern(
        "stripe_key", "[sr]k_(?:live|test)_|whsec_", r"(?:[sr]k_(?:live|test)_[A-Za-z0-9]{16,250}|whsec_\w{24,250})"
    ),
    _token_pattern("anthropic_key", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{20,250}"),
    _token_pattern(
        "openai_key",
        "sk-(?:proj|svcacct|admin|or)-|sk-[A-Za-z0-9]{32}",
        r"sk-(?:(?:proj|svcacct|admin|or)-[A-Za-z0-9_-]{20,300}|[A-Za-z0-9]{32,250})",
    ),
    _token_pattern("google_key", "AIza|ya29|GOCSPX-", r"(?:AIza[\w-]{35}|ya29\.[\w-]{20,2000}|GOCSPX-[\w-]{20,40})"),
    _token_pattern("huggingface_token", "hf_", r"hf_[A-Za-z0-9]{30,250}"),
    _token_pattern("npm_token", "npm_", r"npm_[A-Za-z0-9]{36,100}"),
    _token_pattern("pypi_token", "pypi-A", r"pypi-A[\w-]{50,2000}"),
    _token_pattern("sendgrid_key", "SG\\.", r"SG\.[\w-]{16,32}\.[\w-]{16,64}"),
    _token_pattern("digitalocean_token", "do[opr]_v1_", r"do[opr]_v1_[a-f0-9]{64}"),
    _token_pattern("shopify_token", "shp[a-z]{2}_", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    _token_pattern("vault_token", "hv[sbr]\\.", r"hv[sbr]\.[\w-]{24,300}"),
    _token_pattern("telegram_token", ":AA", r"\d{8,10}:AA[\w-]{33}"),
    _token_pattern("databricks_token", "dapi[0-9a-f]", r"dapi[0-9a-f]{32}"),
    _token_pattern("docker_token", "dckr_", r"dckr_(?:pat|oat)_[\w-]{20,100}"),
    _token_pattern("linear_key", "lin_", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,100}"),
    _token_pattern("twilio_key", "SK[0-9a-f]{32}", r"SK[0-9a-f]{32}"),
    _token_pattern("mailgun_key", "key-[0-9a-f]{32}", r"key-[0-9a-f]{32}"),
    _secret_pattern("azure_key", "AccountKey=", r"AccountKey=([A-Za-z0-9+/]{40,120}={0,2})"),
    _token_pattern("toolgate_token", "tg_", r"tg_[\w-]{32,100}"),
    _token_pattern("jwt", "eyJ", r"eyJ[\w-]{8,8000}\.eyJ[\w-]{8,16000}\.[\w-]{8,8000}"),
    _secret_pattern(
        "bearer_token",
        "(?i:bearer).{1,8}[A-Za-z0-9._~+/-]{16}",
        r"(?<!\w)(?i:bearer)(?:\s|%20|:|\\n){1,4}([A-Za-z0-9._~+/-]{16,8000}={0,2})",
        lambda text: any(map(str.isdigit, text)),  # otherwise a long word
    ),
    _secret_pattern(
        "basic_credentials",
        "(?i:basic).{1,6}[A-Za-z0-9+/]{6}",
        r"(?<!\w)(?i:basic)\s{1,3}([A-Za-z0-9+/]{6,2000}={0,2})",
        _is_basic,
    ),
    _secret_pattern(
        "url_password",
        r"://[^\s/?#@]*:[^\s/?#@]*@",
        r"://[^\s/?#:@\"'<>]{0,256}:([^\s/?#@\"'<>]{1,256})@",
        _is_literal,
    ),
    _secret_pattern(
        "url_parameter",
        "(?i:token|key|secret|password|sig)=",
        r"[?&](?i:access_token|auth_token|token|api_?key|client_secret|secret|password|sig)=([^\s&#\"'<>]{8,2000})",
        _is_literal,
    ),
)


may_hold_secret = _hint_matcher("|".join(f"(?:{shape.hint})" for shape in SECRET_PATTERNS))
"""Return whether a text may contain a secret of a known shape: evaluated for every call."""


@dataclass(frozen=True, slots=True)
class SecretMatch:
    start: int
    end: int
    kind: str


def find_secrets(text: str) -> list[SecretMatch]:
    """Return the secrets in a text, in order. If some overlap, only the first; if they start together, the longest."""
    if not may_hold_secret(text):
        return []
    likely = [shape for shape in SECRET_PATTERNS if shape.hint_matches(text)]
    found: list[SecretMatch] = []
    for shape in likely:
        group = shape.pattern.groups
        for match in shape.pattern.finditer(text):
            if shape.judge(match[group]):
                found.append(SecretMatch(match.start(group), match.end(group), shape.name))
    found.sort(key=lambda each: (each.start, -each.end))
    kept: list[SecretMatch] = []
    for each in found:
        if not kept or each.start >= kept[-1].end:
            kept.append(each)
    return kept
