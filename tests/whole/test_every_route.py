"""Every address that can be read answers with what it documents, on either database."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

from catalog.access.tokens import create_token
from tests.approvals.factories import add_policy, allow, delivery_to, grant, rolled_back
from tests.builders import act, call_of, make_draft, make_plan, request_of, work_off
from tests.corpus import faults
from tests.plans.agents.scripted import make_agent
from tests.rest import ROOT, Rest
from tests.routes import pages_without_parameters

pytestmark = pytest.mark.db
API = f"/{ROOT.strip('/')}/"
OF_THE_REQUESTER = {"approvals/{public_id}/withdraw/", "plans/draft/{public_id}/start/"}
"""Actions that an administrator may not take on what someone else asked for."""


@pytest.fixture
def places(stage: object, workspace: object, ada: User, admin: User) -> dict[str, str]:
    """Something to read of each kind, by the part of an address that it follows."""
    plan = work_off(make_plan(ada, act(1), act(2, "x", "dangerous", dependencies=[1])))
    allow(admin, max_hours=8, max_uses=20)
    return {
        "agents": make_agent().name,
        "approvals": request_of(plan, 2).public_id,
        "calls": call_of(plan, 1).public_id,
        "deliveries": str(delivery_to(admin, status="failed").pk),
        "draft": make_draft(ada).public_id,
        "grants": grant(admin).public_id,
        "plans": plan.public_id,
        "policies": add_policy(5, effect="deny").policy.public_id,
        "sessions": plan.public_id,
        "steps": "2",
        "tokens": str(create_token(user=admin, kind="agent", scopes=["calls:create"])[0].pk),
        "tools": "dangerous",
    }


def operations(method: str) -> dict[str, Mapping[str, Any]]:
    """Return what the OpenAPI document says of each path that takes this method."""
    document = SchemaGenerator().get_schema(public=True)
    return {path: methods[method] for path, methods in document["paths"].items() if method in methods}


def filled(path: str, places: Mapping[str, str]) -> str:
    """Return the path with something that exists in place of each parameter."""
    return re.sub(r"(\w+)/\{\w+\}", lambda found: f"{found[1]}/{places[found[1]]}", path)


def test_every_path_of_the_api_answers_as_documented(places: dict[str, str], admin: User) -> None:
    rest = Rest(admin)

    def check(path: str, operation: Mapping[str, Any]) -> None:
        answer = rest.get(filled(path, places).removeprefix(API))
        assert answer.status_code == 200
        assert answer["Content-Type"].split(";")[0] in operation["responses"]["200"]["content"]

    assert faults(check, operations("get").items()) == {}


def test_every_post_by_session_reads_its_body(places: dict[str, str], admin: User) -> None:
    """Also one that fits nothing: the CSRF check of a session must not take the body from the view."""
    client = Client(enforce_csrf_checks=True, raise_request_exception=False)
    client.force_login(admin)
    client.get("/plans/new/")
    headers = {"X-CSRFToken": client.cookies[settings.CSRF_COOKIE_NAME].value}

    def post(path: str, body: str = "{}") -> int:
        with rolled_back():
            answer = client.post(filled(path, places), body, content_type="application/json", headers=headers)
        return int(answer.status_code)

    statuses = {path.removeprefix(API): post(path) for path in operations("post")}
    assert {path: status for path, status in statuses.items() if status >= 500 or status == 404} == {}
    assert {path for path, status in statuses.items() if status == 403} == OF_THE_REQUESTER
    assert post(f"{API}plans/check/", '{"goal": "Say hello", "steps": []}') == 200


def test_every_page_without_a_parameter_is_shown(places: dict[str, str], admin: User) -> None:
    """Or redirects, or takes nothing but a form."""
    client = Client(raise_request_exception=False)
    client.force_login(admin)
    pages = pages_without_parameters()

    def check(address: str) -> None:
        assert client.get(address).status_code in (200, 302, 405)

    assert len(pages) > 20
    assert faults(check, pages) == {}
