"""REST endpoints of policies."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from approvals.messaging.addresses import decrypt_address
from approvals.models import AuditEntry, Policy, PolicyRevision, TrialResult
from approvals.policies.gate import gate
from catalog.core import clock
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch.pipeline import CallFacts, Hold
from tests.approvals.factories import held_call
from tests.rest import ROOT, Rest, agent, wrong_paths

pytestmark = pytest.mark.django_db
MONEY = {
    "name": "Large payments need two people",
    "order": 5,
    "match": {"tool": "send_*", "arguments": [{"path": "amount", "operator": "greater_than", "value": 1000}]},
    "effect": "hold",
    "stages": [{"group": "reviewer", "count": 1}, {"group": "administrator", "count": 1}],
    "expires_seconds": 3600,
}
WRITTEN = {"path": "a", "content": "x"}
FIELDS = {
    *(
        "name",
        "order",
        "enabled",
        "match",
        "effect",
        "message",
        "stages",
        "expires_seconds",
        "on_expiry",
        "escalate_to",
    ),
    *("batchable", "allow_self_review", "editor_may_approve", "reason_required", "min_review_seconds", "notify", "id"),
}


@pytest.fixture
def rest(admin) -> Rest:
    """An administrator's client."""
    return Rest(admin)


def delete(rest: Rest, path: str) -> Any:
    """Delete what is at a path."""
    return rest.client.delete(ROOT + path, headers=rest.headers)


def kept() -> list[tuple[str, Any]]:
    """Return what the audit log says of policies: what was done, and what changed."""
    entries = AuditEntry.objects.filter(action__startswith="policy.").order_by("seq")
    return [(entry.action, entry.details_json.get("changes")) for entry in entries]


def test_default_policies_are_listed_in_order(rest):
    listed = rest.get("policies/").json()["results"]
    assert [(each["match"]["safety_level"], each["effect"]) for each in listed] == [
        ("dangerous", "hold"),
        ("cautious", "allow"),
        ("safe", "allow"),
    ]
    assert set(listed[0]) >= FIELDS
    assert set(listed[0]["match"]) == {
        *("tool", "category", "safety_level", "source", "requester", "plan", "arguments", "hours", "recent", "seen")
    }


def test_a_new_policy_applies_immediately(rest, django_capture_on_commit_callbacks):
    facts = CallFacts(
        tool_name="send_money", safety_level=SafetyLevel.CAUTIOUS, categories=(), arguments={"amount": 1001}
    )
    gate(facts)
    with django_capture_on_commit_callbacks(execute=True):
        made = rest.post("policies/", MONEY)
    assert made.status_code == 201
    policy = made.json()
    sentence = (
        "Calls of send_* where amount is greater than 1000 need approval by 1 reviewer and 1 administrator within 1 h."
    )
    assert (policy["sentence"], policy["revision"]) == (sentence, 1)
    assert policy["match"]["arguments"] == MONEY["match"]["arguments"]  # type: ignore[index]
    verdict = gate(facts)
    assert isinstance(verdict, Hold)
    assert verdict.terms.quorum == 2
    assert kept() == [("policy.created", None)]


def test_new_terms_make_a_revision(rest):
    policy = rest.post("policies/", MONEY).json()
    path = f"policies/{policy['id']}/"
    changed = rest.patch(
        path, {"stages": [{"group": "reviewer", "count": 2}], "match": {"hours": "Mon-Fri 09:00-17:00"}}
    )
    renamed = rest.patch(path, {"name": "Payments", "order": 6, "enabled": False})
    assert (changed.json()["revision"], renamed.json()["revision"]) == (2, 2)
    assert [each["number"] for each in renamed.json()["revisions"]] == [2, 1]
    first = PolicyRevision.objects.get(policy__public_id=policy["id"], number=1)
    assert (first.hours, first.quorum, first.groups) == ("", 2, ["reviewer", "administrator"])
    assert kept()[1:] == [
        ("policy.changed", ["hours any → Mon-Fri 09:00-17:00", "people 1 reviewer and 1 administrator → 2 reviewers"]),
        ("policy.changed", [f"name {MONEY['name']} → Payments", "order 5 → 6", "switched off"]),
    ]


def test_unchanged_terms_make_no_revision(rest):
    policy = rest.post("policies/", MONEY).json()
    same = rest.patch(f"policies/{policy['id']}/", {"effect": "hold", "match": MONEY["match"]})
    assert (same.status_code, same.json()["revision"], len(kept())) == (200, 1, 1)


def test_the_audit_log_names_conditions_and_not_their_values(rest):
    policy = rest.post("policies/", MONEY).json()
    rows = [{"path": "to", "operator": "equals", "value": "s3cret"}]
    rest.patch(f"policies/{policy['id']}/", {"match": {"arguments": rows}, "message": "s3cret"})
    assert kept()[-1][1] == ["conditions amount greater_than → to equals", "message changed"]
    assert not AuditEntry.objects.filter(details__contains="s3cret").exists()


def test_a_stale_change_is_refused(rest):
    policy = rest.post("policies/", MONEY).json()
    path = f"policies/{policy['id']}/"
    assert rest.patch(path, {"effect": "deny", "revision": 1}).status_code == 200
    assert rest.patch(path, {"effect": "hold", "revision": 1}).status_code == 409


def test_a_policy_is_ended_and_kept(rest):
    policy = rest.post("policies/", MONEY).json()
    path = f"policies/{policy['id']}/"
    ended = delete(rest, path)
    assert (ended.status_code, ended.json()["enabled"], ended.json()["ended_at"] is not None) == (200, False, True)
    assert len(rest.get("policies/").json()["results"]) == 3
    assert [each["id"] for each in rest.get("policies/", ended="true").json()["results"]] == [policy["id"]]
    assert rest.get(path).status_code == 200
    assert rest.patch(path, {"effect": "deny"}).status_code == delete(rest, path).status_code == 409
    assert rest.post("policies/", MONEY).status_code == 201
    assert [action for action, _ in kept()] == ["policy.created", "policy.ended", "policy.created"]


def test_a_repeated_key_creates_one_policy(rest):
    first, again = rest.post("policies/", MONEY, key="k"), rest.post("policies/", MONEY, key="k")
    assert (first.json(), Policy.objects.filter(order=5).count()) == (again.json(), 1)
    assert rest.post("policies/", MONEY | {"name": "Other"}, key="k").status_code == 409


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name"),
    ({"name": "Safe calls run by themselves"}, "name"),
    ({"name": "a\u202eb"}, "name"),
    ({"nmae": "x"}, "nmae"),
    ({"revision": 1}, "revision"),
    ({"effect": "ask"}, "effect"),
    ({"order": -1}, "order"),
    ({"match": {"tol": "x"}}, "match.tol"),
    ({"match": {"tool": "a b"}}, "match.tool"),
    ({"match": {"tool": "[ab]*"}}, "match.tool"),
    ({"match": {"category": " mail"}}, "match.category"),
    ({"match": {"plan": "plan_x "}}, "match.plan"),
    ({"match": {"safety_level": "deadly"}}, "match.safety_level"),
    ({"match": {"requester": "nobody"}}, "match.requester"),
    ({"match": {"requester": "group:nobody"}}, "match.requester"),
    ({"match": {"hours": "9 to 5"}}, "match.hours"),
    ({"match": {"recent": {"count": 0, "seconds": 60, "by": "token"}}}, "match.recent.count"),
    ({"match": {"recent": {"count": 1, "seconds": 2_592_001, "by": "token"}}}, "match.recent.seconds"),
    ({"match": {"recent": {"count": 1, "seconds": 60, "by": "argument:to..iban"}}}, "match.recent.by"),
    ({"match": {"recent": {"count": 1, "seconds": 60, "by": "moon"}}}, "match.recent.by"),
    ({"match": {"seen": {"category": "web", "tool": "read_mail", "within": 60}}}, "match.seen"),
    ({"match": {"seen": {"within": 60}}}, "match.seen"),
    ({"match": {"seen": {"category": "web", "within": 86_401}}}, "match.seen.within"),
    ({"match": {"arguments": [{"path": "a", "operator": "like"}]}}, "match.arguments.0.operator"),
    ({"match": {"arguments": [{"path": "a", "operator": "matches", "value": "(?=a)"}]}}, "match.arguments.0.value"),
    ({"stages": []}, "stages"),
    ({"stages": [{"group": "reviewer", "count": 0}]}, "stages.0.count"),
    ({"stages": [{"group": "reviewer", "count": 21}]}, "stages.0.count"),
    ({"stages": [{"group": "nobodies", "count": 1}]}, "stages.0.group"),
    ({"stages": [{"group": "reviewer", "count": 1}] * 2}, "stages.1.group"),
    ({"expires_seconds": 5}, "expires_seconds"),
    ({"expires_seconds": True}, "expires_seconds"),
    ({"on_expiry": "approve"}, "on_expiry"),
    ({"on_expiry": "escalate"}, "escalate_to"),
    ({"escalate_to": "administrator"}, "escalate_to"),
    ({"on_expiry": "escalate", "escalate_to": "nobodies"}, "escalate_to"),
    ({"min_review_seconds": 601}, "min_review_seconds"),
    ({"notify": ["x"] * 11}, "notify"),
    ({"notify": ["desk@example.org", "desk"]}, "notify.1"),
    ({"notify": ["workflows://evil.example.org/W/S/?template=/etc/passwd"]}, "notify.0"),
    ({"notify": ["https://hooks.example.org/…12345678"]}, "notify.0"),
]


def test_invalid_policies_are_refused_at_the_first_wrong_path(rest):
    wrong = {}
    for change, path in REFUSED:
        answer = rest.post("policies/", MONEY | change)
        if (answer.status_code, wrong_paths(answer)[:1]) != (422, [path]):
            wrong[str(change)] = (answer.status_code, answer.json())
    assert wrong == {}
    assert Policy.objects.count() == 3


HOOKS = [f"https://hooks.example.org/secret-{number}" for number in range(2)]


def revision_of(policy: dict[str, Any]) -> PolicyRevision:
    """Return the revision in force."""
    return PolicyRevision.objects.filter(policy__public_id=policy["id"]).latest("number")


def test_addresses_are_encrypted_and_masked(rest, vera):
    policy = rest.post("policies/", MONEY | {"notify": [*HOOKS, "desk@example.org"]}).json()
    path, shown = f"policies/{policy['id']}/", policy["notify"]
    assert all(each.startswith("https://hooks.example.org/…") for each in shown[:2])
    assert (len(set(shown)), shown[2]) == (3, "desk@example.org")
    assert "secret" not in Rest(vera).get(path).content.decode() + Rest(vera).get("policies/").content.decode()
    assert not PolicyRevision.objects.filter(notify__icontains="secret-").exists()
    same = rest.patch(path, {"notify": [shown[0], HOOKS[1], shown[2]]}).json()
    assert (same["revision"], same["notify"]) == (1, shown)
    assert rest.patch(path, {"notify": [shown[1]], "message": "Why"}).json()["notify"] == [shown[1]]
    [kept_one] = revision_of(policy).notify
    assert decrypt_address(kept_one["channel"], kept_one["ciphertext"]).text == HOOKS[1]
    assert kept()[-1][1] == ["message changed", "notify changed"]


def test_a_policy_can_be_back_tested_as_it_was_read(rest):
    policy = rest.post("policies/", MONEY | {"notify": HOOKS}).json()
    draft = {name: policy[name] for name in ("name", "match", "effect", "stages", "notify")}
    assert rest.post("policies/back-test/", {"policy": draft, "days": 1}).status_code == 200


def test_roles_read_and_administrators_write(admin, ada, rosa, vera):
    path = f"policies/{Rest(admin).post('policies/', MONEY).json()['id']}/"
    for person in (ada, rosa, vera):
        assert Rest(person).get("policies/").status_code == 200
        assert Rest(person).post("policies/", MONEY).status_code == 403
        assert Rest(person).patch(path, {"effect": "deny"}).status_code == delete(Rest(person), path).status_code == 403
    assert Rest(User.objects.create_user("otto")).get("policies/").status_code == 403
    assert agent(admin, "approvals:read").get("policies/").status_code == 403
    assert Rest(admin, "approvals:read").post("policies/", MONEY).status_code == 403
    assert Client().get(f"{ROOT}policies/").status_code == 401
    assert Rest(admin).get("policies/pol_none/").status_code == 404


@pytest.mark.usefixtures("catalog")
def test_a_simulation_explains_the_rule(rest, rosa):
    rest.post("policies/", MONEY)
    answer = Rest(rosa).post("policies/simulate/", {"tool": "write_file", "arguments": WRITTEN})
    assert answer.status_code == 200
    assert answer.json() == {
        "effect": "hold",
        "policy": "Dangerous calls wait for a reviewer",
        "rule": "Dangerous calls wait for a reviewer r1",
        "sentence": "Dangerous calls need approval by 1 reviewer within 24 h.",
        "stages": [{"group": "reviewer", "count": 1}],
        "passed": [
            {
                "policy": "Large payments need two people",
                "reasons": ["write_file is not send_*", "a condition does not hold: amount is greater than 1000"],
            }
        ],
        "derived": None,
        "trials": [],
        "envelopes": [],
    }


@pytest.mark.usefixtures("catalog")
def test_simulation_names_the_policies_on_trial(rest):
    rest.post("policies/", {"name": "Tried", "order": 1, "effect": "deny", "mode": "trial"})
    answer = rest.post("policies/simulate/", {"tool": "write_file", "arguments": WRITTEN}).json()
    assert (answer["effect"], answer["trials"]) == (
        "hold",
        [{"policy": "Tried", "effect": "deny", "sentence": "All calls are blocked."}],
    )


def test_trial_is_read_with_its_calls_and_enforced(rest, rosa, ada):
    made = rest.post("policies/", MONEY | {"mode": "trial"}).json()
    path = f"policies/{made['id']}/trial/"
    now, call = clock.now(), held_call(ada)
    revision = PolicyRevision.objects.get(policy__public_id=made["id"])
    for each, was in ((call, "hold"), (None, "deny")):
        TrialResult.objects.create(revision=revision, call=each, tool_name="t", would="hold", was=was, at=now)
    answer = Rest(rosa).get(path).json()
    assert answer["calls"] == [
        {"call": None, "would": "hold", "was": "deny"},
        {"call": call.public_id, "would": "hold", "was": "hold"},
    ]
    del answer["calls"]
    since = made["created_at"]
    assert answer == {"since": since, "held": 2, "allowed": 0, "denied": 0, "differs": 1}
    assert agent(ada, "tools:read").get(path).status_code == 403
    assert rest.patch(f"policies/{made['id']}/", {"mode": "enforce"}).json()["mode"] == "enforce"
    assert kept()[-1] == ("policy.changed", ["mode trial → enforce"])
    assert rest.get(path).json() == {**dict.fromkeys(answer, 0), "since": None, "calls": []}


STOP = {"name": "Blocked", "effect": "deny", "stop_after": {"count": 5, "seconds": 600}}


def test_stop_after_is_stored_and_said(rest):
    made = rest.post("policies/", STOP).json()
    assert made["stop_after"] == {"count": 5, "seconds": 600}
    said = rest.post("policies/sentence/", STOP).json()
    assert said["also"] == ["More than 5 refused calls in 10 min stop the token."]
    rest.patch(f"policies/{made['id']}/", {"stop_after": None})
    assert kept()[-1] == ("policy.changed", ["stop after 5 calls in 600 s → none"])


@pytest.mark.parametrize(
    ("terms", "paths"),
    [
        ({"stop_after": {"count": 0, "seconds": 600}}, ["stop_after.count"]),
        ({"stop_after": {"count": 10_001, "seconds": 0}}, ["stop_after.count", "stop_after.seconds"]),
        ({"stop_after": {"count": 1, "seconds": 30 * 86_400 + 1}}, ["stop_after.seconds"]),
        ({"stop_after": {"count": 1}}, ["stop_after.seconds"]),
        ({"stop_after": {"count": "1", "seconds": 60}}, ["stop_after.count"]),
        ({"stop_after": 5}, ["stop_after"]),
        ({"effect": "allow"}, ["stop_after"]),
        ({"mode": "off"}, ["mode"]),
    ],
)
def test_wrong_stops_and_modes_are_named(rest, terms, paths):
    refused = rest.post("policies/", STOP | terms)
    assert (refused.status_code, wrong_paths(refused)) == (422, paths)
    assert not Policy.objects.filter(name="Blocked").exists()


@pytest.mark.usefixtures("catalog")
@pytest.mark.parametrize(("at", "effect"), [("2030-02-02T12:00:00Z", "deny"), ("2030-02-04T12:00:00Z", "hold")])
def test_a_simulation_of_another_time(rest, at, effect):
    rest.post("policies/", {"name": "Not now", "order": 1, "effect": "deny", "match": {"hours": "Sat,Sun 00:00-24:00"}})
    answer = rest.post("policies/simulate/", {"tool": "write_file", "arguments": WRITTEN, "at": at})
    assert answer.json()["effect"] == effect


@pytest.mark.usefixtures("catalog")
def test_simulated_arguments_that_the_tool_refuses_are_refused(rest):
    answer = rest.post("policies/simulate/", {"tool": "write_file", "arguments": {"path": "a", "mode": 1}})
    assert (answer.status_code, wrong_paths(answer)) == (422, ["content", "mode"])


@pytest.mark.usefixtures("catalog")
def test_invalid_simulations_are_refused_at_the_wrong_path(rest):
    wrong_places: dict[str, list[dict[str, Any]]] = {
        "tool": [{"tool": "nothing", "arguments": {}}],
        "arguments": [{"arguments": []}],
        "requester": [{"arguments": WRITTEN, "requester": "nobody"}],
        "plan": [{"arguments": {}, "plan": "x"}],
        "at": [{"arguments": {}, "at": "soon"}, {"arguments": {}, "at": "0001-01-01T00:00:00Z"}],
    }
    for path, bodies in wrong_places.items():
        for body in bodies:
            assert wrong_paths(rest.post("policies/simulate/", {"tool": "write_file"} | body)) == [path], body


@pytest.mark.usefixtures("catalog")
def test_a_back_test_over_rest(rest, ada, rosa):
    Rest(ada).post("calls/", {"tool": "write_file", "arguments": {"path": "a", "content": "x"}})
    draft = {"name": "No files", "effect": "deny", "match": {"tool": "*_file"}, "order": 1}
    tested = rest.post("policies/back-test/", {"policy": draft, "days": 7}).json()
    [changed] = tested.pop("changed")
    counted = {"held": 0, "allowed": 0, "denied": 1, "rejected": 0, "other_people": 0, "calls": 1, "matched": 1}
    assert tested == {**counted, "next": None}
    assert (changed["before"], changed["after"]) == ("hold", "deny")
    made = rest.post("policies/", draft).json()
    by_id = rest.post("policies/back-test/", {"policy": made["id"], "days": 7}).json()
    assert by_id["changed"] == [changed]
    assert rest.post("policies/back-test/", {"policy": "pol_none", "days": 7}).status_code == 404
    assert wrong_paths(rest.post("policies/back-test/", {"policy": draft | {"effect": "x"}, "days": 7})) == [
        "policy.effect"
    ]
    assert wrong_paths(rest.post("policies/back-test/", {"policy": draft, "days": 91})) == ["days"]
    assert Rest(rosa).post("policies/back-test/", {"policy": draft, "days": 7}).status_code == 403


def test_a_policy_that_is_not_stored_is_described(rest):
    before = Policy.objects.count()
    described = rest.post("policies/sentence/", MONEY | {"reason_required": True, "notify": ["mailto:a@example.com"]})

    assert described.status_code == 200
    assert "amount" in described.json()["sentence"]
    assert len(described.json()["also"]) == 2
    assert {each["field"] for each in described.json()["warnings"]} <= {"match", "tool", "requester", "stages"}
    assert Policy.objects.count() == before


def test_a_description_of_invalid_terms_names_the_wrong_path(rest):
    wrong = {"name": "n", "effect": "deny", "match": {"arguments": [{"path": "a", "operator": "near", "value": 1}]}}

    assert wrong_paths(rest.post("policies/sentence/", wrong)) == ["match.arguments.0.operator"]
