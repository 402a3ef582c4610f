"""Queries of the audit log: access, filters and pages."""

from datetime import timedelta
from typing import Any

import pytest

from approvals.audit.log import AuditRecord, append_entry
from approvals.audit.queries import AuditFilters, entries_for
from approvals.requests.lifecycle import supersede
from approvals.requests.queries import request_for, requests_audited_since
from approvals.reviews.coordination import comment
from catalog.access.roles import NotAllowed, user_for_token
from catalog.core import clock
from catalog.models import ApiToken
from tests.approvals.factories import ask
from tests.conftest import person


@pytest.fixture
def log(ada, rosa) -> None:
    """Three entries."""
    append_entry(
        AuditRecord(action="approval.opened", by=ada, object_ref="apr_1", tool_name="write_file", plan_ref="plan_1")
    )
    append_entry(AuditRecord(action="approval.decided", by=rosa, object_ref="apr_1", tool_name="write_file"))
    append_entry(
        AuditRecord(action="tool.changed", object_ref="read_file", tool_name="read_file", details={"version": 2})
    )


def test_only_administrators_may_read(log, ada, rosa, vera, admin):
    for reader in (ada, rosa, vera):
        with pytest.raises(NotAllowed):
            entries_for(reader)
    assert entries_for(admin).count() == 3
    token = ApiToken.objects.create(name="bot", user=admin, kind="agent", expires_at=clock.now())
    with pytest.raises(NotAllowed):
        entries_for(user_for_token(token))


FILTERS: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [3, 2, 1]),
    ({"who": "rosa"}, [2]),
    ({"action": "approval.opened"}, [1]),
    ({"tool": "write_file"}, [2, 1]),
    ({"q": "APR_1"}, [2, 1]),
    ({"q": "apr_1 plan_1"}, [1]),
    ({"q": "version"}, [3]),
    ({"q": "%"}, []),
    ({"before": 3}, [2, 1]),
    ({"tool": "write_file", "before": 2}, [1]),
]


def test_filters(log, admin):
    for filters, expected in FILTERS:
        assert [entry.seq for entry in entries_for(admin, AuditFilters(**filters))] == expected, filters


def test_time_span_filter(log, admin):
    second = entries_for(admin).get(seq=2).at
    after = second + timedelta(microseconds=1)
    assert [entry.seq for entry in entries_for(admin, AuditFilters(since=second, until=after))] == [2]


def test_page_needs_one_query(log, admin, django_assert_num_queries):
    entries = entries_for(admin)
    with django_assert_num_queries(1):
        assert [entry.actor.username if entry.actor else None for entry in entries] == [None, "rosa", "ada"]


def test_requests_audited_since_an_entry(ada, rosa, admin):
    old, said_of, left_alone = ask(ada), ask(ada), ask(ada)
    number = request_for(rosa, left_alone.public_id).audit_seq  # type: ignore[attr-defined] # see request_for
    assert not requests_audited_since(rosa, number)
    comment(said_of, by=rosa, text="Is this right?")
    supersede(old.call, new := ask(ada))
    assert set(requests_audited_since(rosa, number)) == {old, said_of, new}
    assert not requests_audited_since(person("stranger"), number)
