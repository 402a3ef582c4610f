"""Precedents of a request and their outcomes."""

from typing import Any

import pytest

from approvals.models import ApprovalRequest
from approvals.queue.precedents import MAX_ARGUMENTS_LENGTH, arguments_shape, precedents_for
from approvals.reviews.decisions import decide
from catalog.core.canonical_json import canonical_text
from catalog.models import Call
from catalog.states import CallStatus
from tests.approvals.factories import ask, make_tool, rejection


def asked_with(by, **arguments) -> ApprovalRequest:
    """Return a request for a call with these arguments."""
    request = ask(by)
    Call.objects.filter(pk=request.call_id).update(arguments=canonical_text(arguments))
    request.call.refresh_from_db()
    return request


def test_precedents_of_the_same_tool(ada, rosa):
    requests = [ask(ada) for _ in range(3)]
    other = ask(ada, make_tool("delete_note"))
    for request in (requests[0], requests[1], other):
        decide(request, by=rosa, decision=rejection(request, "No."))
    assert [each.request for each in precedents_for(requests[2])] == [requests[1], requests[0]]
    assert [each.request for each in precedents_for(requests[2], limit=1)] == [requests[1]]
    assert [each.request for each in precedents_for(requests[1])] == [requests[0]]


def test_alike_requests_come_first(ada, rosa):
    places = ("reports/may.txt", "etc/passwd", "reports/june.txt")
    may, passwd, june = (asked_with(ada, path=path) for path in places)
    for request in (may, passwd):
        decide(request, by=rosa, decision=rejection(request, "No."))
    found = precedents_for(june)
    assert [(each.request, each.alike) for each in found] == [(may, True), (passwd, False)]
    assert [each.review.comment for each in found if each.review] == ["No.", "No."]


@pytest.mark.parametrize(
    ("status", "ended", "outcome"),
    [
        ("consumed", CallStatus.COMPLETED, "completed"),
        ("consumed", CallStatus.OUTCOME_UNKNOWN, "outcome_unknown"),
        ("consumed", CallStatus.RUNNING, None),
        ("rejected", CallStatus.FAILED, None),
    ],
)
def test_outcome_of_a_precedent(ada, status, ended, outcome):
    earlier = ask(ada)
    ApprovalRequest.objects.filter(pk=earlier.pk).update(status=status, decided_at=earlier.opened_at)
    Call.objects.filter(pk=earlier.call_id).update(status=ended)
    assert [each.outcome for each in precedents_for(ask(ada))] == [outcome]


SHAPES: list[tuple[dict[str, object], dict[str, object], bool]] = [
    ({"path": "a/b/c.txt"}, {"path": "a/b/d.txt"}, True),
    ({"path": "a/b/c.txt"}, {"path": "a/d.txt"}, False),
    ({"to": "jo@example.org"}, {"to": "al@EXAMPLE.org"}, True),
    ({"to": "jo@example.org"}, {"to": "jo@example.com"}, False),
    ({"url": "https://a.example/x?y=1"}, {"url": "https://a.example/z"}, True),
    ({"url": "https://a.example/x"}, {"url": "https://b.example/x"}, False),
    ({"url": "https://[a"}, {"url": "https://[b"}, True),
    ({"text": "1\n2/3"}, {"text": "hello"}, True),
    ({"count": 1}, {"count": 2}, True),
    ({"count": 1}, {"count": "1"}, False),
    ({"a": 1}, {"a": 1, "b": None}, False),
    ({"at": {"path": "x/y"}}, {"at": {"path": "z/y"}}, False),
    ({"rows": [1]}, {"rows": []}, True),
    ({"a": 1}, {"a": 1, "limit": 5}, True),
]


def shape_of(arguments: dict[str, Any]) -> Any:
    """Return the shape of a call whose tool names one default."""
    return arguments_shape(canonical_text(arguments), {"properties": {"limit": {"default": 5}}})


def test_argument_shapes():
    judged = [(one, other, shape_of(one) == shape_of(other)) for one, other, _ in SHAPES]
    assert judged == SHAPES


def test_too_long_arguments_are_not_alike(ada, rosa):
    texts = {"content": "x" * MAX_ARGUMENTS_LENGTH}
    first, second = asked_with(ada, **texts), asked_with(ada, **texts)
    decide(first, by=rosa, decision=rejection(first, "No."))
    assert [each.alike for each in precedents_for(second)] == [False]
