"""HTTP tools defined by hand: a specification in gram or JSON, and the request that a call becomes."""

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from django.contrib.auth.models import User

from catalog import signals
from catalog.access.roles import NotAllowed
from catalog.calls.vault import keyring
from catalog.core.canonical_json import canonical_text, digest
from catalog.core.egress import RequestNotSent, check_url
from catalog.definitions.levels import SafetyLevel
from catalog.definitions.rules import SNAKE_CASE
from catalog.errors import Conflict, ToolDefinitionError, TypeSignatureError, field_error
from catalog.inventory import search, snapshot
from catalog.inventory.imported_tools import take_up_definition
from catalog.inventory.overrides import MAX_CATEGORIES, can_override
from catalog.inventory.sync import record_source
from catalog.inventory.versions import bump_revision, catalog_write_lock, drift_fact, version_facts
from catalog.models import Source, Tool
from catalog.sources.definitions import Definition, clean_text
from catalog.sources.http_requests import BODYLESS, METHODS, PLACEHOLDER, READING_METHODS, Operation
from catalog.sources.loading import judge_definition
from catalog.sources.settings import (
    HEADER_NAME,
    MASK,
    OTHER_ORIGIN,
    check_values,
    masked,
    origin_of,
    settings_of,
    unmasked,
)
from catalog.styles.gram.specification import ToolSpecification
from catalog.tools.registry import get_all_tools, is_reserved

HTTP_SOURCE = "http"
DEFAULT_TIMEOUT = 30.0
SAMPLE = "x"
AUDITED = ("method", "url", "timeout")
"""Fields whose old and new values the audit log keeps. Of other fields it only keeps that they changed."""


def create_http_tool(
    specification: str | Mapping[str, Any],
    http: Mapping[str, Any],
    *,
    safety_level: str,
    categories: Sequence[str] = (),
    by: User,
) -> Tool:
    """Store a tool whose calls are HTTP requests; return its row.

    `specification` is gram text, or JSON with `name`, `description` and `typeSignature` or `schema`; if there is a
    signature, the schema is ignored. `http` has `method`, `url` and optionally `headers` (stored encrypted) and
    `timeout`. Raises NotAllowed, ParameterError naming the field, and Conflict if the name is taken.
    """
    if not can_override(by):
        raise NotAllowed("Only an administrator may create tools.")
    name, description, schema = _read_specification(specification)
    if len(categories) > MAX_CATEGORIES:
        raise field_error("categories", "too_many", f"Name at most {MAX_CATEGORIES} categories.")
    definition = Definition(
        kind="http",
        upstream=name,
        description=description,
        input_schema=schema,
        safety_level=str(SafetyLevel(safety_level)),
        why="chosen by its author",
        categories=tuple(sorted(set(categories))),
    )
    definition = _with_request(definition, http)
    with catalog_write_lock():
        source, is_new = Source.objects.get_or_create(
            name=HTTP_SOURCE, defaults={"kind": Source.Kind.HTTP, "trusted": True}
        )
        if is_new:
            record_source(source)
        if name in get_all_tools() or Tool.objects.filter(name=name).exists():
            raise Conflict(f"There is already a tool called {name}.")
        tool_row = Tool(name=name, source=source)
        _publish(tool_row, definition)
        signals.record_fact("tool.added", by=by, **version_facts(tool_row))
    snapshot.drop_snapshot()
    return tool_row


def update_http_tool(
    tool_row: Tool, values: Mapping[str, Any], *, by: User, reason: str = "", shown: str | None = None
) -> bool:
    """Change an HTTP tool that was defined by hand; return whether anything changed.

    `values` may have `specification` and `http` as in `create_http_tool`. Omitted fields and masked headers keep the
    stored values, but no header is kept for another server. A form passes as `shown` the `definition_digest` that it
    displayed: if the tool has changed since, Conflict is raised, because the form would undo that change. Raises
    NotAllowed, and ParameterError naming the field.
    """
    if not can_override(by):
        raise NotAllowed("Only an administrator may change tools.")
    with catalog_write_lock():
        tool_row = Tool.objects.select_related("source", "current_version").get(pk=tool_row.pk)
        if not is_defined_by_hand(tool_row):
            raise field_error(min(values), "invalid", f"{tool_row.name} is not an HTTP tool that was defined by hand.")
        if shown is not None and shown != definition_digest(tool_row):
            raise Conflict("The request was changed meanwhile. Check it, then save again.")
        old, version = Definition.from_json(tool_row.definition or {}), tool_row.current_version
        new = old
        if "specification" in values:
            _, description, schema = _read_specification(values["specification"], tool_row.name)
            new = replace(old, description=description, input_schema=schema)
        new = _with_request(new, {**(shown_request(tool_row, by) or {}), **values.get("http", {})})
        if new == old:
            return False
        _publish(tool_row, new)
        facts: dict[str, Any] = {**version_facts(tool_row), **({"reason": reason} if reason else {})}
        before, after = _fields(old), _fields(new)
        fields = [name for name in before if before[name] != after[name]]
        changes = {name: [before[name], after[name]] for name in fields if name in AUDITED}
        signals.record_fact("tool.changed", by=by, **facts, fields=fields, changes=changes)
        drift = drift_fact(tool_row) if tool_row.current_version != version else None
        if drift is not None:
            signals.record_fact(drift.kind, **drift.data)
    snapshot.drop_snapshot()
    return True


def is_defined_by_hand(tool_row: Tool) -> bool:
    return tool_row.source.kind == Source.Kind.HTTP and tool_row.definition is not None


def definition_digest(tool_row: Tool) -> str:
    return digest(canonical_text(tool_row.definition))


def operation_of(tool_row: Tool) -> Operation | None:
    """Return the HTTP request that a call of this tool becomes; None if it is no HTTP tool."""
    http = (tool_row.definition or {}).get("http")
    return None if http is None else Operation.from_json(http)


def shown_request(tool_row: Tool, viewer: User) -> dict[str, Any] | None:
    """Return method, URL, headers and timeout of an HTTP tool; None for other tools.

    The tool's own headers are masked. `headers` is None for a viewer who may not change tools.
    """
    operation = operation_of(tool_row)
    if operation is None:
        return None
    return {
        "method": operation.method,
        "url": operation.url,
        "headers": masked(operation.own_headers()) if can_override(viewer) else None,
        "timeout": int((tool_row.definition or {})["timeout"]),
    }


def _publish(tool_row: Tool, definition: Definition) -> None:
    """Make a definition the tool's current one, and make processes read the catalog again. Raises ParameterError."""
    problem = judge_definition(tool_row.name, definition, settings_of(tool_row.source))
    if problem:
        raise field_error("specification", "invalid", problem)
    take_up_definition(tool_row, definition)
    search.index_changed_tools()
    bump_revision()


def _fields(definition: Definition) -> dict[str, Any]:
    http = definition.http or {}
    return {
        "specification": (definition.description, definition.input_schema),
        "method": http["method"],
        "url": http["url"],
        "headers": http["secrets"],
        "timeout": definition.timeout,
    }


def _read_specification(given: str | Mapping[str, Any], kept_name: str = "") -> tuple[str, str, dict[str, Any]]:
    """Return name, description and schema. A tool that exists must keep `kept_name`. Raises ParameterError."""
    if isinstance(given, Mapping):
        _check_name(given.get("name"), kept_name)
        if not isinstance(given.get("description"), str) or not clean_text(given["description"]):
            raise field_error("specification.description", "invalid", "Describe the tool: models choose by it.")
    try:
        if isinstance(given, str):
            specification = ToolSpecification.from_gram(given)
            _check_name(specification.name, kept_name)
        elif "typeSignature" in given:
            specification = ToolSpecification.from_json(given)
        else:
            return given["name"], clean_text(given["description"]), _object_schema(given.get("schema"))
    except (TypeSignatureError, ToolDefinitionError) as error:
        raise field_error("specification", "invalid", str(error)) from None
    return specification.name, clean_text(specification.description), _object_schema(specification.schema)


def _check_name(name: object, kept_name: str) -> None:
    """Raise ParameterError if a tool cannot have this name; the message proposes a valid one."""
    if kept_name:
        if name != kept_name:
            raise field_error("specification.name", "invalid", f"The name {kept_name} cannot be changed.")
        return
    if not isinstance(name, str) or not SNAKE_CASE.fullmatch(name):
        plain = unicodedata.normalize("NFKD", name if isinstance(name, str) else "").encode("ascii", "ignore").decode()
        spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", plain)  # sayHello: say_hello
        proposal = re.sub(r"[^a-z0-9]+", "_", spaced.lower()).strip("_")[:64]
        remedy = f" Use {proposal}." if SNAKE_CASE.fullmatch(proposal) and not is_reserved(proposal) else ""
        message = f"A name is 1 to 64 of a-z, 0-9 and '_', and begins with a letter.{remedy}"
        raise field_error("specification.name", "invalid", message)
    if is_reserved(name):
        raise field_error("specification.name", "invalid", f"The name {name} is reserved. Choose another one.")


def _object_schema(schema: object) -> dict[str, Any]:
    """Return the arguments' schema, which forbids further arguments unless it says otherwise. Raises ParameterError."""
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        message = "Give the arguments as `schema`, the JSON Schema of an object, or as `typeSignature`."
        raise field_error("specification.schema", "invalid", message)
    return {"additionalProperties": False, **schema}


def _with_request(definition: Definition, http: Mapping[str, Any]) -> Definition:
    """Return the definition with the request `http`; masked headers keep their old values. Raises ParameterError."""
    stored = Operation.from_json(definition.http) if definition.http else None
    method, url, schema = http["method"], http["url"], definition.input_schema
    if method not in METHODS:
        raise field_error("http.method", "invalid", f"A method is one of {', '.join(METHODS)}.")
    placeholders = _check_url(url, schema)
    given, known = http.get("headers") or {}, stored.own_headers() if stored else {}
    headers = unmasked("http.headers", given, known)
    check_values("http.headers", headers, HEADER_NAME)
    if stored and MASK in given.values() and origin_of(url) != origin_of(stored.url):
        raise field_error("http.headers", "other_origin", OTHER_ORIGIN)
    if stored and headers == known:
        secrets = stored.secrets  # not encrypted again: approvals bind the ciphertext
    else:
        secrets = keyring().encrypt(json.dumps(headers)) if headers else ""
    others = [name for name in schema.get("properties", {}) if name not in placeholders]
    names = {name: name for name in others}
    if method in BODYLESS:
        operation = Operation(method=method, url=url, query=names, secrets=secrets)
    else:
        body = "json" if names else ""
        operation = Operation(method=method, url=url, body=body, body_fields=names, secrets=secrets)
    timeout = float(http.get("timeout", DEFAULT_TIMEOUT))
    return replace(definition, timeout=timeout, retry_safe=method in READING_METHODS, http=operation.as_json())


def _check_url(url: str, schema: Mapping[str, Any]) -> set[str]:
    """Return the placeholders in a URL. Raises ParameterError unless all are parameters and in path or query."""
    try:
        check_url(PLACEHOLDER.sub(SAMPLE, url))
    except RequestNotSent as error:
        raise field_error("http.url", "invalid", str(error)) from None
    if "#" in url:
        raise field_error("http.url", "invalid", "Remove the fragment, or write %23 for a '#' in path or query.")
    parts = urlsplit(url)
    if re.search(r"[{}]", parts.scheme + parts.netloc) or re.search(r"[{}]", PLACEHOLDER.sub("", url)):
        raise field_error("http.url", "invalid", "Placeholders such as {id} stand in the path and the query only.")
    known, required = schema.get("properties", {}), schema.get("required", [])
    in_path = set(PLACEHOLDER.findall(parts.path))
    for name in {*in_path, *PLACEHOLDER.findall(parts.query)}:
        if name not in known:
            raise field_error("http.url", "invalid", f"The placeholder {{{name}}} is no parameter of the tool.")
        if name in in_path and name not in required:
            raise field_error(
                "http.url", "invalid", f"The parameter {name} stands in the path, so it must be required."
            )
    return {*in_path, *PLACEHOLDER.findall(parts.query)}
