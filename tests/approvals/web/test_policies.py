"""Pages of policies without JavaScript: list, editor, simulator and back-test."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from approvals.models import Policy, PolicyRevision, TrialResult
from approvals.policies import backtest, shipped
from approvals.reviews.decisions import decide
from approvals.web.policies.forms import DurationField, PolicyForm
from catalog.core import clock
from tests.approvals.factories import POLICY_ROWS, approval, ask, held_call, make_tool
from tests.conftest import forget_what_was_read
from tests.pages import Pages, words
from tests.rest import Rest

pytestmark = pytest.mark.django_db
PAGE_BUDGET, REPORT_BUDGET = 22, 5
"""Queries of the page of a policy on trial, and of its report over REST."""
WRITTEN = '{"path": "a", "content": "x"}'
FORM = POLICY_ROWS | {
    "name": "Large payments",
    "order": "5",
    "tool": "send_*",
    "effect": "hold",
    "row-0-path": "amount",
    "row-0-operator": "greater_than",
    "row-0-value": "1000",
    "stage-0-count": "2",
    "stage-0-group": "reviewer",
    "expires_minutes": "90",
    "on_expiry": "fail",
    "editor_may_approve": "yes",
    "remind": "yes",
    "do": "save",
}


def is_duration(field: Any) -> bool:
    return isinstance(field, DurationField)


@pytest.fixture
def pages(admin) -> Pages:
    """An administrator's browser."""
    return Pages(admin)


def make(pages: Pages, **fields: str) -> Policy:
    """Create a policy with the form."""
    pages.open("/policies/new/")
    pages.send("/policies/new/", FORM | fields)
    return Policy.objects.select_related("revision").get(name=fields.get("name", FORM["name"]))


def marked(markup: str) -> set[str]:
    """Return the fields that have a problem, by their ids."""
    return set(re.findall(r'id="[fs]-([\w-]+)_error"', markup))


def message_levels(pages: Pages) -> list[str]:
    """Return the levels of the short messages that the open page shows."""
    return [each.level_tag for each in pages.context["messages"]]


def said_while_typing(pages: Pages, **fields: str) -> Any:
    """Return the response to the form's live check with its template context."""
    return pages.swap("/policies/sentence/", "said", FORM | fields)


def wrong_fields(form: PolicyForm) -> list[str]:
    """Return the names of the fields and lists of rows with errors."""
    rows = (form.conditions, form.stages)
    lists = [each.prefix for each in rows if each.non_form_errors()]
    return [*form.errors, *lists, *(row.add_prefix(name) for each in rows for row in each for name in row.errors)]


class Fields(HTMLParser):
    """Return the fields that a browser would send from a page, without its buttons."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.sent: dict[str, str] = {}
        self._name = ""
        self._in_area = False
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Read an input or a selected option."""
        named = {name: value or "" for name, value in attributes}
        name = named.get("name", "")
        is_off = named.get("type") in ("checkbox", "radio") and "checked" not in named
        if tag == "input" and name and not is_off:
            self.sent[name] = named.get("value", "on" if named.get("type") == "checkbox" else "")
        if tag in ("select", "textarea"):
            self._name, self._in_area = name, tag == "textarea"
        if tag == "option" and ("selected" in named or self._name not in self.sent):
            self.sent[self._name] = named.get("value", "")

    def handle_data(self, data: str) -> None:
        """Read the text of a textarea, without its first line break."""
        if self._in_area:
            self.sent[self._name] = data.removeprefix("\n")

    def handle_endtag(self, tag: str) -> None:
        """End a textarea."""
        self._in_area = False


def test_list_shows_policies_in_order(pages):
    text = pages.open("/policies/")
    rows = Policy.objects.select_related("revision").order_by("order")
    assert re.findall(r'id="rule-([\w-]+)"', pages.html) == [each.public_id for each in rows]
    places = [text.index(each.revision.sentence) for each in rows if each.revision]
    assert places == sorted(places) and len(places) == 3


def test_policy_is_created_with_the_form(pages):
    policy = make(pages)
    assert policy.revision is not None
    assert policy.revision.sentence in pages.open("/policies/")
    assert policy.revision.conditions == [{"path": "amount", "operator": "greater_than", "value": 1000}]
    assert (policy.revision.expires_seconds, policy.revision.created_by) == (5400, User.objects.get(username="admin"))


def test_problems_are_shown_and_input_is_kept(pages):
    pages.open("/policies/new/")
    wrong = {"hours": "9 to 5", "row-0-value": "much", "expires_minutes": "soon", "name": "Kept name"}
    pages.send("/policies/new/", FORM | wrong, status=422)
    assert marked(pages.html) == {"expires_minutes"}
    pages.send("/policies/new/", FORM | wrong | {"expires_minutes": ""}, status=422)
    assert marked(pages.html) == {"hours", "row-0-value"}
    sent = Fields(pages.html).sent
    assert (sent["name"], sent["hours"], sent["row-0-value"]) == ("Kept name", "9 to 5", "much")
    assert Policy.objects.count() == 3


def test_saving_creates_a_revision(pages):
    policy = make(pages)
    pages.open(f"/policies/{policy.public_id}/")
    sent = {"stage-0-count": "1", "revision": pages.field("revision"), "typed_target": "yes"}
    pages.send(f"/policies/{policy.public_id}/", FORM | sent)
    text = pages.open(f"/policies/{policy.public_id}/")
    new, old = PolicyRevision.objects.filter(policy=policy).order_by("-number")
    assert [each.number for each in pages.context["history"]] == [2, 1]
    assert new.sentence != old.sentence and new.sentence in text and old.sentence in text


def test_unchanged_form_changes_nothing(pages):
    policy = make(pages, **{"row-0-operator": "in", "row-0-value": "a, 5, true", "row-1-path": "b",
                            "row-1-operator": "equals", "row-1-value": '"5"', "reason_required": "yes"})  # fmt: skip
    assert policy.revision is not None
    assert policy.revision.conditions[0]["value"] == ["a", 5, True]
    assert policy.revision.conditions[1]["value"] == "5"
    pages.open(f"/policies/{policy.public_id}/")
    pages.send(f"/policies/{policy.public_id}/", Fields(pages.html).sent | {"do": "save"})
    assert PolicyRevision.objects.filter(policy=policy).count() == 1


def test_editor_shows_addresses_without_secrets_and_keeps_them(pages):
    policy = make(pages, notify="https://hooks.example.org/secret-0")
    path = f"/policies/{policy.public_id}/"
    text = pages.open(path)
    assert "https://hooks.example.org/…" in text and "secret-0" not in pages.html
    sent = Fields(pages.html).sent | {"do": "save"}
    pages.send(path, sent)
    assert PolicyRevision.objects.filter(policy=policy).count() == 1
    pages.open(path)
    pages.send(path, sent | {"notify": f"{sent['notify']}\ndesk@example.org"})
    assert [each["channel"] for each in policy.revisions.get(number=2).notify] == ["webhook", "mail"]
    pages.open(path)
    pages.send(path, Fields(pages.html).sent | {"do": "save", "notify": "desk"}, 422)
    assert marked(pages.html) == {"notify"}


def test_second_change_of_the_same_revision_is_refused(pages):
    policy = make(pages)
    pages.open(f"/policies/{policy.public_id}/")
    first = FORM | {"revision": "1", "message": "One"}
    pages.send(f"/policies/{policy.public_id}/", first)
    pages.open(f"/policies/{policy.public_id}/")
    pages.send(f"/policies/{policy.public_id}/", first | {"message": "Two"}, status=422)
    assert pages.context["form"].non_field_errors() and 'role="alert"' in pages.html
    assert Fields(pages.html).sent["message"] == "Two"
    assert policy.revisions.latest("number").message == "One"


def test_policies_are_moved_disabled_and_deleted(pages):
    policy = make(pages)
    act = f"/policies/{policy.public_id}/act/"
    pages.open("/policies/")
    pages.send(act, {"do": "down"})
    assert list(Policy.objects.values_list("name", flat=True)[:2]) == [
        "Dangerous calls wait for a reviewer",
        "Large payments",
    ]
    for do, enabled in (("off", False), ("on", True)):
        pages.send(act, {"do": do})
        assert (Policy.objects.get(pk=policy.pk).enabled, message_levels(pages)) == (enabled, ["success"])
    pages.send(act, {"do": "end"})
    assert Policy.objects.get(pk=policy.pk).ended_at is not None
    assert (pages.context["ended"], 'id="ended"' in pages.html) == ([policy], True)
    pages.send(act, {"do": "up"})
    assert message_levels(pages) == ["error"]


def test_list_warns_without_a_policy_for_dangerous_calls(pages):
    policy = Policy.objects.get(order=10)
    pages.open("/policies/")
    assert 'role="alert"' not in pages.html
    pages.send(f"/policies/{policy.public_id}/act/", {"do": "off"})
    assert pages.context["unguarded"] and 'role="alert"' in pages.html


def test_sentence_is_shown_while_editing(pages):
    pages.open("/policies/new/")
    complete = said_while_typing(pages, hours="Mon-Fri 09:00-17:00")
    assert complete.context["summary"].sentence in words(complete.content.decode())
    problems: dict[str, dict[str, str]] = {
        "hours": {"hours": "Friday"},
        "row-0-value": {"row-0-value": "much"},
        "tool": {"tool": "a b"},
        "stage": {"stage-0-group": ""},
        "stage-0-count": {"stage-0-count": "0"},
        "expires_minutes": {"expires_minutes": "soon"},
        "min_role_age_days": {"min_role_age_days": "900"},
    }
    shown = {}
    for place, fields in problems.items():
        response = said_while_typing(pages, **fields)
        form = response.context["form"]
        assert response.context["summary"].sentence == "" and all(
            each in words(response.content.decode()) for each in form.problems
        )
        shown[place] = wrong_fields(form)
    assert shown == {place: [place] for place in problems}
    assert Policy.objects.count() == 3


CALL = {"tool": "write_file", "drawn": "write_file", "value:path": "a", "value:content": "x", "do": "simulate"}
AS_JSON = {"tool": "write_file", "drawn": "write_file", "mode": "json", "do": "simulate"}


@pytest.mark.usefixtures("catalog")
def test_simulator_shows_the_deciding_policy_and_skipped_ones(pages, vera):
    passed = make(pages)
    vera_pages = Pages(vera)
    address = "/policies/simulator/"
    vera_pages.open(address)
    assert 'id="simulate"' in vera_pages.html and 'name="value:path"' not in vera_pages.html
    vera_pages.send(address, {"tool": "write_file", "do": "choose"})
    assert 'name="value:path"' in vera_pages.html and vera_pages.context["page"].error_list == []
    for sent in (CALL, AS_JSON | {"json": WRITTEN}):
        text = vera_pages.send(address, sent)
        found = vera_pages.context["page"].found
        assert (found.effect, found.decided.policy) == ("hold", Policy.objects.get(order=10))
        [asked] = found.passed
        assert asked.policy == passed and len(asked.reasons) == 2
        assert all(reason.text in text for reason in asked.reasons)


@pytest.mark.usefixtures("catalog")
def test_problems_of_a_simulation_are_shown_at_their_fields(pages):
    problems: list[tuple[str, dict[str, str]]] = [
        ("f-path", {"value:path": ""}),
        ("", AS_JSON | {"json": "x"}),
        ("", AS_JSON | {"json": "[]"}),
        ("", AS_JSON | {"json": '{"path": 5}'}),
        ("s-requester", {"requester": "nobody"}),
        ("s-tool", {"tool": "gone"}),
        *(("s-at", {"at": at}) for at in ("Friday", "2030-02-31T12:00", "9999-12-31T23:59")),
    ]
    pages.open("/policies/simulator/")
    for target, sent in problems:
        pages.send("/policies/simulator/", CALL | sent, status=422)
        page = pages.context["page"]
        assert ({each.target for each in page.error_list}, page.found) == ({target}, None), sent
        assert not target or (f'href="#{target}"' in pages.html and f'id="{target}"' in pages.html)


@pytest.mark.usefixtures("catalog")
def test_simulator_accepts_another_time(pages):
    make(pages, **{"hours": "Fri 18:00-24:00", "effect": "deny", "tool": "", "row-0-path": "", "row-0-value": ""})
    pages.open("/policies/simulator/")
    effects = {}
    for at in ("2030-02-01T18:00", "2030-02-01T17:59", "2030-02-01T18:00+02:00", "2030-02-01T16:00-02:00"):
        pages.send("/policies/simulator/", CALL | {"at": at})
        effects[at] = pages.context["page"].found.effect
        assert Fields(pages.html).sent["at"] == at
    assert list(effects.values()) == ["deny", "hold", "hold", "deny"]


def test_editor_names_neighbouring_policies(pages):
    pages.open("/policies/new/")

    def beside(**fields: str) -> list[str]:
        return re.findall("“(.+?)”", said_while_typing(pages, **fields).context["summary"].place)

    first, second, third = Policy.objects.order_by("order")
    assert beside(order="9") == [first.name]
    assert beside(order="10") == [first.name, second.name]
    assert beside(order="31") == [third.name]
    assert beside(order="30", policy=third.public_id) == [second.name]
    pages.open(f"/policies/{third.public_id}/")
    assert re.findall("“(.+?)”", pages.context["summary"].place) == [second.name]


@pytest.mark.usefixtures("catalog")
def test_allowing_policy_warns_about_dangerous_tools(pages):
    pages.open("/policies/new/")
    warnings = {}
    for tool in ("write_file", "*_file", "read_file"):
        response = said_while_typing(pages, effect="allow", tool=tool)
        warnings[tool] = response.context["summary"].warning
        assert warnings[tool] in words(response.content.decode())
    assert len(set(warnings.values())) == 3 and warnings["read_file"] == ""


@pytest.mark.usefixtures("catalog")
def test_backtest_runs_before_saving(pages, ada):
    Rest(ada).post("calls/", {"tool": "write_file", "arguments": {"path": "a", "content": "x"}})
    pages.open("/policies/new/")
    tried = FORM | {"tool": "write_*", "effect": "deny", "row-0-path": "", "row-0-value": "", "do": "test", "days": "7"}
    pages.send("/policies/new/", tried)
    tested = pages.context["tested"]
    assert (tested.calls, dict(tested.counts)) == (1, {"deny": 1})
    assert [(each.tool, each.before, each.after) for each in tested.changed] == [("write_file", "hold", "deny")]
    assert 'id="tested"' in pages.html and Fields(pages.html).sent["tool"] == "write_*"
    assert Policy.objects.count() == 3


def test_only_administrators_may_change_policies(pages, rosa, vera):
    policy = make(pages, name="<b>Bold</b>")
    path = f"/policies/{policy.public_id}/"
    for person in (rosa, vera):
        others = Pages(person)
        others.open("/policies/")
        assert 'href="/policies/new/"' not in others.html and f"{path}act/" not in others.html
        assert "<b>Bold</b>" not in others.html
        others.open(path)
        assert 'id="policy-form"' not in others.html
        others.open("/policies/new/", status=403)
        others.open("/approvals/")
        assert 'href="/policies/"' in others.html
        client = Client()  # checks no CSRF token, whose absence would be refused alike
        client.force_login(person)
        sent = {f"{path}act/": {"do": "end"}, path: FORM, "/policies/new/": FORM, "/policies/sentence/": FORM}
        statuses = {address: client.post(address, form).status_code for address, form in sent.items()}
        assert statuses == dict.fromkeys(sent, 403)
    otto = Pages(User.objects.create_user("otto"))
    otto.open("/approvals/")
    assert 'href="/policies/"' not in otto.html
    otto.open("/policies/", status=403)
    assert Pages().client.get("/policies/").status_code == 302


def test_backtest_has_pages(pages, ada, monkeypatch):
    monkeypatch.setattr(backtest, "MAX_CHANGED", 1)
    refused = FORM | {
        "tool": "*",
        "effect": "deny",
        "message": "No.",
        "row-0-path": "",
        "row-0-value": "",
        "do": "test",
    }
    calls = [held_call(ada).public_id for _ in range(2)]
    pages.open("/policies/new/")
    buttons: list[list[str]] = []
    for do in ("test", None):
        pages.send("/policies/new/", refused | {"do": do or buttons[0][-1]})
        buttons.append(re.findall(r'name="do"\s+value="(test(?::[^"]+)?)"', pages.html))
        assert [each.call for each in pages.context["tested"].changed] == [calls.pop()]
    assert buttons == [["test", f"test:{buttons[0][-1][5:]}"], ["test", "test"]]
    assert len(buttons[0][-1]) > len("test:")


def test_the_set_for_coding_agents_is_added_and_taken_back(pages):
    pages.open("/policies/")
    pages.send("/policies/coding-agent/", {"do": "add"})
    assert Policy.objects.filter(name__startswith="Coding agent: ", ended_at=None).count() == 5
    assert "Delete the policies for coding agents" in pages.open("/policies/")

    pages.send("/policies/coding-agent/", {"do": "remove"})
    assert not Policy.objects.filter(name__startswith="Coding agent: ", ended_at=None).exists()


def test_the_policy_for_calls_after_reading_is_added_and_taken_back(pages):
    pages.open("/policies/")
    pages.send("/policies/after-reading/", {"do": "add"})
    revision = Policy.objects.get(name=shipped.AFTER_READING).revision
    assert revision is not None
    assert (revision.category, revision.seen) == ("outward", {"category": "web", "within": 3600})
    assert "within 1 h after a call in the category web" in pages.open("/policies/")

    pages.send("/policies/after-reading/", {"do": "remove"})
    assert not Policy.objects.filter(name=shipped.AFTER_READING, ended_at=None).exists()


def test_terms_on_what_came_before_are_edited_by_form(pages):
    """Each fault is shown at the field of its part; empty fields are no terms."""
    fields = FORM | {"recent_count": "11", "recent_minutes": "60", "recent_by": "argument", "recent_argument": "to..x"}
    fields |= {"seen_kind": "source", "seen_name": "web", "seen_minutes": "9999", "do": "save"}
    pages.open("/policies/new/")
    pages.send("/policies/new/", fields, status=422)
    errors = pages.context["form"].errors
    assert set(errors) == {"recent_argument", "seen_minutes"}

    pages.send("/policies/new/", fields | {"recent_argument": "to.x", "seen_minutes": "5"})
    policy = Policy.objects.get(name=FORM["name"])
    assert policy.revision is not None
    assert policy.revision.recent == {"count": 11, "seconds": 3600, "by": "argument:to.x"}
    assert policy.revision.seen == {"source": "web", "within": 300}
    form = pages.open(f"/policies/{policy.public_id}/") and pages.context["form"]
    assert (form["recent_argument"].value(), form["seen_minutes"].value(), form.looks_back) == ("to.x", "5", True)


def test_policy_is_tried_and_enforced_by_one_press(pages, rosa):
    policy = make(pages, mode="trial")
    revision = policy.revision
    assert revision is not None
    TrialResult.objects.create(revision=revision, tool_name="send_mail", would="hold", was="allow", at=clock.now())
    page = pages.open(f"/policies/{policy.public_id}/")
    assert "1 of 1 recorded calls would have got another verdict" in page
    assert "What happened" not in page  # that is not recorded: a grant or an envelope may have let the call start
    assert "On trial" in pages.open("/policies/")
    pages.send(f"/policies/{policy.public_id}/act/", {"do": "enforce"})
    policy.refresh_from_db()
    assert policy.revision is not None
    assert (policy.revision.number, policy.revision.mode) == (2, "enforce")
    pages.send(f"/policies/{policy.public_id}/act/", {"do": "trial"})
    assert "It would have decided no call yet." in pages.open(f"/policies/{policy.public_id}/")
    reader = Pages(rosa)
    assert "Enforce this policy" not in reader.open(f"/policies/{policy.public_id}/")
    reader.send(f"/policies/{policy.public_id}/act/", {"do": "enforce"}, 403)


@pytest.mark.parametrize("name", [name for name, each in PolicyForm.base_fields.items() if is_duration(each)])
def test_time_that_is_too_long_is_refused_at_its_field(pages, name):
    """The limit is not named in seconds alone: the form asks for minutes, hours or days."""
    more = {"effect": "deny"} if name == "stop_minutes" else {}
    counts = {"recent_count": "2", "stop_count": "2", "seen_name": "web", "recent_by": "token", "seen_kind": "category"}
    pages.open("/policies/new/")
    pages.send("/policies/new/", FORM | counts | more | {name: "99999999"}, status=422)
    [message] = pages.context["form"].errors[name]
    assert any(f" {unit}" in message for unit in ("min", "h", "days"))


def test_page_of_a_trial_takes_no_more_queries_for_more_calls(pages, ada, rosa):
    policy = make(pages, mode="trial")
    tool = make_tool("send_mail")

    def queries_with(calls: int) -> tuple[int, int]:
        for number in range(calls):
            request = ask(ada, tool)
            row = {"revision": policy.revision, "call": request.call, "tool_name": "send_mail", "at": clock.now()}
            TrialResult.objects.create(would="deny", was="hold", **row)
            if number % 2:
                decide(request, by=rosa, decision=approval(request))
        forget_what_was_read()
        with CaptureQueriesContext(connection) as of_page:
            pages.open(f"/policies/{policy.public_id}/")
        with CaptureQueriesContext(connection) as of_api:
            report = rest.get(f"policies/{policy.public_id}/trial/").json()
        assert (len(report["calls"]), report["denied"]) == (TrialResult.objects.count(),) * 2
        return len(of_page), len(of_api)

    rest = Rest(rosa)
    queries_with(1)  # the first use of a token is recorded
    few = queries_with(4)
    assert queries_with(20) == few
    assert few[0] <= PAGE_BUDGET
    assert few[1] <= REPORT_BUDGET


def test_stop_after_is_edited_with_the_form(pages):
    blocking = {"effect": "deny", "stop_count": "5", "stop_minutes": "1.5"}
    policy = make(pages, **blocking)
    assert policy.revision is not None
    assert policy.revision.stop_after == {"count": 5, "seconds": 90}
    path = f"/policies/{policy.public_id}/"
    pages.open(path)
    fields = Fields(pages.html).sent
    assert (fields["stop_count"], fields["stop_minutes"]) == ("5", "1.5")
    pages.send(path, fields | {"stop_count": "0", "stop_minutes": "50000", "do": "save"}, 422)
    assert wrong_fields(pages.context["form"]) == ["stop_count", "stop_minutes"]
    pages.send(path, fields | {"effect": "hold", "do": "save"})
    policy.refresh_from_db()
    assert policy.revision.stop_after is None
