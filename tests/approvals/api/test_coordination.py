"""REST endpoints for claims, snoozes, delegations, comments and batches."""

from datetime import timedelta

import pytest

from approvals.models import ApprovalRequest
from catalog.core import clock
from tests.approvals.factories import set_rule
from tests.rest import Rest, agent, wrong_paths


@pytest.fixture
def request_id(catalog, workspace, ada) -> str:
    """The id of a request of ada's agent."""
    return ask(agent(ada))


def ask(rest, **arguments) -> str:
    """Let an agent ask for a dangerous call; return the request's id."""
    body = {"tool": "write_file", "arguments": {"path": "a.txt", "content": "x"} | arguments}
    request_id: str = rest.post("calls/", body).json()["approval"]["id"]
    return request_id


def moment(**ahead: float) -> str:
    """Return a time that far ahead as clients write it."""
    return (clock.now() + timedelta(**ahead)).isoformat()


def test_a_claim_is_shown_and_released(request_id, rosa, tomas):
    rest = Rest(rosa)
    claimed = rest.post(f"approvals/{request_id}/claim/")
    assert (claimed.status_code, claimed.json()["claimed_by"]) == (200, "rosa")
    assert claimed.json()["claimed_until"].endswith("Z")

    assert Rest(tomas).post(f"approvals/{request_id}/claim/").status_code == 409

    released = rest.post(f"approvals/{request_id}/release/", {"comment": ""}).json()
    assert (released["claimed_by"], released["claimed_until"]) == (None, None)
    assert rest.post(f"approvals/{request_id}/release/").status_code == 409


def test_a_snooze_is_shown_to_its_owner(request_id, rosa, tomas):
    until = moment(hours=1)
    snoozed = Rest(rosa).post(f"approvals/{request_id}/snooze/", {"until": until})
    assert snoozed.json()["snoozed_until"] is not None
    assert Rest(tomas).get(f"approvals/{request_id}/").json()["snoozed_until"] is None
    assert [each["id"] for each in Rest(rosa).get("approvals/", status="snoozed").json()["results"]] == [request_id]

    woken = Rest(rosa).post(f"approvals/{request_id}/snooze/", {"until": None})
    assert (woken.status_code, woken.json()["snoozed_until"]) == (200, None)


def test_request_is_extended_in_its_last_hour(request_id, rosa):
    assert Rest(rosa).post(f"approvals/{request_id}/extend/").status_code == 409
    held = ApprovalRequest.objects.filter(public_id=request_id)
    held.update(expires_at=clock.now() + timedelta(minutes=5))
    before = held.get().expires_at
    assert Rest(rosa).post(f"approvals/{request_id}/extend/", {"comment": ""}).status_code == 200
    assert held.get().expires_at - before == timedelta(minutes=30)


def test_a_request_is_delegated_and_the_delegation_ended(request_id, rosa, tomas):
    given = Rest(rosa).post(f"approvals/{request_id}/delegate/", {"to": "tomas"}).json()
    assert (given["delegated_to"], given["delegations"][0]["by"]) == ("tomas", "rosa")
    taken_back = Rest(rosa).post(f"approvals/{request_id}/delegate/", {"to": None}).json()
    assert (taken_back["delegated_to"], taken_back["delegations"]) == (None, [])


def test_a_thread_has_comments_of_people_and_agents(catalog, workspace, ada, rosa):
    bot = agent(ada)
    request = ask(bot)
    rest = Rest(rosa)
    rest.post(f"approvals/{request}/comments/", {"text": "Why now?"})
    said = bot.post(f"approvals/{request}/comments/", {"text": "  Because.\n"})
    assert said.status_code == 200
    assert [(each["by"], each["text"], each["is_agent"]) for each in said.json()["thread"]] == [
        ("rosa", "Why now?", False),
        ("ada", "  Because.\n", True),
    ]
    digest = said.json()["digest"]
    rest.post(f"approvals/{request}/reviews/", {"verdict": "reject", "seen_digest": digest, "comment": "No."})
    thread = rest.get(f"approvals/{request}/").json()["thread"]
    assert [(each["text"], each["verdict"]) for each in thread][2:] == [("No.", "reject")]


WRONG: list[tuple[str, dict[str, object], str]] = [
    ("snooze/", {}, "until"),
    ("snooze/", {"until": 7}, "until"),
    ("snooze/", {"until": "soon"}, "until"),
    ("snooze/", {"until": "2001-01-01T00:00:00Z"}, "until"),
    ("snooze/", {"until": None, "for": "ada"}, "for"),
    ("delegate/", {"to": "nobody"}, "to"),
    ("delegate/", {"to": "ada"}, "to"),
    ("delegate/", {"to": "vera"}, "to"),
    ("delegate/", {"to": 1}, "to"),
    ("comments/", {"text": " "}, "text"),
    ("comments/", {"text": "a" * 4001}, "text"),
    ("comments/", {"text": ["a"]}, "text"),
    ("claim/", {"until": "2030-01-01T00:00:00Z"}, "until"),
]


def test_invalid_bodies_are_refused_with_their_path(request_id, rosa):
    rest = Rest(rosa)
    answers = [(path, body, wrong, rest.post(f"approvals/{request_id}/{path}", body)) for path, body, wrong in WRONG]
    assert [
        (path, body, answer.content)
        for path, body, wrong, answer in answers
        if (answer.status_code, wrong_paths(answer)) != (422, [wrong])
    ] == []


def test_agents_may_not_coordinate(catalog, workspace, ada, ben):
    bot = agent(ada)
    request = ask(bot)
    for path in ("claim/", "release/", "snooze/", "delegate/"):
        assert bot.post(f"approvals/{request}/{path}", {}).status_code == 403
    assert agent(ben).post(f"approvals/{request}/comments/", {"text": "Hi"}).status_code == 404


def test_an_action_is_performed_once_per_key(request_id, rosa):
    rest, said = Rest(rosa), {"text": "Once."}
    answers = [rest.post(f"approvals/{request_id}/comments/", said, key="k1").json() for _ in range(2)]
    assert answers[0] == answers[1]
    assert [each["text"] for each in rest.get(f"approvals/{request_id}/").json()["thread"]] == ["Once."]
    assert rest.post(f"approvals/{request_id}/comments/", {"text": "Twice."}, key="k1").status_code == 409


@pytest.fixture
def many(catalog, workspace, ada) -> list[str]:
    """Three requests that may be approved together."""
    set_rule(batchable=True)
    bot = agent(ada)
    return [ask(bot, path=f"{name}.txt") for name in "abc"]


def seen(rest, ids) -> list[dict[str, str]]:
    """Return the items of someone who has just looked at them."""
    return [{"id": each, "seen_digest": rest.get(f"approvals/{each}/").json()["digest"]} for each in ids]


def test_a_batch_has_a_result_per_item(many, rosa):
    rest = Rest(rosa)
    items = [*seen(rest, many[:2]), {"id": many[2], "seen_digest": "0" * 64}]
    response = rest.post("approvals/batch/", {"verdict": "approve", "items": items}, key="b1")
    assert response.status_code == 200
    *done, stale = response.json()["results"]
    assert done == [{"id": each, "status": "approved"} for each in many[:2]]
    assert (stale["id"], stale["status"]) == (many[2], "conflict")
    again = rest.post("approvals/batch/", {"verdict": "approve", "items": items}, key="b1")
    assert again.json() == response.json()


def test_a_batch_of_snoozes_needs_until(many, rosa):
    rest = Rest(rosa)
    items = [{"id": each} for each in many]
    body = {"verdict": "snooze", "until": moment(minutes=5), "items": items}
    assert {each["status"] for each in rest.post("approvals/batch/", body).json()["results"]} == {"pending"}
    assert len(rest.get("approvals/", status="snoozed").json()["results"]) == 3


NO_BATCH: list[tuple[dict[str, object], str]] = [
    ({"verdict": "respond"}, "verdict"),
    ({"items": []}, "items"),
    ({"items": [{"id": f"apr_{number}", "seen_digest": "0"} for number in range(101)]}, "items"),
    ({"items": [{"id": "apr_1", "seen_digest": "0"}] * 2}, "items"),
    ({"items": [{"id": "apr_1", "digest": "0"}]}, "items.0.digest"),
    ({"until": "2030-01-01T00:00:00Z"}, "until"),
    ({"verdict": "snooze"}, "until"),
]


def test_invalid_batches_are_refused_with_their_path(rosa):
    rest, whole = Rest(rosa), {"verdict": "reject", "items": [{"id": "apr_1", "seen_digest": "0"}]}
    answers = [(change, wrong, rest.post("approvals/batch/", whole | change)) for change, wrong in NO_BATCH]
    assert [
        (change, answer.content)
        for change, wrong, answer in answers
        if (answer.status_code, wrong_paths(answer)) != (422, [wrong])
    ] == []
