"""Tests that secrets and private results are not sent to the provider."""

from typing import Any

import pytest

from plans.actions.create import create_plan
from plans.actions.give_input import give_input
from plans.models import ModelUse, Plan
from plans.spec import PlanDocument
from plans.store.requesters import Requester
from tests.builders import call_of, work_off
from tests.plans.factories import ANSWER_WITH_CALL, Origin

pytestmark = [pytest.mark.django_db(transaction=True)]
PASSWORD = "correct horse battery"
QUESTION = {"tool": "ask_user", "parameters": {"question": "Which word?"}, "expected_key": "answer"}


def plan_of(*steps: dict[str, Any], by) -> Plan:
    """Store a plan made of a request, and run it as far as possible."""
    numbered = [{"step_id": number, "description": "x"} | step for number, step in enumerate(steps, 1)]
    document = PlanDocument.model_validate({"goal": "Find it", "steps": numbered})
    return work_off(create_plan(document, by=Requester(by), origin=Origin()))


def test_secrets_of_other_steps_are_not_shown_in_repair(keepers, scripted, ada):
    signing = {"tool": "sign_in", "parameters": {"user": "ada", "password": PASSWORD}, "dependencies": [2]}
    plan = plan_of(QUESTION, {"tool": "plan_on", "dependencies": [1]}, signing, by=ada)
    wrong = ANSWER_WITH_CALL | {"tool_calls": [{"tool": "nothing", "args": {}, "reason": "x"}]}
    scripted.says(wrong, ANSWER_WITH_CALL, "Done.")
    give_input(plan, None, None, text="fjord", by=Requester(ada))
    work_off(plan)

    assert "There is no tool called nothing" in scripted.read(1)
    kept = "".join(use.prompt + use.answer for use in ModelUse.objects.all())
    assert PASSWORD not in "".join(map(scripted.read, range(len(scripted.asked)))) + kept


def test_only_messages_of_private_results_are_sent(scripted, workspace, ada):
    look = {"tool": "lookup_registration", "parameters": {"identifier": "one@example.org"}}
    scripted.says("I have found it.")
    plan = plan_of(look, {"tool": "compose_reply", "dependencies": [1]}, by=ada)
    found = call_of(plan, 1).response_json["results"][0]
    private = [str(value) for value in found.values() if isinstance(value, str) and len(value) > 5]
    assert private
    assert [value for value in private if value in scripted.read()] == []
    assert "Its result is private" in scripted.read()
