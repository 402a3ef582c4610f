"""Guides: all are listed, their links lead somewhere, and they are found."""

import re

import pytest
from django.urls import reverse

from config.help import guides
from tests.pages import Pages

FOR_DEVELOPERS = ("decisions/", "development/", "examples/")


def test_every_guide_for_users_is_listed() -> None:
    files = {path.relative_to(guides.FOLDER).as_posix() for path in guides.FOLDER.rglob("*.md")}
    listed = {guides.path_of(name).relative_to(guides.FOLDER).as_posix() for name in guides.NAMES}
    assert {each for each in files if not each.startswith(FOR_DEVELOPERS)} == listed


def test_links_between_guides_name_what_exists() -> None:
    read = {reverse("help-guide", args=[name]): guides.read_guide(name) for name in guides.NAMES}
    anchors = {address: {each.anchor for each in guide.headings} for address, guide in read.items()}
    broken = [
        (address, link)
        for address, guide in read.items()
        for link in re.findall(r'href="(/help/(?!pictures/)[^"]*|#[^"]*)"', guide.body)
        for target, _, anchor in [(address + link if link.startswith("#") else link).partition("#")]
        if target not in anchors or (anchor and anchor not in anchors[target])
    ]
    assert broken == []
    for place in guides.GUIDE_OF_SECTION.values():
        name, _, anchor = place.partition("#")
        assert not anchor or anchor in anchors[reverse("help-guide", args=[name])]


def test_titles_and_headings_are_searched() -> None:
    found = guides.search_guides("policies hours")
    assert found == []
    found = guides.search_guides("rotating")
    assert [(each.guide.name, each.heading and each.heading.anchor) for each in found] == [
        ("operations", "rotating-secret-keys")
    ]
    assert guides.search_guides("plan")[0].guide.name == "plans"


@pytest.mark.django_db
def test_a_missing_guide_names_similar_ones(vera) -> None:
    pages = Pages(vera)
    assert "Policies" in pages.open("/help/polices.md/", 404)
    assert pages.client.get("/help/for/tokens/")["Location"] == "/help/connect/#the-token"
    assert pages.client.get("/help/for/nothing/")["Location"] == "/help/"
    assert pages.client.get("/help/pictures/nothing.png").status_code == 404
