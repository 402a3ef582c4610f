"""I15: planted private values and secrets appear only where they belong.

Canaries are texts that were sent as personal data; they may appear only in columns that hold arguments and results.
Secrets may appear nowhere. Neither is ever printed: findings refer to them by number, from 1.
"""

import html
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from django.apps import apps
from django.db import models
from django.db.models.functions import Cast, StrIndex

from plans.invariants.base import CannotCheck, CheckInput, Finding, invariant
from plans.invariants.evidence import can_be_stored

PAYLOADS = frozenset(
    {
        *(f"catalog.call.{name}" for name in ("arguments", "response", "message", "late_evidence", "reason")),
        "catalog.call.content",
        *(f"plans.step.{name}" for name in ("description", "parameters", "output_path", "done_check", "error")),
        "plans.step.given_arguments",
        *("plans.plan.goal", "plans.memoryitem.key", "plans.memoryitem.value"),
        *("plans.plan.request", "plans.plan.reply", "plans.question.text", "plans.question.answer"),
        *("plans.modeluse.prompt", "plans.modeluse.answer"),
        *("plans.plandraft.goal", "plans.plandraftversion.summary"),
        *(f"approvals.round.{name}" for name in ("arguments", "preview")),
        *("approvals.review.comment", "approvals.review.response", "approvals.comment.text"),
        "catalog.idempotencykey.answer",
    }
)
"""The columns that hold arguments, results and texts that people or models wrote."""
OWN_APPS = ("approvals", "catalog", "connections", "plans", "auth", "sessions", "admin")
SHORTEST = 6
"""Minimum length of a text to search for; shorter ones match by chance."""
WINDOW = 1024 * 1024


def needs_canaries(check: CheckInput) -> str:
    if check.canaries or check.secrets:
        return ""
    return "Pass --canary TEXT or --secret TEXT with planted values, and --captures FILE to search."


@invariant(15, "Planted private values and secrets appear only where they belong.", needs=needs_canaries)
def nothing_leaks(check: CheckInput) -> Iterator[Finding]:
    """Search captures and database columns for canaries and secrets; search payload columns for secrets only."""
    planted = {f"canary {number}": text for number, text in enumerate(check.canaries, 1)}
    secret = {f"secret {number}": text for number, text in enumerate(check.secrets, 1)}
    for name, text in (planted | secret).items():
        if len(text) < SHORTEST:
            raise CannotCheck(f"The text of {name} has fewer than {SHORTEST} characters; plant a longer one.")
        if not can_be_stored(text):
            raise CannotCheck(f"The text of {name} contains characters that a database cannot store; plant another.")
    for path in check.captures:
        yield from _in_captures(path, planted | secret)
    kinds = (models.CharField, models.TextField, models.JSONField)
    # Our tables, and those of accounts, sessions and the admin's log.
    for model in (each for each in apps.get_models() if each._meta.app_label in OWN_APPS):
        for column in (each for each in model._meta.concrete_fields if isinstance(each, kinds)):
            texts = secret if f"{model._meta.label_lower}.{column.name}" in PAYLOADS else planted | secret
            for name, text in texts.items():
                yield from _in_column(model, column, name, text)


def _in_captures(path: Path, texts: dict[str, str]) -> Iterator[Finding]:
    try:
        files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
        for file in files:
            for name in _found_in(file, {name: encodings_of(text) for name, text in texts.items()}):
                yield Finding(str(file), f"It contains {name}.")
    except OSError as error:
        raise CannotCheck(f"{path} cannot be read: {error.strerror or type(error).__name__}.") from None


def encodings_of(text: str) -> set[bytes]:
    """Return the encodings of a text in files: plain, JSON with and without escapes, HTML, URL."""
    spellings = {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], html.escape(text)}
    return {each.encode("utf-8", "surrogatepass") for each in spellings | {quote(text), quote(text, safe="")}}


def _found_in(path: Path, planted: dict[str, set[bytes]]) -> Sequence[str]:
    """Return the names of the planted texts in a file. Read windows overlap, so that no text is missed between two."""
    overlap = max((len(form) for forms in planted.values() for form in forms), default=1)
    found: set[str] = set()
    with path.open("rb") as file:
        tail = b""
        while block := file.read(WINDOW):
            window = tail + block
            found |= {name for name, forms in planted.items() if any(form in window for form in forms)}
            tail = window[-overlap:]
    return sorted(found)


def _in_column(
    model: type[models.Model], column: "models.Field[object, object]", name: str, text: str
) -> Iterator[Finding]:
    as_text = Cast(column.name, models.TextField())
    label = f"{model._meta.db_table}.{column.column}"
    for form in sorted({text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}):
        rows = model._default_manager.annotate(toolgate_place=StrIndex(as_text, models.Value(form)))
        for key in rows.filter(toolgate_place__gt=0).order_by("pk").values_list("pk", flat=True).iterator():
            yield Finding(f"{label}:{key}", f"It contains {name}.")
