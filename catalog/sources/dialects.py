"""Older dialects of JSON Schema, read as the dialect 2020-12 that Toolgate validates with."""

import re
from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]

DIALECTS = re.compile(r"https?://json-schema\.org/(?P<name>draft/2020-12|draft/2019-09|draft-0[67])/schema#?")
"""Known dialects. A schema of another dialect keeps its `$schema`, so that the error can name the dialect."""
UNTRANSLATED = ("$recursiveRef", "$recursiveAnchor")
"""Keywords of dialect 2019-09 that 2020-12 cannot express."""
MAPS = ("properties", "patternProperties", "definitions", "$defs", "dependentSchemas")
DATA = ("enum", "const", "default", "examples")
BESIDE_REFERENCE = frozenset({"$ref", "definitions", "$defs", "title", "description", "default", "$comment"})
"""Keywords that draft-06 and draft-07 read beside a `$ref`; they ignore all others."""


def as_current_dialect(schema: Mapping[str, Any]) -> Schema:
    """Return a schema in dialect 2020-12, without `$schema`; unchanged if it cannot be translated.

    A schema without `$schema` is read as draft-07, whose older keywords have no meaning in 2020-12.
    """
    named = schema.get("$schema")
    known = DIALECTS.fullmatch(named) if isinstance(named, str) else None
    if (named is not None and known is None) or _uses(schema, UNTRANSLATED):
        return dict(schema)
    old_references = known is not None and known["name"] in ("draft-06", "draft-07")
    old_forms = known is None or known["name"] != "draft/2020-12"
    plain = {key: value for key, value in schema.items() if key != "$schema"}
    return _translated(plain, old_references=old_references) if old_forms else plain


def _uses(value: Any, keywords: tuple[str, ...]) -> bool:
    if isinstance(value, Mapping):
        return any(key in keywords or _uses(each, keywords) for key, each in value.items())
    return isinstance(value, list) and any(_uses(each, keywords) for each in value)


def _translated(schema: Any, *, old_references: bool) -> Any:
    """Return a schema, or a list of schemas, with the keywords of 2020-12. Data such as `enum` is not changed."""
    if isinstance(schema, list):
        return [_translated(each, old_references=old_references) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    if old_references and isinstance(schema.get("$ref"), str):
        schema = {key: value for key, value in schema.items() if key in BESIDE_REFERENCE}
    found: Schema = {}
    for key, value in _current_forms(schema).items():
        if key in MAPS and isinstance(value, Mapping):
            found[key] = {name: _translated(each, old_references=old_references) for name, each in value.items()}
        else:
            found[key] = value if key in DATA else _translated(value, old_references=old_references)
    return found


def _current_forms(schema: Mapping[str, Any]) -> Schema:
    """Return a copy in which `dependencies` and a list of `items` have their names of 2020-12. Not recursive."""
    found = {key: value for key, value in schema.items() if key not in ("additionalItems", "dependencies")}
    if isinstance(found.get("items"), list):
        first = found.pop("items")
        found |= {"prefixItems": first} if first else {}
        found |= {"items": schema["additionalItems"]} if "additionalItems" in schema else {}
    dependencies = schema.get("dependencies")
    if isinstance(dependencies, Mapping):
        required = {name: each for name, each in dependencies.items() if isinstance(each, list)}
        others = {name: each for name, each in dependencies.items() if name not in required}
        found |= {"dependentRequired": required} if required else {}
        found |= {"dependentSchemas": others} if others else {}
    return found
