"""Texts that fit a condition and lead elsewhere, and conditions that leave a host open."""

from typing import Any

import pytest

from approvals.policy_language.conditions import compile_conditions
from approvals.policy_language.escapes import open_end

FITTING = [
    ("starts_with", "reports/", "reports/../secrets", False),
    ("matches", "^reports/", "reports/%2e%2e/secrets", False),
    ("matches", "notes", "notes/..\\secrets", False),
    ("starts_with", "/public/", "/public/..;a=b/admin", False),
    ("contains", "/public/", "/public/.. /admin", False),
    ("ends_with", ".md", "../../etc/x.md", False),
    ("contains", "reports/", "reports/%252e./secrets", False),
    ("not_equals", "secrets", "reports/../secrets", False),
    ("not_in", ["secrets"], "./x/../secrets", False),
    ("starts_with", "https://a.example", "https://a.example.evil.example", False),
    ("matches", "^reports/", "reports/a..b", True),
    ("ends_with", ".md", "reports/x.md", True),
    ("equals", "../x", "../x", True),
    ("in", ["../x"], "../x", True),
    ("exists", None, "../x", True),
    ("contains", "a", ["a", "../x"], True),
    ("greater_than", 1, 2, True),
]


@pytest.mark.parametrize(("operator", "value", "found", "is_covered"), FITTING)
def test_text_that_leads_elsewhere_is_matched_and_not_covered(
    operator: str, value: Any, found: Any, is_covered: bool
) -> None:
    row = {"path": "to.0.path", "operator": operator} | ({} if value is None else {"value": value})
    predicate = compile_conditions([row])
    arguments = {"to": [{"path": found}]}

    assert predicate.matches(arguments)
    assert predicate.covers(arguments) is is_covered
    assert (predicate.uncovered(arguments) is None) is is_covered


def test_argument_that_is_not_there_leads_nowhere() -> None:
    predicate = compile_conditions([{"path": "path", "operator": "not_equals", "value": "secrets"}])

    assert predicate.covers({"other": "../x"})


OPEN_ENDS = [
    ("host", "starts_with", "api.example.com", True),
    ("url", "starts_with", "https://api.example.com", True),
    ("to", "starts_with", "ada@example.com", True),
    ("host", "ends_with", "example.com", True),
    ("host", "contains", "api.example.com", True),
    ("url", "matches", r"^https://api\.example\.com", True),
    ("url", "matches", r"api\.example\.com/", True),
    ("url", "starts_with", "https://api.example.com/", False),
    ("host", "ends_with", ".example.com", False),
    ("to", "ends_with", "@example.com", False),
    ("url", "matches", r"^https://api\.example\.com/", False),
    ("host", "matches", r"^api\.example\.com$", False),
    ("host", "equals", "api.example.com", False),
    ("path", "starts_with", "notes.md", False),
    ("text", "starts_with", "reports/", False),
    ("amount", "less_than", 5, False),
]


@pytest.mark.parametrize(("path", "operator", "value", "is_open"), OPEN_ENDS)
def test_host_that_goes_on_is_warned_about(path: str, operator: str, value: Any, is_open: bool) -> None:
    assert bool(open_end({"path": path, "operator": operator, "value": value})) is is_open
