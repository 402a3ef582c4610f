"""Hostile requests to the API: never a 500, always a problem document."""

import copy
import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import counts
from tests.builders import make_plan, step, write_step
from tests.rest import Rest

HOSTILE: list[Any] = [
    *(
        None,
        True,
        0,
        -1,
        2**31,
        2**53 - 1,
        2**53,
        1e308,
        0.5,
        "",
        " ",
        "x",
        "\x00",
        "é\u202e",
        "%00",
        "../..",
        "${a.b}",
    ),
    *(
        "${",
        "a" * 70,
        "a" * 600,
        "2026-11-21",
        "plan_x",
        "safe",
        [],
        [[]],
        [1, "a", None],
        {},
        {"": {}},
        {"a": {"b": []}},
    ),
]
BODIES = {
    "plans/": {
        "goal": "g", "owner": "o", "can_modify": True, "deadline_seconds": 5, "start": False, "memory": {"k": 1},
        "steps": [step(1, expected_key="k1"), write_step(2, dependencies=[1], output_path=["a"], done_check="k1 == 1")],
    },
    "calls/": {"tool": "write_file", "arguments": {"path": "a", "content": "x"}, "reason": "r", "wait_seconds": 1},
    "permissions/": {
        "client": "c", "session": "s", "tool": "Bash", "input": {"command": "x"}, "call_id": "i", "cwd": "/",
        "wait_seconds": 0,
    },
    "tools/write_file/validate/": {"arguments": {"path": "a", "content": "x"}},
    "tools/sec_financial_data/validate/": {"arguments": {"query_type": "compare", "parameters": {"tickers": ["AAPL"]}}},
    "approvals/{approval}/reviews/": {"verdict": "approve", "seen_digest": "0" * 64, "comment": "c"},
    "approvals/{approval}/withdraw/": {"comment": "c"},
    "plans/{plan}/steps/1/outcome/": {"verdict": "happened", "result": {"a": 1}, "comment": "c"},
    "plans/{plan}/start/": {},
}  # fmt: skip
BODIES["plans/check/"] = BODIES["plans/"]
LISTS = ["tools/", "plans/", "approvals/", "audit/", "plans/{plan}/events/", "calls/{call}/", "tools/read_file/schema/"]
QUERIES = [
    *(
        "q",
        "category",
        "safety_level",
        "max_level",
        "source",
        "enabled",
        "sort",
        "cursor",
        "page_size",
        "kind",
        "status",
    ),
    *("tool", "plan", "mine", "who", "action", "since", "until", "after", "wait_seconds", "provider"),
]
TEXTS = [
    *(
        "",
        "0",
        "-1",
        "1e400",
        "99999999999999999999",
        "true",
        "nan",
        "\x00",
        "é",
        "0001-01-01T00:00:00+23:59",
        "%",
        "'\"",
        "x" * 300,
    ),
    *(
        "W2ZhbHNlLCJhIiwxXQ==",
        "W3RydWUsMSwxXQ==",
        "W2ZhbHNlLCJcdTAwMDAiLDFd",
        "W10=",
        "bnVsbA==",
        "9999-12-31T23:59:59Z",
    ),
]
many = settings(max_examples=counts.count(300), database=None, suppress_health_check=list(HealthCheck))
json_values = st.recursive(
    st.sampled_from(HOSTILE) | st.text(max_size=20) | st.integers() | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture
def rest(transactional_db, catalog, workspace, admin):
    """An administrator's client, with `places` of things that exist."""
    client = Rest(admin)
    call = client.post("calls/", BODIES["calls/"]).json()
    plan = make_plan(admin, step(1), start=False).public_id
    client.places |= {"approval": call["approval"]["id"], "call": call["id"], "plan": plan}
    return client


def spots(value, path=()):
    """Yield the path of every value inside a document."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        yield from spots(inner, (*path, key))


def replaced(document, path, value):
    """Return the document with another value at the path."""
    if not path:
        return value
    changed = copy.deepcopy(document)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return changed


def answers_for_it(response):
    """Assert that the answer is the caller's fault or fine, and says which."""
    assert response.status_code < 500, response.content
    if response.status_code >= 400:
        assert response["Content-Type"] == "application/problem+json"
        assert response.json()["status"] == response.status_code


def test_any_value_anywhere_in_a_body(rest):
    @many
    @given(st.data())
    def try_one(data):
        path = data.draw(st.sampled_from(sorted(BODIES)))
        place = data.draw(st.sampled_from(list(spots(BODIES[path]))))
        body = replaced(BODIES[path], place, data.draw(json_values))
        answers_for_it(rest.post(path.format(**rest.places), json.dumps(body)))

    try_one()


def test_any_bytes_as_a_body(rest):
    @many
    @given(st.sampled_from(sorted(BODIES)), st.binary(max_size=40) | st.text(max_size=20).map(str.encode))
    def try_one(path, body):
        answers_for_it(rest.post(path.format(**rest.places), body))

    try_one()


def test_any_query(rest):
    @many
    @given(
        st.sampled_from(LISTS),
        st.dictionaries(st.sampled_from(QUERIES), st.sampled_from(TEXTS) | st.text(max_size=20), max_size=2),
    )
    def try_one(path, query):
        answers_for_it(rest.get(path.format(**rest.places), **query))

    try_one()


def test_any_path(rest):
    @many
    @given(st.sampled_from([*LISTS, *BODIES]), st.sampled_from(TEXTS) | st.text(max_size=20))
    def try_one(path, name):
        hostile = quote(name.encode("utf-8", "surrogatepass"), safe="")
        places = dict.fromkeys(rest.places, hostile)
        answers_for_it(rest.get(path.replace("read_file", hostile).format(**places)))
        answers_for_it(rest.post(path.replace("write_file", hostile).format(**places)))

    try_one()


def test_any_header(rest):
    @many
    @given(st.sampled_from(["Idempotency-Key", "Toolgate-Session", "Accept", "Content-Type"]), st.text(max_size=40))
    def try_one(name, value):
        printable = "".join(character for character in value if character.isprintable() and ord(character) < 256)
        answers_for_it(rest.post("calls/", BODIES["calls/"], **{name: printable}))

    try_one()
