"""Tools of every way of declaring, tried from their pages with the form as a browser sends it."""

import json
from html.parser import HTMLParser

import pytest

from catalog.models import Call
from plans.models import Plan
from tests.builders import work_off
from tests.pages import Pages
from tests.whole import factories

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("synced")]


class SentForm(HTMLParser):
    """Reads what a browser would send of the form in which a tool is tried, no button pressed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self._writing, self._choosing = "", ""
        form = page[page.index('id="trying"') :]
        self.feed(form[: form.index("</form>")])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect fields, checked boxes and selected options."""
        given = {name: value or "" for name, value in attrs}
        if tag == "input" and (given.get("type") != "checkbox" or "checked" in given):
            self.fields[given["name"]] = given.get("value", "")
        elif tag == "textarea":
            self._writing = given["name"]
            self.fields[self._writing] = ""
        elif tag == "select":
            self._choosing = given["name"]
        elif tag == "option" and (self._choosing not in self.fields or "selected" in given):
            self.fields[self._choosing] = given["value"]

    def handle_endtag(self, tag: str) -> None:
        """A browser drops the first line break of a textarea."""
        if tag == "textarea":
            self.fields[self._writing] = self.fields[self._writing].removeprefix("\n")
            self._writing = ""

    def handle_data(self, data: str) -> None:
        """Collect the text of a textarea."""
        if self._writing:
            self.fields[self._writing] += data


@pytest.mark.parametrize("name", list(factories.CALLS))
def test_a_tool_of_every_style_is_tried_from_its_page(ada, name):
    pages, path = Pages(ada), f"/tools/{name}/try/"
    assert "Try it" in pages.open(f"/tools/{name}/")
    pages.open(path)
    pages.send(path, {"mode": "json", "json": json.dumps(factories.CALLS[name]), "do": "show:form"})
    form = SentForm(pages.html).fields
    assert form["mode"] == "form"
    pages.send(path, form | {"do": "call"})
    call = Call.objects.get()
    assert call.given_json == factories.CALLS[name]
    work_off(Plan.objects.get(public_id=call.plan_ref))
    pages.open(f"{path}?call={call.public_id}")
    assert Call.objects.get().response_json["results"] == factories.RESULTS[name]
    assert "Done" in pages.html
