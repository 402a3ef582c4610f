"""The list of calls."""

import csv
import io
import re

import pytest

from catalog.models import Call
from plans.models import Plan, Step
from tests.builders import act, call_of, make_plan, step, work_off, write_step
from tests.conftest import person
from tests.pages import Pages

pytestmark = pytest.mark.django_db


def tools_on(pages: Pages) -> list[str]:
    return re.findall(r'entry-title mono"[^>]*>(\w+)<', pages.html)


def test_calls_show_tool_level_status_and_plan(catalog, workspace, ada, vera):
    plan = work_off(make_plan(ada, step(1), write_step(2, dependencies=[1]), goal="Write it down"))
    pages = Pages(vera)
    page = pages.open("/calls/")
    assert tools_on(pages) == [call_of(plan, 2).tool_name, call_of(plan, 1).tool_name]
    assert "Waiting for approval" in page and "Write it down" in page and "Ada" in page and "Dangerous" in page
    assert f'href="/plans/{plan.public_id}/?step=2"' in pages.html
    for query, found in (
        ("status=waiting", 1),
        ("status=failed", 0),
        ("level=safe", 1),
        ("requester=ada&tool=write_file", 1),
    ):
        pages.open(f"/calls/?{query}")
        assert len(tools_on(pages)) == found, query


def test_only_own_calls_without_a_role(catalog, workspace, ada, vera):
    nobody, plan = person("nobody"), work_off(make_plan(ada, step(1)))
    pages = Pages(nobody)
    pages.open("/calls/")
    assert tools_on(pages) == []
    Plan.objects.filter(pk=plan.pk).update(author=nobody)
    pages.open("/calls/")
    assert len(tools_on(pages)) == 1
    assert "formaction" not in pages.html
    assert 'value="nobody"' in pages.html and 'value="ada"' not in pages.html


def test_failed_steps_are_retried_from_the_list(catalog, workspace, ada):
    plan = work_off(make_plan(ada, step(1)))
    Plan.objects.filter(pk=plan.pk).update(status="failed")
    Step.objects.filter(plan=plan).update(status="failed")
    Call.objects.update(status="failed")
    pages = Pages(ada)
    pages.open("/calls/?status=failed")
    assert f'formaction="/plans/{plan.public_id}/retry/" name="step" value="1"' in pages.html
    pages.send(f"/plans/{plan.public_id}/retry/", {"step": "1", "next": pages.field("next")})
    assert "Step 1 will be retried." in pages.html and "/calls/" in pages.html


def test_csv_masks_private_arguments_for_everyone(stage, ada, admin):
    found = act(1, {"email": "jo@example.org"}, "private", expected_key="found")
    work_off(make_plan(ada, found, act(2, {"to": "${found.results}"}, "dangerous", dependencies=[1])))
    answer = Pages(admin).client.get("/calls/?format=csv").getvalue().decode()
    rows = list(csv.DictReader(io.StringIO(answer)))
    assert "$private" in rows[0]["arguments"] and "jo@example.org" not in rows[0]["arguments"]
