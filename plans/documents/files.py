"""Plan documents in files: JSON, or YAML restricted to JSON's types, without duplicate keys and aliases."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from catalog.core.canonical_json import MAX_JSON_BYTES, Json, check_json, parse_json
from catalog.errors import MalformedJSON, TooLarge


def read_document(path: Path) -> tuple[Json, str]:
    """Return a file's document and its text. Raises OSError, MalformedJSON and TooLarge."""
    with path.open("rb") as file:
        raw = file.read(MAX_JSON_BYTES + 1)
    if len(raw) > MAX_JSON_BYTES:
        raise TooLarge(f"The file {path.name}", size=path.stat().st_size, limit=MAX_JSON_BYTES)
    if path.suffix in (".yaml", ".yml"):
        return _from_yaml(raw), raw.decode(errors="replace")
    return parse_json(raw), raw.decode(errors="replace")


_Refused = yaml.constructor.ConstructorError


class _Loader(yaml.SafeLoader):
    """Safe loader for JSON's types; dates stay strings."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Refuse aliases, which can expand a small file without bound."""
        if self.check_event(yaml.AliasEvent):
            raise _Refused(None, None, "aliases (*name) are not allowed", self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002
        """Refuse duplicate keys."""
        mapping = super().construct_mapping(node, deep=deep)
        if len(mapping) < len(node.value):
            raise _Refused(None, None, "duplicate key", node.start_mark)
        return mapping


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _from_yaml(raw: bytes) -> Json:
    try:
        document: Json = check_json(yaml.load(raw, Loader=_Loader))  # noqa: S506 (a SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        message = f"This YAML cannot be read: {error.problem}."
        raise MalformedJSON(message, code="invalid_yaml", line=line, column=column) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise MalformedJSON(f"This YAML cannot be read: {error}.", code="invalid_yaml") from None
    return document
