"""Writing checkpoints, and detecting a restored database."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.db.models import F

from approvals.audit import checkpoints as audit_checkpoints
from approvals.audit.checkpoint_file import newest_checkpoint
from approvals.audit.checkpoints import checkpoint_write_fault, write_checkpoint
from approvals.audit.log import AuditRecord, append_entry
from approvals.audit.restore_guard import RestoreMonitor, detect_restore, ensure_start_allowed
from approvals.audit.verification import verify
from approvals.errors import AuditUnavailable
from approvals.models import AuditEntry, Instance
from approvals.requests.start_check import consume
from approvals.reviews.decisions import decide
from catalog.core import clock
from catalog.errors import RestoredDatabase
from catalog.models import Call
from catalog.signals import Fact, record_fact
from tests.approvals.audit.tampering import drop_triggers
from tests.approvals.factories import approval, ask, binding_of, held_call, make_tool


@pytest.fixture
def log(ada, checkpoints):
    """A log of six mutable entries, with checkpoints of the fourth and the last."""
    for number in range(1, 7):
        append_entry(AuditRecord(action="tool.changed", by=ada, object_ref=f"tool_{number}"))
        if number in (4, 6):
            assert write_checkpoint()
    drop_triggers()
    return instance()


def instance() -> Instance:
    """Return the current row of the installation."""
    return Instance.objects.get(pk=1)


def known() -> int | None:
    """Return the number of the last entry with a checkpoint."""
    found = newest_checkpoint(instance().name)
    return found.seq if found else None


def set_back_to(seq: int) -> None:
    """Remove all entries after this one and move the head back, as a restore or a truncation does."""
    AuditEntry.objects.filter(seq__gt=seq).delete()
    Instance.objects.update(audit_seq=seq, audit_head=AuditEntry.objects.get(seq=seq).hash)


def write_anew(**change: Any) -> None:
    """Rewrite all entries with the right key, the second one changed; only checkpoints can reveal this."""
    lines = list(AuditEntry.objects.order_by("seq"))
    AuditEntry.objects.all().delete()
    Instance.objects.update(audit_seq=0, audit_head="")
    for line in lines:
        same = AuditRecord(action=line.action, by=line.actor, object_ref=line.object_ref)
        append_entry(replace(same, **change) if line.seq == 2 else same)


@pytest.mark.django_db(transaction=True)
def test_decision_and_dangerous_start_write_checkpoints_after_commit(ada, rosa, checkpoints, caplog):
    caplog.set_level("INFO", logger="toolgate.audit")
    request = ask(ada)
    assert known() is None
    with transaction.atomic():
        decide(request, by=rosa, decision=approval(request))
        assert known() is None
    assert known() == instance().audit_seq
    safe, dangerous = held_call(ada, make_tool("look", "safe")), held_call(ada)
    before = known()
    record_fact("call.refused", call=safe, by=ada)
    record_fact("call.started", call=safe, level="safe")
    assert known() == before
    record_fact("call.started", call=dangerous, level="dangerous")
    assert known() == instance().audit_seq
    assert [each.facts["seq"] for each in caplog.records if each.getMessage() == "audit checkpoint"][-1] == known()


@pytest.mark.django_db(transaction=True)
def test_failed_checkpoint_does_not_block_decisions(ada, rosa, checkpoints, caplog):
    checkpoints.mkdir()
    request = ask(ada)
    assert decide(request, by=rosa, decision=approval(request)).status == "approved"
    assert "toolgate.audit" in {each.name for each in caplog.records}
    checkpoints.rmdir()
    assert RestoreMonitor().check() == "" and known() == instance().audit_seq


def test_ticker_writes_due_checkpoints(log, monkeypatch):
    append_entry(AuditRecord(action="tool.changed"))
    RestoreMonitor().check()
    assert known() == 6
    monkeypatch.setattr(audit_checkpoints, "CHECKPOINT_ENTRIES", 1)
    RestoreMonitor().check()
    assert known() == 7
    monkeypatch.undo()
    append_entry(AuditRecord(action="tool.changed"))
    later = clock.now() + timedelta(seconds=61)
    monkeypatch.setattr(clock, "now", lambda: later)
    watch = RestoreMonitor()
    watch.check()
    assert known() == 8 and not write_checkpoint()
    append_entry(AuditRecord(action="tool.changed"))
    watch.check()
    assert known() == 8, "it looks every few seconds"


def test_complete_log_matches_its_checkpoints(log):
    found = verify()
    assert (found.intact, found.checkpoints, detect_restore()) == (True, 2, "")
    append_entry(AuditRecord(action="tool.changed"))
    assert verify().intact and detect_restore() == ""


@pytest.mark.parametrize(
    ("tamper", "first_bad"),
    [
        (lambda: set_back_to(5), 6),
        (lambda: set_back_to(2), 3),
        (lambda: write_anew(object_ref="tool_x"), 4),
        (lambda: write_anew(action="tool.added"), 4),
    ],
)
def test_checkpoints_reveal_a_truncated_or_rewritten_log(log, tamper, first_bad):
    tamper()
    found = verify()
    assert (found.intact, found.first_bad) == (False, first_bad)
    assert detect_restore() != ""


def test_truncated_log_with_new_entries_is_detected(log):
    set_back_to(3)
    for _ in range(5):
        append_entry(AuditRecord(action="tool.changed"))
        assert detect_restore() != "" and not write_checkpoint()
    assert verify().first_bad == 4
    assert known() == 6, "what was set back never becomes what is witnessed"


def test_changed_checkpoint_line_is_detected(log, checkpoints):
    checkpoints.write_text(checkpoints.read_text().replace('"seq":6', '"seq":5'))
    found = verify()
    assert (found.intact, found.first_bad) == (False, 5)


def test_checkpoints_of_other_installations_are_ignored(log):
    Instance.objects.update(name="inst_other", audit_seq=0, audit_head="")
    AuditEntry.objects.all().delete()
    assert detect_restore() == "" and verify().intact and known() is None


def test_manually_raised_epoch_is_detected(log):
    """Raising the number by hand would invalidate every checkpoint."""
    Instance.objects.update(epoch=F("epoch") + 1)
    assert detect_restore() != ""
    assert not verify().intact


def test_unreadable_checkpoints_block_dangerous_starts(log, checkpoints):
    checkpoints.unlink()
    checkpoints.mkdir()
    assert detect_restore() != "" and checkpoint_write_fault() != "" and RestoreMonitor().check() == ""
    with pytest.raises(AuditUnavailable):
        ensure_start_allowed()
    checkpoints.rmdir()
    assert RestoreMonitor().check() == detect_restore() == checkpoint_write_fault() == ""
    ensure_start_allowed()


@pytest.mark.parametrize(
    ("action", "details", "must"),
    [
        ("approval.decided", {}, True),
        ("call.started", {"level": "dangerous"}, True),
        ("call.started", {"level": "cautious"}, False),
    ],
)
def test_missing_checkpoints_are_reported(log, checkpoints, action, details, must):
    """Only a log with decisions or dangerous starts must have checkpoints."""
    append_entry(AuditRecord(action=action, details=details))
    assert verify().intact
    checkpoints.unlink()
    found = verify()
    assert (found.intact, found.first_bad) == (not must, None)
    assert bool(found.reason) == must


def test_approved_calls_do_not_start_on_a_restored_database(log, ada, rosa):
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request))
    write_checkpoint()
    set_back_to(AuditEntry.objects.order_by("-seq")[2].seq)
    request.refresh_from_db()
    with pytest.raises(RestoredDatabase):
        consume(request.call, binding_of(request.call))


def test_facts_that_need_no_checkpoint_cost_no_query(ada, catalog, django_assert_num_queries):
    """Not even for the level of the call, which each of them would read."""
    call = Call.objects.get(pk=held_call(ada).pk)
    with django_assert_num_queries(0):
        for kind in ("call.changing", "call.released", "approval.reviewed"):
            audit_checkpoints.on_fact(None, fact=Fact(kind, call))
