"""Tests of masked and revealed values on the plan's page."""

import json

import pytest

from approvals.models import AuditEntry
from catalog.calls.privacy import PRIVATE_MARKER
from catalog.errors import ToolError
from plans.web.fragments import PlanRenderer
from tests.builders import act, call_of, make_plan, work_off
from tests.pages import Pages
from tests.plans.factories import PRIVATE_EMAIL, PRIVATE_PATH, private_plan

VIEWS = ("", "?step=1&tab=input", "?step=1&tab=output", "?step=2&tab=input", "?step=2&tab=output", "values/found/")
MORE = ("?path=&as=json", "?q=jo", "?as=model", "?as=text", "file/", "file/?path=email", "file/?path=results.0.email")
RAW = ("values/found/", "steps/1/result/", "steps/1/arguments/", "steps/2/arguments/", "steps/2/result/")


@pytest.fixture
def plan(stage, ada):
    """A plan that looks up a person and passes on the result."""
    return private_plan(ada)


def path_of(plan, more=""):
    """Return the URL of the plan, or of a path below it."""
    return f"/plans/{plan.public_id}/{more}"


@pytest.mark.parametrize("name", ["vera", "ben"])
def test_viewers_see_no_private_value(plan, request, name):
    pages = Pages(request.getfixturevalue(name))
    for more in (*VIEWS, *RAW):
        pages.open(path_of(plan, more))
        assert PRIVATE_EMAIL not in pages.html, more
        assert "/reveal/" not in pages.html, more
    for address in (f"{raw}{more}" for raw in RAW for more in MORE):
        response = pages.client.get(path_of(plan, address))
        assert PRIVATE_EMAIL not in response.getvalue().decode(), address


@pytest.mark.parametrize("name", ["ada", "rosa", "admin"])
def test_private_values_are_masked_until_revealed(plan, request, name):
    pages = Pages(request.getfixturevalue(name))
    pages.open(path_of(plan, "?step=1&tab=output"))
    assert PRIVATE_EMAIL not in pages.html
    assert pages.html.count("/reveal/") == 2 * 4
    assert all(PRIVATE_EMAIL in pages.open(path_of(plan, more)) for more in RAW)


def test_whole_values_are_masked_in_shape(plan, vera):
    client = Pages(vera).client
    text = json.loads(client.get(path_of(plan, "steps/1/result/file/")).getvalue())
    assert text["results"] == [{"email": {PRIVATE_MARKER: "string"}, "seats": [{PRIVATE_MARKER: "number"}]}]
    arguments = json.loads(client.get(path_of(plan, "steps/2/arguments/file/")).getvalue())
    assert arguments == {"value": {"to": {PRIVATE_MARKER: "string"}}}


def test_live_fragments_contain_no_private_value(plan):
    fragments = "".join(PlanRenderer(plan.public_id)().fragments.values())
    assert "private" in fragments
    assert PRIVATE_EMAIL not in fragments


def test_value_is_revealed_without_scripts(plan, rosa):
    pages = Pages(rosa)
    pages.open(path_of(plan, "?step=1&tab=output"))
    text = pages.send(path_of(plan, "steps/1/reveal/"), {"path": PRIVATE_PATH})
    assert PRIVATE_EMAIL in text
    assert pages.html.count("/reveal/") == 2 * 3
    assert AuditEntry.objects.get(action="call.revealed").actor == rosa


def test_value_is_revealed_in_place(plan, rosa):
    pages = Pages(rosa)
    pages.open(path_of(plan, "?step=1&tab=output"))
    response = pages.swap(path_of(plan, "steps/1/reveal/"), "field-2", {"path": PRIVATE_PATH})
    row = response.content.decode()
    assert row.count("<tr") == 1
    assert 'id="field-2"' in row
    assert PRIVATE_EMAIL in row


@pytest.mark.parametrize(
    ("name", "path", "status"), [("vera", PRIVATE_PATH, 403), ("ada", "results.0", 422), ("ada", "", 422)]
)
def test_unrevealable_value_shows_reason(plan, request, name, path, status):
    pages = Pages(request.getfixturevalue(name))
    pages.open(path_of(plan))
    pages.send(path_of(plan, "steps/1/reveal/"), {"path": path}, status=status)
    assert 'role="alert"' in pages.html
    assert not AuditEntry.objects.filter(action="call.revealed").exists()


@pytest.mark.parametrize("number", [1, 7])
def test_step_without_call_has_nothing_to_reveal(stage, ada, number):
    plan = make_plan(ada, act(1, "x", "private"), start=False)
    pages = Pages(ada)
    pages.open(path_of(plan))
    pages.send(path_of(plan, f"steps/{number}/reveal/"), {"path": PRIVATE_PATH}, status=404)


def test_reason_of_private_failure_is_masked(stage, ada, vera):
    def fail(value, context):
        raise ToolError(f"Nobody is called {PRIVATE_EMAIL}")

    stage.acts["private"] = fail
    plan = work_off(make_plan(ada, act(1, "x", "private")))
    assert PRIVATE_EMAIL in Pages(ada).open(path_of(plan))
    assert PRIVATE_EMAIL not in Pages(vera).open(path_of(plan))


@pytest.mark.parametrize(("name", "status"), [("ada", 200), ("vera", 404)])
def test_private_call_is_retried_by_viewers_of_private_values(plan, request, name, status):
    address = f"/tools/private/try/?call={call_of(plan).public_id}"
    assert (PRIVATE_EMAIL in Pages(request.getfixturevalue(name)).open(address, status)) == (status == 200)
