"""Fixtures: the guide's example module in the catalog, and an object of each kind to read."""

import pytest
from django.contrib.auth.models import Group, User

from approvals.models import Envelope, PushDevice, Stop
from approvals.stops.services import Scope, lift_stop, set_stop
from catalog.access.tokens import create_token
from catalog.connections.models import Connection
from catalog.core import clock
from catalog.inventory import snapshot
from catalog.inventory.sync import sync_tools
from catalog.models import CallBlob, SavedFilter, Source, UngatedRun
from catalog.tools.registry import _TOOLS
from plans.actions.drafts import create_draft
from plans.store.requesters import Requester
from tests.approvals.factories import add_policy, allow, delivery_to, grant, propose
from tests.builders import act, call_of, make_draft, make_http_tool, make_plan, request_of, work_off
from tests.catalog.connections.oauth_client import OAuthClient
from tests.documents import SHOP
from tests.plans.agents.scripted import make_agent
from tests.whole.factories import CALLS, EXAMPLES


@pytest.fixture
def examples(monkeypatch, settings):
    """The module as an installation of it would name it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    settings.TOOLGATE_TOOLS = ["every_style"]


@pytest.fixture
def synced(db, examples, catalog):
    """Its tools in the catalog, and away again afterwards."""
    sync_tools()
    yield
    for name in CALLS:
        _TOOLS.pop(name)
    snapshot.drop_snapshot()


@pytest.fixture
def places(stage: object, workspace: object, ada: User, admin: User) -> dict[str, str]:
    """Something to read of each kind, by the part of an address that it follows."""
    plan = work_off(make_plan(ada, act(1, expected_key="kept"), act(2, "x", "dangerous", dependencies=[1])))
    allow(admin, max_hours=8, max_uses=20)
    draft = make_draft(ada).public_id
    CallBlob.objects.create(call=call_of(plan, 1), number=0, data=b"x")
    device = PushDevice.objects.create(person=admin, name="Firefox", address_key="x", created_at=clock.now())
    OAuthClient.registered().connected(ada)
    connection = Connection.objects.get()
    return {
        "agents": make_agent().name,
        "approvals": request_of(plan, 2).public_id,
        "connect": str(create_token(user=ada, kind="agent", scopes=["calls:create"])[0].pk),
        "calls": call_of(plan, 1).public_id,
        "connections": str(connection.token_id),
        "clients": str(connection.client_id),
        "content": "0",
        "devices": str(device.pk),
        "deliveries": str(delivery_to(admin, status="failed").pk),
        "ask": draft,
        "draft": draft,
        "drafts": create_draft({"goal": "Try it", "steps": [act(1), act(2)]}, by=ada).public_id,
        "envelopes": proposed_envelope(ada).public_id,
        "filters": str(SavedFilter.objects.create(person=ada, list_name="plans", name="Failed", query="").pk),
        "end": "1",
        "for": "approvals",
        "grants": grant(admin).public_id,
        "groups": str(Group.objects.get_or_create(name="finance")[0].pk),
        "groups/name": "finance",
        "help": "policies",
        "passkeys": "1",
        "permissions": call_of(plan, 1).public_id,
        "hooks": "codex",
        "reset": "MQ",
        "http": make_http_tool(admin).name,
        "people": str(ada.pk),
        "people/username": "ada",
        "pictures": "plan-light",
        "plans": plan.public_id,
        "policies": add_policy(5, effect="deny").policy.public_id,
        "sessions": plan.public_id,
        "sources": Source.objects.create(name="shop", kind=Source.Kind.OPENAPI, document=SHOP).name,
        "steps": "2",
        "stops": lifted_stop(admin).public_id,
        "tokens": str(create_token(user=ada, kind="agent", scopes=["calls:create"])[0].pk),
        "tools": "dangerous",
        "runs": str(ungated_run(ada).pk),
        "values": "kept",
    }


def lifted_stop(admin: User) -> Stop:
    """Store a stop that holds nothing up any more."""
    stop = set_stop(Scope(Stop.Kind.EVERYTHING), "A bad day.", by=admin)
    return lift_stop(stop, "Over.", by=admin)


def proposed_envelope(user: User) -> Envelope:
    """Return the envelope that someone proposes for a session."""
    return propose(Requester(user, None, "rest", "errand"), **{"for": {"session": "errand"}})


def ungated_run(user: User) -> UngatedRun:
    """Store a run that nobody allowed."""
    names = {"owner": f"user:{user.pk}", "client": "claude-code", "session": "s1", "client_tool": "Bash"}
    return UngatedRun.objects.create(user=user, reported_at=clock.now(), **names)
