"""Tests of secrets in calls that models request."""

import json

import pytest

from catalog.models import CallSecret
from plans.actions.control import cancel_plan
from plans.agents import secrets
from plans.agents.messages import ToolUse, TurnResult
from plans.store.requesters import Requester
from tests.builders import call_of, work_off
from tests.plans.agents.scripted import agent_plan, make_agent, tools_of
from tests.plans.factories import reply_with_calls, rows_with
from tests.plans.model_server import Reply
from tests.plans.secret_tools import PASSWORD, kept

pytestmark = pytest.mark.django_db(transaction=True)
ODD = "${memory}"
"""A password that looks like a reference."""


def test_secret_written_by_model_is_not_stored(server, keepers, ada):
    make_agent()
    server.says(reply_with_calls(("sign_in", {"user": "ada", "password": PASSWORD})), "Done.")
    plan = work_off(agent_plan(ada))
    assert (plan.status, keepers) == ("completed", [PASSWORD])
    assert (rows_with(PASSWORD), kept()) == ([], 0)
    assert call_of(plan, 2).response_json["results"][0]["calls"][0]["arguments"] == {
        "user": "ada", "password": {"$secret": "password"},
    }  # fmt: skip
    assert PASSWORD not in json.dumps(server.asked)


def test_password_that_looks_like_reference_reaches_tool(server, keepers, ada):
    make_agent()
    server.says(reply_with_calls(("sign_in", {"user": "${ada}", "password": ODD})), "Done.")
    plan = work_off(agent_plan(ada))
    assert (plan.status, keepers) == ("completed", [ODD])


def test_secret_is_not_stored_while_call_is_held(server, keepers, ada):
    make_agent()
    server.says(reply_with_calls(("wipe", {"host": "db1", "password": PASSWORD})), "Done.")
    plan = work_off(agent_plan(ada))
    assert tools_of(plan) == ["agent_turn completed", "wipe in_progress"]
    assert rows_with(PASSWORD) == []
    assert list(CallSecret.objects.values_list("step_ref", flat=True)) == ["3"]
    cancel_plan(plan, by=Requester(ada))
    assert kept() == 0


@pytest.mark.parametrize("wanted", [("sign_in", '{"password": "%s"'), ("sing_in", '{"password": "%s"}')])
def test_arguments_of_impossible_call_are_not_kept(server, keepers, ada, wanted):
    make_agent()
    name, written = wanted
    server.says(Reply(tool_calls=(("c1", name, written % PASSWORD),)), "Done.")
    plan = work_off(agent_plan(ada))
    assert (plan.status, keepers) == ("completed", [])
    assert (rows_with(PASSWORD), kept()) == ([], 0)


def test_call_without_its_secrets_is_refused(server, keepers, ada):
    use = ToolUse(id="c1", tool="sign_in", arguments={"user": "ada", "password": PASSWORD})
    plan = agent_plan(ada)
    sealed = secrets.store_turn_secrets(TurnResult(calls=[use]), plan.public_id, 2)
    assert secrets.restore_turn_secrets(sealed, plan.public_id, 2).calls == [use]
    assert [each.problem for each in secrets.restore_turn_secrets(sealed, plan.public_id, 2).calls] == [
        secrets.SECRETS_GONE
    ]


def test_secrets_are_not_kept_for_ended_plan(server, keepers, ada):
    use = ToolUse(id="c1", tool="sign_in", arguments={"password": PASSWORD})
    plan = agent_plan(ada)
    cancel_plan(plan, by=Requester(ada))
    secrets.store_turn_secrets(TurnResult(calls=[use]), plan.public_id, 2)
    assert kept() == 0


def test_secret_that_looks_like_reference_is_kept(server, keepers):
    (shown,) = secrets.redacted_calls([ToolUse(id="c1", tool="sign_in", arguments={"password": ODD})])
    assert shown.arguments == {"password": {"$secret": "password"}}
