"""The approval paths: what waits, who may answer, what an answer does."""

import pytest
from django.contrib.auth.models import Group

from approvals import serializers
from tests.rest import Rest, agent, wrong_paths

WRITE = {"tool": "write_file", "arguments": {"path": "a.txt", "content": "x"}, "reason": "To try it"}
FIELDS = {
    *("id", "status", "digest", "tool", "version", "safety_level", "reversibility", "arguments", "preview", "plan"),
    *("step_id", "call", "requester", "requested_by", "reason", "policy", "round", "votes", "thread", "precedent"),
    *("expires_at", "effective_at", "may_decide", "why_not", "superseded_by"),
}


@pytest.fixture
def asked(catalog, workspace, ada):
    """The id of a request of ada's agent."""
    return ask(ada)


def ask(user, rest=None):
    """Let the user's agent ask for a dangerous call; return the request's id."""
    return (rest or agent(user)).post("calls/", WRITE).json()["approval"]["id"]


def review(rest, request_id, verdict="approve", **fields):
    """Answer a request as it is now."""
    seen = rest.get(f"approvals/{request_id}/").json().get("digest", "")
    body = {"verdict": verdict, "seen_digest": seen, **fields}
    return rest.post(f"approvals/{request_id}/reviews/", body)


def test_a_request_tells_what_would_happen_and_who_must_agree(asked, rosa):
    request = Rest(rosa).get(f"approvals/{asked}/").json()

    assert set(request) >= FIELDS
    assert (request["status"], request["tool"], request["requested_by"]) == ("pending", "write_file", "ada")
    assert request["arguments"] == WRITE["arguments"]
    assert (request["preview"]["kind"], request["preview"]["after"]) == ("diff", "x")
    assert (request["policy"]["quorum"], request["policy"]["groups"]) == (1, ["reviewer"])
    assert (request["may_decide"], request["why_not"]) == (True, None)
    assert (request["votes"], request["precedent"]) == ([], [])


@pytest.mark.parametrize(("verdict", "status"), [("approve", "approved"), ("reject", "rejected")])
def test_an_answer_takes_effect_at_once(asked, rosa, verdict, status):
    response = review(Rest(rosa), asked, verdict, comment="Because.")
    request = response.json()

    assert (response.status_code, request["status"], request["may_decide"]) == (201, status, False)
    (vote,) = request["votes"]
    assert (vote["person"], vote["verdict"], vote["comment"], vote["undone_at"]) == ("rosa", verdict, "Because.", None)
    assert request["thread"][0]["text"] == "Because."


def test_the_second_person_is_told_who_decided(asked, rosa, tomas):
    review(Rest(rosa), asked)
    response = review(Rest(tomas), asked, "reject", comment="No.")

    assert response.status_code == 409
    assert "Rosa approved this" in response.json()["detail"]


def test_who_saw_something_else_is_told_so(asked, rosa):
    response = review(Rest(rosa), asked, seen_digest="0" * 64)

    assert response.status_code == 409
    assert "changed" in response.json()["detail"]


def test_nobody_decides_what_they_asked_for(catalog, workspace, ada):
    ada.groups.add(Group.objects.get(name="reviewer"))
    response = review(Rest(ada), ask(ada))

    assert response.status_code == 403
    assert "someone else must decide" in response.json()["detail"]


def test_who_is_no_reviewer_is_told_the_rule(asked, ben, vera):
    for person in (ben, vera):
        response = review(Rest(person), asked)
        assert response.status_code == 403
        assert "reviewer" in response.json()["detail"]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"verdict": "maybe", "seen_digest": "x"}, "verdict"),
        ({"verdict": "approve"}, "seen_digest"),
        ({"verdict": "approve", "seen_digest": 1}, "seen_digest"),
        ({"verdict": "approve", "seen_digest": "x", "by": "tomas"}, "by"),
        ({"verdict": "approve", "seen_digest": "x", "comment": "a\u0000"}, "comment"),
    ],
)
def test_an_answer_that_is_none_is_422(asked, rosa, body, path):
    assert wrong_paths(Rest(rosa).post(f"approvals/{asked}/reviews/", body)) == [path]


def test_what_is_not_yours_is_not_there(asked, ada, ben, vera):
    assert Rest(vera).get(f"approvals/{asked}/").status_code == 200
    for outsider in (agent(ben), agent(ada)):
        assert outsider.get(f"approvals/{asked}/").status_code == 404
        assert outsider.post(f"approvals/{asked}/withdraw/").status_code == 404
        assert outsider.get("approvals/").json()["results"] == []


def test_an_agent_sees_its_own_request_and_never_decides(catalog, workspace, ada):
    rest = agent(ada)
    asked = ask(ada, rest)

    assert rest.get(f"approvals/{asked}/").json()["may_decide"] is False
    assert review(rest, asked).status_code == 403


def test_lists_narrow_by_status_tool_plan_and_owner(catalog, workspace, ada, ben, rosa):
    first, second = ask(ada), ask(ben)
    rest = Rest(rosa)
    review(rest, first)

    def ids(client=rest, **query):
        return [request["id"] for request in client.get("approvals/", **query).json()["results"]]

    assert ids() == [second, first]
    assert ids(status="pending") == [second]
    assert ids(status="approved", tool="write_file") == [first]
    assert ids(tool="delete_file") == []
    assert ids(plan=rest.get(f"approvals/{second}/").json()["plan"]) == [second]
    assert ids(Rest(ada), mine="true") == [first]
    assert wrong_paths(rest.get("approvals/", status="perhaps")) == ["status"]


def test_a_list_costs_the_same_few_queries_however_long(catalog, workspace, ada, rosa, django_assert_num_queries):
    rest = Rest(rosa)
    rest.get("approvals/")
    for _ in range(2):
        ask(ada)
        with django_assert_num_queries(12):  # token, roles, keys, twins, requests and seven of what belongs to them
            rest.get("approvals/")


def test_how_earlier_calls_were_answered_stands_beside_a_request(catalog, workspace, ada, rosa):
    rest = Rest(rosa)
    review(rest, ask(ada), "reject", comment="Too early.")
    (earlier,) = rest.get(f"approvals/{ask(ada)}/").json()["precedent"]

    assert (earlier["status"], earlier["decided_by"], earlier["comment"]) == ("rejected", "rosa", "Too early.")


def test_a_request_is_withdrawn_by_who_asked(catalog, workspace, ada, ben):
    rest = agent(ada)
    asked = ask(ada, rest)

    assert Rest(ben).post(f"approvals/{asked}/withdraw/").status_code == 403
    assert rest.post(f"approvals/{asked}/withdraw/", {"comment": "Never mind"}).json()["status"] == "withdrawn"
    assert rest.post(f"approvals/{asked}/withdraw/").status_code == 409


def test_a_decision_over_rest_cannot_be_undone(asked, rosa):
    rest = Rest(rosa)
    review(rest, asked)

    assert rest.post(f"approvals/{asked}/undo/").status_code == 409


def test_an_answer_repeated_under_its_key_is_one_answer(asked, rosa):
    rest = Rest(rosa)
    body = {"verdict": "approve", "seen_digest": rest.get(f"approvals/{asked}/").json()["digest"]}
    answers = [rest.post(f"approvals/{asked}/reviews/", body, key="once") for _ in range(2)]

    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()


def test_each_row_of_a_list_is_judged_once(catalog, workspace, ada, rosa, monkeypatch):
    """Whether the viewer may decide, and why not, are one question."""
    judged = []
    for _ in range(3):
        ask(ada)
    monkeypatch.setattr(serializers, "may_decide", lambda request, viewer: judged.append(request.pk))
    answer = Rest(rosa).get("approvals/")
    assert [each["may_decide"] for each in answer.json()["results"]] == [True] * 3
    assert len(judged) == len(set(judged)) == 3
