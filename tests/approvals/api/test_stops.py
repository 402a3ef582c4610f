"""Tests of stops over REST, on their page and by their commands."""

import re
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection

from approvals.api.stops import StopList
from approvals.management.commands import resume
from approvals.models import AuditEntry, Stop
from approvals.stops import services
from catalog.access.tokens import create_token
from catalog.models import Call
from tests.pages import Pages
from tests.plans.agents.scripted import make_agent
from tests.rest import Rest, agent, wrong_paths

EVERYTHING = services.Scope(Stop.Kind.EVERYTHING)
BODY = {"scope": {"everything": True}, "reason": "A bad day."}


def test_stop_is_set_read_and_lifted(rosa, admin, vera):
    answer = Rest(rosa).post("stops/", BODY)
    stop = answer.json()
    assert answer.status_code == 201
    assert (stop["scope"], stop["by"], stop["lifted_at"]) == ({"everything": True}, "rosa", None)
    assert [each["id"] for each in Rest(vera).get("stops/", standing="true").json()["results"]] == [stop["id"]]
    assert Rest(admin).delete(f"stops/{stop['id']}/").status_code == 422
    lifted = Rest(admin).delete(f"stops/{stop['id']}/", {"reason": "Over."})
    assert (lifted.status_code, lifted.json()["lifted_by"]) == (200, "admin")
    assert Rest(admin).delete(f"stops/{stop['id']}/", {"reason": "Over."}).status_code == 409
    assert Rest(vera).get("stops/", standing="true").json()["results"] == []


def test_same_scope_again_answers_with_the_one_that_stands(rosa, admin):
    stop = Rest(rosa).post("stops/", BODY).json()
    again = Rest(admin).post("stops/", BODY)
    assert (again.status_code, again.json()["stop"]["id"]) == (409, stop["id"])
    cancels = Rest(admin).post("stops/", {**BODY, "cancel_running": True})
    assert (cancels.status_code, cancels.json()["id"], cancels.json()["cancel_running"]) == (200, stop["id"], True)
    assert Stop.objects.count() == 1


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({**BODY, "scope": {"tool": "no_such_tool"}}, "scope.tool"),
        ({**BODY, "scope": {}}, "scope"),
        ({**BODY, "reason": ""}, "reason"),
        ({"scope": {"everything": True}}, "reason"),
        ({**BODY, "scope": {"planet": "earth"}}, "scope.planet"),
    ],
)
def test_bad_input_names_the_field_and_stops_nothing(rosa, body, path):
    assert wrong_paths(Rest(rosa).post("stops/", body)) == [path]
    assert not Stop.objects.exists()


def test_only_people_with_the_role_and_the_scope_set_and_lift(ada, rosa, admin):
    assert Rest(rosa, "approvals:read").post("stops/", BODY).status_code == 403
    stop = Rest(rosa, "approvals:decide").post("stops/", BODY).json()
    assert Rest(admin, "approvals:decide").delete(f"stops/{stop['id']}/", {"reason": "Over."}).status_code == 403
    assert agent(admin).post("stops/", BODY).status_code == 403
    assert agent(admin).delete(f"stops/{stop['id']}/", {"reason": "Over."}).status_code == 403
    assert Rest(rosa).delete(f"stops/{stop['id']}/", {"reason": "Over."}).status_code == 403
    assert Rest(ada).post("stops/", BODY).status_code == 403
    assert Rest(admin).delete("stops/stop_nothing/", {"reason": "Over."}).status_code == 404
    assert (
        Rest(admin, "policies:write", "approvals:read")
        .delete(f"stops/{stop['id']}/", {"reason": "Over."})
        .json()["lifted_at"]
    )


def test_answer_says_that_nothing_was_stopped_while_the_database_is_away(rosa, monkeypatch):
    def lose(*_: object) -> None:
        raise OperationalError("gone")

    rest = Rest(rosa)
    monkeypatch.setattr(services, "lock_until_commit", lose)
    answer = rest.post("stops/", BODY)
    assert answer.status_code == 503
    assert "nothing was stopped" in answer.json()["detail"]
    with pytest.raises(CommandError, match="nothing was stopped"):
        call_command("stop", reason="A bad day.")


def test_page_says_that_nothing_changed_while_the_database_is_away(ada, rosa, admin, monkeypatch):
    stop = services.set_stop(EVERYTHING, "A bad day.", by=admin)
    pages, boss = Pages(rosa), Pages(admin)
    pages.open("/stops/"), boss.open("/stops/")

    def lose(*_: object) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr(services, "lock_until_commit", lose)
    fields = {"kind": "requester", "name": "ada", "reason": "Ask me."}
    lift = f"/stops/{stop.public_id}/"
    assert "Nothing was stopped" in pages.send("/stops/", fields, status=503)
    over = {"do": "lift", "reason": "Over."}
    assert "nothing was stopped, lifted or asked to cancel" in boss.send(lift, over, status=503)
    with monkeypatch.context() as away:
        away.setattr(connection, "ensure_connection", lose)  # even who is signed in cannot be read
        assert "Nothing was stopped" in pages.send("/stops/", fields, status=503)
    assert Stop.objects.get().lifted_at is None


def test_page_offers_each_person_only_what_they_may_do(rosa, admin, vera):
    stop = services.set_stop(EVERYTHING, "A bad day.", by=admin)
    path, reviewer = f"/stops/{stop.public_id}/", Pages(rosa)
    assert "Cancel what runs" in reviewer.open("/stops/")
    reviewer.send(path, {"do": "lift", "reason": "Over."}, status=403)
    reviewer.open("/stops/")
    assert "What ran was asked to cancel." in reviewer.send(path, {"do": "cancel", "reason": "Now."})
    assert path not in reviewer.html  # a field without a button
    viewer = Pages(vera)
    viewer.open("/stops/")
    assert "<form" not in viewer.html.split("<main")[1].split("</main>")[0]
    viewer.send("/stops/", {"kind": "everything", "reason": "Me, too."}, status=403)
    assert Stop.objects.get().lifted_at is None


@pytest.mark.parametrize("do", [{}, {"do": ""}, {"do": "Lift"}, {"do": ["cancel", "everything"]}])
def test_page_lifts_no_stop_unless_that_is_said(admin, do):
    stop = services.set_stop(EVERYTHING, "A bad day.", by=admin)
    pages = Pages(admin)
    pages.open("/stops/")
    assert "Unknown action." in pages.send(f"/stops/{stop.public_id}/", {"reason": "only cancel please", **do})
    stop.refresh_from_db()
    assert (stop.lifted_at, stop.cancel_running) == (None, False)


def test_page_has_a_form_for_each_action_on_a_stop(admin):
    stop = services.set_stop(EVERYTHING, "A bad day.", by=admin)
    pages = Pages(admin)
    pages.open("/stops/")
    forms = pages.html.split(f'action="/stops/{stop.public_id}/"')[1:]
    said = [re.findall(r'name="do"\s+value="(\w+)"', form.split("</form>")[0]) for form in forms]
    assert said == [["lift"], ["cancel"]]


def test_page_offers_agents_to_stop(admin):
    make_agent("ann")
    pages = Pages(admin)
    pages.open("/stops/")
    assert '<option value="ann">agent</option>' in pages.html


def test_repeat_after_a_lost_answer_has_its_status(rosa, admin, monkeypatch):
    def lose(*_: object) -> None:
        raise OperationalError("gone")

    body = {**BODY, "cancel_running": True}
    for status in (201, 200):
        rest, key = Rest(rosa), f"key-{status}"
        with monkeypatch.context() as away:
            away.setattr(StopList, "detail_response", lose)
            assert rest.post("stops/", body, key=key).status_code == 503
        again = rest.post("stops/", body, key=key)
        assert (again.status_code, again.json()["id"]) == (status, Stop.objects.get().public_id)


def test_stop_that_is_lifted_while_it_is_used_is_set_anew(rosa, admin, monkeypatch):
    """Somebody asks to stop and to cancel; between the two looks, an administrator lifts the stop that stood."""
    first = services.set_stop(EVERYTHING, "A bad day.", by=rosa)
    cancel_under = services.cancel_under

    def lift_before(stop, *args, **kwargs):
        services.lift_stop(stop, "Over.", by=admin)
        return cancel_under(stop, *args, **kwargs)

    monkeypatch.setattr(services, "cancel_under", lift_before)
    answer = Rest(rosa).post("stops/", {**BODY, "cancel_running": True})
    assert answer.status_code == 201
    standing = Stop.objects.get(lifted_at=None)
    assert (standing.public_id, standing.cancel_running, standing.pk == first.pk) == (answer.json()["id"], True, False)


def test_resume_lifts_what_is_left(ada, admin, monkeypatch):
    """Of two stops, somebody else lifts the first at the same moment."""
    first = services.set_stop(EVERYTHING, "A bad day.", by=admin)
    services.set_stop(services.scope_of_person(ada), "Ask me.", by=admin)
    lift = services.lift_stop

    def lift_second_time(stop, reason, **by):
        if stop == first:
            lift(Stop.objects.get(pk=stop.pk), "Mine.", by=admin)
        return lift(stop, reason, **by)

    monkeypatch.setattr(resume, "lift_stop", lift_second_time)
    out = StringIO()
    call_command("resume", reason="Over.", stdout=out)
    assert not Stop.objects.filter(lifted_at=None).exists()
    assert out.getvalue().count(": lifted.") == 1
    with pytest.raises(CommandError, match="lifted already"):
        call_command("resume", first.public_id, reason="Over.")


def test_resume_says_that_the_database_is_away(admin, monkeypatch):
    services.set_stop(EVERYTHING, "A bad day.", by=admin)

    def lose(*_: object) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr(services, "lock_until_commit", lose)
    with pytest.raises(CommandError, match="not available"):
        call_command("resume", reason="Over.")


def test_direct_call_in_scope_is_503(stage, ada, rosa):
    Rest(rosa).post("stops/", {**BODY, "scope": {"tool": "safe"}})
    answer = Rest(ada).post("calls/", {"tool": "safe", "arguments": {}})
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:toolgate:stopped")
    assert answer.json()["detail"] == "Stopped: A bad day. Do not retry."
    assert not Call.objects.exists()


def test_commands_stop_and_resume(catalog, ada):
    out = StringIO()
    call_command("stop", reason="A bad day.", tool="write_file", stdout=out)
    token, _ = create_token(user=ada, kind="agent", scopes=["calls:create"])
    call_command("stop", reason="A bad day.", token=token.pk, cancel_running=True, stdout=out)
    with pytest.raises(CommandError, match="stopped already"):
        call_command("stop", reason="A bad day.", tool="write_file")
    with pytest.raises(CommandError, match="no such tool"):
        call_command("stop", reason="A bad day.", tool="nothing")
    first = Stop.objects.earliest("pk")
    call_command("resume", first.public_id, reason="Over.", stdout=out)
    call_command("resume", reason="Over.", stdout=out)
    assert not Stop.objects.filter(lifted_at=None).exists()
    with pytest.raises(CommandError, match="Nothing is stopped"):
        call_command("resume", reason="Over.")
    entry = AuditEntry.objects.get(action="stop.lifted", object_ref=first.public_id)
    assert '"through":"manage.py resume"' in entry.details


def test_two_presses_and_a_reason_stop_everything_from_any_page(rosa, admin, vera):
    pages = Pages(rosa)
    pages.open("/plans/")
    assert 'href="/stops/"' in pages.html
    pages.open("/stops/")
    words = pages.send("/stops/", {"kind": "everything", "name": "", "reason": "Bad <b>mails</b>."})
    assert "Stopped: Everything." in words
    seen = Pages(vera).open("/tools/")
    assert "Stopped: Everything. Bad <b>mails</b>. By Rosa" in seen
    boss = Pages(admin)
    boss.open("/stops/")
    assert "lifted. It goes on within a second." in boss.send(
        f"/stops/{Stop.objects.get().public_id}/", {"do": "lift", "reason": "Over."}
    )
    assert "Stopped: Everything" not in Pages(vera).open("/tools/")


def test_page_explains_what_is_wrong_with_the_form(rosa):
    pages = Pages(rosa)
    pages.open("/stops/?tool=nothing")
    assert "There is no such tool." in pages.send("/stops/", {"kind": "tool", "name": "x", "reason": "r"}, status=422)
    pages.send("/stops/", {"kind": "everything", "reason": ""}, status=422)
    assert not Stop.objects.exists()


def test_person_without_a_role_sees_no_names_of_others(ada, admin, client):
    services.set_stop(services.scope_of_person(ada), "Ask me.", by=admin)
    nobody = Pages(admin.__class__.objects.create(username="nobody"))
    assert "Ask me." not in nobody.open("/profile/")
    services.set_stop(EVERYTHING, "All of it.", by=admin)
    assert "All of it." in nobody.open("/profile/")
