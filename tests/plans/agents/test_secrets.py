"""Secrets that an agent's model writes into its calls: the tool gets them, and nothing that is stored holds them."""

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


def test_a_secret_that_a_model_writes_is_stored_nowhere(server, keepers, ada):
    """The tool gets it; what the model said is told again without it."""
    make_agent()
    server.says(reply_with_calls(("sign_in", {"user": "ada", "password": PASSWORD})), "Done.")
    plan = work_off(agent_plan(ada))
    assert (plan.status, keepers) == ("completed", [PASSWORD])
    assert (rows_with(PASSWORD), kept()) == ([], 0)
    assert call_of(plan, 2).response_json["results"][0]["calls"][0]["arguments"] == {
        "user": "ada", "password": {"$secret": "password"},
    }  # fmt: skip
    assert PASSWORD not in json.dumps(server.asked)


def test_a_password_that_looks_like_a_reference_is_what_the_tool_gets(server, keepers, ada):
    """What a model writes refers to nothing."""
    make_agent()
    server.says(reply_with_calls(("sign_in", {"user": "${ada}", "password": ODD})), "Done.")
    plan = work_off(agent_plan(ada))
    assert (plan.status, keepers) == ("completed", [ODD])


def test_nothing_is_stored_of_it_while_people_are_asked(server, keepers, ada):
    make_agent()
    server.says(reply_with_calls(("wipe", {"host": "db1", "password": PASSWORD})), "Done.")
    plan = work_off(agent_plan(ada))
    assert tools_of(plan) == ["agent_turn completed", "wipe in_progress"]
    assert rows_with(PASSWORD) == []
    assert list(CallSecret.objects.values_list("step_ref", flat=True)) == ["3"]
    cancel_plan(plan, by=Requester(ada))
    assert kept() == 0


@pytest.mark.parametrize("wanted", [("sign_in", '{"password": "%s"'), ("sing_in", '{"password": "%s"}')])
def test_a_call_that_cannot_be_made_is_not_kept_with_it(server, keepers, ada, wanted):
    """Where it cannot be read, or there is no such tool, nobody knows what of it is a secret."""
    make_agent()
    name, written = wanted
    server.says(Reply(tool_calls=(("c1", name, written % PASSWORD),)), "Done.")
    plan = work_off(agent_plan(ada))
    assert (plan.status, keepers) == ("completed", [])
    assert (rows_with(PASSWORD), kept()) == ([], 0)


def test_a_call_whose_secrets_are_gone_is_refused(server, keepers, ada):
    """It does not run with what only shows them."""
    use = ToolUse(id="c1", tool="sign_in", arguments={"user": "ada", "password": PASSWORD})
    plan = agent_plan(ada)
    sealed = secrets.store_turn_secrets(TurnResult(calls=[use]), plan.public_id, 2)
    assert secrets.restore_turn_secrets(sealed, plan.public_id, 2).calls == [use]
    assert [each.problem for each in secrets.restore_turn_secrets(sealed, plan.public_id, 2).calls] == [
        secrets.SECRETS_GONE
    ]


def test_nothing_is_kept_for_a_plan_that_has_ended(server, keepers, ada):
    use = ToolUse(id="c1", tool="sign_in", arguments={"password": PASSWORD})
    plan = agent_plan(ada)
    cancel_plan(plan, by=Requester(ada))
    secrets.store_turn_secrets(TurnResult(calls=[use]), plan.public_id, 2)
    assert kept() == 0


def test_a_secret_that_looks_like_a_reference_is_one(server, keepers):
    (shown,) = secrets.redacted_calls([ToolUse(id="c1", tool="sign_in", arguments={"password": ODD})])
    assert shown.arguments == {"password": {"$secret": "password"}}
