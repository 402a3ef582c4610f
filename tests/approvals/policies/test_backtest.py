"""Back-test of a policy on past calls."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import ApprovalRequest, Policy
from approvals.policies import backtest as module
from approvals.policies import services
from approvals.policies.backtest import BackTest, Rulebooks, back_test, draft_of, rulebooks_for
from approvals.policies.envelope_rules import verdict_of
from approvals.policies.rulebook import rule_from_revision
from approvals.policies.term_checks import term_columns
from approvals.requests.lifecycle import open_request
from approvals.reviews.decisions import decide
from catalog.connections.models import Client, Connection
from catalog.core import clock
from catalog.models import ApiToken, Call
from tests.approvals.factories import approval, held_call, make_tool, rejection, set_rule

pytestmark = pytest.mark.django_db


def books(policy: Policy | None = None, order: int = 1, **document: Any) -> Rulebooks:
    """Return the rules with a draft before all others."""
    columns = term_columns({"effect": "deny", **document})
    return rulebooks_for(draft_of(columns, name="Draft", order=order, policy=policy))


def tried(days: int = 30, **document: Any) -> BackTest:
    """Replay past calls with a draft."""
    return back_test(books(**document), days=days)


def judged(by: User, reviewer: User, *, approve: bool) -> ApprovalRequest:
    """Return the decided request of a past cautious call, from a time when a policy held such calls."""
    call = held_call(by, make_tool("send_note", level="cautious"))
    request = open_request(call, rule=rule_from_revision(set_rule()), preview=None, now=clock.now())
    return decide(request, by=reviewer, decision=approval(request) if approve else rejection(request, "No."))


def test_counts_of_held_allowed_and_denied_calls(ada):
    dangerous, cautious = held_call(ada), held_call(ada, make_tool("send_note", level="cautious"))
    found = tried(match={"tool": "send_*"})
    assert (dict(found.counts), found.calls, found.changes) == ({"hold": 1, "deny": 1}, 2, 1)
    [changed] = found.changed
    assert (changed.call, changed.before, changed.after, changed.review) == (cautious.public_id, "allow", "deny", "")
    assert dangerous.public_id not in {each.call for each in found.changed}


@pytest.mark.parametrize(("count", "others"), [(1, 0), (2, 1)])
def test_calls_with_other_approvers_are_counted(ada, count, others):
    """Such calls are held both ways and therefore not listed, but the different quorum is counted."""
    held_call(ada)
    found = tried(effect="hold", stages=[{"group": "reviewer", "count": count}])
    assert (dict(found.counts), found.changes, found.other_people) == ({"hold": 1}, 0, others)


def test_rejected_calls_among_the_allowed_are_counted(ada, rosa):
    stages = [{"group": "reviewer", "count": 1}]
    made = services.create_policy(
        {"name": "Notes wait", "effect": "hold", "stages": stages, "order": 1, "match": {"tool": "send_*"}},
        by=User.objects.create_superuser("root"),
    )
    for approve in (True, False, True):
        judged(ada, rosa, approve=approve)
    found = back_test(books(policy=made, match={"tool": "send_x*"}), days=30)
    assert (dict(found.counts), found.rejected) == ({"allow": 3}, 1)
    assert [each.review for each in found.changed] == ["approve", "reject", "approve"]
    assert {(each.before, each.after) for each in found.changed} == {("hold", "allow")}


def test_list_of_changed_calls_has_pages(ada, monkeypatch):
    monkeypatch.setattr(module, "MAX_CHANGED", 2)
    held = [held_call(ada).public_id for _ in range(5)]
    listed, older = list[str](), ""
    for _ in range(3):
        found = back_test(books(), days=30, before=older)
        listed += [each.call for each in found.changed]
        older = found.older
    assert (listed, older) == (held[::-1], "")


def test_calls_to_which_the_policy_applies_are_counted(ada):
    """A call that others hold is not one of them, nor a dangerous one that the policy would allow."""
    held_call(ada, make_tool("send_note", level="cautious"))
    held_call(ada)
    found = tried(match={"tool": "wipe_*"})
    assert (found.matched, found.calls, dict(found.counts)) == (0, 2, {"hold": 1, "allow": 1})
    assert tried(match={"tool": "send_note"}).matched == tried(effect="allow").matched == 1


def test_allow_has_no_effect_on_dangerous_calls(ada):
    held_call(ada)
    found = tried(effect="allow")
    assert (dict(found.counts), found.changed) == ({"hold": 1}, [])


def test_active_policy_is_compared_with_the_rules_without_it(ada):
    held_call(ada)
    revision = Policy.objects.select_related("revision__policy").get(order=10).revision
    assert revision is not None
    [changed] = back_test(rulebooks_for(revision), days=1).changed
    assert (changed.before, changed.after) == ("deny", "hold")


def test_draft_replaces_its_policy(ada, rosa):
    held_call(ada)
    policy = Policy.objects.get(order=10)
    found = back_test(books(policy=policy, order=10, match={"safety_level": "dangerous"}), days=1)
    assert dict(found.counts) == {"deny": 1}


def test_calls_are_evaluated_at_their_time(ada):
    call = held_call(ada)
    at = clock.now().replace(hour=12, minute=0) - timedelta(days=1)
    Call.objects.filter(pk=call.pk).update(created_at=at)
    assert dict(tried(match={"hours": "11:00-13:00"}).counts) == {"deny": 1}
    assert dict(tried(match={"hours": "13:00-11:00"}).counts) == {"hold": 1}


def test_older_calls_are_left_out(ada):
    old, new = held_call(ada), held_call(ada)
    Call.objects.filter(pk=old.pk).update(created_at=clock.now() - timedelta(days=3))
    assert [tried(days=days).calls for days in (1, 7)] == [1, 2]
    assert [each.call for each in tried(days=1).changed] == [new.public_id]


def test_test_is_bounded_and_can_be_continued(ada, monkeypatch):
    calls = [held_call(ada) for _ in range(5)]
    for name, value in {"MAX_CALLS": 2, "CHUNK": 2, "MAX_CHANGED": 1}.items():
        monkeypatch.setattr(module, name, value)
    first = tried()
    assert (first.calls, first.changes, len(first.changed), first.next) == (2, 2, 1, calls[3].public_id)
    then = back_test(books(), days=30, before=first.next or "")
    assert (then.calls, then.changed[0].call, then.next) == (2, calls[2].public_id, calls[1].public_id)
    last = back_test(books(), days=30, before=then.next or "")
    assert (last.calls, last.next) == (1, None)


def test_number_of_queries_does_not_grow_with_calls(ada, django_assert_max_num_queries):
    for _ in range(20):
        held_call(ada)
    replayed = books()
    with django_assert_max_num_queries(5):
        assert back_test(replayed, days=1).calls == 20


def test_rules_that_look_back_replay_calls_in_the_order_they_were_made(ada, ben):
    """The third call of each person within an hour is held, and an outward call after one that has ended."""
    tool, begin = make_tool("send_note", level="cautious"), clock.now() - timedelta(days=1)
    for minutes, by in ((0, ada), (10, ada), (20, ben), (30, ada), (90, ada), (91, ada)):
        call = held_call(by, tool)
        at = begin + timedelta(minutes=minutes)
        Call.objects.filter(pk=call.pk).update(created_at=at, started_at=at, finished_at=at, status="completed")
    recent = {"count": 3, "seconds": 3600, "by": "requester"}
    found = tried(match={"tool": "send_*", "recent": recent})
    assert (dict(found.counts), found.matched) == ({"allow": 5, "deny": 1}, 1)
    found = tried(match={"tool": "send_*", "seen": {"tool": "send_note", "within": 900}})
    assert dict(found.counts) == {"allow": 4, "deny": 2}


class SlowVerdicts:
    """A clock that a verdict moves on by 0.1 s, on calls of a slow tool by 10 s. Two calls are read at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.limit = 0.0, partial(monkeypatch.setattr, module, "MAX_SECONDS")

        def slow_verdict(facts: Any, *more: Any) -> Any:
            self.now += 10.0 if facts.tool_name == "send_slowly" else 0.1
            return verdict_of(facts, *more)

        for name, value in {"monotonic": lambda: self.now, "verdict_of": slow_verdict, "CHUNK": 2}.items():
            monkeypatch.setattr(module, name, value)


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> SlowVerdicts:
    return SlowVerdicts(monkeypatch)


THIRD = {"tool": "send_*", "recent": {"count": 3, "seconds": 3600, "by": "tool"}}


@pytest.mark.parametrize(("limit", "calls", "took"), [(1.0, 2, 0.4), (1.9, 6, 1.6), (9.0, 8, 2.0)])
def test_time_limit_holds_for_rules_that_look_back(ada, seconds, limit, calls, took):
    """As many calls are judged as fit in, in two goes; the test is continued with older ones."""
    seconds.limit(limit)
    held = [held_call(ada, make_tool("send_note", level="cautious")) for _ in range(8)]
    found = tried(match=THIRD)
    assert (found.calls, found.next) == (calls, held[8 - calls].public_id if calls < 8 else None)
    assert seconds.now == pytest.approx(took)
    if calls < 8:
        assert back_test(books(match=THIRD), days=30, before=found.next or "").calls == min(calls, 8 - calls)


def test_time_limit_holds_if_older_calls_take_longer_to_judge(ada, seconds):
    """Only what was judged within the time is reported, with nothing left out between."""
    for name in ("send_slowly", "send_slowly", "send_note", "send_note"):
        held_call(ada, make_tool(name, level="cautious"))
    newest = Call.objects.order_by("-pk")[1].public_id
    found = tried(match=THIRD)
    assert (found.calls, found.next, dict(found.counts)) == (2, newest, {"allow": 2})
    assert seconds.now < 0.4 + 20 + 1


def test_calls_of_a_renamed_client_are_replayed_as_those_of_one_client(ada):
    registered = Client.objects.create(client_id="c1", name="Agent")
    ends, at = clock.now() + timedelta(days=1), clock.now()
    for number, (name, client) in enumerate(
        [("Agent", registered), ("Renamed", registered), ("Renamed", None), ("Other", None)]
    ):
        token = ApiToken.objects.create(
            name=name, user=ada, kind="agent", secret_digest=f"{number:064}", expires_at=ends
        )
        Connection.objects.create(token=token, client=client, client_name=name, client_host="agents.example")
        call = held_call(ada, make_tool("send_note", level="cautious"))
        Call.objects.filter(pk=call.pk).update(token=token, started_at=at, finished_at=at, status="completed")
    found = tried(match={"tool": "send_*", "recent": {"count": 3, "seconds": 3600, "by": "token"}})
    assert (dict(found.counts), found.matched) == ({"allow": 3, "deny": 1}, 1)
    found = tried(match={"tool": "send_*", "seen": {"tool": "send_note", "within": 900}})
    assert dict(found.counts) == {"allow": 2, "deny": 2}
