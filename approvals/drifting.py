"""What changed between a request and the one that it replaces: in words, and both sides for a page to compare."""

from dataclasses import dataclass

from approvals.arguments import as_text
from approvals.models import ApprovalRequest, Round
from approvals.requests import Change, change_before
from catalog import diffs


@dataclass(frozen=True, slots=True)
class Drifted:
    """Why a request was opened anew; `rows` compares what was asked and shown before with what is now."""

    change: Change

    @property
    def rows(self) -> diffs.Change:
        """Both sides, line by line."""
        return diffs.diff_texts(_as_lines(self.change.before), _as_lines(self.change.after))


def drifted(request: ApprovalRequest) -> Drifted | None:
    """Return what changed since the request that this one replaces was open; None where nothing did; two queries."""
    change = change_before(request)
    return Drifted(change) if change else None


def seen_before(request: ApprovalRequest, seen_digest: str) -> diffs.Change | None:
    """Return what changed since somebody looked at a request, by the digest that they saw; None when it was not its."""
    rounds = {each.digest: each for each in request.rounds.all()}
    seen, now = rounds.get(seen_digest), rounds.get(request.digest)
    return diffs.diff_texts(_as_lines(seen), _as_lines(now)) if seen and now and seen != now else None


def _as_lines(round_: Round) -> str:
    shown = round_.preview_json or {}
    told = {name: as_text(value) for name, value in round_.arguments_json.items()}
    told |= {
        "(what is there)": as_text(shown.get("before") or ""),
        "(what it makes of it)": as_text(shown.get("after") or ""),
    }
    return "".join(f"{name}: {text}\n" for name, text in told.items() if text)
