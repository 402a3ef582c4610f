"""REST endpoints of approval requests."""

import pytest
from django.contrib.auth.models import Group

from approvals.policies import eligibility
from tests.rest import Rest, agent, wrong_paths

WRITE = {"tool": "write_file", "arguments": {"path": "a.txt", "content": "x"}, "reason": "To try it"}
FIELDS = {
    *("id", "status", "digest", "tool", "version", "safety_level", "reversibility", "arguments", "preview", "plan"),
    *("step_id", "call", "requester", "requested_by", "reason", "policy", "round", "votes", "thread", "precedent"),
    *("expires_at", "effective_at", "may_decide", "why_not", "superseded_by"),
}


@pytest.fixture
def request_id(catalog, workspace, ada):
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


def test_a_request_has_preview_policy_and_votes(request_id, rosa):
    request = Rest(rosa).get(f"approvals/{request_id}/").json()

    assert set(request) >= FIELDS
    assert (request["status"], request["tool"], request["requested_by"]) == ("pending", "write_file", "ada")
    assert request["arguments"] == WRITE["arguments"]
    assert (request["preview"]["kind"], request["preview"]["after"]) == ("diff", "x")
    assert (request["policy"]["quorum"], request["policy"]["groups"]) == (1, ["reviewer"])
    assert (request["may_decide"], request["why_not"]) == (True, None)
    assert (request["votes"], request["precedent"]) == ([], [])


@pytest.mark.parametrize(("verdict", "status"), [("approve", "approved"), ("reject", "rejected")])
def test_a_review_takes_effect_immediately(request_id, rosa, verdict, status):
    response = review(Rest(rosa), request_id, verdict, comment="Because.")
    request = response.json()

    assert (response.status_code, request["status"], request["may_decide"]) == (201, status, False)
    (vote,) = request["votes"]
    assert (vote["person"], vote["verdict"], vote["comment"], vote["undone_at"]) == ("rosa", verdict, "Because.", None)
    assert request["thread"][0]["text"] == "Because."


def test_second_review_and_stale_digest_are_conflicts(request_id, rosa, tomas):
    stale = review(Rest(rosa), request_id, seen_digest="0" * 64)
    assert (stale.status_code, stale.json()["type"]) == (409, "urn:toolgate:conflict")
    assert review(Rest(rosa), request_id).status_code == 201
    late = review(Rest(tomas), request_id, "reject", comment="No.")
    assert (late.status_code, late.json()["type"]) == (409, "urn:toolgate:conflict")
    assert [vote["person"] for vote in Rest(rosa).get(f"approvals/{request_id}/").json()["votes"]] == ["rosa"]


def test_requester_may_not_decide_before_or_after_a_decision(catalog, workspace, ada):
    ada.groups.add(Group.objects.get(name="reviewer"))
    own = ask(ada)
    body = Rest(ada).get(f"approvals/{own}/").json()
    assert (body["may_decide"], bool(body["why_not"])) == (False, True)
    refused = review(Rest(ada), own)
    assert (refused.status_code, refused.json()["detail"]) == (403, body["why_not"])


def test_agents_do_not_see_requests_of_other_tokens(request_id, ada, ben, vera):
    assert Rest(vera).get(f"approvals/{request_id}/").status_code == 200
    for outsider in (agent(ben), agent(ada)):
        assert outsider.get(f"approvals/{request_id}/").status_code == 404
        assert outsider.post(f"approvals/{request_id}/withdraw/").status_code == 404
        assert outsider.get("approvals/").json()["results"] == []


def test_an_agent_may_not_decide_its_own_request(catalog, workspace, ada):
    rest = agent(ada)
    request = ask(ada, rest)

    assert rest.get(f"approvals/{request}/").json()["may_decide"] is False
    assert review(rest, request).status_code == 403


def test_lists_are_filtered_by_status_tool_plan_and_owner(catalog, workspace, ada, ben, rosa):
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


def test_queries_of_a_list_do_not_grow_with_its_length(catalog, workspace, ada, rosa, django_assert_num_queries):
    rest = Rest(rosa)
    rest.get("approvals/")
    for _ in range(2):
        ask(ada)
        with django_assert_num_queries(11):  # token, keys, duplicates, requests and seven of what belongs to them
            rest.get("approvals/")


def test_a_request_has_precedents(catalog, workspace, ada, rosa):
    rest = Rest(rosa)
    review(rest, ask(ada), "reject", comment="Too early.")
    (earlier,) = rest.get(f"approvals/{ask(ada)}/").json()["precedent"]

    assert (earlier["status"], earlier["decided_by"], earlier["comment"]) == ("rejected", "rosa", "Too early.")


def test_the_requester_withdraws_a_request(catalog, workspace, ada):
    rest = agent(ada)
    request = ask(ada, rest)

    assert rest.post(f"approvals/{request}/withdraw/", {"comment": "Never mind"}).json()["status"] == "withdrawn"
    assert rest.post(f"approvals/{request}/withdraw/").status_code == 409


def test_a_decision_over_rest_cannot_be_undone(request_id, rosa):
    rest = Rest(rosa)
    review(rest, request_id)

    assert rest.post(f"approvals/{request_id}/undo/").status_code == 409


def test_a_repeated_key_reviews_once(request_id, rosa):
    rest = Rest(rosa)
    body = {"verdict": "approve", "seen_digest": rest.get(f"approvals/{request_id}/").json()["digest"]}
    answers = [rest.post(f"approvals/{request_id}/reviews/", body, key="once") for _ in range(2)]

    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()


def test_eligibility_is_checked_once_per_row(catalog, workspace, ada, rosa, monkeypatch):
    judged = []
    for _ in range(3):
        ask(ada)
    monkeypatch.setattr(eligibility, "may_decide", lambda request, viewer: judged.append(request.pk))
    answer = Rest(rosa).get("approvals/")
    assert [each["may_decide"] for each in answer.json()["results"]] == [True] * 3
    assert len(judged) == len(set(judged)) == 3
