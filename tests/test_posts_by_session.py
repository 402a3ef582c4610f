"""Every POST of the API by a signed-in person: their session's check must not take the body from the view."""

import json
import re

from django.conf import settings
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

PLACEHOLDER = re.compile(r"\{(\w+)\}")


def posts() -> list[str]:
    """Return the paths of the API that take a POST, with something in place of what they name."""
    paths = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    return [PLACEHOLDER.sub("1", path) for path, methods in sorted(paths.items()) if "post" in methods]


def test_every_post_reads_its_body(admin, catalog):
    """With a body that fits nothing, and with the smallest plan."""
    client = Client(enforce_csrf_checks=True, raise_request_exception=False)
    client.force_login(admin)
    client.get("/plans/new/")
    headers = {"X-CSRFToken": client.cookies[settings.CSRF_COOKIE_NAME].value}
    answers = {
        path: client.post(path, "{}", content_type="application/json", headers=headers).status_code for path in posts()
    }
    assert len(answers) > 30
    assert {path: status for path, status in answers.items() if status >= 500} == {}
    plan = json.dumps({"goal": "Say hello", "steps": []})
    checked = client.post("/api/v1/plans/check/", plan, content_type="application/json", headers=headers)
    assert checked.status_code == 200
