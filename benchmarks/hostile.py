"""`hostile_ms`: 60 schemas and 50 patterns that could take forever, each compiled and applied to a hostile document."""

from contextlib import suppress
from time import perf_counter

from benchmarks.hostile_corpus import LETTERS, PATTERNS, SCHEMAS, Schema
from catalog.errors import SchemaProblem
from catalog.schemas import Validator
from catalog.schemas.acceptance import automaton_states
from catalog.schemas.normalization import normalize_arguments


def measure(runs: int) -> list[float]:
    """Return the milliseconds of each case, whether it is accepted or refused."""
    cases = [(schema, document) for _, schema, document in SCHEMAS]
    cases += [({"pattern": pattern}, LETTERS) for pattern in PATTERNS]
    _answered({"type": "object"}, {})
    return [_answered(schema, document) for _ in range(runs) for schema, document in cases]


def _answered(schema: Schema, document: object) -> float:
    automaton_states.cache_clear()
    started = perf_counter()
    with suppress(SchemaProblem):  # to refuse is an answer too
        validator = Validator(schema)
        validator.problems(
            normalize_arguments(validator, document).arguments if isinstance(document, dict) else document
        )
    return (perf_counter() - started) * 1000
