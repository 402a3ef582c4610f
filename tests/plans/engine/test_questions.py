"""Questions to the plan's author: the step waits, is answered once, and its answer is its result."""

from datetime import timedelta

import pytest

from catalog.core import clock
from catalog.errors import Conflict, ParameterError
from plans.actions.control import cancel_plan, pause_plan, resume_plan
from plans.actions.give_input import give_input
from plans.actions.retry import retry_plan
from plans.actions.skip import skip_step
from plans.engine import loop
from plans.engine.cancellation import end_overdue_plans
from plans.models import Plan, Question
from plans.store.requesters import Requester
from plans.store.selectors import memory_of
from plans.web.plan.timeline import interval_events, step_intervals
from tests.builders import act, assert_gapless, call_of, events_of, make_plan, step, step_of, work_off
from tests.invariants import assert_invariants
from tests.rest import Rest, wrong_paths

pytestmark = pytest.mark.django_db
TEXT = ["results", "0"]


def asking(step_id: int = 1, question: str = "Which one?", **fields):
    """Return the document of a step that asks a question."""
    fields = {"expected_key": "which", "output_path": TEXT} | fields
    return step(step_id, "ask_user", parameters={"question": question}, **fields)


@pytest.fixture
def plan(stage, ada) -> Plan:
    """A plan that waits for an answer and then repeats it."""
    return work_off(make_plan(ada, asking(), act(2, "${which}", dependencies=[1])))


def say(plan: Plan, text: str, by) -> Plan:
    give_input(plan, None, None, text=text, by=Requester(by))
    return work_off(plan)


def test_it_waits_and_costs_nothing(plan):
    step = step_of(plan)
    assert (step.status, step.waiting_for, step.call) == ("in_progress", "input", None)
    assert (step.claimed_by, step.lease_until, step.ready_at) == ("", None, None)
    assert events_of(plan)[-3:] == ["1 step.started", "1 step.waiting", "1 input.requested"]
    assert Question.objects.get().text == "Which one?"
    assert_invariants()


def test_the_answer_is_its_result(plan, stage, ada):
    assert say(plan, "  the\r\nred one ", ada).status == "completed"
    assert stage.values("safe") == ["the\nred one"]
    assert memory_of(plan)["values"]["which"] == "the\nred one"
    assert call_of(plan).response_json["results"] == ["the\nred one"]
    assert events_of(plan).count("1 input.received") == 1
    assert_gapless(plan)
    assert_invariants()


def test_time_of_waiting_is_drawn_as_waiting(plan, ada):
    """Also after the answer."""
    before = step_of(plan).waiting_since
    say(plan, "red", ada)
    waits = [
        each for each in step_intervals([step_of(plan)], {1: list(interval_events(plan))}) if each.kind == "waiting"
    ]
    assert [each.start for each in waits] == [before]


def test_events_contain_neither_question_nor_answer(plan, ada):
    say(plan, "the red one", ada)
    events = "".join(plan.events.values_list("data", flat=True))
    assert "red one" not in events
    assert "Which one" not in events


def test_it_is_answered_once(plan, ada):
    give_input(plan, 1, None, text="red", by=Requester(ada))
    with pytest.raises(Conflict):
        give_input(plan, 1, None, text="blue", by=Requester(ada))
    assert Question.objects.get().answer == "red"


@pytest.mark.parametrize("text", ["", " \r\n ", "x" * 4001, "a\0b"])
def test_invalid_answers_are_refused(plan, ada, text):
    with pytest.raises(ParameterError) as caught:
        give_input(plan, None, None, text=text, by=Requester(ada))
    assert caught.value.details["field"] == "text"
    assert step_of(plan).waiting_for == "input"


def test_over_rest(plan, ada, ben, admin):
    path = f"plans/{plan.public_id}/input/"
    assert wrong_paths(Rest(ada).post(path, {})) == ["text"]
    assert wrong_paths(Rest(ada).post(path, {"arguments": {"question": "?"}})) == ["arguments"]
    assert Rest(ada).post(path, {"text": 5}).status_code == 422
    assert Rest(ada).post(path, {"step_id": 7, "text": "red"}).status_code == 404
    assert Rest(ada).post(path, {"step_id": 2, "text": "red"}).status_code == 409
    assert Rest(ben).post(path, {"text": "red"}).status_code == 403
    answer = Rest(admin).post(path, {"step_id": 1, "text": "red"})
    assert (answer.status_code, answer.json()["steps"][0]["waiting_for"]) == (200, None)
    assert Rest(ada).post(path, {"text": "blue"}).status_code == 409


def test_a_question_takes_values_from_memory(stage, ada):
    plan = work_off(make_plan(ada, asking(question="Is it ${what.0}?"), memory={"what": ["blue"]}))
    assert Question.objects.get().text == "Is it blue?"
    assert say(plan, "Yes.", ada).status == "completed"


@pytest.mark.parametrize(("question", "what"), [("Is it a\0b?", ""), ("Is it ${what}?", "a\0b")])
def test_unstorable_characters_in_a_question_are_marked(stage, ada, question, what):
    """In the plan's text and in a tool's result."""
    plan = work_off(make_plan(ada, asking(question=question), memory={"what": what}))
    assert Question.objects.get().text == "Is it a\N{REPLACEMENT CHARACTER}b?"
    assert say(plan, "Yes.", ada).status == "completed"


def test_invalid_question_fails_the_step(stage, ada):
    plan = work_off(make_plan(ada, asking(question="Is it ${what}?"), memory={"what": ["x" * 3000]}))
    assert (plan.status, Question.objects.count()) == ("failed", 0)


def test_skipped_question_lets_dependents_continue(plan, stage, ada):
    skip_step(plan, 1, "Nobody knows.", by=Requester(ada))
    assert work_off(plan).status == "completed"
    assert stage.values("safe") == [{"skipped": True, "reason": "Nobody knows."}]
    assert_invariants()


def test_it_ends_with_its_plan(plan, ada):
    cancel_plan(plan, by=Requester(ada))
    assert step_of(plan).status == "cancelled"
    with pytest.raises(Conflict):
        give_input(plan, 1, None, text="red", by=Requester(ada))
    assert_invariants()


def test_a_deadline_ends_it_and_a_retry_asks_again(stage, ada):
    plan = work_off(make_plan(ada, asking(), deadline_seconds=60))
    Plan.objects.filter(pk=plan.pk).update(deadline_at=clock.now() - timedelta(seconds=1))
    assert end_overdue_plans(clock.now()) == 1
    assert step_of(plan).status == "cancelled"
    retry_plan(plan, by=Requester(ada))
    assert step_of(work_off(plan)).waiting_for == "input"
    assert Question.objects.count() == 1
    assert say(plan, "red", ada).status == "completed"
    assert_invariants()


def test_a_paused_plan_is_answered_and_goes_on_later(plan, stage, ada):
    pause_plan(plan, by=Requester(ada))
    give_input(plan, None, None, text="red", by=Requester(ada))
    assert loop.claim_work(plan.pk, owner="tests") is None
    resume_plan(plan, by=Requester(ada))
    assert work_off(plan).status == "completed"


def test_check_that_becomes_true_does_not_lose_the_answer(stage, ada):
    """The first step's check reads the key of the second question."""
    first, second = asking(1, done_check="other is not None"), asking(2, expected_key="other")
    plan = work_off(make_plan(ada, first, second))
    give_input(plan, 2, None, text="blue", by=Requester(ada))
    work_off(plan)
    give_input(plan, 1, None, text="red", by=Requester(ada))
    work_off(plan)
    assert memory_of(plan)["values"] == {"which": "red", "other": "blue"}


def test_several_are_told_apart(stage, ada):
    plan = work_off(make_plan(ada, asking(1), asking(2, expected_key="other")))
    with pytest.raises(Conflict):
        give_input(plan, None, None, text="red", by=Requester(ada))
    give_input(plan, 2, None, text="red", by=Requester(ada))
    assert (step_of(work_off(plan), 1).status, step_of(plan, 2).status) == ("in_progress", "completed")


def test_direct_call_cannot_ask(catalog, ada):
    body = Rest(ada).post("calls/", {"tool": "ask_user", "arguments": {"question": "Well?"}, "wait_seconds": 0}).json()
    plan = work_off(Plan.objects.get(public_id=body["plan"]))
    assert (plan.status, Question.objects.count()) == ("failed", 0)
    assert "ask_user" in call_of(plan).message


def test_secret_in_an_answer_is_not_stored(plan, ada):
    secret = "ghp_" + "a1B2" * 9
    say(plan, f"It is {secret}", ada)
    assert secret not in Question.objects.get().answer
    assert secret not in call_of(plan).response


def test_others_see_neither_question_nor_answer(plan, ada, vera, rosa):
    say(plan, "the red one", ada)
    seen = {who: Rest(who).get(f"plans/{plan.public_id}/memory/").json()["values"]["which"] for who in (vera, rosa)}
    assert seen == {vera: {"$private": "string"}, rosa: "the red one"}
    assert "Which one" not in Rest(vera).get(f"plans/{plan.public_id}/").content.decode()


def test_person_who_answered_for_the_author_may_not_approve_later_steps(stage, ada, admin):
    plan = work_off(make_plan(ada, asking(), act(2, "${which}", "dangerous", dependencies=[1])))
    say(plan, "red", admin)
    held = call_of(plan, 2)
    assert {each.user_id for each in held.requesters.all()} == {ada.pk, admin.pk}
