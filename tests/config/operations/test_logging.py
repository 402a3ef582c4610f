"""Log format of all loggers, without arguments, results and messages of exceptions."""

import logging
import re
from datetime import datetime

import pytest
import structlog
from structlog.contextvars import bound_contextvars

from catalog.core.tracing import log_extra
from catalog.core.transactions import log_unexpected
from tests.builders import act, approve, make_plan, reject, work_off
from tests.config.factories import CANARY, HOSTILE, fail, raised
from tests.rest import Rest


def test_a_line_of_json_has_when_who_what_ids_and_facts(lines):
    with bound_contextvars(request_id="r1", plan="plan_1"):
        logging.getLogger("toolgate.calls").info("call %s", "ended", extra=log_extra(call="call_1", duration_ms=1.5))
    [line] = lines.json()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(line["time"]))
    assert datetime.fromisoformat(str(line.pop("time"))).utcoffset() is not None
    assert line == {
        "level": "info", "logger": "toolgate.calls", "event": "call ended",
        "request_id": "r1", "plan": "plan_1", "call": "call_1", "duration_ms": 1.5,
    }  # fmt: skip


def test_a_line_of_text_reads_the_same(words):
    with bound_contextvars(plan="plan_1"):
        logging.getLogger("uvicorn.error").warning("so it is", extra=log_extra(tool="a b", nothing=""))
    assert words.text[25:] == 'WARNING uvicorn.error so it is plan=plan_1 tool="a b" nothing=""\n'


def test_no_value_ends_a_line_or_paints_a_terminal(both):
    with bound_contextvars(request_id=HOSTILE):
        logging.getLogger("toolgate.x").error("it was %s", HOSTILE, extra=log_extra(tool=HOSTILE))
    for captured in both:
        assert captured.text.count("\n") == 1
        assert captured.text.rstrip("\n").isprintable()


def test_long_values_are_truncated(both):
    logging.getLogger("toolgate.x").error("x" * 100_000, extra=log_extra(tool="y" * 100_000))
    assert [len(captured.text) < 5000 for captured in both] == [True, True]


def test_exceptions_are_logged_without_message(both):
    error = raised()
    log_unexpected(error)
    logging.getLogger("django.request").error("broken", exc_info=error, extra={"request": CANARY})
    structlog.get_logger("toolgate.x").error("broken", exc_info=error)
    for captured in both:
        assert CANARY not in captured.text
        assert captured.text.count("ValueError") >= 3
        assert captured.text.count("in fail") == 3


def test_lines_of_structlog_come_out_the_same(lines):
    with structlog.contextvars.bound_contextvars(job="j1"):
        structlog.get_logger("toolgate.mine").warning("done", count=3)
    [line] = lines.json()
    assert (line["level"], line["logger"], line["event"], line["job"], line["count"]) == (
        "warning", "toolgate.mine", "done", "j1", 3,
    )  # fmt: skip


def test_statements_are_never_logged(settings):
    assert settings.LOGGING["loggers"]["django.db.backends"]["level"] == "INFO"


def test_upstream_text_from_the_mcp_sdk_is_not_logged(both):
    for name in ("mcp.client.streamable_http", "client"):
        logging.getLogger(name).error("Unexpected content type: %s", CANARY)
    assert [captured.text for captured in both] == ["", ""]


@pytest.mark.django_db(transaction=True)
def test_a_canary_in_arguments_results_and_errors_is_in_no_line(both, stage, ada, rosa):
    stage.acts |= {"safe": lambda value, context: CANARY, "cautious": lambda value, context: fail()}
    stage.acts["patient"] = lambda value, context: fail()
    stage.previews["dangerous"] = lambda value, context: fail()
    tools = ("safe", "cautious", "patient", "dangerous", "safe_async")
    plan = make_plan(ada, *(act(number, CANARY, tool=tool) for number, tool in enumerate(tools, 1)))
    work_off(plan)
    reject(plan, rosa, step_id=4)
    other = work_off(make_plan(ada, act(1, CANARY, tool="dangerous")))
    approve(other, rosa)
    work_off(other)
    Rest(ada).post("calls/", {"tool": "safe", "arguments": {"value": CANARY, CANARY: 1}}, **{"X-Request-ID": "r1"})
    Rest(ada).post("calls/", {"tool": "safe", "arguments": {"value": CANARY}}, Accept=CANARY)
    for captured in both:
        assert [line for line in captured.text.splitlines() if CANARY in line] == []
        assert captured.text.count("call ended") >= 5
