"""Authorization of every operation of the REST API and of every page, by role, from one table.

A row has a letter for each caller: `1` must sign in, `3` is forbidden, `4` finds no such object, `+` is let in, even
when the request is then refused for another reason, such as an empty form. The objects belong to the operator ada.

Callers: anonymous, no role, viewer, another operator, ada, reviewer, administrator; for the REST API also agents of
both operators, which did not make the objects. The states of requests are tested in `tests/approvals/security`.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http.response import HttpResponseBase
from django.test import Client

from tests.approvals.factories import rolled_back
from tests.conftest import person
from tests.pages import without_rendering
from tests.rest import ROOT, Rest, agent
from tests.routes import filled, operations, pages

METHODS = ("get", "post", "patch", "delete")
COMMENT = {"comment": "c"}
REASON = {"reason": "r"}
BODIES: dict[str, Any] = {
    "PATCH tokens/{number}/": {"name": "n"},
    "POST approvals/{public_id}/comments/": {"text": "t"},
    "POST approvals/{public_id}/delegate/": {"to": "tomas"},
    "POST approvals/{public_id}/reveal/": {"path": "value"},
    "POST approvals/{public_id}/reviews/": {"verdict": "reject", "seen_digest": "0" * 64, **COMMENT},
    "POST approvals/{public_id}/snooze/": {"until": "2099-01-01T00:00:00Z"},
    "POST approvals/slice/": {"plan": "PLAN", "items": [{"id": "apr_x", "seen_digest": "0" * 64}]},
    "POST approvals/slice/preview/": {"plan": "PLAN", "count": 1},
    "POST calls/{public_id}/reveal/": {"path": "value"},
    "POST tools/{name}/preview/": {"arguments": {"value": "x"}},
    "POST grants/": {"tool": "dangerous", "arguments": [], "scope": "requester", "scope_ref": "ada"},
    "POST envelopes/{public_id}/end/": {"reason": "r"},
    "POST permissions/{public_id}/result/": {"succeeded": True},
    "POST permissions/{public_id}/resumed/": {"state": "starting", "runner": "r"},
    "POST hooks/{client}/": {"hook_event_name": "PostToolUse"},
    "POST plans/{public_id}/steps/{step_id}/outcome/": {"verdict": "did_not_happen", **COMMENT},
    "POST plans/{public_id}/steps/{step_id}/skip/": {"reason": "r"},
    "POST stops/": {"scope": {"everything": True}, **REASON},
    "DELETE stops/{public_id}/": REASON,
}
"""Bodies that are read before the object is looked for; elsewhere an empty one does."""
FORMS: dict[str, dict[str, str]] = {
    "/agents/<slug:public_id>/": {"do": "save"},
    "/agents/<slug:public_id>/task/": {"task": "x"},
    "/approvals/<slug:public_id>/decision/": {"verdict": "reject", "seen_digest": "0" * 64, **COMMENT},
    "/tools/<slug:name>/change/": {"what": "level", "safety_level": "dangerous", "reason": "r"},
    "/audit/export/": {"format": "jsonl"},
    "/stops/": {"kind": "everything", **REASON},
    "/stops/<slug:public_id>/": {"do": "lift", **REASON},
    "/plans/new/": {"text": '{"goal": "g", "steps": []}', "do": "start"},
    "/policies/<slug:public_id>/": {"do": "save"},
    "/policies/<slug:public_id>/act/": {"do": "end"},
    "/tools/<slug:name>/try/": {"value": "1", "do": "call"},
}
"""Forms without which a page would only be shown again."""
REST: dict[str, str] = {
    "GET agents/": "13+++++++",
    "POST agents/": "133333+33",
    "DELETE agents/{public_id}/": "133333+33",
    "GET agents/{public_id}/": "13+++++++",
    "PATCH agents/{public_id}/": "133333+33",
    "GET approvals/": "1++++++++",
    "POST approvals/batch/": "1++++++33",
    "POST approvals/slice/": "14+++++33",
    "POST approvals/slice/preview/": "14+++++33",
    "GET approvals/{public_id}/": "14+++++44",
    "POST approvals/{public_id}/claim/": "14333++33",
    "POST approvals/{public_id}/comments/": "14+++++44",
    "POST approvals/{public_id}/delegate/": "14333++33",
    "POST approvals/{public_id}/extend/": "14333++33",
    "POST approvals/{public_id}/release/": "14+++++33",
    "POST approvals/{public_id}/reveal/": "14333++33",
    "POST approvals/{public_id}/reviews/": "14333++33",
    "POST approvals/{public_id}/revoke/": "14333++33",
    "POST approvals/{public_id}/snooze/": "14+++++33",
    "POST approvals/{public_id}/undo/": "14+++++33",
    "POST approvals/{public_id}/withdraw/": "1433+3344",
    "GET audit/": "133333+33",
    "GET audit/deliveries/": "133333+33",
    "POST audit/deliveries/{number}/retry/": "133333+33",
    "POST audit/export/": "133333+33",
    "POST audit/verify/": "133333+33",
    "POST calls/": "133++3+++",
    "GET calls/{public_id}/": "14+++++44",
    "GET calls/{public_id}/content/{number}/": "14+++++44",
    "POST calls/{public_id}/reveal/": "1433+++44",
    "GET envelopes/": "1++++++++",
    "POST envelopes/": "133++3+++",
    "GET envelopes/{public_id}/": "14+++++44",
    "POST envelopes/{public_id}/end/": "1433+++44",
    "GET grants/": "1++++++++",
    "POST grants/": "133333+33",
    "DELETE grants/{public_id}/": "14333++33",
    "GET grants/{public_id}/": "14+++++44",
    "GET groups/": "133333+33",
    "POST groups/": "133333333",
    "DELETE groups/{name}/": "133333333",
    "GET groups/{name}/": "133333+33",
    "PATCH groups/{name}/": "133333333",
    "GET insights/": "13+++++33",
    "GET notifications/": "1++++++33",
    "PATCH notifications/": "1++++++33",
    "GET notifications/deliveries/": "1++++++33",
    "GET stops/": "1++++++++",
    "POST stops/": "13333++33",
    "DELETE stops/{public_id}/": "133333+33",
    "GET stops/{public_id}/": "14+++++44",
    "GET people/": "133333+33",
    "POST people/": "133333333",
    "DELETE people/{username}/": "133333333",
    "GET people/{username}/": "133333+33",
    "PATCH people/{username}/": "133333333",
    "POST people/{username}/reset/": "133333333",
    "GET plans/": "1++++++++",
    "POST plans/": "133++3+33",
    "POST plans/check/": "133++3+33",
    "POST plans/draft/": "133++3+++",
    "GET plans/draft/{public_id}/": "14+++++44",
    "POST plans/draft/{public_id}/start/": "1333+3333",
    "GET plans/{public_id}/": "14+++++44",
    "PATCH plans/{public_id}/": "1333+3+33",
    "POST plans/{public_id}/cancel/": "1333+3+33",
    "POST plans/{public_id}/clone/": "133++3+33",
    "GET plans/{public_id}/events/": "14+++++44",
    "POST plans/{public_id}/input/": "1333+3+33",
    "GET plans/{public_id}/memory/": "14+++++44",
    "POST plans/{public_id}/pause/": "1333+3+33",
    "GET plans/{public_id}/prompts/": "1433+3+44",
    "POST plans/{public_id}/resume/": "1333+3+33",
    "POST plans/{public_id}/retry/": "1333+3+33",
    "POST plans/{public_id}/start/": "1333+3+33",
    "POST plans/{public_id}/steps/{step_id}/outcome/": "1333+3+33",
    "POST plans/{public_id}/steps/{step_id}/skip/": "1333+3+33",
    "GET policies/": "13+++++33",
    "POST policies/": "133333+33",
    "POST policies/back-test/": "133333+33",
    "POST policies/sentence/": "133333+33",
    "POST policies/simulate/": "13+++++33",
    "DELETE policies/{public_id}/": "133333+33",
    "GET policies/{public_id}/": "13+++++33",
    "PATCH policies/{public_id}/": "133333+33",
    "GET policies/{public_id}/trial/": "13+++++33",
    "POST permissions/": "133++3+33",
    "GET permissions/deferred/": "133++3+33",
    "POST permissions/{public_id}/result/": "133443433",
    "POST permissions/{public_id}/resumed/": "133443433",
    "POST hooks/{client}/": "133++3+33",
    "GET sessions/": "1++++++++",
    "GET sessions/{public_id}/": "14+++++44",
    "GET sources/": "133333+33",
    "POST sources/": "133333+33",
    "POST sources/preview/": "133333+33",
    "DELETE sources/{name}/": "133333+33",
    "GET sources/{name}/": "133333+33",
    "PATCH sources/{name}/": "133333+33",
    "POST sources/{name}/accept/": "133333+33",
    "POST sources/{name}/sync/": "133333+33",
    "GET tool-schemas/": "13+++++++",
    "GET tools/": "13+++++++",
    "POST tools/": "133333+33",
    "GET tools/{name}/": "13+++++++",
    "PATCH tools/{name}/": "133333+33",
    "GET tools/{name}/outcomes/": "13+++++++",
    "GET tools/{name}/schema/": "13+++++++",
    "POST tools/{name}/preview/": "133++3+33",
    "POST tools/{name}/validate/": "13+++++++",
    "GET tools/{name}/versions/": "13+++++++",
    "GET tokens/": "1++++++++",
    "POST tokens/": "133333333",
    "DELETE tokens/current/": "1++++++++",
    "GET tokens/current/": "1++++++++",
    "DELETE tokens/{number}/": "1444+4344",
    "GET tokens/{number}/": "1444+4+44",
    "PATCH tokens/{number}/": "1444+4344",
}
PAGES: dict[str, str] = {
    "GET /": "1++++++",
    "GET /agents/": "1++++++",
    "GET /agents/<slug:public_id>/": "1++++++",
    "POST /agents/<slug:public_id>/": "333333+",
    "POST /agents/<slug:public_id>/end/": "333333+",
    "POST /agents/<slug:public_id>/task/": "333++3+",
    "GET /agents/new/": "133333+",
    "POST /agents/new/": "333333+",
    "GET /approvals/": "1++++++",
    "POST /approvals/<slug:public_id>/<slug:name>/": "34333++",
    "GET /approvals/<slug:public_id>/change/": "1444444",  # the call of this request has no change to show
    "POST /approvals/<slug:public_id>/decision/sign/": "34333++",
    "POST /approvals/<slug:public_id>/decision/": "34333++",
    "POST /approvals/<slug:public_id>/edit/": "34+++++",
    "GET /approvals/<slug:public_id>/grant/": "1433333",
    "POST /approvals/<slug:public_id>/grant/": "3433333",
    "GET /approvals/<slug:public_id>/result/": "14+++++",
    "POST /approvals/<slug:public_id>/reveal/": "34333++",
    "POST /approvals/<slug:public_id>/undo/": "34+++++",
    "GET /approvals/grants/": "1++++++",
    "POST /approvals/grants/<slug:public_id>/revoke/": "34333++",
    "GET /approvals/decided/": "1++++++",
    "GET /approvals/insights/": "13+++++",
    "GET /approvals/several/": "1++++++",
    "POST /approvals/several/": "3++++++",
    "POST /approvals/undo/": "3++++++",
    "GET /ask/": "1++++++",
    "POST /ask/": "333++3+",
    "GET /ask/<slug:public_id>/": "14+++++",
    "POST /ask/<slug:public_id>/cancel/": "3433+3+",
    "POST /ask/<slug:public_id>/start/": "3433+33",
    "GET /audit/": "133333+",
    "POST /audit/": "333333+",
    "GET /audit/deliveries/": "133333+",
    "POST /audit/deliveries/<number:number>/retry/": "333333+",
    "POST /audit/export/": "333333+",
    "GET /connect/": "1++++++",
    "POST /connect/": "333++3+",
    "GET /connect/<number:pk>/": "1444+44",
    "POST /demo/hide/": "3++++++",
    "GET /demo/steps/": "1++++++",
    "GET /envelopes/": "1++++++",
    "GET /envelopes/<slug:public_id>/": "14+++++",
    "POST /envelopes/<slug:public_id>/end/": "3433+++",
    "GET /envelopes/new/": "1++++++",
    "POST /envelopes/new/": "333++3+",
    "GET /healthz": "+++++++",
    "GET /jump/": "1++++++",
    "GET /metrics": "+++++++",
    "GET /plans/": "1++++++",
    "GET /plans/<slug:public_id>/": "14+++++",
    "POST /plans/<slug:public_id>/cancel/": "3433+3+",
    "GET /plans/<slug:public_id>/change/": "14+++++",
    "POST /plans/<slug:public_id>/change/": "34+++++",
    "GET /calls/": "1++++++",
    "GET /calls/<slug:public_id>/content/<number:number>/": "14+++++",
    "POST /plans/<slug:public_id>/clone/": "343++3+",
    "POST /plans/<slug:public_id>/pause/": "3433+3+",
    "GET /plans/<slug:public_id>/prompts/": "1433+3+",
    "POST /plans/<slug:public_id>/resume/": "3433+3+",
    "POST /plans/<slug:public_id>/retry/": "3433+3+",
    "GET /plans/<slug:public_id>/slice/": "14+++++",
    "POST /plans/<slug:public_id>/slice/": "34+++++",
    "POST /plans/<slug:public_id>/start/": "3433+3+",
    "GET /plans/<slug:public_id>/steps/<number:step_id>/<slug:name>/": "14+++++",
    "GET /plans/<slug:public_id>/steps/<number:step_id>/<slug:name>/file/": "14+++++",
    "POST /plans/<slug:public_id>/steps/<number:step_id>/answer/": "3433+3+",
    "GET /plans/<slug:public_id>/steps/<number:step_id>/input/": "1433+3+",
    "POST /plans/<slug:public_id>/steps/<number:step_id>/input/": "3433+3+",
    "POST /plans/<slug:public_id>/steps/<number:step_id>/outcome/": "3433+3+",
    "POST /plans/<slug:public_id>/steps/<number:step_id>/remind/": "343++++",
    "POST /plans/<slug:public_id>/steps/<number:step_id>/reveal/": "3433+++",
    "POST /plans/<slug:public_id>/steps/<number:step_id>/skip/": "3433+3+",
    "GET /plans/<slug:public_id>/values/<str:key>/": "14+++++",
    "GET /plans/<slug:public_id>/values/<str:key>/file/": "14+++++",
    "GET /plans/drafts/<slug:public_id>/": "144++4+",
    "POST /plans/drafts/<slug:public_id>/": "344++4+",
    "GET /plans/drafts/<slug:public_id>/steps/<number:number>/": "144++4+",
    "POST /plans/drafts/<slug:public_id>/steps/<number:number>/": "344++4+",
    "GET /plans/drafts/<slug:public_id>/plan.json": "144++4+",
    "GET /plans/drafts/<slug:public_id>/plan.yaml": "144++4+",
    "GET /plans/new/": "1++++++",
    "POST /plans/new/": "333++3+",
    "GET /policies/": "13+++++",
    "GET /policies/<slug:public_id>/": "13+++++",
    "POST /policies/<slug:public_id>/": "333333+",
    "POST /policies/<slug:public_id>/act/": "343333+",
    "POST /policies/coding-agent/": "333333+",
    "POST /policies/after-reading/": "333333+",
    "GET /policies/new/": "133333+",
    "POST /policies/new/": "333333+",
    "POST /policies/sentence/": "333333+",
    "GET /policies/simulator/": "13+++++",
    "POST /policies/simulator/": "33+++++",
    "GET /profile/": "1++++++",
    "POST /profile/": "3++++++",
    "POST /profile/choose/": "3++++++",
    "GET /profile/notifications/": "1++++++",
    "POST /profile/notifications/": "3++++++",
    "POST /profile/notifications/devices/": "3++++++",
    "POST /profile/notifications/devices/<number:number>/": "344444+",
    "GET /manifest.webmanifest": "+++++++",
    "GET /readyz": "+++++++",
    "GET /service-worker.js": "+++++++",
    "GET /groups/": "133333+",
    "GET /groups/<number:number>/": "133333+",
    "POST /groups/<number:number>/": "333333+",
    "POST /groups/<number:number>/change/": "333333+",
    "GET /groups/new/": "133333+",
    "POST /groups/new/": "333333+",
    "GET /stops/": "1++++++",
    "POST /stops/": "33333++",
    "POST /stops/<slug:public_id>/": "343333+",
    "GET /people/": "133333+",
    "GET /people/<number:number>/": "133333+",
    "POST /people/<number:number>/": "333333+",
    "POST /people/<number:number>/access/": "333333+",
    "GET /people/new/": "133333+",
    "POST /people/new/": "333333+",
    "GET /help/": "1++++++",
    "GET /help/<path:name>/": "1++++++",
    "GET /help/for/<slug:section>/": "1++++++",
    "GET /help/pictures/<slug:name>.png": "1++++++",
    "GET /settings/": "133333+",
    "GET /usage/": "13+++++",
    "GET /sessions/": "1++++++",
    "GET /sessions/<slug:public_id>/": "14+++++",
    "POST /sessions/runs/<number:pk>/seen/": "333333+",
    "GET /sign-in/": "+++++++",
    "POST /sign-in/": "+++++++",
    "GET /sign-in/code/": "+++++++",
    "POST /sign-in/code/": "+++++++",
    "GET /sign-in/passkey/": "+++++++",
    "POST /sign-in/passkey/": "+++++++",
    "GET /sign-in/sso/": "+++++++",
    "GET /sign-in/sso/callback/": "+++++++",
    "GET /sign-in/reset/": "+++++++",
    "POST /sign-in/reset/": "+++++++",
    "GET /sign-in/reset/<str:uidb64>/": "+++++++",
    "POST /sign-in/reset/<str:uidb64>/": "+++++++",
    "GET /sources/": "133333+",
    "GET /sources/<str:name>/": "133333+",
    "POST /sources/<str:name>/accept/": "333333+",
    "POST /sources/<str:name>/change/": "333333+",
    "POST /sources/<str:name>/sync/": "333333+",
    "GET /sources/http/<slug:name>/change/": "133333+",
    "POST /sources/http/<slug:name>/change/": "333333+",
    "GET /sources/http/new/": "133333+",
    "POST /sources/http/new/": "333333+",
    "GET /sources/new/": "133333+",
    "POST /sources/new/": "333333+",
    "GET /tools/": "1++++++",
    "GET /tools/<slug:name>/": "1++++++",
    "POST /tools/<slug:name>/": "3++++++",
    "POST /tools/<slug:name>/change/": "333333+",
    "GET /tools/<slug:name>/try/": "1++++++",
    "POST /tools/<slug:name>/try/": "333++3+",
    "GET /tools/<slug:name>/versions/": "1++++++",
    "POST /tools/<slug:name>/versions/": "3++++++",
    "GET /welcome/": "+++++++",
    "POST /welcome/": "+++++++",
    "POST /saved-filters/": "3++++++",
    "POST /saved-filters/<number:number>/delete/": "3444+44",
    "GET /profile/security/": "1++++++",
    "GET /profile/security/app/": "1++++++",
    "POST /profile/security/app/": "3++++++",
    "POST /profile/security/app/remove/": "3444444",
    "GET /profile/security/codes/": "1++++++",
    "POST /profile/security/codes/": "3++++++",
    "GET /profile/security/mail/": "1++++++",
    "POST /profile/security/mail/": "3++++++",
    "GET /profile/security/mail/confirm/": "1++++++",
    "POST /profile/security/mail/confirm/": "3++++++",
    "GET /profile/security/passkeys/new/": "1++++++",
    "POST /profile/security/passkeys/new/": "3++++++",
    "POST /profile/security/passkeys/<number:number>/remove/": "3444444",
    "GET /profile/security/password/": "1++++++",
    "POST /profile/security/password/": "3++++++",
    "POST /profile/security/sso/link/": "3++++++",
    "POST /profile/security/sso/unlink/": "3444444",
    "GET /profile/sign-ins/": "1++++++",
    "POST /profile/sign-ins/end/<number:number>/": "3++++++",
    "POST /profile/sign-ins/end-others/": "3++++++",
    "GET /.well-known/oauth-authorization-server": "+++++++",
    "GET /.well-known/oauth-authorization-server/mcp": "+++++++",
    "GET /.well-known/oauth-protected-resource": "+++++++",
    "GET /.well-known/oauth-protected-resource/mcp": "+++++++",
    "GET /oauth/authorize/": "1++++++",
    "POST /oauth/authorize/": "3++++++",
    "POST /oauth/register": "+++++++",
    "POST /oauth/register/": "+++++++",
    "POST /oauth/revoke": "+++++++",
    "POST /oauth/revoke/": "+++++++",
    "POST /oauth/token": "+++++++",
    "POST /oauth/token/": "+++++++",
    "GET /connections/": "1++++++",
    "GET /connections/<number:number>/": "1444+4+",
    "POST /connections/<number:number>/end/": "3444+4+",
    "POST /connections/<number:number>/limits/": "3444+4+",
    "POST /connections/clients/<number:number>/": "333333+",
    "GET /profile/tokens/": "1++++++",
    "GET /profile/tokens/new/": "1++++++",
    "POST /profile/tokens/new/": "3++++++",
    "POST /profile/tokens/tools/": "3++++++",
    "GET /tokens/": "1++++++",
    "GET /tokens/<number:number>/": "1444+4+",
    "POST /tokens/<number:number>/change/": "3444+4+",
    "POST /tokens/<number:number>/limits/": "3444+4+",
    "POST /tokens/<number:number>/revoke/": "3444+4+",
    "POST /tokens/<number:number>/waits/": "3444+4+",
}
NAMES = {"/approvals/": "claim", "/plans/": "arguments"}
"""Values of the last parameter of addresses with two parameters."""


def letter(answer: HttpResponseBase) -> str:
    """Return what an answer says of the caller's right."""
    if answer.status_code == 302 and answer["Location"].startswith("/sign-in/?"):
        return "1"
    return {401: "1", 403: "3", 404: "4"}.get(answer.status_code, "5" if answer.status_code >= 500 else "+")


def row(ask: Callable[[Any], HttpResponseBase], callers: list[Any]) -> str:
    """Return the letters of all callers, empty if the method is not allowed; whatever they change is rolled back."""
    letters = ""
    for each in reversed(callers):
        with rolled_back():
            answer = ask(each)
            if answer.status_code == 405:
                return ""
            letters = letter(answer) + letters
            if answer.streaming:
                list(answer)
    return letters


@pytest.fixture
def people(places: object, tomas: User, ada: User, admin: User) -> list[User | None]:
    """The callers that are people; tomas is another reviewer."""
    others = [person("nobody"), person("vera", "viewer"), person("ben", "operator")]
    return [None, *others, ada, person("rosa", "reviewer"), admin]


def test_every_operation_lets_in_whom_the_table_says(people: list[User | None], places: Mapping[str, str]) -> None:
    callers = [*map(Rest, people), *(agent(each) for each in people[3:5] if each is not None)]

    def ask(method: str, path: str, body: Any, rest: Rest) -> HttpResponseBase:
        sent = {} if method == "get" else {"data": json.dumps(body), "content_type": "application/json"}
        send: Callable[..., HttpResponseBase] = getattr(rest.client, method)
        return send(filled(path, places), headers=rest.headers, **sent)

    found = {}
    for method in METHODS:
        for path in operations(method):
            name = f"{method.upper()} {path.removeprefix(ROOT)}"
            body = {**BODIES.get(name, {})}
            if "plan" in body:
                body["plan"] = places["plans"]
            found[name] = row(partial(ask, method, path, body), callers)
    assert found == REST


def test_every_page_lets_in_whom_the_table_says(people: list[User | None], places: Mapping[str, str]) -> None:
    callers = []
    for each in people:
        client = Client(raise_request_exception=False)
        if each is not None:
            client.force_login(each)
        callers.append(client)

    def ask(method: str, address: str, form: Any, client: Client) -> HttpResponseBase:
        answer: HttpResponseBase = getattr(client, method)(address, form)
        return answer

    found = {}
    for page in set(pages()) - {"/sign-out/"}:
        address = filled(page, places).replace("<slug:name>", NAMES.get(f"/{page.split('/')[1]}/", ""))
        for method in ("get", "post"):
            name = f"{method.upper()} {page}"
            form = FORMS.get(page) if method == "post" else None
            with without_rendering() if method == "post" else nullcontext():
                letters = row(partial(ask, method, address, form), callers)
            if letters:
                found[name] = letters
    assert found == PAGES
