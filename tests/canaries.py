"""Secrets of thirty known shapes, each one of its own, and the six places they are planted in."""

import base64
import random
import string
from collections.abc import Callable, Mapping
from typing import Any

HEX, WORD, BASE64 = (
    "0123456789abcdef",
    string.ascii_letters + string.digits,
    string.ascii_letters + string.digits + "+/",
)

SHAPES: tuple[str, ...] = (
    "AKIA<upper:16>",
    "ASIA<upper:16>",
    "ghp_<word:36>",
    "gho_<word:40>",
    "github_pat_<word:40>",
    "glpat-<word:20>",
    "xoxb-<digit:11>-<word:24>",
    "xapp-1-<word:30>",
    "sk_live_<word:24>",
    "rk_test_<word:24>",
    "whsec_<word:32>",
    "sk-ant-api03-<word:40>",
    "sk-proj-<word:48>",
    "sk-<word:48>",
    "AIza<word:35>",
    "ya29.<word:60>",
    "hf_<word:34>",
    "npm_<word:36>",
    "pypi-AgEIcHlwaS5vcmc<word:80>",
    "SG.<word:22>.<word:43>",
    "dop_v1_<hex:64>",
    "shpat_<hex:32>",
    "hvs.<word:30>",
    "<digit:9>:AA<word:33>",
    "dapi<hex:32>",
    "dckr_pat_<word:27>",
    "lin_api_<word:40>",
    "eyJ<word:20>.eyJ<word:40>.<word:43>",
    "tg_<word:43>",
    "-----BEGIN RSA PRIVATE KEY-----\n<base64:64>\n<base64:64>\n-----END RSA PRIVATE KEY-----",
    "postgres://app:<word:20>@db.internal/main",
    "Authorization: Bearer 1<word:30>",
)
ALPHABETS: Mapping[str, str] = {
    "upper": string.ascii_uppercase + string.digits,
    "word": WORD,
    "digit": string.digits,
    "hex": HEX,
    "base64": BASE64,
}
PLACES: tuple[Callable[[str], Any], ...] = (
    lambda text: text,
    lambda text: {"config": {"value": text}},
    lambda text: [[text], "x"],
    lambda text: {"list": [{"deep": [{"deeper": text}]}]},
    lambda text: f"Please use {text} for this, and\nnothing else.",
    lambda text: {f"key {text}": 1},
)
"""Whole, in an object, in lists, deep, inside a longer text, and as a key."""


def canary(shape: str, dice: random.Random) -> tuple[str, str]:
    """Return a secret of this shape, and the part of it that must not turn up anywhere."""
    text, longest = "", ""
    for piece in shape.replace(">", "<").split("<"):
        kind, _, length = piece.partition(":")
        if kind in ALPHABETS and length.isdigit():
            piece = "".join(dice.choice(ALPHABETS[kind]) for _ in range(int(length)))
            longest = max(longest, piece, key=len)
        text += piece
    return text, longest


def traces(part: str) -> list[bytes]:
    """Return the bytes by which a secret would be found: as it is, and encoded."""
    return [part.encode(), base64.b64encode(part.encode())[:-4]]
