"""The audit log keeps what it must, never arguments, and shows every way of tampering it can know of."""

import json
from collections.abc import Callable
from functools import partial
from importlib import import_module

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.db.models import F

from approvals.audit.log import FORBIDDEN_DETAILS, AuditRecord, append_entry
from approvals.audit.verification import Verification, chain_end_fault, verify
from approvals.models import AuditEntry, Instance
from catalog.signals import record_fact
from tests.approvals.audit.tampering import drop_triggers
from tests.approvals.factories import held_call, make_tool

pytestmark = pytest.mark.db
ENTRIES = 7


@pytest.fixture
def chain(ada, checkpoints) -> None:
    """A log of seven entries whose rows may be changed: an attacker who owns the database drops its triggers."""
    for number in range(ENTRIES):
        append_entry(
            AuditRecord(action="tool.changed", by=ada, object_ref=f"tool_{number}", details={"number": number})
        )
    drop_triggers()


@pytest.fixture
def as_installed(db) -> None:
    """The triggers that the product's database has and that of the tests, which is emptied, has not."""
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
    """Write another text into a field of an entry."""
    entries(3).update(**{field: "x"})


def swap(one: int, other: int) -> None:
    """Let two entries change places."""
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


def test_tampering_shows(chain):
    """With the first entry that is wrong or missing."""
    found = {}
    for name, (tamper, _) in TAMPERING.items():
        with transaction.atomic():
            tamper()
            seen = verify()
            transaction.set_rollback(True)
        found[name] = (seen.intact, seen.first_bad)
        assert verify() == Verification(intact=True, entries=ENTRIES), name
    assert found == {name: (False, first_bad) for name, (_, first_bad) in TAMPERING.items()}


def test_the_end_of_the_chain_is_judged_without_walking_it(chain, django_assert_num_queries):
    """A log that is cut off or set back, and one that goes on without its head, show at once."""
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


def test_another_key_shows_at_the_end_of_the_chain(chain, settings):
    """A process with the wrong key must not be sent work."""
    settings.TOOLGATE_AUDIT_KEY = "another-key-another-key-another-key"
    assert chain_end_fault() != ""


def test_another_key_makes_another_chain(chain, settings):
    """Whoever lacks the key cannot write an entry that verifies."""
    settings.TOOLGATE_AUDIT_KEY = "another key of at least 32 characters"
    assert verify().first_bad == 1
    append_entry(AuditRecord(action="tool.changed"))
    settings.TOOLGATE_AUDIT_KEY = "a third key of at least 32 characters"
    assert not verify().intact


def test_the_chain_is_walked_in_chunks(chain, monkeypatch):
    """Also over their borders."""
    for size in (1, 2, ENTRIES - 1, ENTRIES, 100):
        monkeypatch.setattr("approvals.audit.verification.CHUNK", size)
        assert verify() == Verification(intact=True, entries=ENTRIES)


WITHOUT_A_TRACE = {
    "sqlite": "INSERT OR REPLACE INTO approvals_auditentry SELECT * FROM approvals_auditentry",
    "postgresql": "TRUNCATE approvals_auditentry",
}


@pytest.mark.parametrize(
    "sql", ["UPDATE approvals_auditentry SET action = 'x'", "DELETE FROM approvals_auditentry", ""]
)
def test_the_database_refuses_changes(as_installed, sql):
    """Deletions too, and what takes rows away without deleting them."""
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


def test_audit_log_keeps_cautious_and_dangerous_calls(ada):
    """Cautious and dangerous calls, refusals, approvals and settlements."""
    for kind, level, _ in KEPT_OF_CALLS:
        record_fact(kind, call=held_call(ada, make_tool(level, level)), by=ada)
    kept = list(AuditEntry.objects.order_by("seq").values_list("action", "tool_name"))
    assert kept == [(kind, level) for kind, level, is_kept in KEPT_OF_CALLS if is_kept]


def test_what_is_kept_of_a_call(ada):
    """Ids, digests and reasons; arguments and results are dropped even when someone states them."""
    call = held_call(ada)
    record_fact(
        "call.failed", call=call, by=ada, level="dangerous", attempt=2, arguments={"a": 1}, result="x", message="y"
    )
    entry = AuditEntry.objects.get()
    assert (entry.object_ref, entry.tool_name, entry.actor) == (call.public_id, "write_note", ada)
    assert entry.details_json == {"level": "dangerous", "attempt": 2}


def test_what_is_kept_of_tools_and_tokens(ada):
    """Under their own names; nobody's doing is the installation's."""
    record_fact("tool.changed", tool="write_note", version=2)
    record_fact("token.created", by=ada, token="tg_abcdefg", scopes=["plans:read"])
    record_fact("plan.changed", plan="plan_1")
    tool, token = AuditEntry.objects.order_by("seq")
    assert (tool.object_ref, tool.tool_name, tool.actor_name) == ("write_note", "write_note", "Toolgate")
    assert (token.object_ref, token.tool_name, token.actor_name) == ("tg_abcdefg", "", "ada")


def test_an_entry_that_cannot_be_written_stops_what_it_tells(ada):
    """No audit, no dangerous start."""
    with pytest.raises(Instance.DoesNotExist), transaction.atomic():
        Instance.objects.all().delete()
        record_fact("call.started", call=held_call(ada), level="dangerous")


CANARY = "canary-7f3a"


@pytest.mark.parametrize("kind", ["approval.opened", "call.failed", "call.refused", "policy.changed", "grant.created"])
def test_no_argument_or_result_is_kept(ada, kind):
    """By whatever name it usually goes; the call's own arguments are never looked at."""
    call = None if kind.startswith(("policy.", "grant.")) else held_call(ada)
    record_fact(kind, call=call, by=ada, **dict.fromkeys(FORBIDDEN_DETAILS, CANARY), reason="why")
    entry = AuditEntry.objects.get()
    assert CANARY not in entry.details and "hello" not in entry.details and "why" in entry.details


def test_policies_and_grants_are_kept_under_their_ids(ada):
    """As tools and tokens are."""
    record_fact("policy.changed", by=ada, policy="pol_1", revision=2)
    record_fact("grant.created", by=ada, grant="grt_1")
    assert list(AuditEntry.objects.order_by("seq").values_list("object_ref", flat=True)) == ["pol_1", "grt_1"]


def test_signing_in_and_out_is_kept(client, ada):
    """And failing to; a name that is none is not kept, as people type passwords there."""
    client.login(username="ada", password="secret-ada")
    client.logout()
    client.logout()
    client.login(username="ada", password="wrong")
    client.login(username="hunter2", password="ada")
    kept = AuditEntry.objects.order_by("seq").values_list("action", "actor_name")
    names = ["succeeded", "ended", "failed", "failed"]
    assert list(kept) == [(f"sign_in.{name}", who) for name, who in zip(names, ["ada"] * 3 + ["unknown"], strict=True)]


def test_the_command_says_intact(chain, capsys):
    """In words and as JSON."""
    call_command("verify_audit")
    call_command("verify_audit", "--json")
    words, document = capsys.readouterr().out.splitlines()
    assert words.startswith("intact: 7 ")
    assert json.loads(document) == {"intact": True, "entries": 7, "checkpoints": 0}


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_command_fails_where_the_log_is_bad(chain, capsys, options):
    """With exit code 1 and the first bad entry."""
    entries(4).delete()
    with pytest.raises(SystemExit) as ended:
        call_command("verify_audit", *options)
    assert ended.value.code == 1
    said = capsys.readouterr().out
    assert json.loads(said)["first_bad"] == 4 if options else "entry 4" in said
