"""The operations of an OpenAPI document as definitions of HTTP tools.

An operation that cannot be imported becomes a problem of the listing, with the reason, and does not affect the others.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from catalog.errors import SourceProblem
from catalog.sources.definitions import MAX_TOOLS, Definition, Listing, visible_text
from catalog.sources.levels import METHOD_LEVELS
from catalog.sources.openapi_document import (
    LeftOut,
    addresses_of,
    as_list,
    as_object,
    read_document,
    resolved,
    server_of,
    servers_of,
)
from catalog.sources.openapi_operations import DocumentOperation, OperationReader
from catalog.sources.openapi_schemas import DocumentSchemas, OperationSchemas
from catalog.sources.selection import Selection

MAX_REASON = 500
OTHER_METHODS = ("OPTIONS", "TRACE", "QUERY")
"""Methods whose operations cannot become tools; `additionalOperations` of a path may name further methods."""
NOT_AS_SPECIFIED = (ValueError, TypeError, KeyError, AttributeError)
"""Exceptions that the readers raise for parts written in unforeseen ways."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSettings:
    """Settings of a source for reading its document.

    `url` is where the document came from. `base_url` replaces the first server that it names. `timeout` is the limit of
    a call in seconds. `only` chooses operations (`selection.Selection`). `query` has the names of query parameters that
    the source itself sets, such as API keys; tools have no arguments for them.
    """

    url: str = ""
    base_url: str = ""
    timeout: float = 30.0
    only: Mapping[str, Any] = field(default_factory=dict)
    query: Collection[str] = ()


def list_operations(source: str, text: str, settings: ImportSettings | None = None) -> Listing:
    """Return a definition for each operation of a document. Raises SourceProblem if the document cannot be used."""
    settings = settings or ImportSettings()
    document = read_document(text)
    server = server_of(document, settings.url, settings.base_url)
    usual_servers = {server, *addresses_of(servers_of(document)[:1], settings.url)}
    selection = Selection.from_json(settings.only)
    used: set[tuple[str, str]] = set()
    schemas = DocumentSchemas(document)
    credentials = _Credentials(document)
    found: list[Definition] = []
    problems: list[str] = []
    names: set[str] = set()
    for path, method, item, operation in _operations(document):
        fields = operation if isinstance(operation, dict) else {}
        given, tags = fields.get("operationId"), fields.get("tags")
        words = re.sub(r"[^A-Za-z0-9]+", "_", path).strip("_")
        name = (given.strip() if isinstance(given, str) else "")[:200] or f"{method.lower()}_{words}"[:200]
        choices = selection.choices_for({name, f"{method} {path}"}, path, tags if isinstance(tags, list) else [])
        used |= choices
        if name in names:
            name = f"{method} {path}"
        is_taken = name in names
        names.add(name)
        if not choices and selection != Selection():
            continue
        try:
            if isinstance(operation, LeftOut):
                raise operation
            if is_taken:
                raise LeftOut(f"its name and {name!r} are taken: give it an operationId that no other operation has.")
            own = as_list(operation.get("servers") or item.get("servers"), "its list of servers")
            if own and addresses_of(own, settings.url).isdisjoint(usual_servers):
                address = own[0].get("url") if isinstance(own[0], dict) else own[0]
                raise LeftOut(f"it has another server than the document: {address}.")
            keys = {*settings.query, *credentials.of_operation(operation, settings.query)}
            reader = OperationReader(document, OperationSchemas(schemas), server, source, settings.timeout, keys)
            found.append(reader.definition(DocumentOperation(name, method, path, item, operation)))
            without = "is imported without an optional part"
            problems += [_problem(method, path, reason, without) for reason in reader.left_out]
        except LeftOut as reason:
            problems.append(_problem(method, path, str(reason)))
        except RecursionError:
            problems.append(_problem(method, path, "its schemas refer to each other on too many levels."))
        except NOT_AS_SPECIFIED:
            problems.append(_problem(method, path, "a part of it is not written as OpenAPI says."))
        if len(found) > MAX_TOOLS:
            raise SourceProblem(
                f"The document has more than {MAX_TOOLS:,} operations. Choose those that you need by their tags, paths "
                "or names."
            )
    problems += [
        f"No operation of the document has the {kind.removesuffix('s')} {value!r}."
        for kind, value in dict.fromkeys(selection.choices())
        if (kind, value) not in used
    ]
    return Listing(tuple(found), (*credentials.problems(), *map(visible_text, problems)))


def _problem(method: str, path: str, reason: str, outcome: str = "cannot be imported") -> str:
    return visible_text(f"{method} {path[:120]} {outcome}: {reason[:MAX_REASON]}")


def _operations(
    document: Mapping[str, Any],
) -> Iterator[tuple[str, str, Mapping[str, Any], dict[str, Any] | LeftOut]]:
    """Yield path, method, path object and operation; for an unreadable operation, the reason in its place."""
    for path, written in (document.get("paths") or {}).items():
        if path.startswith("x-"):
            continue
        try:
            item = as_object(written, "its path")
            if "$ref" in item:
                item = {**resolved(document, item, "its path"), **item}
        except LeftOut as reason:
            yield path, "Each method of", {}, reason
            continue
        methods = {each.upper(): operation for each, operation in item.items()}
        for method in METHOD_LEVELS:
            if method in methods:
                operation = methods[method]
                yield path, method, item, operation if isinstance(operation, dict) else LeftOut("it is not an object.")
        further = item.get("additionalOperations")
        for method in [*OTHER_METHODS, *(further if isinstance(further, dict) else ())]:
            if method in methods or method not in OTHER_METHODS:
                yield path, method, item, LeftOut(f"tools send {', '.join(METHOD_LEVELS)} only.")


class _Credentials:
    """The API keys that a document wants in the query or in cookies, with counts of the operations that lack a key."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._usual = document.get("security")
        self._keys: dict[str, tuple[str, str]] = {}
        """Place and name of each API key, by the name of its security scheme."""
        self._missing: Counter[tuple[str, str]] = Counter()
        components = document.get("components")
        schemes = components.get("securitySchemes") if isinstance(components, dict) else None
        for name, written in schemes.items() if isinstance(schemes, dict) else ():
            try:
                scheme = resolved(document, written, "a security scheme")
            except LeftOut:
                continue
            place, key = scheme.get("in"), scheme.get("name")
            if scheme.get("type") == "apiKey" and place in ("query", "cookie") and isinstance(key, str):
                self._keys[name] = place, key

    def of_operation(self, operation: Mapping[str, Any], stored: Collection[str]) -> set[str]:
        """Return the names of an operation's keys in the query. Count the operation if a key it needs is not stored."""
        security = operation.get("security", self._usual)
        choices = [each for each in security if isinstance(each, dict)] if isinstance(security, list) else []
        keys = [[self._keys[name] for name in each if name in self._keys] for each in choices]
        missing = [[key for key in each if key[0] == "cookie" or key[1] not in stored] for each in keys]
        if missing and all(missing):
            self._missing[missing[0][0]] += 1
        return {name for each in keys for place, name in each if place == "query"}

    def problems(self) -> Iterator[str]:
        """Yield a sentence for each key that operations need and the source does not have."""
        for (place, name), count in self._missing.items():
            operations = "1 operation needs" if count == 1 else f"{count:,} operations need"
            remedy = "Store it under “query” of the source, or with --query of import_openapi."
            if place == "cookie":
                remedy = "Toolgate does not send cookies."
            yield visible_text(f"{operations} the API key {name[:100]!r} in the {place}. {remedy}")
