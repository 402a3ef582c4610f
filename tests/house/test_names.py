"""Parameters are named after their types."""

import ast
import re
from pathlib import Path

from tests.house.source import ROOT, SHIPPED, functions, modules, parse, write

KNOWN_NAMES = {"_", "self", "cls", "tx", "by", "pk", "cursor"}
"""Short names that everyone knows, and the one of a parameter that is not used."""
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
EXCEPTIONS = {
    "approvals.api.request_serializers.to_representation(instance: BatchItemResult)",
    "catalog.dispatch.arguments._without_refused(refusal: ParameterError)",
    "catalog.rest.pagination.paginate(at: PageParameters)",
    "catalog.secrets.placeholders.back(mark: Match)",
    "plans.actions.change._changed_plan(rest: Document)",
    "plans.actions.change._problem_of_unchanged_step(place: Match)",
    "plans.api.agents.to_representation(instance: Agent)",
    "plans.api.serializers.to_representation(instance: Call)",
    "plans.documents.positions._consume_token(stack: _Container)",
    "plans.engine.cancellation.terminate_plan(to: PlanStatus)",
    "plans.engine.loop._hold_or_start(work: RateLimitedCall)",
    "plans.engine.loop._refuse(work: RateLimitedCall)",
    "plans.planning_tools.tools.add_step(params: AddStep)",
    "plans.planning_tools.tools.read_plan(params: ReadPlan)",
    "plans.planning_tools.tools.setup_plan(params: SetupPlan)",
    "plans.planning_tools.tools.update_step(params: UpdateStep)",
    "plans.routing.socket(kind: Socket)",
}
"""Parameters whose name says more than their class, as `module.function(name: Class)`."""


def words(name: str) -> set[str]:
    """Return the words of a name in lower case, each also without the ending of a plural."""
    found = [word.lower() for word in WORD.findall(name)]
    endings = (("", ""), ("s", ""), ("es", ""), ("ies", "y"))
    return {word.removesuffix(end) + instead for word in found for end, instead in endings if word.endswith(end)}


def classes(root: Path) -> set[str]:
    """Return the names of the product's classes."""
    trees = (parse(path) for path in modules(root, *SHIPPED))
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def named_in(annotation: ast.expr) -> set[str]:
    """Return the names in an annotation, also in one written as text."""
    found: set[str] = set()
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") != "re":
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.update(re.findall(r"\w+", node.value))
    return found


def strangers(root: Path) -> set[str]:
    """Return the parameters that share no word with their class, as `module.function(name: Class)`."""
    ours, found = classes(root), set()
    for path in modules(root, *SHIPPED):
        for function in functions(parse(path)):
            given = function.args
            for parameter in (*given.posonlyargs, *given.args, *given.kwonlyargs):
                named = named_in(parameter.annotation) if parameter.annotation else set()
                kinds = named & ours
                if (
                    not kinds or parameter.arg in KNOWN_NAMES or "Callable" in named
                ):  # a function is named after its act
                    continue
                if words(parameter.arg).isdisjoint(set().union(*map(words, kinds))):
                    module = ".".join(path.relative_to(root).with_suffix("").parts)
                    found.add(f"{module}.{function.name}({parameter.arg}: {' | '.join(sorted(kinds))})")
    return found


def test_parameters_share_a_word_with_their_class() -> None:
    found = strangers(ROOT)
    assert sorted(found - EXCEPTIONS) == []
    assert sorted(EXCEPTIONS - found) == []
    assert len(EXCEPTIONS) <= 60


def test_a_parameter_named_after_nothing_is_found(tmp_path: Path) -> None:
    code = (
        "class CheckInput: ...\nclass Policy: ...\n"
        "def check(check: CheckInput, policies: list[Policy], by: Policy, world: 'CheckInput', text: str): ...\n"
    )
    write(tmp_path, "plans/checks.py", code)
    assert strangers(tmp_path) == {"plans.checks.check(world: CheckInput)"}
