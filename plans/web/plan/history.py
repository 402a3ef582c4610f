"""History of a plan: one sentence of plain text for each event."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from plans.engine.progress import progress_text
from plans.models import Event


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A sentence of three parts (text, emphasised text, code), with icon and hue."""

    icon: str
    hue: str
    text: str
    stress: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class EventLine:
    seq: int
    at: datetime
    type: str
    step_id: int | None
    said: HistoryEntry


Data = Mapping[str, Any]
EntryBuilder = Callable[[str, Data], HistoryEntry]
"""Builds the entry of an event from its subject ("Step 3", "The plan") and its data."""
ENTRY_BUILDERS: dict[str, EntryBuilder] = {}
"""The builders by event type: the functions below, and those with a fixed sentence at the end of the module."""


def event_line(event: Event) -> EventLine:
    subject = _("Step %(number)s") % {"number": event.step_id} if event.step_id is not None else _("The plan")
    build = ENTRY_BUILDERS.get(event.type)
    entry = build(subject, event.data_json) if build else HistoryEntry("info", "idle", f"{subject}: {event.type}")
    return EventLine(event.seq, event.at, event.type, event.step_id, entry)


def _entry_for(event_type: str) -> Callable[[EntryBuilder], EntryBuilder]:
    def register(build: EntryBuilder) -> EntryBuilder:
        ENTRY_BUILDERS[event_type] = build
        return build

    return register


def _fixed_entry(icon: str, hue: str, sentence: str, *, stress: str = "", name: str = "") -> EntryBuilder:
    """Return a builder of a sentence that depends only on its subject; `name` is a data field shown as code."""
    return lambda subject, data: HistoryEntry(
        icon,
        hue,
        _(sentence) % {"subject": subject},
        _(stress) if stress else "",
        str(data.get(name, "")) if name else "",
    )


def _actor_entry(icon: str, hue: str, sentence: str) -> EntryBuilder:
    return lambda subject, data: HistoryEntry(
        icon, hue, _(sentence) % {"subject": subject, "person": data.get("by") or _("someone")}
    )


@_entry_for("step.started")
def _started(subject: str, data: Data) -> HistoryEntry:
    attempt = int(data.get("attempt", 1))
    text = _("%(subject)s started") % {"subject": subject}
    if attempt > 1:
        text = _("%(subject)s started again (attempt %(attempt)s)") % {"subject": subject, "attempt": attempt}
    return HistoryEntry("run", "run", text)


@_entry_for("step.waiting")
def _waiting(subject: str, data: Data) -> HistoryEntry:
    if data.get("waiting_for") == "calls":
        steps = {"subject": subject, "steps": _steps(data.get("steps", ()))}
        return HistoryEntry("clock", "run", _("%(subject)s is waiting for %(steps)s") % steps)
    if data.get("waiting_for") == "client":
        return HistoryEntry("clock", "run", _("%(subject)s is with its client") % {"subject": subject})
    if data.get("waiting_for") == "stop":
        return HistoryEntry("stop", "danger", _("%(subject)s waits until a stop is lifted") % {"subject": subject})
    text = _("%(subject)s is") % {"subject": subject}
    if data.get("question"):
        return HistoryEntry("hand", "human", text, _("waiting for an answer"))
    if data.get("waiting_for") == "input":
        return HistoryEntry("edit", "human", text, _("sent back for changes"))
    return HistoryEntry("hand", "human", text, _("waiting for approval"), str(data.get("approval", "")))


RETRY_REASONS = {
    "worker_stopped": ("retry", gettext_noop("%(subject)s is handed to another worker, because its worker stopped")),
    "worker_lost": ("retry", gettext_noop("%(subject)s is retried, because its worker was lost")),
    "rate_limited": (
        "clock",
        gettext_noop("%(subject)s is waiting %(seconds)s s, because its tool has reached its rate limit"),
    ),
    "definition_changed": ("retry", gettext_noop("%(subject)s needs approval again, because its tool has changed")),
    "audit_unavailable": (
        "clock",
        gettext_noop("%(subject)s is waiting, because the audit checkpoint of its start cannot be written"),
    ),
    "drifted": ("retry", gettext_noop("%(subject)s is left to a worker with the current version of its tool")),
}
RETRIED = (
    "retry",
    gettext_noop("%(subject)s failed and will be retried in %(seconds)s s (attempt %(attempt)s of %(of)s)"),
)


@_entry_for("approval.extended")
def _extended(subject: str, data: Data) -> HistoryEntry:
    text = _("%(subject)s: the request was extended by half an hour")
    if "stopped_seconds" in data:
        text = _("%(subject)s: the request has more time, because of a stop")
    return HistoryEntry("clock", "idle", text % {"subject": subject}, code=str(data.get("approval", "")))


@_entry_for("plan.created")
def _created(subject: str, data: Data) -> HistoryEntry:
    if data.get("cloned_from"):
        text = _("%(subject)s was cloned from") % {"subject": subject}
        return HistoryEntry("plan", "idle", text, code=str(data["cloned_from"]))
    return HistoryEntry("plan", "idle", _("%(subject)s was created") % {"subject": subject})


@_entry_for("step.retrying")
def _retrying(subject: str, data: Data) -> HistoryEntry:
    if data.get("by"):
        names = {"subject": subject, "person": data["by"]}
        if data.get("to_skip"):
            return HistoryEntry("retry", "human", _("%(subject)s was reopened by %(person)s, to be skipped") % names)
        if data.get("edited"):
            text = _("%(subject)s is retried by %(person)s, with other arguments") % names
        else:
            text = _("%(subject)s is retried by %(person)s") % names
        return HistoryEntry("retry", "human", text)
    icon, sentence = RETRY_REASONS.get(str(data.get("error")), RETRIED)
    values = {name: data.get(name) for name in ("seconds", "attempt", "of")}
    return HistoryEntry(icon, "warn", _with_running_note(_(sentence) % {"subject": subject, **values}, data))


@_entry_for("step.skipped")
def _skipped(subject: str, data: Data) -> HistoryEntry:
    if data.get("by"):
        values = {"subject": subject, "person": data["by"], "reason": data.get("reason", "")}
        return HistoryEntry("skip", "human", _("%(subject)s was skipped by %(person)s: %(reason)s") % values)
    condition = str(data.get("done_check", ""))  # empty where it is private
    text = _("%(subject)s was skipped, because its check is already true") % {"subject": subject}
    return HistoryEntry("skip", "idle", f"{text}{':' if condition else ''}", code=condition)


@_entry_for("step.completed")
def _completed(subject: str, data: Data) -> HistoryEntry:
    key = str(data.get("key", ""))
    text = _("%(subject)s is done and stored") if key else _("%(subject)s is done")
    return HistoryEntry("ok", "ok", text % {"subject": subject}, code=key)


@_entry_for("step.cancelled")
def _cancelled(subject: str, data: Data) -> HistoryEntry:
    text = _with_running_note(_("%(subject)s was cancelled") % {"subject": subject}, data)
    return HistoryEntry("stop", "warn" if data.get("left_running") else "idle", text)


def _with_running_note(text: str, data: Data) -> str:
    if not data.get("left_running"):
        return text
    return _("%(sentence)s, but its tool did not stop and is still running") % {"sentence": text}


@_entry_for("call.started")
def _call_started(subject: str, data: Data) -> HistoryEntry:
    attempt = int(data.get("attempt", 1))
    text = _("%(subject)s calls its tool") % {"subject": subject}
    if attempt > 1:
        text = _("%(subject)s calls its tool (attempt %(attempt)s)") % {"subject": subject, "attempt": attempt}
    return HistoryEntry("play", "run", text)


@_entry_for("call.succeeded")
def _call_succeeded(subject: str, data: Data) -> HistoryEntry:
    if data.get("settled"):
        text = _("%(subject)s: a person confirmed that the call took effect")
        return HistoryEntry("ok", "ok", text % {"subject": subject})
    if data.get("responded"):
        text = _("%(subject)s: a person answered instead of the tool")
        return HistoryEntry("reply", "ok", text % {"subject": subject})
    return HistoryEntry("ok", "ok", _("%(subject)s: the call succeeded") % {"subject": subject})


@_entry_for("call.failed")
def _call_failed(subject: str, data: Data) -> HistoryEntry:
    if data.get("settled"):
        text = _("%(subject)s: a person ended the call, whose outcome was unknown")
        return HistoryEntry("fail", "danger", text % {"subject": subject})
    text = _("%(subject)s: the call failed") % {"subject": subject}
    return HistoryEntry("fail", "danger", text, code=str(data.get("error") or ""))


@_entry_for("call.progress")
def _progressed(subject: str, data: Data) -> HistoryEntry:
    sentence = _("%(subject)s reported progress: %(numbers)s") % {"subject": subject, "numbers": progress_text(data)}
    return HistoryEntry("run", "run", sentence)


@_entry_for("tool.invoked")
def _tool_invoked(subject: str, data: Data) -> HistoryEntry:
    tool = str(data.get("tool", ""))
    if data.get("late"):
        text = _("%(subject)s: the tool that could not be stopped has finished:")
        return HistoryEntry("clock", "warn", text % {"subject": subject}, code=tool)
    hue = "ok" if data.get("success") else "danger"
    return HistoryEntry("tools", hue, _("%(subject)s called") % {"subject": subject}, code=tool)


VERDICT_SENTENCES: Mapping[str, str] = {
    "approve": gettext_noop("%(person)s approved %(subject)s"),
    "reject": gettext_noop("%(person)s rejected %(subject)s"),
    "respond": gettext_noop("%(person)s answered %(subject)s instead of the tool"),
    "request_changes": gettext_noop("%(person)s requested changes to %(subject)s"),
    "undone": gettext_noop("%(person)s took back the decision about %(subject)s"),
}
OTHER_VERDICT = gettext_noop("%(person)s decided about %(subject)s")


@_entry_for("approval.reviewed")
def _reviewed(subject: str, data: Data) -> HistoryEntry:
    sentence = VERDICT_SENTENCES.get(str(data.get("verdict")), OTHER_VERDICT)
    values = {"person": data.get("reviewer") or _("Someone"), "subject": subject.lower()}
    return HistoryEntry("human", "idle", _(sentence) % values)


DECISION_ENTRIES = {
    "approve": ("check", "ok", gettext_noop("approved")),
    "respond": ("reply", "ok", gettext_noop("answered instead of the tool")),
    "request_changes": ("edit", "warn", gettext_noop("sent back for changes")),
}
REJECTED = ("fail", "danger", gettext_noop("rejected"))


@_entry_for("approval.reminded")
def _reminded(subject: str, data: Data) -> HistoryEntry:
    text = _("%(subject)s: the reviewers were reminded") % {"subject": subject}
    if data.get("asked_by"):
        values = {"subject": subject, "person": data["asked_by"]}
        text = _("%(subject)s: %(person)s had the reviewers reminded") % values
    return HistoryEntry("clock", "idle", text, code=str(data.get("approval", "")))


@_entry_for("approval.decided")
def _decided(subject: str, data: Data) -> HistoryEntry:
    icon, hue, word = DECISION_ENTRIES.get(str(data.get("verdict")), REJECTED)
    text = _("%(subject)s is") % {"subject": subject}
    return HistoryEntry(icon, hue, text, _(word), str(data.get("approval", "")))


@_entry_for("approval.edited")
def _edited(subject: str, data: Data) -> HistoryEntry:
    """Name the person who changed the arguments, and the fields; `hunks` marks a partly accepted change."""
    values = {"subject": subject, "person": data.get("reviewer") or _("a reviewer")}
    sentence = (
        _("%(subject)s: %(person)s accepted only part of the change:")
        if "hunks" in data
        else _("%(subject)s: %(person)s changed the arguments:")
    )
    return HistoryEntry("edit", "human", sentence % values, code=", ".join(map(str, data.get("fields", ()))))


@_entry_for("approval.delegated")
def _delegated(subject: str, data: Data) -> HistoryEntry:
    if data.get("to"):
        text = _("%(subject)s: the request was assigned to") % {"subject": subject}
        return HistoryEntry("human", "human", text, code=str(data["to"]))
    return HistoryEntry("human", "idle", _("%(subject)s: the request was unassigned") % {"subject": subject})


@_entry_for("grant.used")
def _granted(subject: str, data: Data) -> HistoryEntry:
    values = {"subject": subject, "person": data.get("made_by") or _("someone")}
    return HistoryEntry(
        "check", "ok", _("%(subject)s runs by a grant of %(person)s:") % values, code=str(data.get("grant"))
    )


@_entry_for("envelope.used")
def _inside_envelope(subject: str, data: Data) -> HistoryEntry:
    return HistoryEntry(
        "check", "ok", _("%(subject)s runs inside the envelope") % {"subject": subject}, code=str(data.get("envelope"))
    )


@_entry_for("input.requested")
def _input_requested(subject: str, data: Data) -> HistoryEntry:
    if data.get("question"):
        return HistoryEntry("hand", "human", _("%(subject)s asks a question") % {"subject": subject})
    return HistoryEntry("edit", "human", _("%(subject)s is waiting for other arguments") % {"subject": subject})


@_entry_for("input.received")
def _input_received(subject: str, data: Data) -> HistoryEntry:
    values = {"subject": subject, "person": data.get("by") or _("someone")}
    if data.get("question"):
        return HistoryEntry("reply", "human", _("%(subject)s was answered by %(person)s") % values)
    return HistoryEntry("edit", "human", _("%(subject)s got other arguments from %(person)s") % values)


def _plan_ended(icon: str, hue: str, sentence: str) -> EntryBuilder:
    def build(subject: str, data: Data) -> HistoryEntry:
        reason = str(data.get("reason", ""))
        return HistoryEntry(icon, hue, _(sentence) % {"subject": subject} + (f": {reason}" if reason else ""))

    return build


CHANGES = {"added": gettext_noop("added"), "edited": gettext_noop("edited"), "removed": gettext_noop("removed")}
AGENT = "the agent "
"""Prefix of `by` in events of steps that an agent added under its own step."""


@_entry_for("plan.changed")
def _changed(subject: str, data: Data) -> HistoryEntry:
    if str(data.get("by", "")).startswith(AGENT) and subject != _("The plan"):
        values = {"agent": str(data["by"])[len(AGENT) :], "steps": _steps(data.get("added", ()))}
        if data.get("turn"):
            return HistoryEntry("bot", "run", _("The agent %(agent)s asks its model in %(steps)s") % values)
        return HistoryEntry("bot", "run", _("The agent %(agent)s added %(steps)s") % values)
    changes = [f"{_(word)} {', '.join(map(str, data[name]))}" for name, word in CHANGES.items() if data.get(name)]
    if data.get("goal"):
        changes.insert(0, _("new goal"))
    values = {"subject": subject, "person": data.get("by") or _("someone"), "changes": ", ".join(changes)}
    return HistoryEntry("edit", "human", _("%(subject)s was changed by %(person)s: %(changes)s") % values)


def _steps(numbers: Sequence[int]) -> str:
    """Return step ids in words: step 3, or steps 4, 5."""
    listed = ", ".join(map(str, numbers))
    return ngettext("step %(numbers)s", "steps %(numbers)s", len(numbers)) % {"numbers": listed}


ENTRY_BUILDERS |= {
    "plan.started": _fixed_entry("play", "run", gettext_noop("%(subject)s started")),
    "plan.paused": _actor_entry("pause", "idle", gettext_noop("%(subject)s was paused by %(person)s")),
    "plan.resumed": _actor_entry("play", "run", gettext_noop("%(subject)s was resumed by %(person)s")),
    "plan.completed": _plan_ended("ok", "ok", gettext_noop("%(subject)s is done")),
    "plan.failed": _plan_ended("fail", "danger", gettext_noop("%(subject)s failed")),
    "plan.cancelled": _plan_ended("stop", "idle", gettext_noop("%(subject)s was cancelled")),
    "step.failed": _fixed_entry("fail", "danger", gettext_noop("%(subject)s failed")),
    "step.outcome_unknown": _fixed_entry(
        "hand",
        "human",
        gettext_noop("%(subject)s may or may not have taken effect:"),
        stress=gettext_noop("outcome unknown"),
    ),
    "call.restored": _fixed_entry("undo", "warn", gettext_noop("%(subject)s: the workspace was restored")),
    "approval.opened": _fixed_entry(
        "approve", "human", gettext_noop("%(subject)s requested approval"), name="approval"
    ),
    "approval.expired": _fixed_entry(
        "expired", "idle", gettext_noop("%(subject)s: the request expired"), name="approval"
    ),
    "approval.escalated": _fixed_entry(
        "clock", "warn", gettext_noop("%(subject)s was not decided in time; also requested from"), name="to"
    ),
    "approval.claimed": _fixed_entry(
        "human", "idle", gettext_noop("%(subject)s: a reviewer claimed the request"), name="approval"
    ),
    "approval.released": _fixed_entry(
        "human", "idle", gettext_noop("%(subject)s: the request is no longer claimed"), name="approval"
    ),
    "approval.commented": _fixed_entry(
        "edit", "idle", gettext_noop("%(subject)s: someone commented on the request"), name="approval"
    ),
    "approval.revoked": _fixed_entry(
        "undo", "danger", gettext_noop("%(subject)s: a reviewer revoked the approval"), name="approval"
    ),
    "resumption.claimed": _fixed_entry(
        "play", "run", gettext_noop("%(subject)s: its session is resumed by the runner"), name="runner"
    ),
    "resumption.given_back": _fixed_entry(
        "undo", "idle", gettext_noop("%(subject)s: its session was given back by the runner"), name="runner"
    ),
    "resumption.lost": _fixed_entry(
        "expired", "warn", gettext_noop("%(subject)s: the lease ran out of the runner"), name="runner"
    ),
    "resumption.ended": _fixed_entry(
        "bot", "idle", gettext_noop("%(subject)s: the resumed session ended:"), name="outcome"
    ),
    "memory.written": _fixed_entry("file", "idle", gettext_noop("%(subject)s stored"), name="key"),
}
