"""The pages of policies without JavaScript: the list, the editor with its sentence, the simulator, past calls."""

import re
from html.parser import HTMLParser

import pytest
from django.contrib.auth.models import User

from approvals import back_test
from approvals.models import Policy, PolicyRevision
from tests.approvals.builders import held_call
from tests.pages import Pages, words
from tests.rest import Rest

pytestmark = pytest.mark.django_db
WRITTEN = '{"path": "a", "content": "x"}'
FORM = {
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


@pytest.fixture
def pages(admin) -> Pages:
    """An administrator's browser."""
    return Pages(admin)


def make(pages: Pages, **fields: str) -> Policy:
    """Make a policy with the form."""
    pages.open("/policies/new/")
    pages.send("/policies/new/", FORM | fields)
    return Policy.objects.select_related("revision").get(name=fields.get("name", FORM["name"]))


def test_the_list_says_each_rule_in_its_order(pages):
    """In words, with what becomes of everything else."""
    said = pages.open("/policies/")
    first = said.index("Dangerous calls wait for 1 reviewer, 24 h at most.")
    assert first < said.index("Cautious calls run by themselves.") < said.index("Safe calls run by themselves.")
    assert "No policy lets a dangerous call run without people" in said


def test_a_policy_is_made_with_the_form(pages):
    """Its sentence stands in the list; numbers are read as such."""
    policy = make(pages)
    assert "Calls of send_* where amount is more than 1000 wait for 2 reviewers, 90 min at most." in words(pages.html)
    assert policy.revision is not None
    assert policy.revision.conditions == [{"path": "amount", "operator": "greater_than", "value": 1000}]
    assert (policy.revision.expires_seconds, policy.revision.created_by) == (5400, User.objects.get(username="admin"))


def test_what_is_wrong_is_told_at_its_field(pages):
    """And nothing that was typed is lost."""
    pages.open("/policies/new/")
    wrong = {"hours": "9 to 5", "row-0-value": "much", "expires_minutes": "soon", "name": "Kept name"}
    said = pages.send("/policies/new/", FORM | wrong, status=422)
    assert "Write a number, such as 15" in said
    said = pages.send("/policies/new/", FORM | wrong | {"expires_minutes": ""}, status=422)
    assert "Write days and hours, such as Mon-Fri 09:00-17:00" in said
    assert "This must be a number" in said
    assert 'value="Kept name"' in pages.html
    assert 'value="9 to 5"' in pages.html
    assert Policy.objects.count() == 3


def test_saving_makes_a_revision_and_keeps_the_old(pages):
    """The history lists both."""
    policy = make(pages)
    pages.open(f"/policies/{policy.public_id}/")
    sent = {"stage-0-count": "1", "revision": pages.field("revision"), "typed_target": "yes"}
    pages.send(f"/policies/{policy.public_id}/", FORM | sent)
    said = pages.open(f"/policies/{policy.public_id}/")
    assert "wait for 1 reviewer, 90 min at most" in said
    assert "wait for 2 reviewers, 90 min at most" in said
    assert PolicyRevision.objects.filter(policy=policy).count() == 2


def test_a_form_saved_as_it_is_changes_nothing(pages):
    """What is shown reads back as what is stored, whatever was typed."""
    policy = make(pages, **{"row-0-operator": "in", "row-0-value": "a, 5, true", "row-1-path": "b",
                            "row-1-operator": "equals", "row-1-value": '"5"', "reason_required": "yes"})  # fmt: skip
    assert policy.revision is not None
    assert policy.revision.conditions[0]["value"] == ["a", 5, True]
    assert policy.revision.conditions[1]["value"] == "5"
    pages.open(f"/policies/{policy.public_id}/")
    pages.send(f"/policies/{policy.public_id}/", Fields(pages.html).sent | {"do": "save"})
    assert PolicyRevision.objects.filter(policy=policy).count() == 1


def test_the_editor_shows_addresses_without_their_secrets_and_keeps_them(pages):
    """Saved as it is, nothing changes; a new line is one more; the sentence counts them."""
    policy = make(pages, notify="https://hooks.example.org/secret-0")
    path = f"/policies/{policy.public_id}/"
    said = pages.open(path)
    assert "https://hooks.example.org/…" in said and "secret-0" not in pages.html
    sent = Fields(pages.html).sent | {"do": "save"}
    pages.send(path, sent)
    assert PolicyRevision.objects.filter(policy=policy).count() == 1
    assert "1 more addresses are told." in pages.send("/policies/sentence/", sent)
    pages.open(path)
    pages.send(path, sent | {"notify": f"{sent['notify']}\ndesk@example.org"})
    assert [each["channel"] for each in policy.revisions.get(number=2).notify] == ["webhook", "mail"]
    pages.open(path)
    assert "Write a mail address" in pages.send(path, Fields(pages.html).sent | {"do": "save", "notify": "desk"}, 422)


class Fields(HTMLParser):
    """What a browser would send of a page's fields, buttons left out."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.sent: dict[str, str] = {}
        self._name = ""
        self._in_area = False
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Read an input, or an option that is chosen: the first, or one that says so."""
        named = {name: value or "" for name, value in attributes}
        name = named.get("name", "")
        is_off = named.get("type") in ("checkbox", "radio") and "checked" not in named
        if tag == "input" and name and not is_off:
            self.sent[name] = named.get("value", "")
        if tag in ("select", "textarea"):
            self._name, self._in_area = name, tag == "textarea"
        if tag == "option" and ("selected" in named or self._name not in self.sent):
            self.sent[self._name] = named.get("value", "")

    def handle_data(self, data: str) -> None:
        """Read the text of an area; its first line end is none."""
        if self._in_area:
            self.sent[self._name] = data.removeprefix("\n")

    def handle_endtag(self, tag: str) -> None:
        """Leave an area."""
        self._in_area = False


def test_two_who_change_the_same_policy(pages):
    """The second is told, with what they typed."""
    policy = make(pages)
    pages.open(f"/policies/{policy.public_id}/")
    first = FORM | {"revision": "1", "message": "One"}
    pages.send(f"/policies/{policy.public_id}/", first)
    pages.open(f"/policies/{policy.public_id}/")
    said = pages.send(f"/policies/{policy.public_id}/", first | {"message": "Two"}, status=422)
    assert "Someone has changed this policy meanwhile" in said
    assert "Two" in pages.html


def test_policies_move_switch_and_end(pages):
    """By buttons of the list."""
    policy = make(pages)
    act = f"/policies/{policy.public_id}/act/"
    pages.open("/policies/")
    assert "Moved down: Large payments." in pages.send(act, {"do": "down"})
    assert list(Policy.objects.values_list("name", flat=True)[:2]) == [
        "Dangerous calls wait for a reviewer",
        "Large payments",
    ]
    assert "Switched off" in pages.send(act, {"do": "off"})
    assert "Switched on" in pages.send(act, {"do": "on"})
    said = pages.send(act, {"do": "end"})
    assert "Ended: Large payments. It is kept" in said
    assert "Ended policies (1)" in said
    assert "make a new one" in pages.send(act, {"do": "up"})


def test_without_a_rule_for_dangerous_calls_the_list_warns(pages):
    """They are refused then."""
    policy = Policy.objects.get(order=10)
    pages.open("/policies/")
    assert "Dangerous calls are refused." in pages.send(f"/policies/{policy.public_id}/act/", {"do": "off"})


def test_the_sentence_is_said_while_the_form_is_filled_in(pages):
    """With what is missing, and that no policy lets dangerous calls run."""
    pages.open("/policies/new/")
    said = words(pages.swap("/policies/sentence/", "said", FORM | {"hours": "Mon-Fri 09:00-17:00"}).content.decode())
    assert said.startswith("Calls of send_* during Mon-Fri 09:00-17:00 UTC where amount is more than 1000 wait for")
    said = words(pages.swap("/policies/sentence/", "said", FORM | {"effect": "allow"}).content.decode())
    assert "No policy lets dangerous calls run without people" in said
    said = words(pages.swap("/policies/sentence/", "said", FORM | {"stage-0-count": "0"}).content.decode())
    assert "The rule is not complete yet: Group 1: This must be 1 to 20." in said
    assert Policy.objects.count() == 3


@pytest.mark.usefixtures("catalog")
def test_the_simulator_says_which_and_why_no_other(pages, vera):
    """For everyone with a role."""
    make(pages)
    vera_pages = Pages(vera)
    address = "/policies/simulator/"
    assert 'method="post"' in (vera_pages.open(address) and vera_pages.html)
    said = vera_pages.send(address, {"tool": "write_file", "arguments": WRITTEN})
    assert "It waits for people Dangerous calls wait for a reviewer decides:" in said
    assert "Large payments Says nothing: write_file is not send_*; not every condition holds" in said


@pytest.mark.usefixtures("catalog")
@pytest.mark.parametrize(
    ("asked", "field", "said"),
    [
        ({"arguments": "x"}, "arguments", "The arguments are no JSON"),
        ({"arguments": "[]"}, "arguments", "The arguments must be a JSON object"),
        ({"arguments": '{"path": 5}'}, "arguments", "content : This is required."),
        ({"requester": "nobody"}, "requester", "There is nobody of this username."),
        ({"tool": "gone"}, "tool", "There is no tool of this name."),
        ({"at": "Friday"}, "at", "Write a day and a time"),
        ({"at": "2030-02-31T12:00"}, "at", "Write a day and a time"),
        ({"at": "9999-12-31T23:59"}, "at", "The year must be 1970 to 2999."),
    ],
)
def test_what_cannot_be_asked_is_said_beside_its_field(pages, asked, field, said):
    """Which is marked and described by it; what was typed stays."""
    pages.open("/policies/simulator/")
    page = pages.send("/policies/simulator/", {"tool": "write_file", "arguments": WRITTEN} | asked, status=422)
    assert said in page
    marked = re.findall(r'<(?:textarea|input|select)[^>]*aria-describedby="(?:h-at )?err-(\w+)"', pages.html)
    assert marked == [field]
    assert ("refused before any policy is asked" in page) == ("path" in asked.get("arguments", ""))
    assert "decides:" not in page


@pytest.mark.usefixtures("catalog")
def test_the_simulator_is_asked_about_another_time(pages):
    """In UTC where it names no offset, and what was typed stays."""
    make(pages, **{"hours": "Fri 18:00-24:00", "effect": "deny", "tool": "", "row-0-path": "", "row-0-value": ""})
    pages.open("/policies/simulator/")
    asked = {"tool": "write_file", "arguments": WRITTEN}
    assert "It is refused" in pages.send("/policies/simulator/", asked | {"at": "2030-02-01T18:00"})
    assert 'value="2030-02-01T18:00"' in pages.html
    assert "it is outside its hours" in pages.send("/policies/simulator/", asked | {"at": "2030-02-01T17:59"})
    assert "it is outside its hours" in pages.send("/policies/simulator/", asked | {"at": "2030-02-01T18:00+02:00"})
    assert "It is refused" in pages.send("/policies/simulator/", asked | {"at": "2030-02-01T16:00-02:00"})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"hours": "Friday"}, "During: Write days and hours"),
        ({"row-0-value": "much"}, "Argument 1: This must be a number."),
        ({"tool": "a b"}, "Tool: Write a tool's name"),
        ({"stage-0-group": ""}, "Who must agree: Say who must agree"),
        ({"expires_minutes": "soon"}, "Minutes to answer: Write a number"),
        ({"min_role_age_days": "900"}, "Days in the group: This must be 0 to"),
    ],
)
def test_what_is_not_complete_is_named_by_its_field(pages, fields, said):
    """Beside the sentence, far from the field itself."""
    pages.open("/policies/new/")
    shown = words(pages.swap("/policies/sentence/", "said", FORM | fields).content.decode())
    assert shown.startswith(f"The rule is not complete yet: {said}")


def test_the_editor_says_between_which_others_a_policy_is_asked(pages):
    """Of those with one number the older comes first."""
    pages.open("/policies/new/")

    def placed(**fields: str) -> str:
        return words(pages.swap("/policies/sentence/", "said", FORM | fields).content.decode())

    first, second, third = Policy.objects.order_by("order")
    assert f"Asked first, before “{first.name}”." in placed(order="9")
    assert f"Asked after “{first.name}”, before “{second.name}”." in placed(order="10")
    assert f"Asked last, after “{third.name}”." in placed(order="31")
    assert f"Asked last, after “{second.name}”." in placed(order="30", policy=third.public_id)
    assert f"Asked last, after “{second.name}”." in pages.open(f"/policies/{third.public_id}/")


@pytest.mark.usefixtures("catalog")
@pytest.mark.parametrize(
    ("tool", "said"),
    [("write_file", "it lets none"), ("*_file", "for them, the next rules are asked"), ("read_file", "")],
)
def test_an_allowing_policy_says_what_it_does_not_let_run(pages, tool, said):
    """By the tools it is about, not where none of them is dangerous."""
    pages.open("/policies/new/")
    shown = words(pages.swap("/policies/sentence/", "said", FORM | {"effect": "allow", "tool": tool}).content.decode())
    assert said in shown
    assert ("No policy lets" in shown or "no policy lets" in shown) == bool(said)


@pytest.mark.usefixtures("catalog")
def test_past_calls_are_tried_before_anything_is_saved(pages, ada):
    """The form stays as it is typed."""
    Rest(ada).post("calls/", {"tool": "write_file", "arguments": {"path": "a", "content": "x"}})
    pages.open("/policies/new/")
    tried = FORM | {"tool": "write_*", "effect": "deny", "row-0-path": "", "row-0-value": "", "do": "test", "days": "7"}
    said = pages.send("/policies/new/", tried)
    assert "1 call would have fared so: 0 held, 0 allowed, 1 refused." in said
    assert "write_file Waits for people Is refused" in said
    assert 'value="write_*"' in pages.html
    assert Policy.objects.count() == 3


def test_who_reads_and_who_changes(pages, rosa, vera):
    """Others read; without a role nobody does; agents' text is no markup."""
    policy = make(pages, name="<b>Bold</b>")
    for person in (rosa, vera):
        others = Pages(person)
        assert "New policy" not in others.open("/policies/")
        assert "<b>Bold</b>" not in others.html
        assert "Save as revision" not in others.open(f"/policies/{policy.public_id}/")
        others.open("/policies/new/", status=403)
        assert others.open("/approvals/").count("Policies") == 2, "beside the list, also on phones, and in the sidebar"
        others.send(f"/policies/{policy.public_id}/act/", {"do": "end"}, status=403)
        others.send(f"/policies/{policy.public_id}/", FORM, status=403)
    otto = Pages(User.objects.create_user("otto"))
    assert "Policies" not in otto.open("/approvals/")
    otto.open("/policies/", status=403)
    assert Pages().client.get("/policies/").status_code == 302


def test_past_calls_that_are_not_listed_follow_on_further_pages(pages, ada, monkeypatch):
    """With a button that needs no script; what people said is said in words."""
    monkeypatch.setattr(back_test, "MAX_CHANGED", 1)
    refused = {
        **FORM,
        "tool": "*",
        "effect": "deny",
        "message": "No.",
        "row-0-path": "",
        "row-0-value": "",
        "do": "test",
    }
    for _ in range(2):
        held_call(ada)
    pages.open("/policies/new/")
    said = pages.send("/policies/new/", refused)
    assert "2 calls would differ; the newest 1 of them are listed" in said
    older = re.search(r'name="do" value="(test:[^"]+)"', pages.html)
    assert older is not None
    said = pages.send("/policies/new/", {**refused, "do": older[1]})
    assert "1 older call would have fared so" in said
    assert ("Newest" in said, "Older" in said) == (True, False)
