"""I15: what was planted turns up nowhere but where it belongs.

Canaries are texts that were sent as personal data: they belong into columns that hold what was sent and what came of
it, and nowhere else. Secrets belong nowhere at all. Neither is ever printed: findings count them from 1.
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
        *(f"plans.step.{name}" for name in ("description", "parameters", "output_path", "done_check", "error")),
        "plans.step.given_arguments",
        *("plans.plan.goal", "plans.memoryitem.key", "plans.memoryitem.value"),
        *("plans.plan.request", "plans.plan.reply", "plans.question.text", "plans.question.answer"),
        *("plans.modeluse.prompt", "plans.modeluse.answer"),
        *(f"approvals.round.{name}" for name in ("arguments", "preview")),
        *("approvals.review.comment", "approvals.review.response", "approvals.comment.text"),
        "catalog.idempotencykey.answer",
    }
)
"""The columns that hold what was sent, and what came of it."""
OWN_APPS = ("approvals", "catalog", "plans", "auth", "sessions", "admin")
SHORTEST = 6
"""Characters of a text to look for: shorter ones turn up by chance."""
WINDOW = 1024 * 1024


def needs_canaries(world: CheckInput) -> str:
    """Say what is missing."""
    if world.canaries or world.secrets:
        return ""
    return "Give --canary TEXT or --secret TEXT, what was planted, and --captures FILE, where to look for it."


@invariant(15, "What was planted as private or secret turns up nowhere but where it belongs.", needs=needs_canaries)
def nothing_leaks(world: CheckInput) -> Iterator[Finding]:
    """Search what was captured for both kinds; in the database, payloads for secrets only, and all else for both."""
    planted = {f"canary {number}": text for number, text in enumerate(world.canaries, 1)}
    secret = {f"secret {number}": text for number, text in enumerate(world.secrets, 1)}
    for name, text in (planted | secret).items():
        if len(text) < SHORTEST:
            raise CannotCheck(f"The text of {name} has fewer than {SHORTEST} characters; plant a longer one.")
        if not can_be_stored(text):
            raise CannotCheck(f"The text of {name} holds characters that no database keeps; plant another.")
    for path in world.captures:
        yield from _in_captures(path, planted | secret)
    yield from _in_database(planted, secret)


def _in_captures(path: Path, texts: dict[str, str]) -> Iterator[Finding]:
    """Search a file, or every file of a folder."""
    try:
        files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
        for file in files:
            for name in _found_in(file, {name: encodings_of(text) for name, text in texts.items()}):
                yield Finding(str(file), f"It holds {name}.")
    except OSError as error:
        raise CannotCheck(f"{path} cannot be read: {error.strerror or type(error).__name__}.") from None


def encodings_of(text: str) -> set[bytes]:
    """Return a text as it may stand in a file: plain, in JSON with and without escapes, in HTML, in a URL."""
    spellings = {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], html.escape(text)}
    return {each.encode("utf-8", "surrogatepass") for each in spellings | {quote(text), quote(text, safe="")}}


def _found_in(path: Path, wanted: dict[str, set[bytes]]) -> Sequence[str]:
    """Return the names of what a file holds; windows overlap, so that nothing is hidden at a border."""
    overlap = max((len(form) for forms in wanted.values() for form in forms), default=1)
    found: set[str] = set()
    with path.open("rb") as file:
        tail = b""
        while block := file.read(WINDOW):
            window = tail + block
            found |= {name for name, forms in wanted.items() if any(form in window for form in forms)}
            tail = window[-overlap:]
    return sorted(found)


def _in_database(planted: dict[str, str], secret: dict[str, str]) -> Iterator[Finding]:
    """Search every column of text: of tables of ours, and of accounts, sessions and the admin pages."""
    for model in apps.get_models():
        if model._meta.app_label not in OWN_APPS:
            continue
        for column in _texts(model):
            texts = secret if f"{model._meta.label_lower}.{column.name}" in PAYLOADS else planted | secret
            for name, text in texts.items():
                yield from _in_column(model, column, name, text)


def _texts(model: type[models.Model]) -> list["models.Field[object, object]"]:
    kinds = (models.CharField, models.TextField, models.JSONField)
    return [field for field in model._meta.concrete_fields if isinstance(field, kinds)]


def _in_column(
    model: type[models.Model], column: "models.Field[object, object]", name: str, text: str
) -> Iterator[Finding]:
    """Yield the rows whose text holds this one, as it is or as JSON writes it."""
    as_text = Cast(column.name, models.TextField())
    label = f"{model._meta.db_table}.{column.column}"
    for form in sorted({text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}):
        rows = model._default_manager.annotate(toolgate_place=StrIndex(as_text, models.Value(form)))
        for key in rows.filter(toolgate_place__gt=0).order_by("pk").values_list("pk", flat=True).iterator():
            yield Finding(f"{label}:{key}", f"It holds {name}.")
