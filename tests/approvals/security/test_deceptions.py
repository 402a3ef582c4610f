"""Two hundred deceptive arguments on the page of a request: each is marked or inert, and inside of a fence.

The fast tier puts ten arguments into a request and shows a sample as changes; `make nightly` tests each alone.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser

import pytest

from approvals.models import ApprovalRequest, Round
from approvals.requests.text_warnings import argument_warnings
from catalog.core.canonical_json import canonical_text
from catalog.text.deceptive_text import is_hidden
from tests import counts
from tests.approvals.factories import ask
from tests.approvals.security.deceptions import CANARY, CLAIM, DECEPTIONS, Deception
from tests.pages import Pages, words

TO_A_REQUEST = 1 if counts.FULL else 10
VOID = {"input", "link", "meta", "br", "img", "hr", "use"}
ALONE = {"hx-target": "pane", "hx-request": "true"}
PLAIN = f"{CANARY}\u202e\u0435 pre-approved {'ab12' * 10}"
"""A text whose page has every element that marks a deception."""


class Fences(HTMLParser):
    """Collects the text outside of every element that is marked as the agent's."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.open: list[bool] = []
        self.outside: list[str] = []
        self.tags: Counter[str] = Counter()
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        if tag not in VOID:
            classes = (dict(attrs).get("class") or "").split()
            self.open.append("given" in classes or "diff" in classes)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if not any(self.open):
            self.outside.append(data)


def pane_of(pages: Pages, request: ApprovalRequest, arguments: dict[str, object], preview: str = "") -> str:
    """Return the markup of the request's pane with these arguments."""
    Round.objects.filter(request=request).update(arguments=canonical_text(arguments), preview=preview)
    pages.open(f"/approvals/?item={request.public_id}", headers=ALONE)
    return pages.html


def pane_of_change(pages: Pages, request: ApprovalRequest, text: str) -> str:
    """Return the markup of the request's pane when the tool shows the argument as the new text of a file."""
    preview = {"summary": "Create x", "kind": "diff", "before": None, "after": text}
    return pane_of(pages, request, {"content": text}, canonical_text(preview))


def rows_of(markup: str) -> list[str]:
    """Return the markup of each argument."""
    table = markup.split('<table class="args">')[1].split("</table>")[0]
    return re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)


def faults_of_page(markup: str, deceptions: Sequence[Deception], plain_tags: Counter[str]) -> list[str]:
    """Return the deceptions among these arguments that the page did not expose."""
    fences = Fences(markup)
    found = [f"shows {character!r} as it is" for character in set(markup) - set(" \n\t") if is_hidden(character)]
    found += [f"holds the markup {text!r}" for each in deceptions for text in each.absent if text in markup]
    more = {tag for tag in fences.tags if tag not in plain_tags and tag not in ("svg", "br")}
    found += [f"has elements {sorted(more)}"] if more else []
    found += ["shows the agent's text outside of a fence"] if CANARY in "".join(fences.outside) else []
    return found


def unsaid(deception: Deception, said: str) -> list[str]:
    """Return the expected texts of a deception that the page lacks."""
    return [text for text in deception.said if " ".join(text.split()) not in said]


def test_there_are_two_hundred_deceptions():
    values = {json.dumps(each.value) for each in DECEPTIONS}
    assert len(values) == len(DECEPTIONS) >= 200
    assert all(CANARY in text for text in values)


@pytest.mark.django_db
def test_page_exposes_deceptive_arguments(ada, rosa):
    """Invisible characters are spelled out, imitations are marked, and everything else is plain text."""
    request, pages = ask(ada), Pages(rosa)
    tags = Fences(pane_of(pages, request, {"content": PLAIN})).tags
    found: dict[str, list[str]] = {}
    for first in range(0, len(DECEPTIONS), TO_A_REQUEST):
        shown = DECEPTIONS[first : first + TO_A_REQUEST]
        markup = pane_of(pages, request, {f"a{number}": each.value for number, each in enumerate(shown)})
        found[f"page from {first}"] = faults_of_page(markup, shown, tags)
        note = CLAIM if CLAIM in words(markup) else ""
        for each, row in zip(shown, rows_of(markup), strict=True):
            claims = note if argument_warnings({"content": each.value}, "").claims else ""
            found[ascii(each.value)[:80]] = unsaid(each, f"{words(row)} {claims}")
    assert {place: faults for place, faults in found.items() if faults} == {}


@pytest.mark.django_db
def test_page_exposes_deceptive_changes(ada, rosa):
    """The argument is shown line by line in the diff, with numbered and counted lines."""
    request, pages, found = ask(ada), Pages(rosa), {}
    tags = Fences(pane_of_change(pages, request, PLAIN)).tags
    texts = [each for each in DECEPTIONS if isinstance(each.value, str)]
    sample = texts if counts.FULL else texts[::10]
    for each in sample:
        markup = pane_of_change(pages, request, each.value)
        text = words(markup).replace("+402", "402 lines")
        found[ascii(each.value)[:80]] = faults_of_page(markup, [each], tags) + unsaid(each, text)
    lines = [each for each in texts if "\n" not in each.value]
    markup = pane_of_change(pages, request, "\n".join(each.value for each in lines))
    found["all in one"] = faults_of_page(markup, lines, tags)
    assert {place: faults for place, faults in found.items() if faults} == {}


@pytest.mark.django_db
def test_batch_page_names_opaque_text(ada, rosa):
    first, second, pages = ask(ada), ask(ada), Pages(rosa)
    noise = next(each.value for each in DECEPTIONS if each.family == "encoded")
    for number, request in enumerate((first, second)):
        arguments = canonical_text({"alike": noise, "differs": f"{noise} {number}"})
        Round.objects.filter(request=request).update(arguments=arguments, preview="")
    pages.open(f"/approvals/several/?item={first.public_id}&item={second.public_id}")
    assert pages.html.count('class="opaque"') == 3
