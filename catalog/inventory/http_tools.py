"""HTTP tools defined by hand: a specification in gram or JSON, and the request that a call becomes."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from django.contrib.auth.models import User

from catalog import signals
from catalog.access.roles import NotAllowed
from catalog.calls.vault import keyring
from catalog.core.egress import RequestNotSent, check_url
from catalog.definitions.levels import SafetyLevel
from catalog.definitions.tool import CATALOG_NAME
from catalog.errors import Conflict, ToolDefinitionError, TypeSignatureError, field_error
from catalog.gram import ToolSpecification
from catalog.inventory import search, snapshot
from catalog.inventory.overrides import MAX_CATEGORIES, can_override
from catalog.inventory.sources import take_up_definition
from catalog.inventory.versions import bump_revision, catalog_write_lock, version_facts
from catalog.models import Source, Tool
from catalog.sources.definitions import Definition, clean_text
from catalog.sources.http_requests import BODYLESS, METHODS, PLACEHOLDER, Operation
from catalog.sources.loading import judge_definition
from catalog.sources.settings import HEADER_NAME, check_values, settings_of
from catalog.tools.registry import get_all_tools, is_reserved

HTTP_SOURCE = "http"
DEFAULT_TIMEOUT = 30.0
SAMPLE = "x"


def create_http_tool(
    specification: str | Mapping[str, Any],
    http: Mapping[str, Any],
    *,
    safety_level: str,
    categories: Sequence[str] = (),
    by: User,
) -> Tool:
    """Store a tool whose calls are HTTP requests; return its row.

    `specification` is gram text, or JSON with `name`, `description` and `schema` or `type_signature`. `http` has
    `method`, `url` and optionally `headers` (stored encrypted) and `timeout`. Raises NotAllowed, ParameterError naming
    the field, and Conflict if the name is taken.
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
        timeout=float(http.get("timeout", DEFAULT_TIMEOUT)),
        retry_safe=http["method"] in ("GET", "HEAD"),
        http=_operation(schema, http).as_json(),
    )
    with catalog_write_lock():
        source, _ = Source.objects.get_or_create(name=HTTP_SOURCE, defaults={"kind": Source.Kind.HTTP, "trusted": True})
        if name in get_all_tools() or Tool.objects.filter(name=name).exists():
            raise Conflict(f"There is already a tool called {name}.")
        problem = judge_definition(name, definition, settings_of(source))
        if problem:
            raise field_error("specification", "invalid", problem)
        row = Tool(name=name, source=source)
        row.save()
        take_up_definition(row, definition)
        search.index_changed_tools()
        bump_revision()
        signals.record_fact("tool.added", by=by, **version_facts(row))
    snapshot.drop_snapshot()
    return row


def _read_specification(given: str | Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Return name, description and schema. Raises ParameterError."""
    name: object
    description: object
    schema: object
    try:
        if isinstance(given, str):
            read = ToolSpecification.from_gram(given)
            name, description, schema = read.name, read.description, read.schema
        elif "type_signature" in given:
            read = ToolSpecification(given.get("name", ""), given.get("description", ""), given["type_signature"])
            name, description, schema = read.name, read.description, read.schema
        else:
            name, description, schema = given.get("name"), given.get("description"), given.get("schema")
    except (TypeSignatureError, ToolDefinitionError) as error:
        raise field_error("specification", "invalid", str(error)) from None
    if not isinstance(name, str) or not CATALOG_NAME.fullmatch(name) or is_reserved(name):
        raise field_error("specification.name", "invalid", "A name is 1 to 64 letters, digits, '_' or '-'.")
    if not isinstance(description, str) or not clean_text(description):
        raise field_error("specification.description", "invalid", "Describe the tool: models choose by it.")
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise field_error("specification.schema", "invalid", "The schema is one of an object, with its properties.")
    return name, clean_text(description), {"additionalProperties": False, **schema}


def _operation(schema: Mapping[str, Any], http: Mapping[str, Any]) -> Operation:
    """Return the operation of an HTTP tool. Raises ParameterError."""
    method, url = http["method"], http["url"]
    if method not in METHODS:
        raise field_error("http.method", "invalid", f"A method is one of {', '.join(METHODS)}.")
    headers = http.get("headers") or {}
    check_values("http.headers", headers, HEADER_NAME)
    placeholders = _check_url(url, schema)
    others = [name for name in schema.get("properties", {}) if name not in placeholders]
    names = {name: name for name in others}
    secrets = keyring().encrypt(json.dumps(dict(headers))) if headers else ""
    if method in BODYLESS:
        return Operation(method=method, url=url, query=names, secrets=secrets)
    return Operation(method=method, url=url, body="json" if names else "", body_fields=names, secrets=secrets)


def _check_url(url: str, schema: Mapping[str, Any]) -> set[str]:
    """Return the placeholders of a URL. Raises ParameterError unless they are parameters, in path and query only."""
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
