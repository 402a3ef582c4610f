"""Detection of known shapes of secrets in linear time, without false positives in ordinary text."""

import json
import random

from catalog.secrets.detectors import find_secrets, may_hold_secret
from catalog.secrets.placeholders import redact_text
from tests.canaries import SHAPES, canary
from tests.corpus import faults

HARMLESS = (
    "The disk-usage task; a basic understanding of bearer authentication mechanisms in general.",
    "https://example.org/a/b?x=1&y=2#token and http://user@example.org:8080/path",
    "postgres://app:${password}@db/main and mysql://app:<password>@db/main",
    "skip-navigation-link-for-screen-readers-and-others sk-cube-grid-sk-cube-grid",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
    "call_vT3hJm0a9Qp1c2d3e4f5g6h7 plan_uCFqnCqg84C0N37kkJFEg6XM 2026-11-21T22:09:46.018Z",
    "Bearer of good news; Basic income; token=short; key-value; npm_config; hf_hub",
    "AKIA is how keys begin; eyJ is how tokens begin; tg_ is how ours begin",
)
HOSTILE = (
    "-----BEGIN PRIVATE KEY-----",
    "eyJ",
    "eyJaaaaaaaaa.",
    "://a:",
    "bearer 1",
    "bearer ",
    "?token=$",
    "sk-",
    "basic ",
    "secret_access_key ",
    "ghp_",
    "AccountKey=",
)


def test_a_secret_is_found_alone_and_inside_a_text():
    def check(shape):
        text, part = canary(shape, random.Random(1))  # noqa: S311 (no secret)
        for whole in (text, f"Use {text} now", f"a\n{text}\nb", f'"{text}"'):
            assert may_hold_secret(json.dumps({"value": whole}))
            found = "".join(whole[match.start : match.end] for match in find_secrets(whole))
            assert part in found, whole
        assert part not in redact_text(f"Use {text} now")

    assert faults(check, SHAPES) == {}


def test_ordinary_texts_contain_no_secrets():
    def check(text):
        assert find_secrets(text) == []
        assert redact_text(text) == text

    assert faults(check, HARMLESS) == {}


def test_passwords_in_basic_credentials_are_told_from_words():
    assert [match.kind for match in find_secrets("Basic dXNlcjpwYXNzd29yZA==")] == ["basic_credentials"]
    assert find_secrets("Basic knowledge") == []


def test_of_two_shapes_that_overlap_the_longer_is_cut():
    text = "postgres://app:x-ghp_" + "a1" * 18 + "@db/main"
    assert redact_text(text) == 'postgres://app:{"$secret":"url_password"}@db/main'


def test_detection_takes_linear_time():
    """256 KiB of prefixes must not hang."""

    def check(piece):
        find_secrets(piece * (256 * 1024 // len(piece)))

    assert faults(check, HOSTILE) == {}
