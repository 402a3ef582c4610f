"""Start tags of templates, for the rules about their markup.

Django's own tags are removed first, so the markup of every branch is read at once.
"""

import re
from html.parser import HTMLParser

COMMENT = re.compile(r"\{%\s*comment\b.*?%\}(.*?)\{%\s*endcomment\s*%\}", re.DOTALL)
TAG = re.compile(r"\{%.*?%\}|\{#.*?#\}", re.DOTALL)
VALUE = re.compile(r"\{\{.*?\}\}", re.DOTALL)

Attributes = dict[str, str | None]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, Attributes]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    handle_startendtag = handle_starttag


def start_tags(text: str) -> list[tuple[str, Attributes]]:
    """Return name and attributes of every element of a template."""
    reader = _Reader()
    reader.feed(VALUE.sub("x", TAG.sub("", COMMENT.sub("", text))))
    reader.close()
    return reader.found
