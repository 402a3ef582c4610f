"""Results that the fields of a step can refer to: those of steps that may run before it, and the initial memory.

Each has a type, from the tool's output schema or an example, and an example: the value of the plan that the draft came
from, or else that of the newest completed call of the same tool and query type that the person may see.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

from django.contrib.auth.models import User
from django.db.models.functions import Length

from catalog.calls.privacy import PRIVATE_MARKER, mask, mask_response
from catalog.core.canonical_json import json_type_of
from catalog.core.json_paths import value_at
from catalog.errors import ParameterError
from catalog.inventory import snapshot
from catalog.models import Call
from catalog.schemas.description import type_label
from catalog.schemas.resolver import (
    FieldType,
    SchemaMapping,
    expand_schema,
    nearest_variant,
    single_type_of,
    union_variants,
)
from catalog.secrets.placeholders import without_macs
from catalog.states import CallStatus
from catalog.ui.results import ENVELOPE
from plans.documents import references
from plans.documents.editing import steps_of
from plans.documents.graphs import descendants
from plans.documents.merging import step_number
from plans.models import MemoryItem, Plan
from plans.store.privacy import hidden_call_parts, hidden_parts
from plans.store.selectors import calls_for, plans_for
from plans.web.compose.step_choices import dependency_arrows

MAX_EXAMPLE = 256 * 1024
"""Characters of the largest value that is read as an example."""
MAX_PARTS, MAX_PART_DEPTH, MAX_LIST_ITEMS = 80, 6, 5
MAX_EXCERPT = 80
MAX_LISTED = 20
"""Most results listed at once; the others are found by searching."""
FITS, MISFITS, UNKNOWN = "fits", "misfits", ""


@dataclass(frozen=True, slots=True)
class Example:
    """The value that a result once had. `size` is set, in characters, if it was too large to be read."""

    value: Any = None
    size: int = 0
    is_private: bool = False
    plan_ref: str = ""


@dataclass(frozen=True, slots=True)
class ResultPart:
    """A part of a result: its path, its type, an excerpt of the example, and whether it fits the field."""

    path: tuple[str, ...]
    reference: str
    type_label: str
    excerpt: str = ""
    is_private: bool = False
    fit: str = UNKNOWN

    @property
    def depth(self) -> int:
        return len(self.path)

    @property
    def path_text(self) -> str:
        return path_text(list(self.path))

    @property
    def label(self) -> str:
        return " › ".join(self.path)  # noqa: RUF001 - the sign between steps of a path


@dataclass(slots=True)
class PartBranch:
    """A part in the tree of a result, with the parts inside it, which `is_open` shows at once."""

    part: ResultPart
    inner: list["PartBranch"] = field(default_factory=list)
    is_open: bool = False


def branches_of(parts: Iterable[ResultPart], *, is_open: bool) -> list[PartBranch]:
    """Return parts, each of which follows the one around it, as a tree; an only part is open in any case."""
    around = [PartBranch(ResultPart((), "", ""))]
    every = list(around)
    for part in parts:
        while part.path[: around[-1].part.depth] != around[-1].part.path:
            around.pop()
        branch = PartBranch(part, is_open=is_open)
        around[-1].inner.append(branch)
        around.append(branch)
        every.append(branch)
    for branch in every:
        if len(branch.inner) == 1:
            branch.inner[0].is_open = True
    return every[0].inner


def path_text(path: object) -> str:
    """Return a path as names with dots between them; as JSON if that would not say the same."""
    if not path:
        return ""
    if isinstance(path, list) and all(isinstance(each, str) and each and "." not in each for each in path):
        text = ".".join(path)
        if not text.startswith("[") and text == text.strip():
            return text
    return json.dumps(path, ensure_ascii=False)


@dataclass(kw_only=True)
class StepResult:
    """The result of one step under its key, or a value of the initial memory (`step_id` is None).

    `is_before` is true if the step already runs before the step whose form is shown.
    """

    key: str
    step_id: int | None = None
    title: str = ""
    tool: str = ""
    query_type: str = ""
    output_path: Sequence[str] = ()
    is_before: bool = True
    example: Example | None = None
    parts: list[ResultPart] = field(default_factory=list)
    more_parts: bool = False
    found_parts: list[ResultPart] = field(default_factory=list)
    """The parts inside the result that are listed: those that a search names, or all of them."""
    is_open: bool = False
    """True if its parts are shown at once."""
    is_searched: bool = False
    """True if a search names parts of it."""

    @cached_property
    def response_schema(self) -> SchemaMapping:
        """The schema of the tool's standard response; empty if the tool is unknown or does not declare its result."""
        known = snapshot.loaded_tool(self.tool) if self.tool else None
        return response_schema(known.output_schema) if known and known.output_schema else {}

    @property
    def schema(self) -> SchemaMapping:
        return schema_at(self.response_schema, self.output_path, self.response_schema)

    def list_parts(self, field_type: FieldType | None = None, root: SchemaMapping | None = None) -> None:
        """Fill `parts` with the result itself and the parts inside it, each compared with a field's type."""
        reader = _PartReader(self, field_type, root or {})
        self.parts = list(islice(reader.parts(), MAX_PARTS + 1))
        self.more_parts = len(self.parts) > MAX_PARTS
        del self.parts[MAX_PARTS:]

    @property
    def whole(self) -> ResultPart | None:
        return self.parts[0] if self.parts else None

    @property
    def branches(self) -> list[PartBranch]:
        """The listed parts as a tree, open beyond its first level only where a search names them."""
        return branches_of(self.found_parts, is_open=self.is_searched)


class ResultSearch:
    """A search for results by key, description and tool, and for parts inside them by their path."""

    def __init__(self, text: str) -> None:
        self.words = [word for word in re.split(r"[\s.${}]+", text.casefold()) if word]

    def candidates(self, results: Iterable[StepResult]) -> list[StepResult]:
        """Return the results that match themselves, or else all, of which parts may match once they are listed."""
        results = list(results)
        return [result for result in results if not self._words_for_parts(result)] or results

    def select(self, results: Sequence[StepResult]) -> list[StepResult]:
        """Return the results that match, or of which a part matches, with the parts to list.

        Without a search, only the parts of the first result are shown at once, and only where it does not fit itself.
        """
        selected: list[StepResult] = []
        for result in results:
            inner, words = result.parts[1:], self._words_for_parts(result)
            result.found_parts = [part for part in inner if all(word in part.label.casefold() for word in words)]
            if words and not result.found_parts:
                continue
            is_first = not selected and result.whole is not None and result.whole.fit == MISFITS
            result.is_searched = bool(words)
            result.is_open = result.is_searched or is_first
            selected.append(result)
        if len(selected) == 1:
            selected[0].is_open = True
        return selected

    def _words_for_parts(self, result: StepResult) -> list[str]:
        """Return the words that the result's own key, description and tool do not have."""
        own = f"{result.key} {result.title} {result.tool}".casefold()
        return [word for word in self.words if word not in own]


def response_schema(output: SchemaMapping) -> SchemaMapping:
    """Return the schema of the standard response of a tool whose result has the schema `output`."""
    plain = expand_schema(output, output)
    own: Mapping[str, Any] = {}
    results: Any = plain
    properties = plain.get("properties", {})
    if isinstance(properties, Mapping) and "results" in properties:
        own = {name: each for name, each in properties.items() if name not in ENVELOPE | {"results"}}
        results = expand_schema(properties["results"], output)
    if single_type_of(results) != "array":
        results = {"type": "array", "items": results}
    definitions = {name: output[name] for name in ("$defs", "definitions") if name in output}
    return {"type": "object", "properties": {"results": results, **own}, **definitions}


def schema_at(schema: SchemaMapping, path: Iterable[str], root: SchemaMapping) -> SchemaMapping:
    """Return the schema of the value at a path; empty if it is not known."""
    found = expand_schema(schema, root)
    for step in path:
        part: object = {}
        for each in [found, *union_variants(found, root)]:
            properties, prefix = each.get("properties"), each.get("prefixItems")
            if isinstance(properties, Mapping) and step in properties:
                part = properties[step]
            elif isinstance(prefix, list) and step.isascii() and step.isdecimal() and int(step[:9]) < len(prefix):
                part = prefix[int(step)]
            elif single_type_of(each) == "array" and step.isascii() and step.isdecimal():
                part = each.get("items", {})
            else:
                continue
            break
        found = expand_schema(part, root)
    return found


class _PartReader:
    """Lists the parts of one result, from its example if there is one, else from its schema."""

    def __init__(self, result: StepResult, field_type: FieldType | None, field_root: SchemaMapping) -> None:
        self.result, self.field_type, self.field_root = result, field_type, field_root
        self.root = result.response_schema

    def parts(self) -> Iterator[ResultPart]:
        example, schema = self.result.example, self.result.schema
        if example is not None and not example.size:
            yield from self._of_value(example.value, schema, ())
        else:
            yield from self._of_schema(schema, ())

    def _of_value(self, value: Any, schema: SchemaMapping, path: tuple[str, ...]) -> Iterator[ResultPart]:
        is_private = isinstance(value, Mapping) and PRIVATE_MARKER in value
        kind = str(value[PRIVATE_MARKER]) if is_private else json_type_of(value)
        label = type_label(schema, self.root) if schema else ""
        yield ResultPart(
            path,
            self._reference(path),
            label if label and label != "anything" else kind,
            "" if is_private else excerpt_of(value),
            is_private,
            self._fit_of_type({kind}) if is_private else self._fit_of_value(value),
        )
        if is_private or len(path) >= MAX_PART_DEPTH:
            return
        for step, inner in _members(value, is_response=not path and not self.result.output_path):
            yield from self._of_value(inner, schema_at(schema, [step], self.root), (*path, step))

    def _of_schema(self, schema: SchemaMapping, path: tuple[str, ...]) -> Iterator[ResultPart]:
        variants = union_variants(schema, self.root) or ((schema,) if schema else ())
        kinds = {single_type_of(each) for each in variants}
        label = type_label(schema, self.root) if schema else ""
        yield ResultPart(path, self._reference(path), label, fit=self._fit_of_type(kinds))
        if len(path) >= MAX_PART_DEPTH:
            return
        properties = schema.get("properties")
        for step in properties if isinstance(properties, Mapping) else ("0",) if "array" in kinds else ():
            yield from self._of_schema(schema_at(schema, [step], self.root), (*path, step))

    def _reference(self, path: tuple[str, ...]) -> str:
        """Return the text of a reference to a part; empty if a name on its path cannot be written in one."""
        text = "${" + ".".join((self.result.key, *path)) + "}"
        try:
            found = references.find_in(text, "")
        except ParameterError:
            return ""
        return text if len(found) == 1 and found[0].path == path else ""

    def _fit_of_value(self, value: Any) -> str:
        if self.field_type is None or self.field_type.kind == "json":
            return UNKNOWN
        if value is None and self.field_type.nullable:
            return FITS
        return MISFITS if nearest_variant([self.field_type.schema], value, self.field_root) is None else FITS

    def _fit_of_type(self, kinds: set[str]) -> str:
        if self.field_type is None or self.field_type.kind == "json" or not kinds or "" in kinds:
            return UNKNOWN
        schema = self.field_type.schema
        taken = {single_type_of(each) for each in union_variants(schema, self.field_root) or (schema,)}
        if self.field_type.options:
            taken = {json_type_of(option) for option in self.field_type.options}
        if "" in taken:
            return UNKNOWN
        same = {"number", "integer"} if taken & {"number", "integer"} else set()
        return FITS if kinds & (taken | same | ({"null"} if self.field_type.nullable else set())) else MISFITS


def _members(value: Any, *, is_response: bool) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        yield from ((str(place), item) for place, item in enumerate(value[:MAX_LIST_ITEMS]))
    elif isinstance(value, Mapping):
        names = [name for name in value if not (is_response and name in ENVELOPE)]
        names.sort(key=lambda name: is_response and name != "results")
        yield from ((name, value[name]) for name in names)


def excerpt_of(value: Any) -> str:
    """Return the beginning of a value as text; of a list or an object its size."""
    if isinstance(value, list):
        return f"[{len(value)}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(str(name)[:20] for name in islice(value, 3)) + (", …}" if len(value) > 3 else "}")
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= MAX_EXCERPT else f"{text[:MAX_EXCERPT]}…"


def results_for(document: dict[str, Any], step_id: int, needs: Iterable[Any]) -> list[StepResult]:
    """Return the results that a step with these dependencies can refer to, those that it already waits for first.

    Steps that depend on the step itself, directly or not, are left out.
    """
    arrows = dependency_arrows(document, without=step_id)
    arrows += [(needed, step_id) for needed in needs if type(needed) is int]
    after = descendants(step_id, arrows)
    before = descendants(step_id, [(step, needed) for needed, step in arrows])
    found: dict[str, StepResult] = {}
    memory = document.get("memory")
    for key, value in memory.items() if isinstance(memory, Mapping) else ():
        found[key] = StepResult(key=key, example=Example(value))
    for step in steps_of(document):
        number = step_number(step)
        if number is None or number == step_id or number in after:
            continue
        tool, path, parameters = step.get("tool"), step.get("output_path"), step.get("parameters")
        tool = tool if isinstance(tool, str) else ""
        known = snapshot.loaded_tool(tool) if tool and not step.get("expected_key") else None
        key = step.get("expected_key") or (known.output_key if known else "")
        if isinstance(key, str) and key and key not in found:
            query_type = parameters.get("query_type") if isinstance(parameters, Mapping) else ""
            found[key] = StepResult(
                key=key,
                step_id=number,
                title=str(step.get("description") or ""),
                tool=tool,
                query_type=query_type if isinstance(query_type, str) else "",
                output_path=[each for each in path if isinstance(each, str)] if isinstance(path, list) else (),
                is_before=number in before,
            )
    return sorted(found.values(), key=lambda result: (not result.is_before, -(result.step_id or 0)))


def load_examples(results: Sequence[StepResult], viewer: User, origin_plan: Plan | None = None) -> None:
    """Set the examples of results.

    Two queries for each tool and query type, of which the first MAX_LISTED are read, and three for `origin_plan`.
    """
    wanted = [result for result in results if result.example is None]
    if origin_plan is not None and plans_for(viewer).filter(pk=origin_plan.pk).exists():
        _take_from_memory(wanted, viewer, origin_plan)
    responses: dict[tuple[str, str], Example | None] = {}
    for result in wanted:
        if result.example is not None or not result.tool:
            continue
        asked = (result.tool, result.query_type)
        if asked not in responses and len(responses) == MAX_LISTED:
            continue
        if asked not in responses:
            responses[asked] = last_response(viewer, *asked)
        response = responses[asked]
        if response is None or response.size:
            result.example = response
        else:
            value = value_at(response.value, result.output_path)
            result.example = Example(value, is_private=response.is_private, plan_ref=response.plan_ref)


def _take_from_memory(results: Sequence[StepResult], viewer: User, origin_plan: Plan) -> None:
    by_key = {result.key: result for result in results if "\0" not in result.key}
    stored = origin_plan.memory.filter(type=MemoryItem.Type.VALUE, key__in=by_key).annotate(size=Length("value"))
    sizes = dict(stored.values_list("key", "size"))
    texts = dict(stored.filter(size__lte=MAX_EXAMPLE).values_list("key", "value"))
    private = hidden_parts(viewer, origin_plan).keys if sizes else frozenset()
    for key, size in sizes.items():
        if key not in texts:
            by_key[key].example = Example(size=size, plan_ref=origin_plan.public_id)
            continue
        value = json.loads(without_macs(texts[key]))
        is_private = key in private
        by_key[key].example = Example(
            mask(value) if is_private else value, is_private=is_private, plan_ref=origin_plan.public_id
        )


def last_response(viewer: User, tool: str, query_type: str = "") -> Example | None:
    """Return the response of the newest completed call of a tool that a person may see, masked if it is private."""
    if "\0" in f"{tool}{query_type}":  # PostgreSQL refuses to look for it
        return None
    calls = calls_for(viewer).filter(tool_name=tool, status=CallStatus.COMPLETED)
    if query_type:
        calls = calls.filter(query_type=query_type)
    sizes = calls.annotate(size=Length("response")).order_by("-created_at").values_list("pk", "size", "plan_ref")
    found = sizes.first()
    if found is None:
        return None
    pk, size, plan_ref = found
    if size > MAX_EXAMPLE:
        return Example(size=size, plan_ref=plan_ref)
    call = Call.objects.get(pk=pk)
    is_private = hidden_call_parts(viewer, call) is not None
    response = json.loads(without_macs(call.response)) if call.response else {}
    return Example(mask_response(response) if is_private else response, is_private=is_private, plan_ref=plan_ref)
