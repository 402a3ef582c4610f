"""REST endpoints of the audit log."""

import pytest
from django.contrib.auth.models import User

from approvals.models import AuditEntry
from catalog.core import clock
from tests.rest import Rest, wrong_paths


@pytest.fixture
def log(admin, ada, ben):
    """Three entries: each of the three got a token."""
    first, *_ = [Rest(user) for user in (admin, ada, ben)]
    return first


def test_entries_are_listed_newest_first_in_pages(log):
    first = log.get("audit/", page_size=2).json()
    rest = log.client.get(first["next"], headers=log.headers).json()

    assert [entry["actor"] for entry in first["results"] + rest["results"]] == ["ben", "ada", "admin"]
    assert rest["next"] is None
    assert {entry["action"] for entry in first["results"]} == {"token.created"}


def test_entries_are_filtered(log):
    def actors(**query):
        return [entry["actor"] for entry in log.get("audit/", **query).json()["results"]]

    Rest(User.objects.create_user("benedetta"))  # long enough that no token's prefix happens to have it in it
    assert actors(who="ada") == ["ada"]
    assert actors(action="token.created", q="BENEDETTA") == ["benedetta"]
    assert actors(since=clock.now().isoformat()) == []
    assert actors(tool="write_file") == []
    assert wrong_paths(log.get("audit/", since="soon")) == ["since"]


def test_the_log_is_verified(log):
    assert log.post("audit/verify/").json() == {"intact": True, "entries": 3, "checkpoints": 0}


def test_only_administrators_read_it(log, rosa):
    assert Rest(rosa).get("audit/").status_code == 403
    assert Rest(rosa).post("audit/verify/").status_code == 403
    assert AuditEntry.objects.count() == 5


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_matching_entries_are_exported(log, form):
    response = log.post("audit/export/", {"format": form, "who": "ada"})
    lines = b"".join(response.streaming_content).decode().splitlines()

    assert response["Content-Disposition"] == f'attachment; filename="audit.{form}"'
    assert ["ada" in line for line in lines] == ([False, True] if form == "csv" else [True])
    assert AuditEntry.objects.order_by("-seq")[0].action == "audit.exported"


def test_an_export_needs_a_known_format(log):
    assert wrong_paths(log.post("audit/export/", {"format": "xml", "since": "soon"})) == ["format", "since"]
    assert AuditEntry.objects.count() == 3
