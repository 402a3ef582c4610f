"""Validation of plan documents before anything runs: each problem with its path and a message to act on.

Works on documents and tools only; stores nothing. A reference in a step's parameters is assumed to resolve to a
fitting value.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from approvals.policy_language.envelopes import proposed_tools
from catalog.core.canonical_json import Json
from catalog.core.expressions import ExpressionError
from catalog.definitions.levels import SafetyLevel
from catalog.definitions.tool import Tool
from catalog.errors import ParameterError, QueryTypeUnsupported
from catalog.schemas.normalization import normalize_arguments
from catalog.secrets.detectors import find_secrets
from catalog.secrets.placeholders import MISSING_MESSAGE, find_placeholders
from plans import conditions
from plans.documents import references
from plans.documents.graphs import ancestors, cycles
from plans.documents.positions import find_lines
from plans.documents.reading import MAX_PROBLEMS, ParsedPlan, Problem, parse_plan, unknown_name_problem
from plans.documents.references import Reference, resolve
from plans.spec import PlanDocument, StepDocument

# Codes of problems that remain wrong whatever value a reference below their path takes.
_FIXED_BY_SHAPE = frozenset({"type", "required", "additionalProperties", "maxProperties"})


def argument_problems(
    tool: Tool[Any, Any], parameters: dict[str, Any], references: Sequence[Reference]
) -> list[Problem]:
    """Return the problems found by the tool's schema and types, with paths relative to the parameters."""
    given = parameters if references else resolve(parameters, {})
    problems: list[Problem] = []
    try:
        tool.check(normalize_arguments(tool.validator, given).arguments)
    except ParameterError as refusal:
        whole = {"path": "", "code": "check_failed", "message": refusal.message}
        errors = refusal.details.get("errors", [whole])
        problems = [Problem(each["path"], each["code"], "error", each["message"]) for each in errors]
    except QueryTypeUnsupported as refusal:
        problems = [Problem("query_type", "query_type_unsupported", "error", refusal.message)]
    # Others may disappear once a reference is resolved.
    return [problem for problem in problems if not any(_depends_on_reference(problem, each) for each in references)]


def _depends_on_reference(problem: Problem, reference: Reference) -> bool:
    if problem.path == reference.where:
        always_a_text = problem.code == "type" and not reference.whole
        return problem.code != "additionalProperties" and not always_a_text
    above = problem.path == "" or reference.where.startswith(problem.path + ".")
    return above and problem.code not in _FIXED_BY_SHAPE


__all__ = ["Problem", "check_plan", "with_lines"]

MAX_SUGGESTED = 50

Tools = Mapping[str, Tool[Any, Any]]
NO_TOOLS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class AgentAvailability:
    """Readiness of an agent that a step may name: it is switched on and has a model."""

    enabled: bool = True
    has_model: bool = True


Agents = Callable[[], Mapping[str, AgentAvailability]]
"""Returns the agents that the submitter may use, by name. Called at most once, only for plans that name an agent."""


def check_plan(
    document: Json | PlanDocument,
    tools: Tools,
    *,
    disabled: Set[str] = frozenset(),
    refused: Mapping[str, str] = NO_TOOLS,
    agents: Agents = dict,
) -> list[Problem]:
    """Return the problems of a plan, at most MAX_PROBLEMS; it can be stored if none has the severity `error`.

    `refused` has the message for each tool that the submitter may not use.
    """
    draft = parse_plan(document)
    check = _PlanCheck(draft, tools, disabled, refused, agents)
    found = [*draft.problems, *check.numbers(), *check.circles(), *check.keys()]
    for index, step in draft.steps.items():
        found += check.step(index, step)
        if len(found) > MAX_PROBLEMS:  # keep errors: the code that stores plans relies on them
            found.sort(key=lambda problem: problem.severity != "error")
            del found[MAX_PROBLEMS:]
    return found


def with_lines(problems: Sequence[Problem], text: str) -> list[Problem]:
    lines = find_lines(text, {problem.path for problem in problems})
    return [replace(problem, line=lines[problem.path]) for problem in problems]


class _PlanCheck:
    def __init__(
        self, parsed_plan: ParsedPlan, tools: Tools, disabled: Set[str], refused: Mapping[str, str], agents: Agents
    ) -> None:
        self.draft = parsed_plan
        self.tools = tools
        self.disabled = disabled
        self.refused = refused
        self.load_agents = agents
        self.steps = parsed_plan.steps
        self.by_id = {step.step_id: step for step in parsed_plan.steps.values()}
        self.suggestions_left = MAX_SUGGESTED

    def unknown(self, problem: Problem, name: str, known: Iterable[str]) -> Problem:
        """Return the problem of an unknown name; only the first MAX_SUGGESTED problems get similar names."""
        self.suggestions_left -= 1
        return unknown_name_problem(problem, name, known if self.suggestions_left >= 0 else ())

    @cached_property
    def offered(self) -> list[str]:
        """The names of the tools that the submitter may use."""
        return [name for name in self.tools if name not in self.refused]

    def is_hidden(self, name: str) -> bool:
        """Return True for a tool outside the submitter's limits; one that its client runs may be in a proposal."""
        tool = self.tools.get(name)
        return name in self.refused and tool is not None and not tool.runs_in_client

    @cached_property
    def agents(self) -> Mapping[str, AgentAvailability]:
        return self.load_agents()

    @cached_property
    def known_steps(self) -> str:
        numbers = sorted(self.by_id)
        names = [str(number) for number in numbers[:20]] + ["…"] * (len(numbers) > 20)
        return f"Known steps: {', '.join(names)}."

    @cached_property
    def graph(self) -> dict[int, list[int]]:
        """Step → its dependencies, without itself and unknown steps."""
        return {
            number: [needed for needed in step.dependencies if needed in self.by_id and needed != number]
            for number, step in self.by_id.items()
        }

    @cached_property
    def writers(self) -> dict[str, list[int]]:
        """Memory key → the steps that may write it."""
        found: dict[str, list[int]] = {}
        for step in self.steps.values():
            key = self.key_of(step)
            if key:
                found.setdefault(key, []).append(step.step_id)
        return found

    def key_of(self, step: StepDocument) -> str | None:
        """Return the memory key under which the step's result will be stored; None if it is not stored."""
        tool = self.tools.get(step.tool or "")
        return step.expected_key or (tool.output_key if tool else None)

    @cached_property
    def before(self) -> dict[int, frozenset[int]] | None:
        """Step → all steps that have ended when it starts; None if the plan has a cycle."""
        return None if self.circular else ancestors(self.graph)

    @cached_property
    def circular(self) -> list[list[int]]:
        return cycles(self.graph)

    def numbers(self) -> Iterator[Problem]:
        seen: set[int] = set()
        for index, step in self.steps.items():
            if step.step_id in seen and step.step_id > 0:
                message = f"Two steps have the number {step.step_id}. Give each step its own number."
                yield _error(f"steps.{index}.step_id", "duplicate_step_id", message)
            seen.add(step.step_id)

    def circles(self) -> Iterator[Problem]:
        places = {step.step_id: index for index, step in self.steps.items()}
        for circle in self.circular:
            chain = " → ".join(str(number) for number in circle)
            path = f"steps.{places[circle[0]]}.dependencies"
            problem = _error(path, "circular_dependency", f"These steps wait for each other: {chain}.")
            yield replace(problem, cycle_edge=(circle[0], circle[1]))

    def keys(self) -> Iterator[Problem]:
        """Check that no two steps have the same explicit key."""
        first: dict[str, int] = {}
        for index, step in self.steps.items():
            key = step.expected_key
            if key and key in first:
                message = f"Step {first[key]} already writes '{key}'; choose another key."
                yield _error(f"steps.{index}.expected_key", "duplicate_key", message)
            elif key:
                first[key] = step.step_id

    def step(self, index: int, step: StepDocument) -> Iterator[Problem]:
        here = f"steps.{index}"
        yield from self.dependencies(here, step)
        yield from self.actor(here, step)
        yield from _done_check(here, step)
        if self.draft.reads(index, "parameters"):
            yield from self.parameters(here, step)
        if self.draft.reads(index, "expected_key"):
            yield from self.output(here, step)

    def dependencies(self, here: str, step: StepDocument) -> Iterator[Problem]:
        """Check that each dependency names another existing step, once."""
        named: set[int] = set()
        for place, needed in enumerate(step.dependencies):
            path = f"{here}.dependencies.{place}"
            if needed == step.step_id:
                yield _error(path, "self_dependency", f"Step {needed} depends on itself.")
            elif needed in named:
                yield _error(path, "duplicate_dependency", f"Step {needed} is listed twice.")
            elif needed not in self.by_id and self.draft.reads_all("step_id"):
                message = f"Step {step.step_id} depends on step {needed}, which does not exist."
                yield _error(path, "unknown_dependency", message, self.known_steps)
            named.add(needed)

    def actor(self, here: str, step: StepDocument) -> Iterator[Problem]:
        """Check that the step's tool or agent, if it names one, can run."""
        if step.agent is not None:
            yield from self.agent(f"{here}.agent", step.agent, step.tool)
        if step.tool is None:
            return
        tool, path = self.tools.get(step.tool), f"{here}.tool"
        if tool is None:
            message = f"There is no tool called {step.tool}."
            yield self.unknown(_error(path, "unknown_tool", message), step.tool, self.offered)
        elif step.tool in self.refused:
            yield _error(path, "outside_limits", self.refused[step.tool])
        elif step.tool in self.disabled:
            message = f"{step.tool} is switched off; the step will fail unless it is switched on again."
            yield Problem(path, "tool_disabled", "warning", message)
        elif tool.safety_level is SafetyLevel.DANGEROUS:
            message = f"Step {step.step_id} will wait for approval."
            reason = f"{step.tool} is dangerous. Someone other than you must approve it."
            yield Problem(path, "waits_for_approval", "warning", message, reason)

    def agent(self, path: str, name: str, tool: str | None) -> Iterator[Problem]:
        """Check that the agent may be used by the submitter, is switched on and has a model."""
        if tool is not None:
            yield _error(path, "tool_and_agent", "A step can name a tool or an agent, not both.")
            return
        known = self.agents.get(name)
        if known is None:
            message = f"There is no agent called {name} that you may use."
            yield self.unknown(_error(path, "agent_unavailable", message), name, self.agents)
        elif not known.enabled:
            message = f"The agent {name} is disabled; the step will fail unless it is enabled again."
            yield Problem(path, "agent_disabled", "warning", message)
        elif not known.has_model:
            message = f"The agent {name} has no model; the step will fail."
            yield Problem(path, "no_model", "warning", message, SET_MODEL_HINT)

    def parameters(self, here: str, step: StepDocument) -> Iterator[Problem]:
        """Check that the tool accepts the parameters and that each reference can be resolved."""
        path, found, readable = f"{here}.parameters", [], True
        for where, text in references.texts(step.parameters):
            try:
                found += references.find_in(text, where)
            except ParameterError as refusal:
                readable = False
                yield _error(f"{path}.{where}", "reference_malformed", refusal.message)
        for reference in dict.fromkeys(found):
            yield from self.reference(path, step, reference)
        missing = list(find_placeholders(step.parameters))
        for where, _ in missing:
            yield _error(f"{path}.{where}", "secret_missing", MISSING_MESSAGE)
        tool = self.tools.get(step.tool or "")
        refused = [name for name in proposed_tools(step.tool or "", step.parameters) if self.is_hidden(name)]
        for name in refused:
            yield _error(path, "outside_limits", self.refused[name])
        # The problems of arguments tell of the schemas of these tools.
        if tool and readable and not missing and not refused and step.tool not in self.refused:
            for problem in argument_problems(tool, step.parameters, found):
                yield replace(problem, path=f"{path}.{problem.path}" if problem.path else path)

    def reference(self, path: str, step: StepDocument, reference: references.Reference) -> Iterator[Problem]:
        """Check that the referenced key is in memory when the step starts."""
        key, where = reference.key, f"{path}.{reference.where}"
        if key in self.draft.memory:
            return
        writers = self.writers.get(key)
        if writers is None:
            if self.draft.reads_all("expected_key"):
                problem = _error(where, "unknown_reference", f"{reference}: no step writes '{key}'.")
                yield self.unknown(problem, key, [*self.writers, *self.draft.memory])
        elif self.before is not None and not self.before[step.step_id].intersection(writers):
            message = f"{reference}: '{key}' may not be in memory yet when step {step.step_id} starts."
            missing = self.missing_dependency(writers, step)
            remedy = f"Add {missing} to the dependencies of step {step.step_id}." if missing else None
            yield replace(_error(where, "reference_not_before", message, remedy), missing_dependency=missing)

    def missing_dependency(self, writers: Sequence[int], step: StepDocument) -> int | None:
        """Return the writer that `step` should depend on; None if every writer itself depends on `step`."""
        later = {number for number, needed in (self.before or {}).items() if step.step_id in needed}
        return next((number for number in writers if number != step.step_id and number not in later), None)

    def output(self, here: str, step: StepDocument) -> Iterator[Problem]:
        """Check that the step's result is stored."""
        if self.key_of(step) is not None:
            return
        if step.output_path:
            message = "`output_path` has no effect without `expected_key`."
            yield Problem(f"{here}.output_path", "output_path_unused", "warning", message, _ADD_KEY_HINT)
        elif step.tool in self.tools or (step.agent is not None and step.tool is None):
            message = f"The result of step {step.step_id} is not stored in memory."
            yield Problem(here, "no_output_key", "info", message, _ADD_KEY_HINT)


_ADD_KEY_HINT = "Give the step an expected_key."
SET_MODEL_HINT = "An administrator must set TOOLGATE_MODEL or choose a model for the agent."


def _done_check(here: str, step: StepDocument) -> Iterator[Problem]:
    if step.done_check is None:
        return
    if find_secrets(step.done_check):
        message = (
            "Checks are stored in clear text, so they must not contain a secret. Remove it here and replace the secret."
        )
        yield _error(f"{here}.done_check", "secret_in_check", message)
        return
    try:
        constant = conditions.is_constant(step.done_check)
    except ExpressionError as refusal:
        yield _error(f"{here}.done_check", "done_check_invalid", str(refusal))
        return
    if constant:
        message = "This check reads nothing from memory, so its result is always the same."
        yield Problem(f"{here}.done_check", "done_check_constant", "warning", message)


def _error(path: str, code: str, message: str, suggestion: str | None = None) -> Problem:
    return Problem(path, code, "error", message, suggestion)
