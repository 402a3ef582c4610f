"""How the events of a plan are said on its page: one sentence each, with what it is about. No markup."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from approvals.states import VERDICT_PHRASES
from plans.models import Event


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A sentence: what, its stress, what it names; and the icon and hue that go with it."""

    icon: str
    hue: str
    text: str
    stress: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class EventLine:
    """One line of the history."""

    seq: int
    at: datetime
    type: str
    step_id: int | None
    said: HistoryEntry


Data = Mapping[str, Any]
EntryBuilder = Callable[[str, Data], HistoryEntry]


def event_line(event: Event) -> EventLine:
    """Say one event."""
    who = f"Step {event.step_id}" if event.step_id is not None else "The plan"
    say = ENTRY_BUILDERS.get(event.type, _plain_entry(event.type))
    return EventLine(event.seq, event.at, event.type, event.step_id, say(who, event.data_json))


def _plain_entry(kind: str) -> EntryBuilder:
    return lambda who, data: HistoryEntry("info", "idle", f"{who}: {kind}")


def _fixed_entry(icon: str, hue: str, words: str, *, stress: str = "", name: str = "") -> EntryBuilder:
    """Return a sayer of a sentence that only depends on who; `name` is the field that it names at its end."""
    return lambda who, data: HistoryEntry(
        icon, hue, _join_words(who, words), stress, str(data.get(name, "")) if name else ""
    )


def _join_words(who: str, words: str) -> str:
    return f"{who}{words}" if words.startswith(":") else f"{who} {words}"


def _started(who: str, data: Data) -> HistoryEntry:
    attempt = int(data.get("attempt", 1))
    return HistoryEntry("run", "run", f"{who} started" + (f", claim {attempt}" if attempt > 1 else ""))


def _waiting(who: str, data: Data) -> HistoryEntry:
    if data.get("question"):
        return HistoryEntry("hand", "human", f"{who} is", "waiting for an answer")
    if data.get("waiting_for") == "input":
        return HistoryEntry("edit", "human", f"{who} is", "sent back to be changed")
    if data.get("waiting_for") == "calls":
        return HistoryEntry("clock", "run", f"{who} waits for {_steps(data.get('steps', ()))}")
    return HistoryEntry("hand", "human", f"{who} is", "waiting for approval", str(data.get("approval", "")))


RETRY_REASONS = {
    "worker_stopped": ("retry", "is handed to another worker: the one that had it stopped"),
    "worker_lost": ("retry", "lost its worker and is tried again"),
    "rate_limited": ("clock", "waits {seconds} s: its tool may not be used more often"),
    "definition_changed": ("retry", "is asked about again: its tool has changed"),
    "audit_unavailable": ("clock", "waits: the checkpoint of its start cannot be written"),
    "drifted": ("retry", "is left to a process that has loaded the current version of its tool"),
}
RETRIED = ("retry", "failed and is tried again in {seconds} s ({attempt} of {of})")


def _created(who: str, data: Data) -> HistoryEntry:
    if data.get("cloned_from"):
        return HistoryEntry("plan", "idle", f"{who} was cloned from", code=str(data["cloned_from"]))
    return HistoryEntry("plan", "idle", f"{who} was stored")


def _retrying(who: str, data: Data) -> HistoryEntry:
    if data.get("by"):
        if data.get("to_skip"):
            return HistoryEntry("retry", "human", f"{who} is taken up again by {data['by']}, to be skipped")
        more = ", with other arguments" if data.get("edited") else ""
        return HistoryEntry("retry", "human", f"{who} is tried again: {data['by']} asked for it{more}")
    icon, words = RETRY_REASONS.get(str(data.get("error")), RETRIED)
    numbers = {name: data.get(name) for name in ("seconds", "attempt", "of")}
    return HistoryEntry(icon, "warn", f"{who} {words.format(**numbers)}{_running_on_note(data)}")


def _skipped(who: str, data: Data) -> HistoryEntry:
    if data.get("by"):
        return HistoryEntry("skip", "human", f"{who} was skipped by {data['by']}: {data.get('reason', '')}")
    condition = str(data.get("done_check", ""))  # empty where it is private
    return HistoryEntry("skip", "idle", f"{who} skipped, already true{':' if condition else ''}", code=condition)


def _completed(who: str, data: Data) -> HistoryEntry:
    key = str(data.get("key", ""))
    return HistoryEntry("ok", "ok", f"{who} done, wrote" if key else f"{who} done", code=key)


def _cancelled(who: str, data: Data) -> HistoryEntry:
    left = _running_on_note(data)
    return HistoryEntry("stop", "warn" if left else "idle", f"{who} cancelled{left}")


def _running_on_note(data: Data) -> str:
    return "; its handler could not be stopped and runs on" if data.get("left_running") else ""


def _call_started(who: str, data: Data) -> HistoryEntry:
    attempt = int(data.get("attempt", 1))
    return HistoryEntry("play", "run", f"{who} calls its tool" + (f", try {attempt}" if attempt > 1 else ""))


def _call_succeeded(who: str, data: Data) -> HistoryEntry:
    if data.get("settled"):
        return HistoryEntry("ok", "ok", f"{who}: a person settled that the call happened")
    if data.get("responded"):
        return HistoryEntry("reply", "ok", f"{who}: a person answered in the tool's place")
    return HistoryEntry("ok", "ok", f"{who}: the call succeeded")


def _call_failed(who: str, data: Data) -> HistoryEntry:
    if data.get("settled"):
        return HistoryEntry("fail", "danger", f"{who}: a person ended the call whose outcome was unknown")
    return HistoryEntry("fail", "danger", f"{who}: the call failed", code=str(data.get("error") or ""))


def _tool_invoked(who: str, data: Data) -> HistoryEntry:
    worked = bool(data.get("success"))
    if data.get("late"):
        return HistoryEntry(
            "clock", "warn", f"{who}: the handler that could not be stopped has come back", code=str(data["tool"])
        )
    return HistoryEntry("tools", "ok" if worked else "danger", f"{who} invoked", code=str(data.get("tool", "")))


def _reviewed(who: str, data: Data) -> HistoryEntry:
    phrase = {**VERDICT_PHRASES, "undone": "took back the answer to {}"}.get(str(data.get("verdict")), "answered {}")
    return HistoryEntry("human", "idle", f"{data.get('reviewer', 'Someone')} {phrase.format(who.lower())}")


DECISION_ENTRIES = {
    "approve": ("check", "ok", "approved"),
    "respond": ("reply", "ok", "answered in the tool's place"),
    "request_changes": ("edit", "warn", "to be changed"),
}


def _decided(who: str, data: Data) -> HistoryEntry:
    icon, hue, word = DECISION_ENTRIES.get(str(data.get("verdict")), ("fail", "danger", "rejected"))
    return HistoryEntry(icon, hue, f"{who} is", word, str(data.get("approval", "")))


def _edited(who: str, data: Data) -> HistoryEntry:
    """Name who changed what is asked, and the fields; a change accepted in part says so."""
    by, fields = data.get("reviewer", "a reviewer"), ", ".join(map(str, data.get("fields", ())))
    if "hunks" in data:
        return HistoryEntry("edit", "human", f"{who}: what is asked was narrowed by {by}", code=fields)
    return HistoryEntry("edit", "human", f"{who}: what is asked was changed by {by}:", code=fields)


def _delegated(who: str, data: Data) -> HistoryEntry:
    if data.get("to"):
        return HistoryEntry("human", "human", f"{who}: the request was handed to", code=str(data["to"]))
    return HistoryEntry("human", "idle", f"{who}: the request is nobody's in particular any more")


def _granted(who: str, data: Data) -> HistoryEntry:
    return HistoryEntry(
        "check", "ok", f"{who} runs by a grant of {data.get('made_by', 'someone')}:", code=str(data.get("grant"))
    )


def _entry_with_actor(icon: str, hue: str, words: str) -> EntryBuilder:
    return lambda who, data: HistoryEntry(icon, hue, f"{who} {words} {data.get('by') or 'someone'}")


def _input_requested(who: str, data: Data) -> HistoryEntry:
    if data.get("question"):
        return HistoryEntry("hand", "human", f"{who} asks its person a question")
    return HistoryEntry("edit", "human", f"{who} waits for other arguments")


def _input_received(who: str, data: Data) -> HistoryEntry:
    words, icon = ("was answered by", "reply") if data.get("question") else ("was given other arguments by", "edit")
    return HistoryEntry(icon, "human", f"{who} {words} {data.get('by') or 'someone'}")


def _plan_ended(icon: str, hue: str, word: str) -> EntryBuilder:
    def say(who: str, data: Data) -> HistoryEntry:
        reason = str(data.get("reason", ""))
        return HistoryEntry(icon, hue, f"{who} is {word}" + (f": {reason}" if reason else ""))

    return say


def _changed(who: str, data: Data) -> HistoryEntry:
    """Name who changed the plan, and the steps: changed by Ada: added 4, removed 2. Agents call, and change nothing."""
    if str(data.get("by", "")).startswith(AGENT) and not who.startswith("The plan"):
        agent = str(data["by"])[len(AGENT) :]
        does = "asks its model in" if data.get("turn") else "called"
        return HistoryEntry("bot", "run", f"The agent {agent} {does} {_steps(data.get('added', ()))}")
    steps = [f"{word} {', '.join(map(str, data[word]))}" for word in ("added", "edited", "removed") if data.get(word)]
    what = ", ".join(["new goal"] * bool(data.get("goal")) + steps)
    return HistoryEntry("edit", "human", f"{who} was changed by {data.get('by', 'someone')}: {what}")


AGENT = "the agent "
"""How who adds steps under an agent's step is named in its events."""


def _steps(numbers: Sequence[int]) -> str:
    """Name steps: step 3, or steps 4, 5."""
    return f"step{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"


ENTRY_BUILDERS: Mapping[str, EntryBuilder] = {
    "plan.created": _created,
    "plan.started": _fixed_entry("play", "run", "started"),
    "plan.changed": _changed,
    "plan.paused": _entry_with_actor("pause", "idle", "was paused by"),
    "plan.resumed": _entry_with_actor("play", "run", "was resumed by"),
    "plan.completed": _plan_ended("ok", "ok", "done"),
    "plan.failed": _plan_ended("fail", "danger", "over: it failed"),
    "plan.cancelled": _plan_ended("stop", "idle", "cancelled"),
    "step.started": _started,
    "step.skipped": _skipped,
    "step.waiting": _waiting,
    "step.retrying": _retrying,
    "step.completed": _completed,
    "step.failed": _fixed_entry("fail", "danger", "failed"),
    "step.cancelled": _cancelled,
    "step.outcome_unknown": _fixed_entry("hand", "human", "may or may not have run:", stress="outcome unknown"),
    "call.started": _call_started,
    "call.succeeded": _call_succeeded,
    "call.failed": _call_failed,
    "call.restored": _fixed_entry("undo", "warn", ": the workspace was put back"),
    "approval.opened": _fixed_entry("approve", "human", "asks people", name="approval"),
    "approval.reviewed": _reviewed,
    "approval.edited": _edited,
    "approval.decided": _decided,
    "approval.expired": _fixed_entry("expired", "idle", "was not answered in time", name="approval"),
    "approval.escalated": _fixed_entry(
        "clock", "warn", "was not answered in time, so others are asked too:", name="to"
    ),
    "approval.extended": _fixed_entry("clock", "idle", "can be answered half an hour longer", name="approval"),
    "approval.claimed": _fixed_entry("human", "idle", ": a reviewer looks after the request", name="approval"),
    "approval.released": _fixed_entry("human", "idle", ": nobody looks after the request any more", name="approval"),
    "approval.delegated": _delegated,
    "approval.commented": _fixed_entry("edit", "idle", ": somebody commented on the request", name="approval"),
    "approval.reminded": _fixed_entry("clock", "idle", ": whoever may answer was reminded", name="approval"),
    "approval.revoked": _fixed_entry(
        "undo", "danger", "is approved no more: a reviewer took that back", name="approval"
    ),
    "input.requested": _input_requested,
    "input.received": _input_received,
    "grant.used": _granted,
    "memory.written": _fixed_entry("file", "idle", "stored", name="key"),
    "tool.invoked": _tool_invoked,
}
