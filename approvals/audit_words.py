"""How the audit log is said on its page: a label, an icon and a hue for every kind of entry. No markup."""

from catalog.ui.labels import Word

ACTIONS = {
    "approval.opened": Word("Asked for approval", "hand", "human"),
    "approval.prepared": Word("Asked for approval early", "hand", "human"),
    "approval.edited": Word("Changed what is asked", "edit", "human"),
    "approval.reviewed": Word("Answered a request", "human", "human"),
    "approval.decided": Word("Decided a request", "human", "human"),
    "approval.expired": Word("Expired", "expired", "idle"),
    "approval.withdrawn": Word("Withdrew the request", "undo", "idle"),
    "approval.invalidated": Word("Request no longer valid", "retry", "warn"),
    "call.held": Word("Held a call", "hand", "human"),
    "call.started": Word("Started a call", "play", "run"),
    "call.succeeded": Word("Call done", "ok", "ok"),
    "call.failed": Word("Call failed", "fail", "danger"),
    "call.stopped": Word("Stopped a call with its plan", "stop", "idle"),
    "call.refused": Word("Refused a call", "fail", "danger"),
    "call.restored": Word("Put the files back", "undoable", "warn"),
    "call.revealed": Word("Revealed a private value", "info", "warn"),
    "call.responded": Word("Gave the answer as the result", "edit", "human"),
    "call.sent_back": Word("Requested changes", "undo", "human"),
    "call.released": Word("Allowed", "play", "run"),
    "call.skipped": Word("Skipped the step", "skip", "human"),
    "call.edited": Word("Changed the arguments of a retry", "edit", "human"),
    "call.settled": Word("Settled an outcome", "check", "ok"),
    "step.outcome_unknown": Word("Outcome unknown", "hand", "human"),
    "role.given": Word("Gave a role", "human", "warn"),
    "role.taken": Word("Took a role away", "human", "warn"),
    "account.switched_on": Word("Switched an account on", "human", "warn"),
    "account.switched_off": Word("Switched an account off", "human", "warn"),
    "role.deleted": Word("Deleted a role", "human", "warn"),
    "account.deleted": Word("Deleted an account", "human", "warn"),
    "tool.added": Word("Tool added", "ok", "idle"),
    "tool.changed": Word("Tool changed in code", "edit", "warn"),
    "tool.removed": Word("Tool gone from code", "stop", "warn"),
    "tool.drifted": Word("Tool changed while people were asked", "retry", "warn"),
    "tool.level_kept": Word("Kept the level that code would lower", "lock", "warn"),
    "tool.level_raised": Word("Code raised a level set by hand", "dangerous", "warn"),
    "tool.level_set": Word("Set a tool's level", "edit", "warn"),
    "tool.categories_set": Word("Set a tool's categories", "edit", "idle"),
    "tool.description_set": Word("Set what models read of a tool", "edit", "warn"),
    "tool.implementation_set": Word("Set an implementation's share", "edit", "warn"),
    "tool.enabled": Word("Switched a tool on", "ok", "ok"),
    "tool.disabled": Word("Switched a tool off", "stop", "warn"),
    "tool.grantable_set": Word("Set whether a tool may be granted", "edit", "warn"),
    "token.created": Word("Made a token", "lock", "warn"),
    "token.revoked": Word("Revoked a token", "stop", "warn"),
    "approval.claimed": Word("Claimed", "human", "idle"),
    "approval.released": Word("Let a request go", "undo", "idle"),
    "approval.delegated": Word("Handed a request on", "human", "warn"),
    "approval.commented": Word("Commented", "edit", "idle"),
    "approval.extended": Word("Gave a request more time", "clock", "idle"),
    "approval.escalated": Word("Asked others, as nobody answered", "hand", "warn"),
    "approval.consumed": Word("Used the approval", "check", "ok"),
    "approval.revoked": Word("Revoked the approval", "undo", "warn"),
    "grant.created": Word("Granted calls like this", "check", "warn"),
    "grant.used": Word("Ran on a grant", "play", "run"),
    "grant.revoked": Word("Ended a grant", "stop", "warn"),
    "policy.refused": Word("A policy refused a call", "fail", "danger"),
    "policy.created": Word("Made a policy", "edit", "warn"),
    "policy.changed": Word("Changed a policy", "edit", "warn"),
    "policy.ended": Word("Ended a policy", "stop", "warn"),
    "agent.created": Word("Made an agent", "bot", "warn"),
    "agent.changed": Word("Changed an agent", "bot", "warn"),
    "agent.ended": Word("Ended an agent", "stop", "warn"),
    "notifications.retried": Word("Had a notice sent once more", "retry", "idle"),
    "notifications.changed": Word("Changed where they are told", "edit", "idle"),
    "epoch.began": Word("Began a new epoch after a restore", "retry", "danger"),
    "audit.exported": Word("Exported the audit log", "out", "warn"),
    "sign_in.succeeded": Word("Signed in", "human", "idle"),
    "sign_in.ended": Word("Signed out", "out", "idle"),
    "sign_in.failed": Word("Sign-in failed", "fail", "danger"),
    "sign_in.refused": Word("Sign-in refused: too many wrong passwords", "lock", "danger"),
}
VERDICTS = {
    "approve": Word("Approved", "check", "ok"),
    "reject": Word("Rejected", "fail", "danger"),
    "respond": Word("Answered in the tool's place", "edit", "human"),
    "request_changes": Word("Asked for changes", "undo", "human"),
    "undone": Word("Took the answer back", "undo", "warn"),
}
DECISIONS = {
    "approve": Word("Decided: it may run", "check", "ok"),
    "reject": Word("Decided: it does not run", "fail", "danger"),
    "respond": Word("Decided: answered, it does not run", "edit", "human"),
    "request_changes": Word("Decided: sent back for changes", "undo", "human"),
}
BY_VERDICT = {"approval.reviewed": VERDICTS, "approval.decided": DECISIONS}


def action_word(action: str, verdict: str = "") -> Word:
    """Say what was done; a review, and what it decided, by its verdict."""
    by_verdict = BY_VERDICT.get(action, {}).get(verdict)
    return (
        by_verdict
        or ACTIONS.get(action)
        or Word(action.replace(".", ": ").replace("_", " ").capitalize(), "info", "idle")
    )
