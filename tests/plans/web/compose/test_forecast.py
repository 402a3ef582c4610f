"""Tests of the forecast of a plan."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.template.loader import render_to_string
from django.test.utils import CaptureQueriesContext

from approvals.models import PolicyRevision
from approvals.policies.gate import invalidate_rules
from catalog.access.tokens import create_token
from catalog.core import clock
from catalog.models import ApiToken, Call
from plans.models import Agent, AgentRun, Plan, Step
from plans.store.requesters import Requester
from plans.web.compose.forecast import Forecast, Prospect, forecast, forecast_of_plan
from tests.approvals.factories import add_policy, grant, item, let_be_granted, open_envelope, set_rule
from tests.builders import act, make_plan, work_off
from tests.conftest import person
from tests.pages import compact

pytestmark = pytest.mark.usefixtures("stage")
Effect = PolicyRevision.Effect


def forecast_by(author: User, *steps: Any, **fields: Any) -> Forecast:
    """Return the forecast of a document by a person, judged by the rules as they are now."""
    invalidate_rules()
    return forecast({"goal": "Try it", "steps": list(steps), **fields}, Requester(author))


def prospects(found: Forecast) -> dict[int, str]:
    return {number: outlook.prospect.value for number, outlook in found.outlooks.items()}


def proposal(step_id: int, tool: str = "dangerous", purpose: str = "Tidy up") -> dict[str, Any]:
    parameters = {"purpose": purpose, "items": [item(tool)], "minutes": 60}
    return act(step_id, tool="propose_envelope", parameters=parameters)


def test_proposal_of_an_envelope_waits_for_the_people_of_its_items(ada, rosa):
    Group.objects.create(name="finance").user_set.add(rosa)
    add_policy(1, tool="cautious", effect="hold", stages=[{"group": "finance", "count": 1}])
    found = forecast_by(
        ada,
        proposal(1),
        proposal(2, "cautious"),
        proposal(3, "safe"),
        act(4, expected_key="text"),
        proposal(5, purpose="${text.results}") | {"dependencies": [4]},
    )
    assert list(prospects(found).values()) == ["waits", "waits", "refused", "runs", "depends"]
    assert [found.outlooks[number].policies for number in (1, 2)] == [
        ("Dangerous calls wait for a reviewer",),
        ("Policy 1",),
    ]


def test_proposals_under_several_policies_each_name_their_people(ada):
    for order, name, tool in ((1, "finance", "cautious"), (2, "legal", "cautious_patient")):
        Group.objects.create(name=name)
        add_policy(order, tool=tool, effect="hold", stages=[{"group": name, "count": 1}])
    both = [proposal(1, "cautious"), proposal(2, "cautious_patient")]
    for each in both:
        each["parameters"]["items"].append(item())
    found = forecast_by(ada, *both)
    assert ["finance" in found.outlooks[number].people for number in (1, 2)] == [True, False]


def test_each_kind_of_step(ada, rosa):
    add_policy(0, effect=Effect.DENY, tool="cautious", message="Not here.")
    found = forecast_by(
        ada,
        act(1, expected_key="one"),
        act(2, "x", "dangerous", dependencies=[1]),
        act(3, "x", "cautious"),
        act(4, tool="vanished"),
        {"step_id": 5, "description": "A note"},
        act(6, tool="ask_user") | {"parameters": {"question": "Which?"}},
        act(7, dependencies=[8]),
        act(8, dependencies=[7]),
    )
    assert prospects(found) == {
        1: "runs",
        2: "waits",
        3: "refused",
        4: "refused",
        5: "runs",
        6: "asks",
        7: "never",
        8: "never",
    }
    assert found.outlooks[2].people == "Rosa"
    assert (found.outlooks[3].why, found.outlooks[3].policies) == ("Not here.", ("Policy 0",))
    assert found.first == [1, 5, 6]
    assert found.gated == 1


def test_arguments_decide_where_they_are_known(ada, rosa):
    rows = [{"path": "value", "operator": "equals", "value": "pay"}]
    add_policy(0, effect=Effect.HOLD, tool="safe", conditions=rows, stages=[{"group": "reviewer", "count": 1}])
    steps = [act(1, "read", expected_key="one"), act(2, "pay"), act(3, "${given}"), act(4, "${one}", dependencies=[1])]
    found = forecast_by(ada, *steps, memory={"given": "pay"})
    assert prospects(found) == {1: "runs", 2: "waits", 3: "waits", 4: "depends"}
    assert found.outlooks[4].why == "It depends on the result of step 1."
    assert found.outlooks[4].people == "Rosa"


def test_policies_about_arguments_that_the_tool_lacks_are_left_out(ada, rosa):
    rows = [{"path": "command.effects", "operator": "exists"}]
    add_policy(0, effect=Effect.HOLD, conditions=rows, stages=[{"group": "reviewer", "count": 1}])
    found = forecast_by(ada, act(1, expected_key="one"), act(2, "${one}", dependencies=[1]))
    assert prospects(found) == {1: "runs", 2: "runs"}


def test_nobody_may_approve(rosa):
    """The only reviewer is the requester."""
    rosa.groups.add(*rosa.groups.model.objects.filter(name="operator"))
    outlook = forecast_by(rosa, act(1, tool="dangerous")).outlooks[1]
    assert outlook.nobody
    assert outlook.people == "1 reviewer"


def test_limits_of_a_token_refuse(ada):
    token = ApiToken(user=ada, pk=1, limits={"max_level": "safe"})
    steps = [act(1), act(2, tool="dangerous")]
    found = forecast({"goal": "Try", "steps": steps}, Requester(ada, token))
    assert prospects(found) == {1: "runs", 2: "refused"}
    assert "outside the limits" in found.outlooks[2].why


def test_grant_covers_a_step(ada, admin, settings, monkeypatch):
    let_be_granted(admin, settings, monkeypatch)
    made = grant(admin, "ada", rows=[{"path": "value", "operator": "equals", "value": "x"}])
    unknown = act(3, "${one}", "dangerous", dependencies=[1])
    found = forecast_by(ada, act(1, "x", "dangerous", expected_key="one"), act(2, "y", "dangerous"), unknown)
    assert prospects(found) == {1: "granted", 2: "waits", 3: "depends"}
    assert found.outlooks[1].grant == made.public_id


def test_open_envelope_covers_as_many_steps_as_it_has_room_for(ada, rosa, settings, read_anew):
    settings.TOOLGATE_UNDO_SECONDS = 0
    token = create_token(user=ada, kind="agent", scopes=["calls:create"])[0]
    by = Requester(ada, token, "mcp")
    rows = [{"path": "value", "operator": "equals", "value": "x"}]
    sums = item("dangerous_hasty", rows=[], count=9, sum={"path": "value", "at_most": 10})
    made = open_envelope(by, rosa, item(rows=rows, count=2), sums)
    values: list[tuple[Any, str]] = [("x", "dangerous"), ("y", "dangerous"), ("x", "dangerous"), ("x", "dangerous")]
    values += [(6, "dangerous_hasty"), (5, "dangerous_hasty"), (4, "dangerous_hasty")]
    steps = [act(number, value, tool) for number, (value, tool) in enumerate(values, start=1)]
    inside = [1, 3, 5, 7]
    found = forecast({"goal": "Try it", "steps": steps}, by)
    assert [number for number, word in prospects(found).items() if word == "envelope"] == inside
    assert found.outlooks[1].envelope == made.public_id
    assert prospects(forecast_by(ada, *steps))[1] == "waits"  # not through the token
    assert not made.items.filter(used__gt=0).exists()
    plan = make_plan(ada, *steps)
    Plan.objects.filter(pk=plan.pk).update(token=token)
    words = compact(render_to_string("plans/compose/_forecast.html", {"forecast": found}))
    assert "Steps 1, 3, 5 and 7 are inside an approved envelope" in words and made.public_id[:10] in words
    work_off(plan)
    calls = Call.objects.filter(plan_ref=plan.public_id, envelope_use__isnull=False)
    assert sorted(int(ref) for ref in calls.values_list("step_ref", flat=True)) == inside


def test_forecast_with_envelopes_takes_no_query_for_each_step(ada, rosa, settings):
    settings.TOOLGATE_UNDO_SECONDS = 0
    by = Requester(ada, create_token(user=ada, kind="agent", scopes=["calls:create"])[0], "mcp")
    open_envelope(by, rosa, item(count=100), item("dangerous_hasty", count=100))
    counts = []
    for number in (2, 40):
        steps = [act(each, "x", "dangerous") for each in range(1, number + 1)]
        forecast({"goal": "Try it", "steps": steps}, by)
        with CaptureQueriesContext(connection) as queries:
            forecast({"goal": "Try it", "steps": steps}, by)
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_calls_time_and_cost_come_from_history(ada, admin):
    now = clock.now()
    plan = work_off(make_plan(ada, act(1), act(2)))
    Call.objects.filter(tool_name="safe").update(started_at=now - timedelta(seconds=4), finished_at=now)
    agent = Agent.objects.create(name="helper", budget='{"calls": 5, "rounds": 3}', created_at=now, updated_at=now)
    first = Step.objects.get(plan=plan, step_id=1)
    AgentRun.objects.create(step=first, agent=agent, cost=Decimal("0.5"), seconds=6, started_at=now, ended_at=now)
    steps = [act(1), act(2, dependencies=[1]), act(3, tool="patient")]
    found = forecast_by(ada, *steps, {"step_id": 4, "description": "Help", "agent": "helper", "dependencies": [1]})
    assert found.calls == 5  # three attempts of `patient`
    assert found.most_calls == "5 calls, 5 calls by helper, in 3 model turns"
    assert found.seconds == 10
    assert found.untimed == ["patient"]
    assert (found.cost, found.unpriced) == (Decimal("0.5"), [])


def test_agent_of_others_tells_nothing_of_its_history(ada):
    now = clock.now()
    Agent.objects.create(name="helper", budget='{"rounds": 3}', groups='["others"]', created_at=now, updated_at=now)
    found = forecast_by(ada, {"step_id": 1, "description": "Help", "agent": "helper"})
    assert (prospects(found), found.agents) == ({1: "refused"}, [])


def test_arguments_that_are_kept_apart_are_not_judged(ada):
    """A policy of one value may meet them or not; nothing says which."""
    add_policy(0, effect=Effect.DENY, tool="safe", conditions=[{"path": "value", "operator": "equals", "value": "x"}])
    found = forecast_by(ada, act(1, "x"), act(2, "y"), act(3, {"$secret": "value"}))
    assert prospects(found) == {1: "refused", 2: "runs", 3: "depends"}


def test_stored_plan_is_judged_with_its_own_rules_and_changes_nothing(ada, rosa, client):
    plan = make_plan(ada, act(1, "a", "dangerous"), act(2, dependencies=[1]), start=False)
    add_policy(0, effect=Effect.DENY, tool="safe", plan=plan.public_id)
    invalidate_rules()
    with CaptureQueriesContext(connection) as queries:
        found = forecast_of_plan(plan, ada)
    assert prospects(found) == {1: "waits", 2: "refused"}
    assert all(query["sql"].startswith("SELECT") for query in queries)
    client.force_login(ada)
    html = compact(client.get(f"/plans/{plan.public_id}/").content.decode())
    assert "Step 1 waits for approval by Rosa." in html
    assert f'href="/plans/{plan.public_id}/slice/"' in html


@pytest.mark.parametrize("document", [None, [], "text", {"steps": 5}, {"steps": [1]}, {"goal": 1, "steps": [{}]}])
def test_unreadable_document_has_no_forecast(ada, document):
    assert forecast(document, Requester(ada)).total == 0


def test_number_of_queries_does_not_grow_with_steps(ada, rosa):
    def queries(count: int) -> int:
        steps = [act(number, f"v{number}", "dangerous") for number in range(1, count + 1)]
        forecast_by(ada, *steps)
        with CaptureQueriesContext(connection) as made:
            found = forecast_by(ada, *steps)
        assert found.groups[0].outlook.prospect == Prospect.WAITS
        assert found.most_waiting == (100 if count > 100 else None)
        return len(made)

    assert queries(500) == queries(2)


def test_policies_are_linked_for_those_who_may_read_them(ada):
    outsider = person("olaf")
    named = forecast_by(ada, act(1, tool="dangerous")).groups[0].policies
    assert named[0].public_id
    assert not forecast_by(outsider, act(1, tool="dangerous")).groups[0].policies[0].public_id
    assert set_rule().policy.name == named[0].name
