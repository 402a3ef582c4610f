"""Idempotency keys: one response per key, also under concurrency and failures."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from cryptography.fernet import Fernet
from django.contrib.auth.models import Group
from django.db import OperationalError, connection, connections

from catalog.core import clock
from catalog.models import IdempotencyKey
from plans.actions import create
from plans.models import Plan
from tests.builders import act, make_plan, request_of, step, work_off
from tests.rest import Rest, agent, wrong_paths

pytestmark = [pytest.mark.db, pytest.mark.usefixtures("catalog")]
PLAN = {"goal": "Once", "steps": [step(1)], "start": False}


def test_the_same_key_and_body_get_the_first_response(ada):
    rest = Rest(ada)
    first = rest.post("plans/", PLAN, key="k-1")
    again = rest.post(
        "plans/", '{"start": false, "goal": "Once", "steps": ' + f"{PLAN['steps']}".replace("'", '"') + "}", key="k-1"
    )

    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert Plan.objects.count() == 1


def test_repeat_gets_the_first_response_after_a_new_secret_key(ada, settings):
    rest = Rest(ada)
    made = rest.post("plans/", PLAN, key="k-1").json()["id"]
    settings.TOOLGATE_SECRET_KEYS = [Fernet.generate_key().decode(), *settings.TOOLGATE_SECRET_KEYS]
    again = rest.post("plans/", PLAN, key="k-1")
    assert (again.status_code, again.json()["id"], Plan.objects.count()) == (201, made, 1)
    assert rest.post("plans/", {**PLAN, "goal": "Other"}, key="k-1").status_code == 409


def test_another_body_or_path_under_the_same_key_is_409(ada):
    rest = Rest(ada)
    made = rest.post("plans/", PLAN, key="k-1").json()["id"]

    assert rest.post("plans/", {**PLAN, "goal": "Twice"}, key="k-1").status_code == 409
    assert rest.post(f"plans/{made}/start/", PLAN, key="k-1").status_code == 409
    assert Plan.objects.count() == 1


def test_an_error_is_stored_as_the_first_response(ada):
    rest = Rest(ada)
    first = rest.post("plans/", {"goal": ""}, key="k-1")
    again = rest.post("plans/", {"goal": ""}, key="k-1")

    assert first.status_code == again.status_code == 422
    assert first.json() == again.json()
    assert again["Content-Type"] == "application/problem+json"


def test_keys_belong_to_a_token_or_person(ada, ben):
    answers = [client.post("plans/", PLAN, key="k-1").json()["id"] for client in (Rest(ada), Rest(ada), Rest(ben))]

    assert len(set(answers)) == 3


def test_a_stored_response_is_refused_after_a_role_is_lost(stage, ada, rosa):
    secret = "jo@example.org"
    look = act(1, {"email": secret}, "private", expected_key="found")
    tell = act(2, {"to": "${found.results}"}, "dangerous", dependencies=[1])
    request = request_of(work_off(make_plan(ada, look, tell)), 2)
    rest, path = Rest(rosa), f"approvals/{request.public_id}/reviews/"
    body = {"verdict": "reject", "seen_digest": request.digest, "comment": "No."}
    answers = [rest.post(path, body, key="k-1") for _ in range(2)]
    assert [(answer.status_code, secret in answer.content.decode()) for answer in answers] == [(201, True)] * 2

    rosa.groups.set(Group.objects.filter(name="viewer"))
    later = rest.post(path, body, key="k-1")
    assert (later.status_code, later.json()["type"]) == (409, "urn:toolgate:key_reused")
    assert secret not in later.content.decode()


def test_a_running_request_is_409_with_retry_after(ada):
    rest = Rest(ada)
    rest.post("plans/", PLAN, key="k-1")
    IdempotencyKey.objects.update(answer_status=None, done_ref="")
    response = rest.post("plans/", PLAN, key="k-1")

    assert (response.status_code, response["Retry-After"]) == (409, "1")


def test_a_key_whose_process_died_is_taken_over_after_a_minute(ada):
    rest = Rest(ada)
    body = rest.post("plans/", PLAN, key="k-1").json()
    minute = clock.now() - timedelta(seconds=61)
    IdempotencyKey.objects.update(answer_status=None, done_ref="", created_at=minute)

    assert rest.post("plans/", {**PLAN, "goal": "Other"}, key="k-2").status_code == 201
    assert rest.post("plans/", PLAN, key="k-1").json()["id"] != body["id"]


def test_a_slow_request_is_refused_after_its_key_is_taken_over(ada, monkeypatch):
    rest = Rest(ada)
    create_plan, repeated = create.create_plan, []

    def slowly(*arguments, **options):
        IdempotencyKey.objects.update(created_at=clock.now() - timedelta(seconds=61))
        monkeypatch.setattr("plans.actions.create.create_plan", create_plan)
        repeated.append(rest.post("plans/", PLAN, key="k-1"))
        return create_plan(*arguments, **options)

    monkeypatch.setattr("plans.actions.create.create_plan", slowly)
    late = rest.post("plans/", PLAN, key="k-1")

    assert (repeated[0].status_code, late.status_code) == (201, 409)
    assert Plan.objects.count() == 1


def test_a_key_lives_24_hours(ada):
    rest = Rest(ada)
    first = rest.post("plans/", PLAN, key="k-1").json()["id"]
    IdempotencyKey.objects.update(created_at=clock.now() - timedelta(hours=24, seconds=1))

    assert rest.post("plans/", PLAN, key="k-1").json()["id"] != first
    assert IdempotencyKey.objects.count() == 1


def test_an_internal_error_releases_the_key(ada, monkeypatch):
    rest = Rest(ada)
    with monkeypatch.context() as broken:
        broken.setattr("plans.actions.create.create_plan", None)
        assert rest.post("plans/", PLAN, key="k-1").status_code == 500

    assert rest.post("plans/", PLAN, key="k-1").status_code == 201


def test_the_key_is_released_once_the_database_is_back(transactional_db, ada, catalog, monkeypatch):
    def away(execute, sql, params, many, context):
        if sql.startswith("DELETE") and '"id" IN' in sql:
            raise OperationalError("The database is away.")
        return execute(sql, params, many, context)

    rest = Rest(ada)
    with monkeypatch.context() as broken, connection.execute_wrapper(away):
        broken.setattr("plans.actions.create.create_plan", None)
        assert rest.post("plans/", PLAN, key="k-1").status_code == 500

    assert IdempotencyKey.objects.filter(key="k-1").exists()
    assert rest.post("plans/", PLAN, key="k-1").status_code == 201


@pytest.mark.parametrize("key", ["two words", "k" * 256, "é"])
def test_an_invalid_key_is_422(ada, key):
    assert wrong_paths(Rest(ada).post("plans/", PLAN, key=key)) == ["Idempotency-Key"]


def test_sixteen_equal_posts_at_once_make_one_plan(transactional_db, ada, catalog):
    rest = agent(ada, "plans:write", "plans:read")

    def post(_):
        try:
            return rest.post("plans/", PLAN, key="k-16")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(post, range(16)))

    assert {answer.status_code for answer in answers} <= {201, 409}
    assert Plan.objects.count() == 1
    assert len({answer.json()["id"] for answer in answers if answer.status_code == 201}) == 1


def test_a_repeat_after_a_lost_response_is_answered(ada, monkeypatch):
    rest = Rest(ada)
    with monkeypatch.context() as lost:
        lost.setattr("plans.api.plans.PlanEndpoint.detail_response", lost_answer)
        assert rest.post("plans/", PLAN, key="k-1").status_code == 503
    again = rest.post("plans/", PLAN, key="k-1")
    assert (again.status_code, again.json()["id"]) == (201, Plan.objects.get().public_id)
    assert rest.post("plans/", PLAN, key="k-1").json() == again.json()


def lost_answer(*args, **kwargs):
    """Break off as a lost connection does."""
    raise OperationalError("the connection was lost")
