"""Saved views: contents, counts, order and pages."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.http import QueryDict
from django.test.utils import CaptureQueriesContext

from approvals.models import ApprovalRequest, Snooze
from approvals.policies.eligibility import may_decide
from approvals.queue.saved_views import (
    OPEN_VIEWS,
    SAVED_VIEWS,
    Queues,
    RequestFilters,
    count_duplicates,
    listed_for,
    needed_count,
    page_for,
)
from approvals.requests.lifecycle import withdraw
from approvals.requests.queries import pending_for, waiting_count, with_related
from approvals.reviews.coordination import claim, delegate, release, snooze, unsnooze
from approvals.reviews.decisions import decide, undo_decision
from approvals.web.review.inbox import InboxQuery, inbox_for, inbox_list, last_undoable, next_request_id
from catalog.core import clock
from catalog.core.canonical_json import canonical_text
from catalog.errors import ToolgateError
from catalog.models import CallRequester
from catalog.rest.pagination import PageParameters
from config.page_frame import frame_for_user
from tests import counts
from tests.approvals.factories import approval, ask, hand, held_call, make_tool, rejection, set_rule
from tests.conftest import person

pytestmark = pytest.mark.db
HOUR = timedelta(hours=1)


def views_of(viewer: User) -> dict[str, list[ApprovalRequest]]:
    """Return the contents of each view, oldest first."""
    queues = Queues(User.objects.get(pk=viewer.pk))
    return {view: list(queues.of(view).order_by("id")) for view in SAVED_VIEWS}


def test_requests_are_in_the_expected_views(ada, rosa, tomas):
    plain, mine, his, late, done = (ask(ada) for _ in range(5))
    claim(mine, by=rosa)
    claim(his, by=tomas)
    snooze(late, by=rosa, until=clock.now() + HOUR)
    decide(done, by=tomas, decision=rejection(done, "No."))
    assert views_of(rosa) == {
        "waiting": [plain, mine, his, late],
        "needs_me": [plain, mine],
        "claimed": [mine],
        "others": [his],
        "snoozed": [late],
        "decided": [done],
    }
    assert views_of(ada)["others"] == [plain, mine, his, late]


def test_claims_and_snoozes_expire(ada, rosa, tomas):
    first, second = ask(ada), ask(ada)
    claim(first, by=tomas)
    snooze(second, by=rosa, until=clock.now() + HOUR)
    past = clock.now() - timedelta(seconds=1)
    ApprovalRequest.objects.update(claimed_until=past)
    Snooze.objects.update(until=past)
    assert views_of(rosa)["needs_me"] == [first, second]
    assert views_of(tomas)["claimed"] == []


def test_answered_request_needs_others(ada, rosa, tomas):
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request))
    assert (views_of(rosa)["needs_me"], views_of(rosa)["others"]) == ([], [request])
    assert views_of(tomas)["needs_me"] == [request]


def test_escalated_and_delegated_requests_need_the_new_reviewers(ada, rosa, vera, ben):
    escalated, handed = ask(ada), ask(ada)
    ben.groups.add(Group.objects.create(name="directors"))
    ApprovalRequest.objects.filter(pk=escalated.pk).update(escalated_to="directors", escalated_at=clock.now())
    hand(handed, rosa, vera)
    assert views_of(ben)["needs_me"] == [escalated]
    assert views_of(vera)["needs_me"] == [handed]


def test_pre_approvals_are_in_no_list_and_no_count(ada, rosa):
    early, plain = ask(ada), ask(ada)
    ApprovalRequest.objects.filter(pk=early.pk).update(is_early=True)
    assert (list(pending_for(rosa)), waiting_count(rosa)) == ([plain], 1)
    assert list(listed_for(rosa, RequestFilters())) == [plain]
    assert all(early not in rows for rows in views_of(rosa).values())
    ApprovalRequest.objects.filter(pk=early.pk).update(ready_at=clock.now())
    assert waiting_count(rosa) == 2


def paged_through(viewer: User, filters: RequestFilters) -> list[ApprovalRequest]:
    """Return the rows of all pages with two rows each."""
    page = page_for(viewer, filters, PageParameters(2))
    found = list(page.rows)
    while page.next is not None:
        page = page_for(viewer, filters, PageParameters(2, page.next))
        found += page.rows
    return found


def test_pages_have_no_gaps_and_no_duplicates(ada, rosa):
    worst, usual = make_tool("wipe", reversibility="irreversible"), make_tool()
    requests = [ask(ada, tool) for tool in (usual, worst, usual, worst, usual)]
    for order, expected in (("", requests), ("risk", [*requests[1::2], *requests[::2]]), ("-opened", requests[::-1])):
        assert paged_through(rosa, RequestFilters(status="needs_me", order=order)) == expected


def test_inbox_has_pages(ada, rosa, monkeypatch):
    monkeypatch.setattr("approvals.web.review.inbox.REQUESTS_PER_PAGE", 2)
    requests = [ask(ada) for _ in range(3)]
    first = inbox_for(rosa, InboxQuery("needs_me"))
    assert (list(first.requests), first.counts.needs_me) == (requests[:2], 3)
    rest = inbox_for(rosa, InboxQuery.read(QueryDict(f"status=needs_me&after={first.later}")))
    assert (list(rest.requests), rest.later) == (requests[2:], "")
    for wrong in ("before=7", "after=WzAsMSwyXQ==", "after=%00", "after=W2ZhbHNlLCJ4IiwxXQ=="):
        assert list(inbox_for(rosa, InboxQuery.read(QueryDict(f"status=needs_me&{wrong}"))).requests) == requests[:2]


def test_list_position_and_next_request_use_one_order(ada, rosa, monkeypatch):
    monkeypatch.setattr("approvals.web.review.inbox.REQUESTS_PER_PAGE", 4)
    requests = [ask(ada) for _ in range(7)]
    for place in (0, 2, 5):
        ApprovalRequest.objects.filter(pk=requests[place].pk).update(plan_ref="plan_x")
    listed = [requests[place] for place in (0, 2, 1, 3, 4, 5, 6)]
    for view in ("waiting", "needs_me"):
        for place, request in enumerate(listed):
            inbox = inbox_for(rosa, InboxQuery(view, request.public_id))
            assert (inbox.position, inbox.total) == (place + 1, 7)
            assert list(inbox.requests) == (listed[:4] if place < 4 else listed[4:])
            assert next_request_id(rosa, view, request) == listed[(place + 1) % 7].public_id
    assert inbox_for(rosa, InboxQuery("snoozed", requests[0].public_id)).position is None
    later = inbox_for(
        rosa, InboxQuery.read(QueryDict(f"status=waiting&after={inbox_for(rosa, InboxQuery('waiting')).later}"))
    )
    assert (later.position, list(later.requests)) == (5, listed[4:])


def test_last_undoable_decision_is_ones_own(ada, rosa, tomas, settings):
    settings.TOOLGATE_UNDO_SECONDS = 60
    first, second, his, done = requests = [ask(ada) for _ in range(4)]
    for request, by in zip(requests, (rosa, rosa, tomas, rosa), strict=True):
        decide(request, by=by, decision=approval(request, channel="page"))
    ApprovalRequest.objects.filter(pk=done.pk).update(applied_at=clock.now())
    for request in (second, first):
        found = last_undoable(rosa)
        assert found is not None and (found.id, found.summary) == (request.public_id, "Write note.txt")
        undo_decision(request, by=rosa)
    theirs = last_undoable(tomas)
    assert last_undoable(rosa) is None and theirs is not None and theirs.id == his.public_id


def test_duplicates_are_shown_and_decided_individually(ada, ben, rosa):
    same, other = [ask(ada), ask(ben), ask(ada)], held_call(ada)
    other.arguments = canonical_text({"path": "other.txt"})
    other.save()
    different = ask(ada, make_tool("delete_note"))
    ApprovalRequest.objects.filter(pk=same[2].pk).update(round_number=2)
    rows = list(pending_for(rosa).order_by("id"))
    count_duplicates(rosa, rows)
    assert [(row, getattr(row, "duplicates", None)) for row in rows] == [
        (same[0], 1),
        (same[1], 1),
        (same[2], 0),
        (different, 0),
    ]
    decide(same[0], by=rosa, decision=approval(same[0]))
    assert ApprovalRequest.objects.get(pk=same[1].pk).status == "pending"


STEPS = counts.count(10_000, 160)
COMPARED_EVERY = 100 if counts.FULL else 20


@pytest.mark.timeout(counts.seconds(1800, 300))
def test_counts_equal_list_lengths(ada, rosa, tomas, vera, record_property):
    """Compares badge, lists, saved views and API for every user after random actions."""
    number = counts.seed()
    dice = counts.dice(number)
    people = [ada, person("both", "operator", "reviewer"), rosa, tomas, vera, person("guest")]
    done = 0
    for step in range(STEPS):
        done += _happens(dice, people)
        if step % COMPARED_EVERY == 0 or step == STEPS - 1:
            with pytest.MonkeyPatch.context() as patch:
                now = clock.now()
                patch.setattr(clock, "now", lambda: now)  # noqa: B023 - nothing expires between two readings
                for viewer in people:
                    _agree(User.objects.get(pk=viewer.pk))
    assert done > STEPS / 10
    counts.report(record_property, "counts of the queue", steps=STEPS, done=done, seed=number)


def _happens(dice, people) -> bool:
    """Perform one random action; return True if it was possible."""
    open_now = list(ApprovalRequest.objects.filter(status="pending").order_by("-id")[:12])
    by, to = User.objects.get(pk=dice.choice(people).pk), dice.choice(people)
    if not open_now or dice.random() < 0.15:
        request = ask(dice.choice(people), make_tool(dice.choice(("write_note", "delete_note"))))
        ApprovalRequest.objects.filter(pk=request.pk).update(is_early=dice.random() < 0.1)
        CallRequester.objects.get_or_create(call=request.call, user=dice.choice(people))
        return True
    held = with_related(ApprovalRequest.objects.filter(pk=dice.choice(open_now).pk)).get()
    acts = (
        lambda: claim(held, by=by),
        lambda: release(held, by=by),
        lambda: snooze(held, by=by, until=clock.now() + HOUR),
        lambda: unsnooze(held, by=by),
        lambda: delegate(held, by=by, to=dice.choice((to, None))),
        lambda: decide(held, by=by, decision=approval(held, channel="page")),
        lambda: decide(held, by=by, decision=rejection(held, "No.")),
        lambda: undo_decision(dice.choice(list(ApprovalRequest.objects.order_by("-id")[:12])), by=by),
        lambda: withdraw(held, by=by, reason="Enough."),
        lambda: ApprovalRequest.objects.filter(pk=held.pk).update(expires_at=clock.now()),
        lambda: ApprovalRequest.objects.filter(pk=held.pk).update(escalated_to=dice.choice(("viewer", "operator"))),
        lambda: ApprovalRequest.objects.filter(pk=held.pk).update(ready_at=clock.now()),
    )
    try:
        dice.choice(acts)()
    except ToolgateError:
        return False
    return True


def _agree(viewer: User) -> None:
    inbox, queues = inbox_for(viewer, InboxQuery()), Queues(viewer)
    lengths = {view: len(queues.of(view)) for view in OPEN_VIEWS}
    counts = inbox.counts
    assert lengths == {view: getattr(counts, view) for view in OPEN_VIEWS}
    api = len(page_for(viewer, RequestFilters(status="pending"), PageParameters(100_000)).rows)
    assert frame_for_user(viewer).waiting == needed_count(viewer) == lengths["needs_me"]
    assert waiting_count(viewer) == len(pending_for(viewer)) == api == lengths["waiting"] == inbox.waiting
    now = clock.now()
    put_off = set(Snooze.objects.filter(person=viewer, until__gt=now).values_list("request", flat=True))
    needs = {
        each.pk
        for each in with_related(pending_for(viewer))
        if may_decide(each, viewer) is None
        and not any(
            review.person_id == viewer.pk and review.undone_at is None and review.round.number == each.round_number
            for review in each.reviews.all()
        )
        and each.pk not in put_off
        and not (each.claimed_until and each.claimed_until > now and each.claimed_by != viewer)
    }
    assert {each.pk for each in queues.of("needs_me")} == needs


def test_sorting_reads_narrow_rows(ada, rosa):
    """Ten thousand open requests are sorted by key; previews are only loaded for those shown."""
    requests = [ask(ada), ask(ada)]
    with CaptureQueriesContext(connection) as captured:
        assert [each.pk for each in inbox_list(rosa).requests] == [each.pk for each in requests]
    in_order = [query["sql"] for query in captured if '"opened_at" ASC' in query["sql"]]
    assert len(in_order) == 1
    assert "preview" not in in_order[0] and "catalog_call" not in in_order[0]
