"""Every readable route responds as documented, on both databases."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from tests.approvals.factories import rolled_back
from tests.corpus import faults
from tests.rest import ROOT, Rest
from tests.routes import addresses, filled, operations, pages_without_parameters

pytestmark = pytest.mark.db
OF_THE_REQUESTER = {"approvals/{public_id}/withdraw/", "plans/draft/{public_id}/start/"}
"""Actions that an administrator may not take on what someone else asked for."""
TOO_LARGE = "9" * 23
NEEDS_A_QUERY = {"/oauth/authorize/"}
"""Pages to which clients send people with parameters; without these they say what is missing."""


def test_every_path_of_the_api_answers_as_documented(places: dict[str, str], admin: User) -> None:
    rest = Rest(admin)

    def check(path: str, operation: Mapping[str, Any]) -> None:
        answer = rest.get(filled(path, places).removeprefix(ROOT))
        assert answer.status_code == 200
        assert answer["Content-Type"].split(";")[0] in operation["responses"]["200"]["content"]

    assert faults(check, operations("get").items()) == {}


def test_every_post_by_session_reads_its_body(places: dict[str, str], admin: User) -> None:
    """The CSRF check of a session must not consume the body."""
    client = Client(enforce_csrf_checks=True, raise_request_exception=False)
    client.force_login(admin)
    client.get("/plans/new/")
    headers = {"X-CSRFToken": client.cookies[settings.CSRF_COOKIE_NAME].value}

    def post(path: str, body: str = "{}") -> int:
        with rolled_back():
            answer = client.post(filled(path, places), body, content_type="application/json", headers=headers)
        return int(answer.status_code)

    statuses = {path.removeprefix(ROOT): post(path) for path in operations("post")}
    assert {path: status for path, status in statuses.items() if status >= 500 or status == 404} == {}
    assert {path for path, status in statuses.items() if status == 403} == OF_THE_REQUESTER
    assert post(f"{ROOT}plans/check/", '{"goal": "Say hello", "steps": []}') == 200


def test_numbers_beyond_every_column_are_not_found(places: dict[str, str], admin: User) -> None:
    client = Client(raise_request_exception=False)
    client.force_login(admin)
    numbered = [re.sub(r"<(int|number):\w+>", TOO_LARGE, each) for each in addresses()]
    found = [filled(each, places) for each in numbered if TOO_LARGE in each and f"{TOO_LARGE}/<" not in each]
    assert len(found) > 20
    statuses = {path: client.get(path).status_code for path in found}
    assert {path: status for path, status in statuses.items() if status != 404} == {}


def test_every_page_without_a_parameter_is_shown(places: dict[str, str], admin: User) -> None:
    client = Client(raise_request_exception=False)
    client.force_login(admin)
    pages = pages_without_parameters()

    def check(address: str) -> None:
        assert client.get(address).status_code in ((400,) if address in NEEDS_A_QUERY else (200, 204, 302, 405))

    assert len(pages) > 20
    assert faults(check, pages) == {}
