"""Export of the audit log."""

import csv
import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from approvals.audit.log import AuditRecord, append_entry
from approvals.audit.queries import EXPORTED_FIELDS
from approvals.models import AuditEntry
from catalog.core.canonical_json import format_utc

pytestmark = pytest.mark.django_db


@pytest.fixture
def log(ada):
    """Four entries; one of them hostile to spreadsheets."""
    append_entry(AuditRecord(action="tool.changed", by=ada, object_ref="one", tool_name="one"))
    append_entry(
        AuditRecord(
            action="tool.changed", by=ada, object_ref="=1+1", tool_name="two", details={"reason": "a\r\nb\x1b[2J"}
        )
    )
    append_entry(AuditRecord(action="token.created", object_ref="three", plan_ref="plan_x"))
    append_entry(AuditRecord(action="tool.changed", by=ada, object_ref="four", tool_name="one"))


def sent(user, form: str, query: str = "", status: int = 200) -> str:
    """Return the file that the page sends."""
    client = Client()
    client.force_login(user)
    response = client.post(f"/audit/export/{query}", {"format": form})
    assert response.status_code == status
    return response.getvalue().decode()


def shell(capsys, *options: str) -> list[dict[str, Any]]:
    """Return the parsed JSON Lines that the command writes."""
    call_command("export_audit", *options)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_json_lines_contain_all_entries(log, admin):
    rows = [json.loads(line) for line in sent(admin, "jsonl").splitlines()][:4]
    assert [row["object"] for row in rows] == ["one", "=1+1", "three", "four"]
    assert list(rows[1]) == list(EXPORTED_FIELDS)
    assert rows[1]["details"] == {"reason": "a\r\nb\x1b[2J"}
    assert rows[1]["hash"] == rows[2]["prev_hash"] == AuditEntry.objects.get(seq=2).hash


def test_exported_fields_match_the_entry(log, ada, capsys):
    line = AuditRecord(
        action="approval.decided",
        by=ada,
        object_ref="apr_1",
        tool_name="write_file",
        plan_ref="plan_1",
        digest="d" * 64,
        details={"verdict": "approve"},
    )
    entry = AuditEntry.objects.get(seq=append_entry(line))
    assert shell(capsys)[-1] == {
        "seq": entry.seq,
        "at": format_utc(entry.at),
        "actor": "ada",
        "action": "approval.decided",
        "object": "apr_1",
        "tool": "write_file",
        "plan": "plan_1",
        "digest": "d" * 64,
        "details": {"verdict": "approve"},
        "prev_hash": AuditEntry.objects.get(seq=entry.seq - 1).hash,
        "hash": entry.hash,
    }


def test_csv_cells_are_escaped(log, admin):
    head, *rows = csv.reader(io.StringIO(sent(admin, "csv")))
    assert tuple(head) == EXPORTED_FIELDS and len(rows) == 5, "and that the administrator signed in"
    assert rows[1][4] == "'=1+1"
    assert "\x1b" not in rows[1][8] and "\\u001b[2J" in rows[1][8]


def test_export_uses_the_filters_of_the_page(log, admin, capsys):
    rows = [json.loads(line)["object"] for line in sent(admin, "jsonl", "?tool=one").splitlines()]
    assert rows == ["one", "four"]
    assert [row["object"] for row in shell(capsys, "--tool", "one")] == ["one", "four"]
    assert [row["object"] for row in shell(capsys, "--plan", "plan_x")] == ["three"]
    assert [row["seq"] for row in shell(capsys, "--object", "four", "--since", "2020-01-01")] == [4]
    assert shell(capsys, "--until", "2020-01-01T00:00:00Z") == []


def test_long_logs_are_exported_in_chunks(log, admin, monkeypatch):
    monkeypatch.setattr("approvals.audit.queries.EXPORT_CHUNK", 2)
    for _ in range(3):
        append_entry(AuditRecord(action="tool.changed"))
    assert len(sent(admin, "jsonl", "?action=tool.changed").splitlines()) == 6
    assert len(list(csv.reader(io.StringIO(sent(admin, "csv", "?action=tool.changed"))))) == 1 + 6


def test_export_is_audited(log, admin, capsys):
    sent(admin, "csv", "?who=ada&from=2026-01-01")
    shell(capsys)
    kept = AuditEntry.objects.filter(action="audit.exported").order_by("seq")
    assert [entry.actor_name for entry in kept] == ["admin", "Toolgate"]
    details = {"format": "csv", "filters": {"who": "ada", "since": "2026-01-01T00:00:00.000000Z"}}
    assert kept[0].details_json == details


@pytest.mark.parametrize("name", ["ada", "rosa", "vera"])
def test_only_administrators_may_export(log, name, request):
    sent(request.getfixturevalue(name), "csv", status=403)
    assert not AuditEntry.objects.filter(action="audit.exported").exists()


def test_get_request_does_not_export(log, admin):
    client = Client()
    client.force_login(admin)
    assert client.get("/audit/export/").status_code == 405
    sent(admin, "xls", status=400)


def test_invalid_time_is_reported(log):
    with pytest.raises(CommandError, match="soon"):
        call_command("export_audit", "--since", "soon")
