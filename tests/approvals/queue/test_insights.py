"""Review insights: counted reviews, durations and reflexive approvals."""

from datetime import timedelta

import pytest
from django.http import QueryDict

from approvals.models import ApprovalRequest, Review
from approvals.queue.insights import REFLEX_LEAST, insights_for, seconds_to_decision
from approvals.requests.lifecycle import withdraw
from approvals.reviews.decisions import decide, undo_decision
from approvals.web.insights import waiting_table
from catalog.access.roles import NotAllowed, user_for_token
from catalog.core import clock
from catalog.models import ApiToken
from catalog.ui.periods import PeriodForm
from tests.approvals.factories import approval, ask, make_tool, rejection, set_rule
from tests.conftest import person
from tests.pages import Pages
from tests.rest import Rest, agent

MINUTE = timedelta(minutes=1)


def answered(asker, by, verdict=approval, after=MINUTE, tool=None):
    """Return a request that was answered this long after it was opened."""
    request = ask(asker, tool)
    decide(request, by=by, decision=verdict(request, "So."))
    opened = clock.now() - after
    ApprovalRequest.objects.filter(pk=request.pk).update(opened_at=opened)
    request.rounds.update(created_at=opened)
    return request


def test_decisions_and_times_to_decision(ada, rosa, tomas, settings):
    settings.TOOLGATE_UNDO_SECONDS = 60
    other = make_tool("delete_note")
    for minutes in (1, 2, 3):
        answered(ada, rosa, after=minutes * MINUTE)
    answered(ada, tomas, rejection, 60 * MINUTE, other)
    undone = ask(ada)
    decide(undone, by=rosa, decision=approval(undone, channel="page"))
    undo_decision(undone, by=rosa)
    withdraw(undone, by=ada, reason="")
    found = insights_for(rosa)
    assert (found.decisions.count, found.decisions.approve_rate) == (4, 0.75)
    assert found.decisions.spans.median == pytest.approx(120, abs=5)
    assert found.decisions.spans.p95 == pytest.approx(3600, abs=5)
    assert (found.ended["withdrawn"], found.ended["expired"]) == (1, 0)
    assert [(line.username, line.reviews.count, line.share) for line in found.reviewers] == [
        ("rosa", 3, 0.75),
        ("tomas", 1, 0.25),
    ]
    assert [(line.tool, line.decisions.count, line.decisions.approve_rate) for line in found.tools] == [
        ("write_note", 3, 1.0),
        ("delete_note", 1, 0.0),
    ]


def test_median_time_to_decision_of_each_day(ada, rosa, tomas):
    """An undecided request and a decision before the period do not count."""
    for minutes in (1, 2, 9):
        answered(ada, rosa, after=minutes * MINUTE)
    early = answered(ada, rosa, after=MINUTE)
    Review.objects.filter(request=early).update(at=clock.now() - timedelta(days=3))
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    answered(ada, tomas, after=60 * MINUTE)
    found, is_cut = seconds_to_decision(clock.now() - timedelta(days=1))
    assert list(found.values()) == [pytest.approx(120, abs=5)]
    assert not is_cut


def test_quorum_counts_as_one_decision(ada, rosa, tomas):
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request))
    assert insights_for(rosa).decisions.count == 0
    decide(request, by=tomas, decision=approval(request))
    found = insights_for(rosa)
    assert (found.decisions.count, [line.reviews.count for line in found.reviewers]) == (1, [1, 1])


def test_open_requests_by_age(ada, rosa):
    for hours in (0, 2, 30):
        request = ask(ada)
        opened = clock.now() - timedelta(hours=hours)
        ApprovalRequest.objects.filter(pk=request.pk).update(opened_at=opened)
    ApprovalRequest.objects.filter(pk=ask(ada).pk).update(is_early=True)
    found = insights_for(rosa)
    assert [(age.under, age.count) for age in found.ages] == [(3600, 1), (14400, 1), (86400, 0), (None, 1)]
    assert (found.waiting, [line.waiting for line in found.tools]) == (3, [3])
    labels = [(row.name, row.cells, row.bar) for row in waiting_table(found.ages).rows]
    assert labels == [
        ("Under 1 h", ["1"], 160),
        ("1 h to 4 h", ["1"], 160),
        ("4 h to 24 h", ["0"], 0),
        ("Over 24 h", ["1"], 160),
    ]


@pytest.mark.parametrize(
    ("answers", "alarmed"),
    [
        ((REFLEX_LEAST, 2, 0), True),
        ((REFLEX_LEAST - 1, 2, 0), False),
        ((REFLEX_LEAST, 30, 0), False),
        ((12, 2, 4), False),
    ],
)
def test_reflexive_approval_is_flagged(ada, rosa, answers, alarmed):
    count, apart, rejects = answers
    for number in range(count):
        request = ask(ada)
        decide(request, by=rosa, decision=(rejection if number < rejects else approval)(request, "So."))
    opened = clock.now() - timedelta(hours=1)
    ApprovalRequest.objects.update(opened_at=opened)
    for number, review in enumerate(Review.objects.order_by("id")):
        Review.objects.filter(pk=review.pk).update(at=opened + timedelta(seconds=(number + 1) * apart))
        review.round.created_at = opened
        review.round.save()
    assert [line.username for line in insights_for(rosa).reflexes] == (["rosa"] if alarmed else [])


def test_only_requested_days_count(ada, rosa):
    answered(ada, rosa)
    Review.objects.update(at=clock.now() - timedelta(days=8))
    assert [insights_for(rosa, days).decisions.count for days in (7, 30)] == [0, 1]
    assert sum(day.approved for day in insights_for(rosa, 30).per_day) == 1


def test_number_of_queries_is_fixed(ada, rosa, django_assert_num_queries):
    for _ in range(3):
        answered(ada, rosa)
        insights_for(rosa)
        with django_assert_num_queries(3):
            insights_for(rosa)


def test_insights_require_a_role(ada, vera):
    assert insights_for(vera).days == 30
    token = ApiToken.objects.create(name="bot", user=ada, kind="agent", expires_at=clock.now())
    for somebody in (person("guest"), user_for_token(token)):
        with pytest.raises(NotAllowed):
            insights_for(somebody)


def test_rest_returns_the_same_figures(ada, rosa):
    answered(ada, rosa)
    found = Rest(rosa).get("insights/", days=7).json()
    assert (found["days"], found["decisions"]["count"], found["decisions"]["verdicts"]["approve"]) == (7, 1, 1)
    assert found["unanswered"] == {"expired": 0, "withdrawn": 0}
    assert [(each["person"], each["is_reflex"]) for each in found["reviewers"]] == [("rosa", False)]
    assert Rest(rosa).get("insights/", days=91).status_code == 422
    assert agent(ada).get("insights/").status_code == 403


def test_page_shows_words_and_tables(ada, rosa):
    rosa.first_name = "<b>Rosa</b>"
    rosa.save()
    answered(ada, rosa)
    pages = Pages(rosa)
    words = pages.open("/approvals/insights/")
    assert ("&lt;b&gt;Rosa" in pages.html, "<b>Rosa" in pages.html) == (True, False)
    assert all(each in words for each in ("100 %", "write_note"))
    pages.open("/approvals/insights/?days=nonsense")
    Pages(person("guest")).open("/approvals/insights/", status=403)


@pytest.mark.parametrize(("text", "days"), [("", 30), ("7", 7), ("0", 30), ("999", 30), ("-1", 30), ("1e3", 30)])
def test_days_parameter(text, days):
    form = PeriodForm(QueryDict(f"days={text}"))
    assert (form.chosen_days, form.is_valid()) == (days, text in ("", "7"))


def test_names_are_hidden_from_viewers_and_operators(ada, rosa, admin, vera):
    decide(request := ask(ada), by=rosa, decision=approval(request))
    names = {by.username: insights_for(by).reviewers[0].username for by in (rosa, admin, vera, ada)}
    assert names == {"rosa": "rosa", admin.username: "rosa", "vera": "", "ada": ""}
