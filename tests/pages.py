"""A browser without JavaScript: someone signed in, with CSRF checked, reading pages as text."""

import html
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.template.backends.django import Template
from django.test import Client

DROPPED = re.compile(r"(<textarea[^>]*>)\n")  # HTML drops the newline too
SPACES = re.compile(r"\s+")
LAYOUT = re.compile(r"(?<=>) (?=<)| (?=/?>)")
TAGS = re.compile(r"<[^>]+>")
TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


@contextmanager
def without_rendering() -> Iterator[None]:
    """Render no template: half of the time of a page, for tests that look at nothing but its status."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Template, "render", lambda *_, **__: "")
        yield


def without_nul(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
    """Refuse NUL in parameters of queries, as PostgreSQL does."""
    assert many or not any(isinstance(each, str) and "\0" in each for each in params or ()), sql
    return execute(sql, params, many, context)


class Pages:
    """Opens pages and sends their forms; `html` and `context` (of the templates) are those of the page that is open."""

    def __init__(self, user: User | None = None) -> None:
        self.client = Client(enforce_csrf_checks=True, raise_request_exception=False)
        self.html = ""
        self.context: Any = None
        if user is not None:
            self.client.force_login(user)

    def open(self, path: str, status: int = 200, headers: Mapping[str, str] | None = None) -> str:
        """Open a page and return its words."""
        return self._read(self.client.get(path, headers=headers), status)

    def send(self, path: str, fields: Mapping[str, str | list[str]] | None = None, status: int = 200) -> str:
        """Send a form with the token of the page that is open, follow, and return the words of what comes."""
        form = {**(fields or {}), "csrfmiddlewaretoken": self._token()}
        return self._read(self.client.post(path, form, follow=True), status)

    def swap(
        self, path: str, target: str, fields: Mapping[str, str | list[str]] | None = None, status: int = 200
    ) -> Any:
        """Send a form as htmx does and return the response."""
        headers = {"HX-Request": "true", "HX-Target": target, "X-CSRFToken": self._token()}
        response = self.client.post(path, fields or {}, headers=headers)
        assert response.status_code == status, response.content[:500]
        return response

    def field(self, name: str) -> str:
        """Return the value of a hidden field of the page that is open."""
        found = re.search(rf'name="{name}" value="([^"]*)"', self.html)
        assert found is not None, name
        return html.unescape(found[1])

    def _token(self) -> str:
        token = TOKEN.search(self.html)
        return token[1] if token else ""

    def _read(self, response: Any, status: int) -> str:
        assert response.status_code == status, response.content[:500]
        self.html = compact(response.content.decode())
        assert forms_that_decide_on_enter(self.html) == []
        self.context = response.context
        return words(self.html)


class _DefaultButtons(HTMLParser):
    """Collects the first submit button of each form, and the forms that name a verdict in a hidden field."""

    def __init__(self) -> None:
        super().__init__()
        self.form = ""
        self.first: dict[str, dict[str, str | None]] = {}
        self.with_verdict: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "form":
            self.form = given.get("id") or f"form {self.getpos()}"
        form = given.get("form") or self.form
        if tag == "button" and given.get("type", "submit") == "submit":
            self.first.setdefault(form, given)
        elif tag == "input" and given.get("name") == "verdict":
            self.with_verdict.add(form)

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self.form = ""


def forms_that_decide_on_enter(markup: str) -> list[str]:
    """Return the forms whose first submit button decides: browsers press that one when Enter is pressed in a field."""
    parser = _DefaultButtons()
    if 'name="verdict"' in markup or 'value="approve"' in markup:
        parser.feed(markup)
    return [
        form
        for form, button in parser.first.items()
        if "disabled" not in button
        and (button.get("name") == "verdict" or button.get("value") == "approve" or form in parser.with_verdict)
    ]


def compact(markup: str) -> str:
    """Return markup without the white space of its layout: none between or at the end of tags, one space elsewhere."""
    return LAYOUT.sub("", SPACES.sub(" ", DROPPED.sub(r"\1", markup)))


def words(markup: str) -> str:
    """Return what a page says, in one line."""
    return " ".join(html.unescape(TAGS.sub(" ", markup)).split())
