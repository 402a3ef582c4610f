"""REST endpoint of prompts."""

import pytest

from tests.builders import make_draft, make_plan, step
from tests.rest import Rest

pytestmark = pytest.mark.usefixtures("catalog")


def test_the_owner_reads_prompts(ada, admin):
    plan = make_plan(ada, step(1))
    make_draft(ada, plan)
    for reader in (ada, admin):
        rest = Rest(reader)
        first = rest.get(f"plans/{plan.public_id}/prompts/", page_size=1).json()
        assert [(each["purpose"], each["model"]) for each in first["results"]] == [("draft", "scripted")]
        assert first["results"][0]["read"] == [{"by": "To the model", "text": "Try it"}]
        second = rest.client.get(first["next"], headers=rest.headers).json()
        assert [each["purpose"] for each in second["results"]] == ["repair"]


def test_other_users_may_not_read_prompts(ada, rosa, ben):
    plan = make_plan(ada, step(1))
    make_draft(ada, plan)
    for reader in (rosa, ben):
        assert Rest(reader).get(f"plans/{plan.public_id}/prompts/").status_code == 403
    assert Rest(ada).get("plans/plan_none/prompts/").status_code == 404
