"""Schemas and patterns that could take exponential time, each with a document that provokes it."""

import random
from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]
Case = tuple[str, Schema, Any]

LONG = 250_000
LETTERS = "".join(random.Random(1).choices("ab", k=LONG))  # noqa: S311 - the same letters each time, no secret


def nested(levels: int, inner: Any, key: str = "c") -> Any:
    """Return a value nested in this many objects."""
    for _ in range(levels):
        inner = {key: inner}
    return inner


def _again(target: str, keyword: str = "allOf", twice: int = 2) -> Schema:
    """Return a schema that validates the member `c` against a target several times."""
    return {keyword: [{"properties": {"c": {"$ref": target}}, "minProperties": n} for n in range(twice)]}


def _chain(length: int, width: int = 2, keyword: str = "allOf", kind: str = "integer") -> Schema:
    """Return a chain of definitions; each validates its value against the next one several times."""
    links = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * width} for n in range(length)}
    return {"$defs": {**links, f"d{length}": {"type": kind}}, "$ref": "#/$defs/d0"}


def _left_out(members: int) -> tuple[Schema, Any]:
    """Return a doubling chain with optional members, and a document in which all of them are null."""
    names = [f"p{n}" for n in range(members)]
    schema = _chain(11, kind="object") | {"properties": {name: {"type": "string"} for name in names}}
    return schema, dict.fromkeys(names)


def _deep_chain(length: int) -> Schema:
    """Return a chain of definitions; each validates its member `c` against the next one twice."""
    links = {f"d{n}": _again(f"#/$defs/d{n + 1}") for n in range(length)}
    return {"$defs": {**links, f"d{length}": {"type": "integer"}}, "$ref": "#/$defs/d0"}


def _itself(keyword: str) -> Schema:
    return {"type": ["object", "integer"], **_again("#", keyword)}


def _unevaluated(levels: int) -> Schema:
    schema: Schema = {"properties": {"a": True}}
    for _ in range(levels):
        schema = {"unevaluatedProperties": False, "allOf": [schema]}
    return schema


def _reaching_out() -> Iterator[Case]:
    """Yield schemas with references to other documents."""
    for name, reference in {
        "http": "http://127.0.0.1:9/x.json",
        "https": "https://example.org/schema.json",
        "file": "file:///etc/passwd",
        "relative": "other.json#/x",
        "protocol-relative": "//example.org/x",
        "urn": "urn:example:x",
        "data": "data:application/json,{}",
        "nowhere": "#/$defs/missing",
        "into-data": "#/x-hidden",
        "unknown-anchor": "#nobody",
        "encoded-nowhere": "#/%24defs/missing",
        "empty-index": "#/allOf/",
    }.items():
        yield f"ref-{name}", {"$ref": reference, "x-hidden": {"pattern": "(?=a)"}}, {}
    yield "dynamic-ref-remote", {"$dynamicRef": "http://example.org/#x"}, {}
    yield "id-at-the-root", {"$id": "http://example.org/", "properties": {}}, {}
    yield "id-inside", {"$defs": {"a": {"$id": "urn:x", "$ref": "b"}}, "$ref": "#/$defs/a"}, {}
    yield "another-draft", {"$schema": "http://json-schema.org/draft-07/schema#"}, {}
    yield "another-draft-inside", {"properties": {"a": {"$schema": "http://json-schema.org/draft-04/schema#"}}}, {}
    yield (
        "a-dialect-of-its-own",
        {"$schema": "https://example.org/meta", "$vocabulary": {"https://example.org": True}},
        {},
    )
    yield "no-dialect", {"$schema": 7}, {}


def _endless() -> Iterator[Case]:
    """Yield schemas whose references are circular or multiply with each step."""
    yield "itself", {"$ref": "#"}, {}
    yield "itself-by-anchor", {"$anchor": "a", "$ref": "#a"}, {}
    yield "itself-by-encoding", {"$defs": {"a": {"$ref": "#/%24defs/a"}}, "$ref": "#/$defs/a"}, {}
    yield "itself-dynamically", {"$dynamicAnchor": "a", "allOf": [{"$dynamicRef": "#a"}]}, {}
    yield (
        "each-other",
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"not": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"},
        1,
    )
    yield "doubling-in-place", _chain(30), 1
    yield "doubling-with-anyof", _chain(25, keyword="anyOf"), "x"
    yield "tenfold-in-place", _chain(6, width=10), "x"
    yield "a-chain-of-references", _chain(900, width=1), 1
    for keyword in ("allOf", "anyOf", "oneOf"):
        yield f"doubling-by-depth-{keyword}", _itself(keyword), nested(60, "x")
    yield "doubling-by-depth-unrolled", _deep_chain(60), nested(60, 1)
    yield "doubling-by-depth-refused", _deep_chain(60), nested(60, "x")
    pairs = {"^c": {"$ref": "#"}, "c$": {"$ref": "#"}, "c": {"$ref": "#"}}
    yield "trebling-by-pattern", {"type": ["object", "null"], "patternProperties": pairs}, nested(60, 1)
    both = {"contains": {"$ref": "#"}, "items": {"$ref": "#"}, "type": "array"}
    yield "doubling-by-contains", both, [[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]
    asks = {"if": {"properties": {"c": {"$ref": "#"}}}, "then": _again("#"), "else": _again("#")}
    yield "doubling-by-if", {"type": ["object", "integer"], **asks}, nested(60, "x")
    yield "unevaluated-within-unevaluated", _unevaluated(14), {"a": 1, "b": 2}
    yield "nulls-under-doubling", *_left_out(400)


def _wide() -> Iterator[Case]:
    """Yield small schemas with large documents."""
    bounds = [{"minimum": n} for n in range(900)]
    yield "many-branches-many-entries", {"items": {"allOf": bounds}}, [1000] * 100_000
    yield "many-branches-none-fits", {"items": {"anyOf": bounds[5:]}}, [1] * 60_000
    yield "many-branches-many-problems", {"items": {"anyOf": bounds[5:]}}, [1] * 6_000
    yield "one-of-many", {"items": {"oneOf": bounds}}, [1000] * 60_000
    yield "a-problem-each", {"items": {"type": "string"}}, [1] * 120_000
    yield "unknown-keys", {"additionalProperties": False}, {f"k{n}": n for n in range(20_000)}
    yield "lists-to-compare", {"items": {"enum": [[n] for n in range(8_000)]}}, [[7_999]] * 36_000
    yield (
        "lists-that-begin-alike",
        {"items": {"enum": [[0] * 100 + [n] for n in range(300)]}},
        [[0] * 100 + [299]] * 800,
    )
    yield "texts-to-compare", {"items": {"enum": [str(n) for n in range(8_000)]}}, ["7999"] * 36_000
    yield "a-huge-constant", {"items": {"const": [[n] for n in range(8_000)]}}, [[[n] for n in range(8_000)]] * 3
    yield "fractions", {"items": {"multipleOf": 0.01}}, [1.5e300] * 30_000
    yield "names-required", {"items": {"required": [f"r{n}" for n in range(7_000)]}}, [{}] * 30
    yield "every-entry-differs", {"uniqueItems": True}, [[n] for n in range(25_000)]
    starts = {f"^(?:z|a){n}": {"type": "integer"} for n in range(900)}
    yield "patterns-for-names", {"patternProperties": starts}, {f"y{n}": 1 for n in range(20_000)}
    yield "a-pattern-for-each-text", {"allOf": [{"pattern": f"[ab]*a[ab]{{{n}}}[^ab]"} for n in range(1, 90)]}, LETTERS


def _misshapen() -> Iterator[Case]:
    """Yield invalid and oversized schemas."""
    deep: Schema = {}
    for _ in range(40):
        deep = {"not": deep}
    yield "deeper-than-32", deep, {}
    yield "over-64-kib", {"description": "x" * 70_000}, {}
    yield "over-1000-subschemas", {"allOf": [{}] * 1001}, {}
    yield "a-type-that-is-none", {"type": "strang"}, {}
    yield "properties-in-a-list", {"properties": [], "allOf": {}, "items": 3}, {}
    yield "a-reference-that-is-no-text", {"$ref": 5, "$defs": 7}, {}
    yield "a-thousand-mistakes", {"properties": {f"p{n}": {"type": n} for n in range(900)}}, {}
    yield (
        "at-every-limit",
        {"properties": {f"p{n}": {"type": "string"} for n in range(998)}},
        {f"p{n}": n for n in range(998)},
    )


SCHEMAS: list[Case] = [*_reaching_out(), *_endless(), *_wide(), *_misshapen()]

REFUSED_PATTERNS = [
    *("(?=a)b", "(?!a)b", "(?<=a)b", "(?<!a)b", "(a)\\1", "(?P<x>a)(?P=x)", "(?<x>a)\\k<x>", "(?>a+)b"),
    *("(?(1)a|b)", "\\Ga", "(?1)", "(a)(?1)", "(", ")", "[", "a{2,1}", "*a", "\\", "(?x", "[z-a]", "\\p{Nope}"),
    *("a{1000}{1000}", "((a{100}){100}){100}", "[^a]{0,100000}", "a" * 70_000, "(" * 300 + ")" * 300),
]
SLOW_PATTERNS = [
    *("^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(x+x+)+y", "^(([a-z])+.)+[A-Z]([a-z])+$", "(.*a){50}c", "^(a?){60}a{60}$"),
    *("[ab]*a[ab]{200}[^ab]", "[ab]*a[ab]{1000}[^ab]", "a[ab]{500}[^ab]", "(a?b?){500}[^ab]", "(\\w|\\d|\\s){100}z"),
    *("(a[ab]{50}|b[ab]{60}|a[ab]{70}){3}[^ab]", "^(.*?,){20}P", "((a|b)*c|(a|b)*d)*e", "^(\\w+\\s?)*$"),
    *("^([a-zA-Z0-9])(([\\-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}$", "(b|a+)*c", "^.{1,1000}$", "(?i)(straße|STRASSE)*$"),
    *("a*+b", "a++b", "(?R)", "(?:\\w{100}){100}"),
]
PATTERNS = REFUSED_PATTERNS + SLOW_PATTERNS
