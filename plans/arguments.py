"""Checking the parameters of a step that has not run: references may still become anything that fits."""

from collections.abc import Mapping, Sequence
from typing import Any

from catalog.definitions.tool import Tool
from catalog.errors import ParameterError, QueryTypeUnsupported
from catalog.schemas.normalization import without_left_out
from plans.references import Reference, resolve
from plans.shapes import Problem

# What stays wrong whatever a reference below this place becomes.
_FIRM_ABOVE = frozenset({"type", "required", "additionalProperties", "maxProperties"})


def argument_problems(
    tool: Tool[Any, Any], parameters: dict[str, Any], references: Sequence[Reference]
) -> list[Problem]:
    """Return what the tool's own schema and types refuse, with paths relative to the parameters."""
    given = parameters if references else resolve(parameters, {})
    return [problem for problem in _refused(tool, given) if not _may_heal(problem, references)]


def _refused(tool: Tool[Any, Any], given: dict[str, Any]) -> list[Problem]:
    try:
        tool.check(without_left_out(tool.validator, given))
    except ParameterError as refusal:
        whole = {"path": "", "code": "check_failed", "message": refusal.message}
        return [_problem(error) for error in refusal.details.get("errors", [whole])]
    except QueryTypeUnsupported as refusal:
        return [Problem("query_type", "query_type_unsupported", "error", refusal.message)]
    return []


def _problem(error: Mapping[str, str]) -> Problem:
    return Problem(error["path"], error["code"], "error", error["message"])


def _may_heal(problem: Problem, references: Sequence[Reference]) -> bool:
    """Say whether the problem may be gone once a reference has its value."""
    return any(_touches(problem, reference) for reference in references)


def _touches(problem: Problem, reference: Reference) -> bool:
    if problem.path == reference.where:
        always_a_text = problem.code == "type" and not reference.whole
        return problem.code != "additionalProperties" and not always_a_text
    above = problem.path == "" or reference.where.startswith(problem.path + ".")
    return above and problem.code not in _FIRM_ABOVE
