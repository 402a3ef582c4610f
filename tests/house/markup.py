"""Templates as the house rules read them: the opening comment, the roots, every attribute.

Django's own tags are taken out first, so what is read is the markup of every branch at once.
"""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

COMMENT = re.compile(r"\{%\s*comment\b.*?%\}(.*?)\{%\s*endcomment\s*%\}", re.DOTALL)
TAG = re.compile(r"\{%.*?%\}|\{#.*?#\}", re.DOTALL)
VALUE = re.compile(r"\{\{.*?\}\}", re.DOTALL)
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


def header(text: str) -> str:
    """Return what the template's opening comment says; empty when it does not open with one."""
    match = COMMENT.match(text)
    return match.group(1).strip() if match else ""


def markup(text: str) -> str:
    """Return the markup alone: no comments, no template tags, a word for every value."""
    return VALUE.sub("x", TAG.sub("", COMMENT.sub("", text)))


Attributes = dict[str, str | None]


@dataclass
class Elements:
    """What a template holds: every element, those at the top, and text that stands outside of any."""

    every: list[tuple[str, Attributes]] = field(default_factory=list)
    roots: list[tuple[str, Attributes]] = field(default_factory=list)
    loose_text: bool = False


class Reader(HTMLParser):
    """Collects Elements."""

    def __init__(self) -> None:
        super().__init__()
        self.found = Elements()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.every.append((tag, dict(attrs)))
        if not self.open:
            self.found.roots.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while tag in self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.found.loose_text |= not self.open and bool(data.strip())


def elements(text: str) -> Elements:
    """Return what the markup of a template holds."""
    reader = Reader()
    reader.feed(markup(text))
    reader.close()
    return reader.found
