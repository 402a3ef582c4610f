"""Setting and lifting stops, and the calls that they cover."""

import pytest

from approvals.models import AuditEntry, Stop
from approvals.stops.services import (
    AlreadyStopped,
    Scope,
    cancel_under,
    lift_stop,
    may_lift_stops,
    may_set_stops,
    parse_scope,
    set_stop,
)
from approvals.stops.standing import StandingStop, StopFacts, find_covering, standing_stops
from catalog.access.roles import user_for_token
from catalog.errors import Conflict, ParameterError
from catalog.models import ApiToken

EVERYTHING = Scope(Stop.Kind.EVERYTHING)


def test_stop_stands_until_it_is_lifted_and_is_audited(rosa, admin):
    stop = set_stop(EVERYTHING, "A bad day.", by=rosa)
    assert [each.public_id for each in standing_stops()] == [stop.public_id]
    lift_stop(stop, "Over.", by=admin)
    assert standing_stops() == []
    entries = AuditEntry.objects.filter(object_ref=stop.public_id).order_by("seq")
    assert [(each.action, each.actor_name) for each in entries] == [("stop.set", "rosa"), ("stop.lifted", "admin")]
    assert '"reason":"Over."' in entries[1].details


def test_second_stop_of_a_scope_names_the_standing_one_and_can_cancel(rosa, admin):
    stop = set_stop(EVERYTHING, "A bad day.", by=rosa)
    with pytest.raises(AlreadyStopped) as refused:
        set_stop(EVERYTHING, "Me too.", by=admin)
    assert refused.value.stop == stop
    cancel_under(stop, "Still running.", by=admin)
    assert standing_stops()[0].cancel_running
    lift_stop(stop, "Over.", by=admin)
    assert set_stop(EVERYTHING, "Again.", by=rosa).pk != stop.pk


def test_lifting_twice_is_refused(rosa, admin):
    stop = set_stop(EVERYTHING, "A bad day.", by=rosa)
    lift_stop(stop, "Over.", by=admin)
    with pytest.raises(Conflict, match="lifted already"):
        lift_stop(stop, "Over.", by=admin)
    with pytest.raises(Conflict):
        cancel_under(stop, "Still running.", by=admin)


@pytest.mark.parametrize("reason", ["", "  ", None, 5, "x" * 501, "a\0b"])
def test_reason_is_required(rosa, reason):
    with pytest.raises(ParameterError) as refused:
        set_stop(EVERYTHING, reason, by=rosa)
    assert refused.value.details["field"] == "reason"
    assert standing_stops() == []


@pytest.mark.parametrize(
    ("scope", "field"),
    [
        ({}, "scope"),
        ({"tool": "render_text", "source": "text"}, "scope"),
        ({"plan": "p"}, "scope"),
        ({"everything": False}, "scope.everything"),
        ({"tool": "no_such_tool"}, "scope.tool"),
        ({"tool": 5}, "scope.tool"),
        ({"tool": "a\0b"}, "scope.tool"),
        ({"category": "no such"}, "scope.category"),
        ({"source": "no such"}, "scope.source"),
        ({"agent": "nobody"}, "scope.agent"),
        ({"token": 99}, "scope.token"),
        ({"token": True}, "scope.token"),
        ({"token": 2**70}, "scope.token"),
        ({"requester": "nobody"}, "scope.requester"),
    ],
)
def test_scope_that_names_nothing_is_refused(catalog, scope, field):
    with pytest.raises(ParameterError) as refused:
        parse_scope(scope)
    assert refused.value.details["field"] == field


def test_stop_covers_what_its_scope_names(catalog, ada, ben):
    facts = StopFacts([ada.pk], [7], "write_file", ("files",), "workspace", lambda: "helper")
    covered = [("everything", ""), ("tool", "write_file"), ("category", "files"), ("source", "workspace")]
    covered += [("agent", "helper"), ("token", "7"), ("requester", str(ada.pk))]
    others = [("tool", "write"), ("category", ""), ("source", ""), ("agent", ""), ("token", "8")]
    others += [("requester", str(ben.pk))]
    for kind, key in covered + others:
        stop = StandingStop(1, "stop_1", kind, key, "A bad day.", cancel_running=False)
        assert (find_covering([stop], facts) is stop) == ((kind, key) in covered)


def test_people_set_stops_and_administrators_lift_them(ada, rosa, admin):
    assert [may_set_stops(each) for each in (ada, rosa, admin)] == [False, True, True]
    assert [may_lift_stops(each) for each in (ada, rosa, admin)] == [False, False, True]
    token = ApiToken(user=admin, kind=ApiToken.Kind.AGENT)
    agent = user_for_token(token)
    assert not may_set_stops(agent)
    assert not may_lift_stops(agent)
