"""Arguments of a call: checked, with defaults filled in, and in the forms that rules judge.

The result of `prepare_arguments` is what is stored, judged, shown, bound by an approval and passed to the tool.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic_core import to_json

from catalog.core.canonical_json import canonical_text, check_json, normalize_numbers
from catalog.core.json_paths import JSONPath, dotted, value_at, without_paths
from catalog.definitions.tool import Tool
from catalog.errors import MalformedJSON, ParameterError, SchemaProblem
from catalog.schemas import ArgumentProblem, Validator, check_json_arguments, compile_schema, raise_for_problems
from catalog.schemas.defaults import SchemaDefaults, paths_from_store
from catalog.schemas.normalization import large_integers_as_digits, normalize_arguments, read_large_integers
from catalog.secrets.placeholders import reject_placeholders, without_macs

MAX_ARGUMENTS = 256 * 1024
WHOLE_FLOAT_PATTERN = re.compile(rb"\d\.0|\de\+?(?:1|20)")
LARGE_INTEGER_PATTERN = re.compile(rb"[0-9]{16}")
_MISSING = object()


@dataclass(frozen=True)
class CallArguments:
    """The arguments of one call; `passed` is what the tool receives, with integers of any size.

    `defaults` are the paths of filled-in defaults. `omitted` are the dotted paths of nulls that were dropped because
    the schema allows no null there. `schema` is for finding the defaults that were not passed; None if all were passed.
    `is_stored` is True for the arguments of a stored call.
    """

    passed: dict[str, Any]
    defaults: tuple[JSONPath, ...] = ()
    omitted: tuple[str, ...] = ()
    schema: SchemaDefaults | None = None
    is_stored: bool = False

    @cached_property
    def given(self) -> dict[str, Any]:
        """The arguments as the caller gave them, without filled-in defaults."""
        return without_paths(self.passed, self.defaults)

    @cached_property
    def forms(self) -> tuple[dict[str, Any], ...]:
        """The forms that rules judge: as given and, if that differs, with all defaults in the schema filled in.

        The second form also has the defaults that an upstream server or the tool itself applies, which are not passed.
        If the arguments fit several alternatives of the schema, there is one filled form for each alternative.
        Raises ParameterError if the defaults are too large, except for a stored call.
        """
        try:
            filled = self.schema.all_fillings(self.passed) if self.schema else [self.passed]
        except ParameterError:
            if not self.is_stored:
                raise
            filled = [self.passed]  # it was stored before defaults were filled in
        return (self.given, *(each for each in filled if each is not self.given))

    @cached_property
    def storable(self) -> dict[str, Any]:
        """The passed arguments in the form that is stored and shown: large integers as digits."""
        if not LARGE_INTEGER_PATTERN.search(to_json(self.passed)):
            return self.passed
        stored: dict[str, Any] = large_integers_as_digits(self.passed)
        return stored


def prepare_arguments(
    tool: Tool[Any, Any], arguments: object, *, stored: Sequence[JSONPath] | None = None
) -> CallArguments:
    """Return the arguments of a call, checked and filled in. Raises ParameterError or QueryTypeUnsupported.

    A null for an optional, non-nullable property is treated as omitted: strict forms of a tool make models send those.
    For a stored call, `stored` has the paths of the defaults that were filled in then; no more are filled in now.
    """
    checked = _read_json(arguments)
    omitted: tuple[str, ...] = ()
    try:
        tool.check(checked)
    except ParameterError:
        normal = normalize_arguments(tool.validator, checked)
        if normal.arguments is checked:
            raise
        checked, omitted = normal.arguments, normal.dropped
        tool.check(checked)
    known = tool.validator.defaults
    if stored is not None:
        return CallArguments(checked, tuple(stored), schema=known, is_stored=True)
    prepared = _filled(tool, checked) if tool.fills_defaults else CallArguments(checked, omitted=omitted, schema=known)
    _ = prepared.forms  # refused here if rules could not judge them
    return prepared


def _read_json(arguments: object) -> dict[str, Any]:
    """Return the arguments as JSON within the limits, with numbers in their canonical form."""
    if not isinstance(arguments, dict):
        raise_for_problems([ArgumentProblem("", "type", "The arguments must be a JSON object.")])
    try:
        checked: dict[str, Any] = check_json(arguments)
    except MalformedJSON as problem:
        if problem.code == "integer_range":  # from a result of another call, or from Python
            arguments = large_integers_as_digits(arguments)
        checked = check_json_arguments(arguments)
    written = to_json(checked)
    if len(written) > MAX_ARGUMENTS:
        message = f"The arguments have {len(written):,} bytes. At most {MAX_ARGUMENTS:,} are accepted."
        raise_for_problems([ArgumentProblem("", "too_large", message)])
    if b"$secret" in written:
        reject_placeholders(checked)
    if WHOLE_FLOAT_PATTERN.search(written):
        # Recorded as an integer, so an integer must run, or be refused as too large.
        checked = check_json_arguments(normalize_numbers(checked))
    return checked


def _filled(tool: Tool[Any, Any], given: dict[str, Any]) -> CallArguments:
    """Fill in the defaults of valid arguments, except defaults that the tool would refuse or read differently."""
    filled = tool.binding.fill_defaults(given)
    passed, paths = filled.arguments, filled.paths
    while paths:
        try:
            tool.check(passed)
            kept = tool.binding.faithful_defaults(given, passed, paths)
        except ParameterError as refusal:
            kept = _without_refused(paths, refusal)
        if kept == paths:
            break
        paths = kept
        passed = without_paths(filled.arguments, [each for each in filled.paths if each not in paths])
    is_complete = passed is filled.arguments and filled.choices == 1
    return CallArguments(passed, paths, schema=None if is_complete else tool.validator.defaults)


def _without_refused(paths: tuple[JSONPath, ...], refusal: ParameterError) -> tuple[JSONPath, ...]:
    """Drop the paths at which the refusal reports errors. If it reports no error at any of them, drop all paths."""
    errors = [f"{each['path']}." for each in (refusal.details or {}).get("errors", ())]
    refused = {
        path
        for path in paths
        for error in errors
        if f"{dotted(path)}.".startswith(error) or error.startswith(f"{dotted(path)}.")
    }
    # Of nested paths only the innermost, and everything below a refused one.
    refused -= {path[:length] for path in refused for length in range(1, len(path))}
    kept = tuple(path for path in paths if not any(path[: len(each)] == each for each in refused))
    return kept if len(kept) < len(paths) else ()


def paths_to_store(arguments: CallArguments, redacted: Mapping[str, Any]) -> str:
    """Return the paths of the defaults as JSON text, without paths that contain a redacted name."""
    paths = [path for path in arguments.defaults if value_at(redacted, path, _MISSING) is not _MISSING]
    return json.dumps(paths, ensure_ascii=False)


def without_unchanged_defaults(
    tool: Tool[Any, Any] | None, arguments: Mapping[str, Any], before: str, defaults: str | None
) -> dict[str, Any]:
    """Return edited arguments without the defaults that the editor did not change.

    `before` are the stored arguments that were edited, with their `defaults`. Editors send back all arguments, so a
    default with its old value counts as not given. If the tool would now fill in another value, all arguments count as
    given. Raises ParameterError if the defaults are too large.
    """
    paths = paths_from_store(defaults)
    shown = json.loads(without_macs(before)) if paths else {}
    unchanged = [path for path in paths if _is_same(value_at(arguments, path, _MISSING), value_at(shown, path))]
    given = without_paths(dict(arguments), unchanged)
    if not unchanged or tool is None:
        return given
    if not tool.validator.explains(given):  # too large to tell
        return dict(arguments)
    filled = tool.binding.fill_defaults(given).arguments
    stays = all(_is_same(value_at(filled, each, _MISSING), value_at(shown, each)) for each in unchanged)
    return given if stays else dict(arguments)


def _is_same(one: object, other: object) -> bool:
    try:
        return canonical_text(one) == canonical_text(other)
    except MalformedJSON:  # refused later
        return False


def validator_of(schema: Mapping[str, Any]) -> Validator | None:
    """Return the validator of a stored version's input schema; None if it is no longer accepted."""
    try:
        return compile_schema(schema)
    except SchemaProblem:
        return None


def stored_arguments(validator: Validator | None, arguments: dict[str, Any], defaults: str | None) -> CallArguments:
    """Return a stored call's arguments for rules; `validator` is that of the tool version of the call."""
    if validator is None:
        return CallArguments(arguments, paths_from_store(defaults))
    passed = read_large_integers(validator, arguments)
    return CallArguments(passed, paths_from_store(defaults), schema=validator.defaults, is_stored=True)
