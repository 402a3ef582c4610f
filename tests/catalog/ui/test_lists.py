"""Lists of pages: state in the URL, tabs with counts, chips, saved filters, CSV. Shown with the list of plans."""

import csv
import html
import io
import re

import pytest
from django.contrib.auth.models import User

from catalog.access.tokens import create_token
from catalog.models import ApiToken, SavedFilter
from catalog.ui import list_views
from catalog.ui.lists import column_choices
from plans.models import Plan
from tests.builders import make_plan, step, work_off
from tests.pages import Pages

pytestmark = pytest.mark.django_db


@pytest.fixture
def three_plans(stage: object, ada: User, ben: User) -> None:
    """Two plans that have not started, one of them with a formula as its goal, and one that is done."""
    make_plan(ada, step(1), start=False, goal="Read the notes")
    make_plan(ben, step(1), start=False, goal='=HYPERLINK("http://x")')
    work_off(make_plan(ada, step(1), goal="Count the words"))


def titles(pages: Pages) -> list[str]:
    return [html.unescape(each) for each in re.findall(r'class="entry-title"[^>]*>([^<]*)</a>', pages.html)]


def tab_counts(pages: Pages) -> dict[str, str]:
    return {
        label.strip(): count for label, count in re.findall(r'>([\w ]+)<span class="tab-count">([\d,+]+)<', pages.html)
    }


def test_tabs_count_what_search_and_filters_leave(three_plans, vera):
    pages = Pages(vera)
    pages.open("/plans/")
    counts = tab_counts(pages)
    assert (counts["All"], counts["Not started"], counts["Done"], counts["Failed"]) == ("3", "2", "1", "0")
    pages.open("/plans/?owner=ada&status=completed")
    counts = tab_counts(pages)
    assert (counts["All"], counts["Not started"], titles(pages)) == ("2", "1", ["Count the words"])


def test_counts_of_long_lists_are_minimums(three_plans, vera, monkeypatch):
    monkeypatch.setattr("catalog.ui.lists.MAX_COUNTED", 2)
    page = Pages(vera).open("/plans/")
    assert "2+ plans" in page and "Not started 2+" in page and "Failed 0" not in page


def test_equal_values_are_one_choice(ada, monkeypatch):
    monkeypatch.setattr("catalog.ui.lists.MAX_CHOICES", 2)
    for name in ("nightly", "nightly", "release"):
        create_token(user=ada, kind="agent", scopes=["tools:read"], name=name)
    for chosen, offered in (([], ["nightly", "release"]), (["release"], ["release", "nightly"])):
        assert [choice.value for choice in column_choices(ApiToken.objects.all(), "name", chosen)] == offered


def test_filters_are_chips_that_lead_back(three_plans, vera):
    pages = Pages(vera)
    page = pages.open("/plans/?owner=ada&age=7d&q=notes&sort=goal")
    assert "Owner: Ada" in page and "Age: Last 7 days" in page and "Search: notes" in page
    for rest in (
        "q=notes&amp;age=7d&amp;sort=goal",
        "q=notes&amp;owner=ada&amp;sort=goal",
        "owner=ada&amp;age=7d&amp;sort=goal",
    ):
        assert f'href="/plans/?{rest}"' in pages.html


def test_unknown_values_are_ignored_and_named(three_plans, vera):
    for query in ("status=x", "owner=%00", "age=2d", "sort=;", "cursor=x", "agent=%3Cb%3E"):
        pages = Pages(vera)
        pages.open(f"/plans/?{query}")
        assert len(titles(pages)) == 3 and "data-ignored" in pages.html, query


def test_orders_page_without_gaps(three_plans, vera, monkeypatch):
    monkeypatch.setattr("catalog.ui.lists.PAGE_SIZE", 1)
    for sort, wanted in (
        ("owner", ["Read the notes", "Count the words", '=HYPERLINK("http://x")']),
        ("created", ["Read the notes", '=HYPERLINK("http://x")', "Count the words"]),
    ):
        pages, seen, path = Pages(vera), [], f"/plans/?sort={sort}"
        while path:
            pages.open(path)
            seen += titles(pages)
            path = html.unescape("".join(re.findall(r'href="([^"]+)" rel="next"', pages.html)))
        assert seen == wanted


def test_filters_are_saved_reopened_and_deleted(three_plans, vera):
    pages = Pages(vera)
    pages.open("/plans/?owner=ada&status=completed&nothing=1&cursor=x")
    state = html.unescape(pages.field("query"))
    assert state == "status=completed&owner=ada"
    pages.send("/saved-filters/", {"list_name": "plans", "name": "Ada's", "query": f"{state}&age=nonsense"})
    assert f'href="/plans/?{html.escape(state)}" aria-current="true"' in pages.html
    saved = SavedFilter.objects.get()
    assert (saved.person, saved.query) == (vera, state)
    pages.send(f"/saved-filters/{saved.pk}/delete/")
    assert not SavedFilter.objects.exists()


def test_unusable_saved_filters_are_refused(three_plans, vera, monkeypatch):
    monkeypatch.setattr("catalog.web.saved_filters.MAX_SAVED", 1)
    pages = Pages(vera)
    pages.open("/plans/?owner=ada")
    sent = {"list_name": "plans", "name": "one", "query": "owner=ada"}
    for wrong in ({"list_name": "nothing"}, {"name": " "}, {"name": "x" * 81}, {"query": "x" * 5000}):
        pages.send("/saved-filters/", sent | wrong, status=422)
        pages.open("/plans/?owner=ada")
    pages.send("/saved-filters/", sent)
    pages.send("/saved-filters/", sent | {"query": "q=other"})
    assert "Delete one first" in pages.send("/saved-filters/", sent | {"name": "two"}, status=422)
    assert SavedFilter.objects.get().query == "q=other"


def lines(user: User, query: str) -> list[list[str]]:
    answer = Pages(user).client.get(f"/plans/?{query}&format=csv")
    assert answer["Content-Type"].startswith("text/csv")
    return list(csv.reader(io.StringIO(answer.getvalue().decode())))


def test_csv_has_what_the_viewer_sees(three_plans, vera, ben, monkeypatch):
    assert {row[2] for row in lines(vera, "status=pending")[1:]} == {"Read the notes", '\'=HYPERLINK("http://x")'}
    ben.groups.clear()
    assert [row[2] for row in lines(ben, "")[1:]] == ['\'=HYPERLINK("http://x")']
    monkeypatch.setattr(list_views, "CSV_CHUNK", 1)
    monkeypatch.setattr(list_views, "MAX_CSV_ROWS", 2)
    rows = lines(vera, "")
    assert len(rows) == 4 and rows[3] == ["Only the first 2 rows are listed. Narrow the filters."]


def test_actions_of_rows_return_to_the_list(stage, ada):
    plan = work_off(make_plan(ada, step(1), goal="Try it"))
    Plan.objects.filter(pk=plan.pk).update(status="failed")
    pages = Pages(ada)
    pages.open("/plans/?status=failed")
    assert f'form="row-action" formaction="/plans/{plan.public_id}/retry/"' in pages.html
    pages.send(f"/plans/{plan.public_id}/retry/", {"next": pages.field("next")})
    assert "Nothing matches these filters" in pages.html
    for hostile in ("//evil.example/", "https://evil.example/", "/\\evil.example"):
        Plan.objects.filter(pk=plan.pk).update(status="failed")
        pages.open("/plans/")
        pages.send(f"/plans/{plan.public_id}/retry/", {"next": hostile})
        assert 'class="plan' in pages.html
