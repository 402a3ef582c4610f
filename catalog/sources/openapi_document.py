"""OpenAPI documents (3.0 to 3.2, JSON or YAML) as values: reading them, following references, naming the server.

Only a text that is no OpenAPI document is refused as a whole; a wrong part of a document raises LeftOut.
"""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from catalog.core.canonical_json import MAX_JSON_DEPTH, malformed_json
from catalog.core.egress import RequestNotSent, check_url
from catalog.core.yaml_documents import MAX_VALUES, parse_yaml
from catalog.errors import MalformedJSON, SourceProblem
from catalog.sources.definitions import visible_text
from catalog.sources.settings import MAX_DOCUMENT

MAX_REFERENCE_CHAIN = 20
VERSION = re.compile(r"3\.[012](\.|$)")


class LeftOut(Exception):
    """A part of a document that cannot be imported, with the reason."""


def read_document(text: str) -> dict[str, Any]:
    """Return an OpenAPI document that is written as JSON or YAML. Raises SourceProblem."""
    if len(text) > MAX_DOCUMENT:
        raise SourceProblem(f"The document has more than {MAX_DOCUMENT:,} characters.")
    text = text.removeprefix("\ufeff")
    value: Any
    if text.lstrip().startswith("{"):
        value = _parse_json(text)
    else:
        try:
            value = parse_yaml(text, allow_duplicate_keys=True)
        except MalformedJSON as error:
            place = f" (line {error.line}, column {error.column})" if error.line else ""
            raise SourceProblem(visible_text(f"{error.message.removesuffix('.')}{place}.")) from None
    if not isinstance(value, dict) or not {"openapi", "swagger"} & value.keys():
        raise SourceProblem("This is not an OpenAPI document: it has no field `openapi` with a version.")
    if "openapi" not in value:
        raise SourceProblem("This is a Swagger 2 document. Convert it to OpenAPI 3, then add it.")
    if not VERSION.match(str(value["openapi"])):
        version = visible_text(str(value["openapi"])[:40])
        raise SourceProblem(f"OpenAPI {version} is not supported: the document needs a version from 3.0 to 3.2.")
    if not isinstance(value.get("paths") or {}, dict):
        raise SourceProblem("The document is not valid OpenAPI: its `paths` are not an object.")
    return value


def _parse_json(text: str) -> Any:
    # Not the strict parser of calls: documents give bounds of 64-bit integers, which it refuses.
    def integer(digits: str) -> int | str:
        with suppress(ValueError):  # more digits than Python converts
            return int(digits)
        return digits

    try:
        value = json.loads(text, parse_int=integer)
    except json.JSONDecodeError as error:
        raise SourceProblem(f"The document is not valid JSON. {malformed_json(error)}") from None
    except RecursionError:
        raise SourceProblem("The document is too deep.") from None
    values, level = 0, [value]
    for _ in range(MAX_JSON_DEPTH + 1):
        values += len(level)
        parts = [list(each.values()) if isinstance(each, dict) else each for each in level]
        level = [each for part in parts if isinstance(part, list) for each in part]
        if not level or values > MAX_VALUES:
            break
    if level or values > MAX_VALUES:
        limits = f"at most {MAX_JSON_DEPTH} levels and {MAX_VALUES:,} values are accepted"
        raise SourceProblem(f"The document is too deep or too large: {limits}.")
    return value


def as_object(value: Any, name: str) -> dict[str, Any]:
    """Return the value as an object; an empty one for null. Raises LeftOut, mentioning `name`, for anything else."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise LeftOut(f"{name} should be an object.")
    return value


def as_list(value: Any, name: str) -> list[Any]:
    """Return the value as a list; an empty one for null. Raises LeftOut, mentioning `name`, for anything else."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise LeftOut(f"{name} should be a list.")
    return value


def target_of(document: Mapping[str, Any], reference: str) -> Any:
    """Return the part of the document to which a reference points. Raises LeftOut."""
    shown = repr(reference[:100])
    if not reference.startswith("#"):
        raise LeftOut(f"it refers to another document, {shown}.")
    target: Any = document
    for step in reference[1:].split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(target, list) and key.isascii() and key.isdigit() and int(key) < len(target):
            target = target[int(key)]
        elif isinstance(target, dict) and key in target:
            target = target[key]
        else:
            raise LeftOut(f"it refers to {shown}, which is not in the document.")
    return target


def resolved(document: Mapping[str, Any], part: Any, name: str) -> dict[str, Any]:
    """Return the object that `part` is or refers to. Raises LeftOut, mentioning `name`."""
    for _ in range(MAX_REFERENCE_CHAIN):
        found = as_object(part, name)
        if not isinstance(found.get("$ref"), str):
            return found
        part = target_of(document, found["$ref"])
    raise LeftOut(f"the references of {name} lead in a circle.")


def server_of(document: Mapping[str, Any], url: str, base_url: str) -> str:
    """Return the URL to which paths are appended. Raises SourceProblem."""
    address = base_url
    if not address:
        try:
            address = _address_of(servers_of(document)[0], url)
            is_absolute = bool(urlsplit(address).scheme)
        except ValueError:
            raise SourceProblem("The server of the document cannot be used: its URL is invalid.") from None
        if not is_absolute:
            raise SourceProblem("The document names no absolute server. Set the base URL.")
    try:
        check_url(address)
    except RequestNotSent as error:
        raise SourceProblem(f"The server of the document cannot be used: {error}") from None
    if re.search(r"[?#{]", address):
        raise SourceProblem("The server of the document has a query, a fragment or an open variable. Set the base URL.")
    return address.rstrip("/")


def servers_of(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the readable servers of a document; a server "/" if there are none."""
    servers = document.get("servers")
    found = [each for each in servers if isinstance(each, dict)] if isinstance(servers, list) else []
    return found or [{"url": "/"}]


def addresses_of(servers: Iterable[Any], url: str) -> set[str]:
    found = set()
    for each in servers:
        if isinstance(each, dict):
            with suppress(ValueError):
                found.add(_address_of(each, url).rstrip("/"))
    return found


def _address_of(server: Mapping[str, Any], url: str) -> str:
    """Return the URL of a server. It stays relative if the document's `url` is empty. Raises ValueError."""
    address = str(server.get("url", "/"))
    variables = server.get("variables")
    for name, variable in variables.items() if isinstance(variables, dict) else ():
        default = variable.get("default", "") if isinstance(variable, dict) else ""
        address = address.replace(f"{{{name}}}", str(default))
    return address if urlsplit(address).scheme else urljoin(url, address)
