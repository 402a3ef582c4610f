"""Two hundred deceptive arguments on the page of a request: each is marked or inert, and stands inside a fence."""

import html
import json
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from approvals.models import ApprovalRequest, Round
from catalog.canonical import canonical_text
from catalog.glyphs import is_hidden
from tests.approvals.builders import ask
from tests.approvals.deceptions import CANARY, DECEPTIONS, Deception
from tests.pages import Pages, words

FAMILIES = sorted({each.family for each in DECEPTIONS})
VOID = {"input", "link", "meta", "br", "img", "hr", "use"}
ALONE = {"hx-target": "pane", "hx-request": "true"}


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


def shown_with(pages: Pages, request: ApprovalRequest, value: object) -> str:
    """Return the markup of the request's pane when this is its argument."""
    Round.objects.filter(request=request).update(arguments=canonical_text({"content": value}), preview="")
    pages.open(f"/approvals/?item={request.public_id}", headers=ALONE)
    return pages.html


def faults(markup: str, deception: Deception, plain_tags: Counter[str]) -> list[str]:
    """Return in which ways the page was deceived."""
    fences, said = Fences(markup), words(markup)
    found = [f"shows {character!r} as it is" for character in set(markup) - set(" \n\t") if is_hidden(character)]
    found += [f"does not say {text!r}" for text in deception.said if " ".join(text.split()) not in said]
    found += [f"holds the markup {text!r}" for text in deception.absent if text in markup]
    more = {tag for tag in fences.tags if tag not in plain_tags and tag not in ("svg", "br")}
    found += [f"has elements {sorted(more)}"] if more else []
    found += ["shows the agent's text outside of a fence"] if CANARY in "".join(fences.outside) else []
    return found


def test_there_are_two_hundred():
    """All different, each with its canary."""
    values = {json.dumps(each.value) for each in DECEPTIONS}
    assert len(values) == len(DECEPTIONS) >= 200
    assert all(CANARY in text for text in values)


def shown_as_change(pages: Pages, request: ApprovalRequest, text: str) -> str:
    """Return the markup of the request's pane when the tool shows this argument as what would be in a file."""
    preview = canonical_text({"summary": "Create x", "kind": "diff", "before": None, "after": text})
    arguments = canonical_text({"content": text})
    Round.objects.filter(request=request).update(arguments=arguments, preview=preview)
    pages.open(f"/approvals/?item={request.public_id}", headers=ALONE)
    return pages.html


def said_of(deception: Deception) -> tuple[str, ...]:
    """Return what must be said of it in a change, whose lines are numbered and counted as added."""
    return tuple("+402" if text == "402 lines" else text for text in deception.said)


@pytest.mark.django_db
@pytest.mark.parametrize("family", FAMILIES)
def test_no_family_deceives_in_a_change(ada, rosa, family):
    """Where the argument is drawn line by line instead of whole."""
    request, pages = ask(ada), Pages(rosa)
    tags = Fences(shown_as_change(pages, request, f"{CANARY}\u202e\u0435 pre-approved {'ab12' * 10}")).tags
    found = {
        html.escape(repr(each.value)[:80]): wrong
        for each in DECEPTIONS
        if each.family == family and isinstance(each.value, str)
        if (wrong := faults(shown_as_change(pages, request, each.value), replace(each, said=said_of(each)), tags))
    }
    assert found == {}


@pytest.mark.django_db
@pytest.mark.parametrize("family", FAMILIES)
def test_no_family_deceives(ada, rosa, family):
    """What does not show is spelled out, what imitates is named, the rest is text and nothing else."""
    request, pages = ask(ada), Pages(rosa)
    tags = Fences(shown_with(pages, request, f"{CANARY}\u202e\u0435 pre-approved {'ab12' * 10}")).tags
    found = {
        html.escape(repr(each.value)[:80]): wrong
        for each in DECEPTIONS
        if each.family == family and (wrong := faults(shown_with(pages, request, each.value), each, tags))
    }
    assert found == {}


@pytest.mark.django_db
def test_what_nobody_can_read_is_named_in_several_too(ada, rosa):
    """Beside what differs, and beside what is alike."""
    first, second, pages = ask(ada), ask(ada), Pages(rosa)
    noise = next(each.value for each in DECEPTIONS if each.family == "encoded")
    for number, request in enumerate((first, second)):
        arguments = canonical_text({"alike": noise, "differs": f"{noise} {number}"})
        Round.objects.filter(request=request).update(arguments=arguments, preview="")
    page = pages.open(f"/approvals/several/?item={first.public_id}&item={second.public_id}")
    assert page.count("Opaque:") == 3
