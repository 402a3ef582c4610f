"""Canaries: secrets of thirty shapes in six places go through calls, plans, approvals, errors and pages, and turn up
nowhere: not in answers, pages, events, logs, mail, exports or error pages, and in no byte of the database.
"""

import json
import logging
import random
import subprocess
from pathlib import Path

import pytest
from django.conf import settings
from django.core import mail
from django.db import connection
from django.test import Client

from approvals.queue.saved_views import WAITING
from catalog.core.canonical_json import canonical_text
from catalog.ui.lists import ListDefinition
from plans.engine import calls
from plans.models import Plan
from plans.web.fragments import PlanRenderer, _render_inbox
from tests.builders import approve, call_of, make_plan, reject, request_of, step, work_off
from tests.canaries import PLACES, SHAPES, canary, traces
from tests.counts import FULL
from tests.pages import Pages
from tests.plans.secret_tools import ACTS
from tests.plans.socket_clients import apart, by_session, opened
from tests.rest import Rest

pytestmark = pytest.mark.django_db(transaction=True)


class Nest:
    """The planted canaries, and all output captured since."""

    def __init__(self):
        self.dice = random.Random(7)  # noqa: S311 (no secret)
        self.planted: list[tuple[str, str]] = []
        self.captured: dict[str, bytes] = {}

    def plant(self, *places):
        """Return arguments with one new canary of every shape, put into these places in turn."""
        found = [canary(shape, self.dice) for shape in SHAPES]
        self.planted += zip(SHAPES, (part for _, part in found), strict=True)
        return {f"v{number}": places[number % len(places)](text) for number, (text, _) in enumerate(found)}

    def keep(self, name, content):
        """Keep what was seen somewhere."""
        self.captured[name] = content if isinstance(content, bytes) else str(content).encode()

    def leaks(self):
        """Return where which shape turned up."""
        return sorted(
            {
                (name, shape)
                for name, content in self.captured.items()
                for shape, part in self.planted
                for trace in traces(part)
                if trace in content
            }
        )


@pytest.fixture
def people(ada, rosa, admin):
    """The requester and the readers; under `make nightly` also an administrator."""
    return (ada, rosa, admin) if FULL else (ada, rosa)


@pytest.fixture
def nest(caplog):
    """An empty nest that hears every log line."""
    caplog.set_level(logging.DEBUG)
    nest = Nest()
    yield nest
    nest.keep("logs", caplog.text)


def see_all_pages(nest, viewer, plans):
    """Capture every page and answer about these plans."""
    pages, rest = Pages(viewer), Rest(viewer)
    below: tuple[str, ...] = (
        "",
        "?step=1&tab=input",
        "?step=1&tab=output",
        "?step=2&tab=input",
        "steps/1/result/",
        "values/kept/",
    )
    below += ("steps/1/arguments/", "steps/1/result/?as=model", "values/kept/?path=", "values/kept/?q=a")
    for plan in plans:
        for more in below:
            nest.keep(f"/plans/ {more} {plan.pk}", pages.client.get(f"/plans/{plan.public_id}/{more}").content)
        for more in ("", "memory/", "events/"):
            nest.keep(f"plans/ {more} {plan.pk}", rest.get(f"plans/{plan.public_id}/{more}").content)
        for call in plan.steps.exclude(call=None).values_list("call__public_id", flat=True):
            nest.keep(f"calls/ {call}", rest.get(f"calls/{call}/").content)
        drawn = PlanRenderer(plan.public_id)()
        nest.keep(f"live {plan.pk}", "".join(drawn.fragments.values()))
    for path in ("/", "/approvals/", "/plans/", "/tools/", "/tools/jot/", "/audit/"):
        nest.keep(path, pages.client.get(path).content)
    for path in ("approvals/", "plans/", "plans/?kind=call", "audit/", "tools/jot/"):
        nest.keep(f"api {path}", rest.get(path).content)


def read_apart(path):
    """Return the bytes of a file that SQLite has open here: to close it in this process would end SQLite's locks."""
    return subprocess.run(["cat", str(path)], capture_output=True, check=True).stdout


def see_the_database(nest):
    """Capture every byte of the database's file, or every row of every table where it is not a file."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            path = Path(connection.settings_dict["NAME"])
            for each in path.parent.glob(f"{path.name}*"):
                nest.keep(f"file {each.name}", read_apart(each))
            return
        for table in connection.introspection.table_names():
            cursor.execute(f'SELECT row_to_json(t)::text FROM "{table}" t')  # noqa: S608 (a table of ours)
            nest.keep(f"table {table}", "\n".join(row[0] for row in cursor.fetchall()))


def ends_without_leaks(nest):
    """Look at mail and database, and say where something turned up."""
    nest.keep("mail", "".join(each.message().as_string() for each in mail.outbox))
    see_the_database(nest)
    return nest.leaks()


@pytest.mark.db
@pytest.mark.parametrize("turn", range(len(PLACES)) if FULL else [0])
def test_nothing_of_a_secret_is_stored_or_shown(keepers, nest, people, turn):
    ada, rosa, *others = people
    firsts = [(turn + call) % len(PLACES) for call in range(4)]
    given = [nest.plant(*PLACES[first:], *PLACES[:first]) for first in firsts]
    call_directly(nest, ada, given[0])
    assert canonical_text(keepers[-1]) == canonical_text(given[0])
    plan, other, failed = plans_with(ada, *given[1:])
    for viewer in (rosa, *others):
        see_all_pages(nest, viewer, (plan, other, failed))
        see_requests(nest, viewer, (request_of(plan, 2), request_of(other)))
    approve(plan, rosa, 2)
    reject(other, rosa)
    work_off(plan)
    assert call_of(plan, 2).status == "completed"
    see_all_pages(nest, ada, (plan, other, failed) if FULL else (plan,))
    assert ends_without_leaks(nest) == []


def call_directly(nest, ada, given):
    """Call a tool that repeats what it is given."""
    answer = Rest(ada).post("calls/", {"tool": "jot", "arguments": {"value": given}, "wait_seconds": 0})
    assert answer.status_code == 201, answer.content
    nest.keep("direct", answer.content)
    work_off(Plan.objects.get(public_id=answer.json()["plan"]))


def plans_with(ada, one, two, three):
    """Return a plan that keeps a result and asks, one that asks, and one that has failed."""
    ACTS["sign_in"] = lambda given: 1 / 0
    kept = step(1, "jot", parameters={"value": one}, expected_key="kept")
    asks = {"host": "${kept.output_key}", "password": "given as it is", "note": two}
    fails = {"user": "u", "password": "p3", "note": three}
    return (
        work_off(make_plan(ada, kept, step(2, "wipe", parameters=asks, dependencies=[1]))),
        work_off(make_plan(ada, step(1, "wipe", parameters={"host": "h", "password": "p2", "note": three}))),
        work_off(make_plan(ada, step(1, "sign_in", parameters=fails))),
    )


def see_requests(nest, viewer, requests):
    """Capture requests as pages and the API show them."""
    for held in requests:
        for more in ("", "&view=json", "&view=edit"):
            seen = Pages(viewer).client.get(f"/approvals/?item={held.public_id}{more}").content
            nest.keep(f"item {viewer} {more} {held.pk}", seen)
        nest.keep(f"approval {viewer} {held.pk}", Rest(viewer).get(f"approvals/{held.public_id}/").content)


def test_a_placeholder_that_is_moved_brings_nothing_along(keepers, nest, ada, rosa):
    """Neither into an edit nor a changed step, nor into other text."""
    parameters = {"host": "h", "password": "correct horse battery", "note": nest.plant(PLACES[4])}
    plan = work_off(make_plan(ada, step(1, "wipe", parameters=parameters)))
    planned, request = make_plan(ada, step(1, "wipe", parameters=parameters), start=False), request_of(plan)
    shown = request.rounds.get().arguments_json
    marks = [note[note.index('{"$secret"') : note.index("}") + 1] for note in shown["note"].values()]
    around = ("{}", "see {} here", "x{}x")
    moved = {**shown, "note": {f"m{number}": around[number % 3].format(mark) for number, mark in enumerate(marks)}}
    body = {"verdict": "approve", "seen_digest": request.digest, "arguments": moved}
    edited = Rest(rosa).post(f"approvals/{request.public_id}/reviews/", body)
    changed = Rest(ada).patch(f"plans/{planned.public_id}/", {"edit": [{"step_id": 1, "parameters": moved}]})
    for answer in (edited, changed):
        found = {(each["path"].rpartition(".")[2], each["code"]) for each in answer.json()["errors"]}
        assert (answer.status_code, found) == (422, {(name, "secret_moved") for name in moved["note"]})
    nest.keep("answers", edited.content + changed.content)
    see_all_pages(nest, ada, (plan, planned))
    see_requests(nest, rosa, (request,))
    assert ends_without_leaks(nest) == []


def test_refusals_and_errors_hold_nothing(keepers, nest, ada, monkeypatch):
    given = nest.plant(PLACES[0])
    wrong = {"user": given, "password": given, "more": given}
    for path, body in (
        ("calls/", {"tool": "sign_in", "arguments": {"user": 1, "password": 2, **given}}),
        ("plans/", {"goal": "x", "steps": [step(1, "sign_in", parameters=wrong)]}),
    ):
        answer = Rest(ada).post(path, body)
        assert answer.status_code == 422
        nest.keep(path, answer.content)

    def fail(tool, arguments, **kwargs):
        raise RuntimeError(json.dumps(dict(arguments)))

    monkeypatch.setattr(calls, "prepare_for_plan", fail)
    answer = Rest(ada).post("calls/", {"tool": "jot", "arguments": {"value": given}})
    assert answer.status_code == 500
    nest.keep("500", answer.content)
    assert ends_without_leaks(nest) == []


def test_a_page_of_djangos_own_names_no_value(nest, ada, settings, monkeypatch):
    settings.DEBUG = True
    given = nest.plant(PLACES[0])["v0"]

    def fail(*args, **kwargs):
        secret = given
        raise RuntimeError(len(secret))

    monkeypatch.setattr(ListDefinition, "read", fail)
    client = Client(raise_request_exception=False)
    client.force_login(ada)
    answer = client.get("/plans/")
    assert answer.status_code == 500
    nest.keep("page", answer.content)
    assert nest.leaks() == []


def test_what_is_exported_and_drawn_for_all_holds_nothing(keepers, nest, ada, rosa):
    given = nest.plant(PLACES[4])
    work_off(make_plan(ada, step(1, "wipe", parameters={"host": "h", "password": "pw12", "note": given})))
    nest.keep("inbox", "".join(_render_inbox(WAITING, rosa).fragments.values()))
    for path in ("/audit/?format=jsonl", "/audit/?format=csv", "/audit/export/?format=jsonl"):
        nest.keep(path, Pages(rosa).client.get(path).content)
    assert ends_without_leaks(nest) == []
    assert settings.DEFAULT_EXCEPTION_REPORTER_FILTER == "config.operations.logging.RedactingReporterFilter"


def test_the_page_to_try_a_tool_holds_only_names_once_it_is_called(keepers, nest, ada):
    pages = Pages(ada)
    pages.open("/tools/jot/try/")
    given = nest.plant(PLACES[0])
    form = {"mode": "json", "json": json.dumps({"value": given}), "do": "call", "key": pages.field("key")}
    pages.send("/tools/jot/try/", form)
    assert "$secret" in pages.html
    nest.keep("page", pages.html)
    assert ends_without_leaks(nest) == []


async def test_sockets_contain_no_secret(keepers, nest, executor, ada):
    given = await apart(nest.plant, PLACES[4])
    asks = step(2, "wipe", parameters={"host": "h", "password": "pw12", "note": given}, dependencies=[1])
    plan = await apart(make_plan, ada, step(1, "jot", parameters={"value": given}), asks)
    async with opened(f"/ws/plans/{plan.public_id}/", await apart(by_session, ada)) as caller:
        told: list[str] = [""]
        while "step.waiting" not in told[-1]:
            told.append(str(await caller.receive_json_from(timeout=60)))
    nest.keep("socket", "".join(told))
    assert await apart(ends_without_leaks, nest) == []


def test_a_secret_that_is_stored_would_be_found(nest, ada):
    """Otherwise the tests above would prove nothing."""
    name = next(iter(nest.plant(PLACES[0]).values()))
    type(ada).objects.filter(pk=ada.pk).update(first_name=name[:150])
    assert ends_without_leaks(nest)
