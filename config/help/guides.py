"""The guides that help shows: their order and groups, their text, and a search of titles and headings."""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from django.urls import reverse
from django.utils.translation import gettext_lazy

from config.help.markdown import Heading, Rendering, parse, plain_text
from toolgate.places import SHIPPED_DIR

FOLDER = SHIPPED_DIR / "docs"
GROUPS = (
    (gettext_lazy("Start"), ("quickstart", "first-team", "glossary")),
    (
        gettext_lazy("Use"),
        (
            "reviewing",
            "lists",
            "plans",
            "policies",
            "people",
            "grants",
            "envelopes",
            "notifications",
            "profile",
            "accounts",
        ),
    ),
    (
        gettext_lazy("Connect agents"),
        (
            *("connect", "coding-agents"),
            *("connect/claude", "connect/chatgpt"),
            *("connect/claude-code", "connect/claude-desktop", "connect/cursor", "connect/vs-code", "connect/codex"),
            *("connect/gemini-cli", "connect/opencode"),
            *("connect/openai-agents", "connect/pydantic-ai", "connect/langchain"),
            *("connect/python", "connect/curl", "frameworks", "resuming"),
        ),
    ),
    (gettext_lazy("Build"), ("sources", "tools", "secrets", "models", "api")),
    (gettext_lazy("Run"), ("on-a-bad-day", "hosting", "settings", "operations", "traces", "cluster", "invariants")),
)
NAMES = tuple(name for _, names in GROUPS for name in names)
GUIDE_OF_SECTION: Mapping[str, str] = {
    "agents": "models#agents",
    "approvals": "reviewing",
    "ask": "plans",
    "audit": "operations#the-audit-log",
    "calls": "lists",
    "connections": "connect#signing-in",
    "connect": "connect",
    "insights": "reviewing#insights",
    "notifications": "notifications",
    "people": "people",
    "plans": "plans",
    "profile": "profile",
    "security": "accounts",
    "sign-ins": "accounts",
    "policies": "policies",
    "sessions": "connect#sessions",
    "settings": "settings",
    "sources": "sources",
    "stops": "on-a-bad-day",
    "tokens": "connect#the-token",
    "tools": "sources",
}
"""Name and anchor of the guide that explains the pages of a section of the main menu."""
MAX_RESULTS = 40
MAX_SIMILAR = 5


@dataclass(frozen=True, slots=True)
class Guide:
    """One page of help. `summary` is its first paragraph without marks, `body` its HTML without the title."""

    name: str
    title: str
    summary: str
    body: str
    headings: Sequence[Heading]


@dataclass(frozen=True, slots=True)
class Found:
    """A guide or one of its headings that a search found."""

    guide: Guide
    heading: Heading | None = None


def path_of(name: str) -> Path:
    """Return the file of a guide; a guide with others below it is the README of its folder."""
    path = FOLDER / f"{name}.md"
    return path if path.exists() else FOLDER / name / "README.md"


@cache
def read_guide(name: str) -> Guide:
    """Return a guide of NAMES. It is read once: the files belong to the version that is running."""
    path = path_of(name)
    names = {path_of(each).relative_to(FOLDER).as_posix(): each for each in NAMES}

    def address_of(link: str) -> str:
        """Return the address of another guide, a picture, or a page elsewhere; empty for other files."""
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            return link if parts.scheme == "https" else ""
        if not parts.path:
            return link
        target = posixpath.normpath((path.relative_to(FOLDER).parent / parts.path).as_posix())
        if target.startswith("screenshots/") and target.endswith(".png"):
            return reverse("help-picture", args=[Path(target).stem])
        if target not in names:
            return ""
        return reverse("help-guide", args=[names[target]]) + (f"#{parts.fragment}" if parts.fragment else "")

    tree, rendering = parse(path.read_text(encoding="utf-8")), Rendering(address_of)
    body = rendering.blocks(tree.children)
    title, *headings = rendering.headings
    paragraphs = (plain_text(node) for node in tree.children if node.type == "paragraph")
    return Guide(name, title.text, next(paragraphs, ""), body, [each for each in headings if each.level < 4])


def search_guides(text: str) -> list[Found]:
    """Return the guides and headings that contain every word, whole titles first."""
    words = text.lower().split()
    titles, headings = [], []
    for guide in map(read_guide, NAMES):
        if all(word in guide.title.lower() for word in words):
            titles.append(Found(guide))
        for heading in guide.headings:
            # A word of the title narrows: "policies hours" finds the hours of policies.
            in_heading = [word in heading.text.lower() for word in words]
            in_either = all(found or word in guide.title.lower() for found, word in zip(in_heading, words, strict=True))
            if any(in_heading) and in_either:
                headings.append(Found(guide, heading))
    return [*titles, *headings][:MAX_RESULTS]


def similar_guides(name: str) -> list[Guide]:
    """Return the guides whose names are nearest to one that does not exist."""
    last = {each.rpartition("/")[2]: each for each in NAMES}
    wanted = name.strip("/").removesuffix(".md").rpartition("/")[2].lower()
    return [read_guide(last[each]) for each in get_close_matches(wanted, last, n=MAX_SIMILAR, cutoff=0.4)]
