"""How the audit log is said on its page: a label, an icon and a hue for every kind of entry. No markup."""

from catalog.words import Word

ACTIONS = {
    "approval.opened": Word("Asked for approval", "hand", "human"),
    "approval.decided": Word("Decided", "check", "ok"),
    "approval.expired": Word("Expired", "expired", "idle"),
    "approval.withdrawn": Word("Withdrew the request", "undo", "idle"),
    "approval.invalidated": Word("Request no longer valid", "retry", "warn"),
    "call.held": Word("Held a call", "hand", "human"),
    "call.started": Word("Started a call", "play", "run"),
    "call.succeeded": Word("Call done", "ok", "ok"),
    "call.failed": Word("Call failed", "fail", "danger"),
    "call.refused": Word("Refused a call", "fail", "danger"),
    "call.restored": Word("Put the files back", "undoable", "warn"),
    "call.released": Word("Let the call run", "play", "run"),
    "call.settled": Word("Settled an outcome", "check", "ok"),
    "step.outcome_unknown": Word("Outcome unknown", "hand", "human"),
    "sign_in.succeeded": Word("Signed in", "human", "idle"),
    "sign_in.ended": Word("Signed out", "out", "idle"),
    "sign_in.failed": Word("Sign-in failed", "fail", "danger"),
}
VERDICTS = {
    "approve": Word("Approved", "check", "ok"),
    "reject": Word("Rejected", "fail", "danger"),
    "undone": Word("Took the answer back", "undo", "warn"),
}


def action_word(action: str, verdict: str = "") -> Word:
    """Say what was done; a review is said by its verdict."""
    if action == "approval.reviewed" and verdict in VERDICTS:
        return VERDICTS[verdict]
    return ACTIONS.get(action) or Word(action.replace(".", ": ").replace("_", " ").capitalize(), "info", "idle")
