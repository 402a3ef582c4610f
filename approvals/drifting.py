"""What changed since a request was asked for: between it and the one it replaces, and by reviewers; for a page."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from approvals.arguments import as_lines, as_text
from approvals.models import ApprovalRequest, Round
from approvals.requests.lifecycle import Change, change_before
from catalog.access.roles import name_of
from catalog.secrets.placeholders import in_words
from catalog.text import diff


@dataclass(frozen=True, slots=True)
class Drifted:
    """Why a request was opened anew; `rows` compares what was asked and shown before with what is now."""

    change: Change

    @property
    def rows(self) -> diff.Change | None:
        """Both sides, line by line; None where both read the same."""
        rows = diff.diff_texts(_as_lines(self.change.before), _as_lines(self.change.after))
        return rows if rows.added or rows.removed else None


@dataclass(frozen=True, slots=True)
class Revised:
    """Arguments as reviewers left them: by whom, when last, and `rows` that compare them with what was asked for."""

    who: str
    at: datetime
    rows: diff.Change


def drifted(request: ApprovalRequest) -> Drifted | None:
    """Return what changed since the request that this one replaces was open; None where nothing did; two queries."""
    change = change_before(request)
    return Drifted(change) if change else None


def seen_before(request: ApprovalRequest, seen_digest: str) -> diff.Change | None:
    """Return what changed since somebody looked at a request, by the digest that they saw; None when it was not its."""
    rounds = {each.digest: each for each in request.rounds.all()}
    seen, now = rounds.get(seen_digest), rounds.get(request.digest)
    return diff.diff_texts(_as_lines(seen), _as_lines(now)) if seen and now and seen != now else None


def revised(request: ApprovalRequest) -> Revised | None:
    """Return what reviewers changed of the arguments since they were asked for; None where nobody did; no query."""
    rounds = sorted(request.rounds.all(), key=lambda each: each.number)
    first, now = rounds[0], next(each for each in rounds if each.number == request.round_number)
    if first.arguments == now.arguments:
        return None
    editors = dict.fromkeys(name_of(each.editor) for each in rounds if each.editor and each.number <= now.number)
    rows = diff.diff_texts(as_lines(first.arguments_json), as_lines(now.arguments_json))
    return Revised(" and ".join(editors), now.created_at, rows)


def effect_lines(preview: Mapping[str, Any] | None) -> str:
    """Return what a tool shows of its effect as lines to compare: what it says, what is there, what it makes of it."""
    shown = preview or {}
    rows = shown.get("rows") or () if shown.get("kind") == "rows" else ()
    told = {
        "(what the tool says)": shown.get("summary"),
        "(what is there)": shown.get("before"),
        "(what it makes of it)": shown.get("after"),
    }
    lines = [f"{name}: {in_words(as_text(text))}\n" for name, text in told.items() if text]
    return "".join([*lines, *(f"(row) {in_words(json.dumps(row, ensure_ascii=False))}\n" for row in rows)])


def _as_lines(round_: Round) -> str:
    return as_lines(round_.arguments_json) + effect_lines(round_.preview_json)
