"""A small world with every kind of event, made only by the services, and helpers to corrupt it by SQL."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection

from approvals.models import Policy
from approvals.requests import deadlines
from approvals.requests.lifecycle import withdraw
from approvals.reviews.decisions import Decision, decide, revoke, undo_decision
from approvals.states import ReviewVerdict
from catalog.access.tokens import SCOPES, create_token
from catalog.core import clock
from catalog.core.database import bind_datetime
from catalog.inventory.overrides import apply_overrides
from catalog.models import Call
from plans.actions import slices
from plans.actions.call import CallOrder, create_call
from plans.actions.control import cancel_plan
from plans.actions.give_input import give_input
from plans.actions.settle import Settlement, settle_outcome
from plans.engine import loop, recovery
from plans.engine.loop import TimeSlice
from plans.engine.work import RunningCall
from plans.models import Plan, Step
from plans.store.requesters import Requester
from tests.approvals import factories
from tests.approvals.factories import set_rule
from tests.builders import act, approve, make_plan, reject, request_of, step, work_off
from tests.conftest import forget_what_was_read


@dataclass(frozen=True)
class People:
    """The people of the small world."""

    ada: User
    rosa: User
    admin: User


@dataclass(frozen=True)
class SmallWorld:
    """The plans, named by what happened in them."""

    ran: Plan
    rejected: Plan
    expired: Plan
    settled: Plan
    unknown: Plan
    waiting: Plan
    edited: Plan
    skipped: Plan
    cancelled: Plan
    tried_again: Plan
    kept: Plan
    responded: Plan
    sent_back: Plan
    asked: Plan
    revoked: Plan
    early: Plan
    direct: Call


def small_world(people: People) -> SmallWorld:
    """Build the world."""
    ada, rosa = people.ada, people.rosa
    create_token(user=ada, kind="personal", scopes=SCOPES, name="hers")
    change_levels(people.admin)
    return SmallWorld(
        ran=ran(ada, rosa),
        rejected=rejected(ada, rosa),
        expired=expired(ada),
        settled=settled(ada, rosa),
        unknown=unknown(ada, rosa),
        waiting=waiting(people),
        edited=edited(ada, rosa),
        skipped=skipped(ada),
        cancelled=cancelled(people),
        tried_again=tried_again(ada),
        kept=work_off(make_plan(ada, act(1, "x", "keeping"))),
        responded=responded(ada, rosa),
        sent_back=sent_back(ada, rosa),
        asked=asked(ada),
        revoked=revoked(ada, rosa),
        early=early(ada, rosa),
        direct=create_call(CallOrder("safe", {"value": 1}), by=Requester(ada)),
    )


def change_levels(admin: User) -> None:
    """Raise a level, and lower it again with a reason."""
    apply_overrides("keeping", {"safety_level": "dangerous"}, by=admin)
    apply_overrides("keeping", {"safety_level": "cautious"}, by=admin, reason="It only keeps.")
    apply_overrides("limited", {"enabled": False}, by=admin)


def early(ada: User, rosa: User) -> Plan:
    """A plan with an early approval, and another early request that is still pending."""
    gated = [act(number, f"early {number}", "dangerous", dependencies=[number - 1]) for number in (2, 3, 4)]
    plan = work_off(make_plan(ada, act(1, "early 1", "dangerous"), *gated))
    request = slices.prepare_slice(plan, 1, by=rosa).requests[0]
    decide(request, by=rosa, decision=Decision(ReviewVerdict.APPROVE, request.digest))
    approve(plan, rosa)
    work_off(plan)
    slices.prepare_slice(plan, 1, by=rosa)
    return plan


def ran(ada: User, rosa: User) -> Plan:
    """A plan with calls of every level, and an approval that was undone first."""
    steps = act(1, "a", "cautious"), act(2, "b", "dangerous", dependencies=[1]), act(3, "c", dependencies=[2])
    plan = work_off(make_plan(ada, *steps))
    request = request_of(plan, 2)
    undo_decision(
        decide(request, by=rosa, decision=Decision(ReviewVerdict.APPROVE, request.digest, channel="page")), by=rosa
    )
    approve(plan, rosa, 2)
    return work_off(plan)


def rejected(ada: User, rosa: User) -> Plan:
    """A plan whose dangerous step was rejected."""
    plan = work_off(make_plan(ada, act(1, "x", "dangerous"), act(2, "y", dependencies=[1])))
    reject(plan, rosa)
    return work_off(plan)


def responded(ada: User, rosa: User) -> Plan:
    """A plan whose dangerous step was answered by a person."""
    plan = work_off(make_plan(ada, act(1, "x", "dangerous"), act(2, "y", dependencies=[1])))
    factories.respond(plan, rosa, {"found": 1})
    return work_off(plan)


def sent_back(ada: User, rosa: User) -> Plan:
    """A plan whose call was revised and requested again; another call waits for its revision."""
    plan = work_off(make_plan(ada, act(1, "x", "dangerous"), act(2, "y", "dangerous")))
    factories.send_back(plan, rosa)
    give_input(plan, 1, {"value": "less"}, by=Requester(ada))
    work_off(plan)
    factories.send_back(plan, rosa, step_id=2)
    return plan


def asked(ada: User) -> Plan:
    """A plan whose first question was answered, and whose second one waits."""
    questions = [step(number, "ask_user", parameters={"question": "Well?"}) for number in (1, 2)]
    plan = work_off(make_plan(ada, *questions))
    give_input(plan, 1, None, text="Yes.", by=Requester(ada))
    return work_off(plan)


def revoked(ada: User, rosa: User) -> Plan:
    """A plan whose approval was revoked before its use, and whose other call was rejected."""
    plan = work_off(make_plan(ada, act(1, "x", "dangerous"), act(2, "y", "dangerous"), act(3, "z", "dangerous")))
    approve(plan, rosa)
    revoke(request_of(plan), by=rosa)
    factories.reject(plan, rosa, "skip", step_id=2)
    factories.reject(plan, rosa, "cancel_plan", step_id=3)
    return work_off(plan)


def expired(ada: User) -> Plan:
    """A plan whose request expired."""
    plan = work_off(make_plan(ada, act(1, "x", "dangerous")))
    request = request_of(plan)
    deadlines.expire_if_due(request, request.expires_at)
    return work_off(plan)


def lose_worker(plan: Plan) -> None:
    """Claim and start ready steps, let the worker be lost, and take its steps back."""
    work = loop.claim_work(plan.pk, owner="lost")
    while work is not None and not isinstance(work, RunningCall):
        work = loop.advance(work, TimeSlice("lost", until=float("inf"), steps_left=1000))
    Step.objects.filter(plan=plan, lease_until__isnull=False).update(lease_until=clock.now())
    recovery.take_back_lost_steps(clock.now())


def unknown(ada: User, rosa: User) -> Plan:
    """A plan whose dangerous call lost its worker, and whose safe call lost it and ran again."""
    plan = work_off(make_plan(ada, act(1, "x", "dangerous"), act(2, "y", "patient")))
    approve(plan, rosa)
    lose_worker(plan)
    return work_off(plan)


def tried_again(ada: User) -> Plan:
    """A plan whose safe call lost its worker and ran again."""
    plan = make_plan(ada, act(1, "x"))
    lose_worker(plan)
    return work_off(plan)


def settled(ada: User, rosa: User) -> Plan:
    """A plan whose unknown outcome was settled."""
    plan = unknown(ada, rosa)
    settle_outcome(plan, 1, settlement=Settlement("happened"), by=Requester(ada))
    return work_off(plan)


def waiting(people: People) -> Plan:
    """A plan that waits for a second reviewer."""
    one, two = set_rule(), set_rule()
    two.pk, two.number, two.stages = None, one.number + 1, [{"group": "reviewer", "count": 2}]
    two.save()
    Policy.objects.filter(pk=one.policy_id).update(revision=two)
    forget_what_was_read()
    plan = work_off(make_plan(people.ada, act(1, "x", "dangerous")))
    Policy.objects.filter(pk=one.policy_id).update(revision=one)
    forget_what_was_read()
    approve(plan, people.rosa)
    return plan


def edited(ada: User, rosa: User) -> Plan:
    """A plan whose proposed edit was partly accepted."""
    lines = [f"line {number}\n" for number in range(40)]
    after = [*lines[:3], "LINE 3\n", *lines[4:30], "LINE 30\n", *lines[31:]]
    proposal = {"path": "note.txt", "original": "".join(lines), "modified": "".join(after), "description": "Louder"}
    (Path(settings.TOOLGATE_WORKSPACE) / "note.txt").write_text("".join(lines))
    plan = work_off(make_plan(ada, step(1, "propose_file_edit", parameters=proposal)))
    request = request_of(plan)
    decide(request, by=rosa, decision=Decision(ReviewVerdict.APPROVE, request.digest, hunks=(0,)))
    return work_off(plan)


def skipped(ada: User) -> Plan:
    """A plan whose only step was already done."""
    return work_off(
        make_plan(ada, act(1, "x", expected_key="note", done_check="note is not None"), memory={"note": "here"})
    )


def cancelled(people: People) -> Plan:
    """A plan cancelled while it waited for approval, and one whose request was withdrawn."""
    plan = work_off(make_plan(people.ada, act(1, "x", "dangerous"), act(2, "y", dependencies=[1])))
    cancel_plan(plan, by=Requester(people.ada))
    other = work_off(make_plan(people.ada, act(1, "x", "dangerous")))
    withdraw(request_of(other), by=people.ada, reason="No need.")
    return plan


def corrupt(sql: str, *parameters: Any) -> None:
    """Change exactly one row by SQL."""
    with nothing_watches(), connection.cursor() as cursor:
        cursor.execute(sql, [bind_datetime(each) if isinstance(each, datetime) else each for each in parameters])
        assert cursor.rowcount == 1


@contextmanager
def nothing_watches() -> Iterator[None]:
    """Allow SQL to change the audit log, as the owner of the database can."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("SELECT sql FROM sqlite_master WHERE name = 'audit_is_append_only'")
            [again] = cursor.fetchone()
            cursor.execute("DROP TRIGGER audit_is_append_only")
        else:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute("ALTER TABLE approvals_auditentry DISABLE TRIGGER audit_is_append_only")
            again = "ALTER TABLE approvals_auditentry ENABLE TRIGGER audit_is_append_only"
        yield
        cursor.execute(again)
