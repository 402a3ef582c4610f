"""Revealing secrets of requests one at a time, with an audit entry."""

from typing import Any

import pytest

from approvals.models import AuditEntry
from approvals.web.review.rendering import render_argument
from catalog.secrets.placeholders import describe_placeholders
from tests.builders import make_plan, reject, request_of, step, work_off
from tests.pages import Pages, words
from tests.plans.secret_tools import PASSWORD
from tests.rest import Rest

KEY = "AKIA" + "Q7" * 8
GIVEN: dict[str, Any] = {"host": "db1", "password": PASSWORD, "note": {"steps": [f"export KEY={KEY}"]}}


@pytest.fixture
def plan(keepers, ada):
    """A plan by Ada that waits for approval."""
    return work_off(make_plan(ada, step(1, "wipe", parameters=GIVEN)))


@pytest.mark.parametrize("name", ["rosa", "admin"])
def test_reviewers_and_administrators_may_reveal(plan, request, name):
    viewer, held = request.getfixturevalue(name), request_of(plan)
    answer = Rest(viewer).post(f"approvals/{held.public_id}/reveal/", {"path": "password"})
    assert (answer.status_code, answer.json()) == (200, {"path": "password", "value": PASSWORD})
    entry = AuditEntry.objects.get(action="call.revealed")
    assert (entry.actor, entry.details_json["path"]) == (viewer, "password")
    assert PASSWORD not in entry.details


def test_others_may_not_reveal(plan, ada, ben, vera):
    path = f"approvals/{request_of(plan).public_id}/reveal/"
    assert {Rest(other).post(path, {"path": "password"}).status_code for other in (ada, ben, vera)} == {403}
    assert not AuditEntry.objects.filter(action="call.revealed").exists()


def test_text_with_a_secret_is_revealed_in_full(plan, rosa):
    held = request_of(plan)
    body = Rest(rosa).get(f"approvals/{held.public_id}/").json()
    assert body["arguments"]["note"] == {"steps": ['export KEY={"$secret":"aws_access_key"}']}
    answer = Rest(rosa).post(f"approvals/{held.public_id}/reveal/", {"path": "note.steps.0"})
    assert answer.json()["value"] == GIVEN["note"]["steps"][0]


def test_path_without_a_secret_lists_valid_paths(plan, rosa):
    answer = Rest(rosa).post(f"approvals/{request_of(plan).public_id}/reveal/", {"path": "host"})
    assert answer.status_code == 422
    (wrong,) = answer.json()["errors"]
    assert (wrong["path"], wrong["code"]) == ("path", "not_a_secret")
    assert "note.steps.0, password" in wrong["message"]


def test_deleted_secret_is_reported(plan, rosa, admin):
    reject(plan, rosa)
    answer = Rest(admin).post(f"approvals/{request_of(plan).public_id}/reveal/", {"path": "password"})
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:toolgate:conflict")


def test_page_reveals_in_place(plan, rosa, vera):
    held, pages = request_of(plan), Pages(rosa)
    pages.open(f"/approvals/?item={held.public_id}")
    assert PASSWORD not in pages.html
    assert KEY not in pages.html
    assert 'id="secret-1"' in pages.html
    swapped = pages.swap(f"/approvals/{held.public_id}/reveal/", "secret-1", {"path": "password"})
    assert PASSWORD in swapped.content.decode()
    assert "no-store" in swapped["Cache-Control"]
    pages.send(f"/approvals/{held.public_id}/reveal/", {"path": "password"})
    assert PASSWORD in pages.html
    other = Pages(vera)
    other.open(f"/approvals/?item={held.public_id}")
    assert "reveal/" not in other.html
    other.send(f"/approvals/{held.public_id}/reveal/", {"path": "password"}, status=403)


def test_edit_keeps_old_secrets_and_cuts_out_new_ones(plan, keepers, rosa):
    held = request_of(plan)
    hidden, document = {"$secret": "password"}, Rest(rosa).get(f"approvals/{held.public_id}/").json()
    body = {"verdict": "approve", "seen_digest": document["digest"]}
    edited = {**document["arguments"], "host": "db2", "password": hidden}
    answer = Rest(rosa).post(f"approvals/{held.public_id}/reviews/", body | {"arguments": edited})
    assert answer.status_code == 201, answer.content
    work_off(plan)
    assert keepers[-1] == PASSWORD
    assert Rest(rosa).get(f"approvals/{held.public_id}/").json()["arguments"]["host"] == "db2"


def test_edit_form_shows_the_placeholder(plan, keepers, rosa):
    held, pages = request_of(plan), Pages(rosa)
    pages.open(f"/approvals/?item={held.public_id}&view=edit")
    assert PASSWORD not in pages.html
    assert "{&quot;$secret&quot;:&quot;password&quot;}" in pages.html


def test_secret_is_shown_by_name_in_arguments(plan, rosa, vera):
    held = request_of(plan)
    for viewer, reveals in ((rosa, 1), (vera, 0)):
        pages = Pages(viewer)
        pages.open(f"/approvals/?item={held.public_id}")
        text = pages.html.partition('id="v-d"')[2].partition("</table>")[0]
        assert ("$secret" in text, text.count('/reveal/" hx-post')) == (False, reveals)
        assert 'export KEY=<span class="was kept">' in text
        assert "secret aws_access_key" in words(text)
        assert text.count(">password</th>") == 1


def test_secret_is_shown_by_name_in_previews(plan, rosa):
    held, pages = request_of(plan), Pages(rosa)
    pages.open(f"/approvals/?item={held.public_id}")
    page, _, json_view = pages.html.partition('id="v-j"')
    assert "$secret" not in page
    assert words(page).count("Wipe db1 with secret password") == 3
    assert "</svg>secret password</span></td>" in page, "behind a lock, so that no words imitate it"
    assert "$secret" in json_view
    assert Rest(rosa).get(f"approvals/{held.public_id}/").json()["preview"]["rows"] == [
        {"password": '{"$secret":"password"}'}
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('with {"$secret":"a"} and {"$secret": "b.c"}', "with secret a and secret b.c"),
        ('{"$secret":""} {"$secret":"a b"} $secret', '{"$secret":""} {"$secret":"a b"} $secret'),
    ],
)
def test_only_real_placeholders_are_described(text, said):
    assert describe_placeholders(text) == said


@pytest.mark.parametrize(
    ("value", "pieces"),
    [
        ("a", [("a", "")]),
        ('use {"$secret":"key"} now', [("use ", "key"), (" now", "")]),
        ({"pin": {"$secret": "pin"}}, [('{\n  "pin": ', "pin"), ("\n}", "")]),
        (['{"$secret":"key"}'], [('[\n  "', "key"), ('"\n]', "")]),
        ('{\n  "$secret": "key"\n}', [('{\n  "$secret": "key"\n}', "")]),
        ('{\\"$secret\\":\\"key\\"}', [('{\\"$secret\\":\\"key\\"}', "")]),
        (['{\\"$secret\\":\\"key\\"}'], [('[\n  "{\\\\\\"$secret\\\\\\":\\\\\\"key\\\\\\"}"\n]', "")]),
    ],
)
def test_imitated_placeholders_are_shown_as_text(value, pieces):
    assert render_argument("note", value).pieces == pieces
