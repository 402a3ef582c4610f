"""The audit log: audited facts, excluded details, and detection of tampering."""

import json
from collections.abc import Callable
from functools import partial
from importlib import import_module

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.db.models import F

from approvals.audit.log import FORBIDDEN_DETAILS, AuditRecord, append_entry, record_rights
from approvals.audit.verification import Verification, chain_end_fault, verify
from approvals.models import AuditEntry, Instance
from catalog.signals import record_fact
from tests.approvals.audit.tampering import drop_triggers
from tests.approvals.factories import held_call, make_tool

pytestmark = pytest.mark.db
ENTRIES = 7


@pytest.fixture
def chain(ada, checkpoints) -> None:
    """A log of seven mutable entries: an attacker who owns the database can drop the triggers."""
    for number in range(ENTRIES):
        append_entry(
            AuditRecord(action="tool.changed", by=ada, object_ref=f"tool_{number}", details={"number": number})
        )
    drop_triggers()


@pytest.fixture
def as_installed(db) -> None:
    """Install the triggers of the product, which the test database lacks because it must be emptied."""
    migration = import_module("approvals.migrations.0001_initial")
    triggers = migration.AUDIT_ON_SQLITE if connection.vendor == "sqlite" else migration.AUDIT_ON_POSTGRESQL
    with connection.cursor() as cursor:
        cursor.execute(triggers["audit_entries_are_kept"])


def entries(seq: int):
    """Return the entry of this number, as a queryset."""
    return AuditEntry.objects.filter(seq=seq)


def set_back_to(seq: int) -> None:
    """Move the head back to an earlier entry without touching the entries."""
    Instance.objects.update(audit_seq=seq, audit_head=entries(seq).get().hash)


def forge_the_next() -> None:
    """Write an entry without the key, and no head."""
    last = entries(ENTRIES).get()
    last.pk, last.seq, last.prev_hash = None, last.seq + 1, last.hash
    last.save(force_insert=True)


def change(field: str) -> None:
    """Overwrite a field of an entry."""
    entries(3).update(**{field: "x"})


def swap(one: int, other: int) -> None:
    """Swap two entries."""
    for seq, to in ((one, 900), (other, one), (900, other)):
        entries(seq).update(seq=to)


TAMPERING: dict[str, tuple[Callable[[], object], int]] = {
    **{
        f"{field} changed": (partial(change, field), 3)
        for field in ("action", "actor_name", "object_ref", "tool_name", "plan_ref", "digest", "details")
    },
    "character moved to the next field": (lambda: entries(3).update(object_ref="tool_", tool_name="2"), 3),
    "actor exchanged": (lambda: entries(3).update(actor=User.objects.create(username="mallory")), 3),
    "actor removed": (lambda: entries(3).update(actor=None), 3),
    "time changed": (lambda: entries(3).update(at=entries(4).get().at), 3),
    "hash changed": (lambda: entries(3).update(hash="0" * 64), 3),
    "previous hash changed": (lambda: entries(3).update(prev_hash="0" * 64), 3),
    "first deleted": (lambda: entries(1).delete(), 1),
    "one deleted": (lambda: entries(4).delete(), 4),
    "last deleted": (lambda: entries(ENTRIES).delete(), ENTRIES),
    "all deleted": (lambda: AuditEntry.objects.all().delete(), 1),
    "two swapped": (lambda: swap(2, 3), 2),
    "next forged": (forge_the_next, ENTRIES + 1),
    "head set back": (lambda: set_back_to(4), 5),
    "hash of the head changed": (lambda: Instance.objects.update(audit_head="0" * 64), ENTRIES + 1),
    "head moved on": (lambda: Instance.objects.update(audit_seq=F("audit_seq") + 1), ENTRIES + 1),
    "another installation": (lambda: Instance.objects.update(name="inst_other"), 1),
}


def test_tampering_is_detected(chain):
    found = {}
    for name, (tamper, _) in TAMPERING.items():
        with transaction.atomic():
            tamper()
            seen = verify()
            transaction.set_rollback(True)
        found[name] = (seen.intact, seen.first_bad)
        assert verify() == Verification(intact=True, entries=ENTRIES), name
    assert found == {name: (False, first_bad) for name, (_, first_bad) in TAMPERING.items()}


MALFORMED = (
    *("at = at || '+05:00'", "at = replace(at, ' ', 'T')", "at = at || 'Z'", "at = at || char(0)", "at = 7"),
    *("details = CAST(details AS BLOB)", "details = details || char(0) || 'x'", "details = CAST(x'ff' AS TEXT)"),
    *("actor_id = 'x'", "actor_id = 1.5", "action = x'00'", "hash = CAST(hash AS BLOB)", "seq = 3.5"),
)


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="PostgreSQL stores no other types")
def test_malformed_entry_is_named(chain):
    """Stored values are compared, not values as read: another time zone, another type, text after a NUL."""
    found = {}
    for change in MALFORMED:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("PRAGMA defer_foreign_keys = ON")
            cursor.execute(f"UPDATE approvals_auditentry SET {change} WHERE seq = 3")  # noqa: S608 - from above
            found[change] = verify().first_bad
            transaction.set_rollback(True)
    assert found == dict.fromkeys(MALFORMED, 3)


def test_chain_end_check_needs_two_queries(chain, django_assert_num_queries):
    with django_assert_num_queries(2):
        assert chain_end_fault() == ""
    set_back_to(3)
    assert chain_end_fault() != ""
    AuditEntry.objects.filter(seq__gt=3).delete()
    assert chain_end_fault() == ""
    entries(3).update(action="x")
    assert chain_end_fault() != ""
    Instance.objects.all().delete()
    assert chain_end_fault() != ""


def test_wrong_key_is_detected_at_the_chain_end(chain, settings):
    """A process with the wrong key must not get work."""
    settings.TOOLGATE_AUDIT_KEY = "another-key-another-key-another-key"
    assert chain_end_fault() != ""


def test_wrong_key_does_not_verify(chain, settings):
    settings.TOOLGATE_AUDIT_KEY = "another key of at least 32 characters"
    assert verify().first_bad == 1
    append_entry(AuditRecord(action="tool.changed"))
    settings.TOOLGATE_AUDIT_KEY = "a third key of at least 32 characters"
    assert not verify().intact


def test_chain_is_verified_in_chunks(chain, monkeypatch):
    for size in (1, 2, ENTRIES - 1, ENTRIES, 100):
        monkeypatch.setattr("approvals.audit.entries.CHUNK", size)
        assert verify() == Verification(intact=True, entries=ENTRIES)


WITHOUT_A_TRACE = {
    "sqlite": "INSERT OR REPLACE INTO approvals_auditentry SELECT * FROM approvals_auditentry",
    "postgresql": "TRUNCATE approvals_auditentry",
}


@pytest.mark.parametrize(
    "sql", ["UPDATE approvals_auditentry SET action = 'x'", "DELETE FROM approvals_auditentry", ""]
)
def test_database_rejects_changes_of_entries(as_installed, sql):
    append_entry(AuditRecord(action="tool.changed"))
    sql = sql or WITHOUT_A_TRACE[connection.vendor]
    connection.check_constraints()  # what is deferred to the commit would refuse first
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql)


KEPT_OF_CALLS = [
    ("call.started", "safe", False),
    ("call.succeeded", "safe", False),
    ("call.started", "cautious", True),
    ("call.failed", "dangerous", True),
    ("call.refused", "safe", True),
    ("call.settled", "safe", True),
    ("call.changing", "dangerous", False),
    ("approval.opened", "safe", True),
    ("step.outcome_unknown", "cautious", True),
    ("tool.invoked", "cautious", False),
]


def test_cautious_and_dangerous_calls_are_audited(ada):
    for kind, level, _ in KEPT_OF_CALLS:
        record_fact(kind, call=held_call(ada, make_tool(level, level)), by=ada)
    kept = list(AuditEntry.objects.order_by("seq").values_list("action", "tool_name"))
    assert kept == [(kind, level) for kind, level, is_kept in KEPT_OF_CALLS if is_kept]


def test_call_entry_has_ids_digests_and_reasons_only(ada):
    call = held_call(ada)
    record_fact(
        "call.failed", call=call, by=ada, level="dangerous", attempt=2, arguments={"a": 1}, result="x", message="y"
    )
    entry = AuditEntry.objects.get()
    assert (entry.object_ref, entry.tool_name, entry.actor) == (call.public_id, "write_note", ada)
    assert entry.details_json.keys() == {"level", "attempt", "row"}


def test_tool_and_token_entries(ada):
    record_fact("tool.changed", tool="write_note", version=2)
    record_fact("token.created", by=ada, token="tg_abcdefg", scopes=["plans:read"])
    record_fact("plan.changed", plan="plan_1")
    tool, token = AuditEntry.objects.order_by("seq")
    assert (tool.object_ref, tool.tool_name, tool.actor_name) == ("write_note", "write_note", "Toolgate")
    assert (token.object_ref, token.tool_name, token.actor_name) == ("tg_abcdefg", "", "ada")


def test_failed_entry_rolls_back_its_action(ada):
    with pytest.raises(Instance.DoesNotExist), transaction.atomic():
        Instance.objects.all().delete()
        record_fact("call.started", call=held_call(ada), level="dangerous")


CANARY = "canary-7f3a"


@pytest.mark.parametrize("kind", ["approval.opened", "call.failed", "call.refused", "policy.changed", "grant.created"])
def test_arguments_and_results_are_not_audited(ada, kind):
    call = None if kind.startswith(("policy.", "grant.")) else held_call(ada)
    record_fact(kind, call=call, by=ada, **dict.fromkeys(FORBIDDEN_DETAILS, CANARY), reason="why")
    entry = AuditEntry.objects.get()
    assert CANARY not in entry.details and "hello" not in entry.details and "why" in entry.details


def test_policy_and_grant_entries_have_their_ids(ada):
    record_fact("policy.changed", by=ada, policy="pol_1", revision=2)
    record_fact("grant.created", by=ada, grant="grt_1")
    assert list(AuditEntry.objects.order_by("seq").values_list("object_ref", flat=True)) == ["pol_1", "grt_1"]


def test_sign_in_and_sign_out_are_audited(client, ada):
    client.login(username="ada", password="secret-ada")
    client.logout()
    client.logout()
    client.login(username="ada", password="wrong")
    client.login(username="hunter2", password="ada")
    kept = AuditEntry.objects.order_by("seq").values_list("action", "actor_name")
    names = ["succeeded", "ended", "failed", "failed"]
    assert list(kept) == [(f"sign_in.{name}", who) for name, who in zip(names, ["ada"] * 3 + ["unknown"], strict=True)]


def test_command_reports_an_intact_log(chain, capsys):
    record_rights()
    call_command("verify_audit")
    call_command("verify_audit", "--json")
    words, document = capsys.readouterr().out.splitlines()
    assert words.startswith("intact: 8 ")
    assert json.loads(document) == {"intact": True, "entries": 8, "checkpoints": 0, "changed_rows": []}


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_command_fails_for_a_broken_log(chain, capsys, options):
    entries(4).delete()
    with pytest.raises(SystemExit) as ended:
        call_command("verify_audit", *options)
    assert ended.value.code == 1
    output = capsys.readouterr().out
    assert json.loads(output)["first_bad"] == 4 if options else "entry 4" in output
