"""Storing calls: identical undecided calls of a token join, and are stored by one thread at a time."""

from typing import Any

import pytest

from approvals.models import ApprovalRequest
from catalog.access.tokens import create_token, record_first_refusal
from catalog.core import locks
from catalog.models import ApiToken, Call
from plans.actions.call import CallOrder, create_call
from plans.engine.holding import CallBusy
from plans.mcp import calls
from plans.mcp.callers import Caller
from plans.store.requesters import Requester

WRITE = {"path": "a.txt", "content": "x"}


def caller_for(user: Any) -> Caller:
    """Return a caller with a new token."""
    return Caller(create_token(user=user, kind="agent", scopes=["calls:create"])[0], user)


@pytest.fixture
def caller(catalog: None, workspace: Any, ada: Any) -> Caller:
    """An agent that may call tools."""
    return caller_for(ada)


def test_identical_undecided_calls_join_within_their_session_across_interfaces(caller: Caller) -> None:
    def opened(session: str) -> str:
        return calls.open_held_call(caller, "write_file", WRITE, session).call.public_id

    by = Requester(caller.user, caller.token, via="rest", session="s1")
    first = create_call(CallOrder(tool="write_file", arguments=WRITE), by=by).public_id
    others = [opened("s2"), opened("")]
    assert [opened("s1"), opened("s2"), opened("")] == [first, *others] and len({first, *others}) == 3
    ApprovalRequest.objects.update(status="approved")
    assert opened("s1") != first


def test_a_session_of_another_token_is_a_session_of_its_own(caller: Caller, ada: Any) -> None:
    other = caller_for(ada)
    mine = calls.open_held_call(caller, "write_file", WRITE, "s1")
    theirs = calls.open_held_call(other, "write_file", WRITE, "s1")
    assert mine.call.public_id != theirs.call.public_id
    assert mine.request is not None
    assert calls.state_of_approval(other, mine.request.public_id) is None
    assert calls.state_of_approval(other, mine.call.public_id) is None


def test_a_call_that_is_being_stored_for_too_long_is_refused(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "LOCK_SECONDS", 0.05)
    monkeypatch.setattr(locks, "THREAD_LOCKS", 1)
    with locks._thread_locks[0], pytest.raises(CallBusy) as refused:
        calls.open_held_call(caller, "write_file", WRITE, "")
    assert refused.value.retry_after > 0 and not Call.objects.exists()


def test_the_first_refusal_of_a_token_is_kept(caller: Caller) -> None:
    record_first_refusal(caller.token, "no\0such", "There is none.")
    record_first_refusal(ApiToken.objects.get(pk=caller.token.pk), "another", "Later.")
    kept = ApiToken.objects.get(pk=caller.token.pk).first_refusal
    assert kept is not None
    assert (kept["tool"], kept["reason"]) == ("nosuch", "There is none.")
