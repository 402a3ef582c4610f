"""Page of the audit log: reading, searching, verifying and exporting it. Only the export adds an entry.

Filters come from the URL. Each kind of entry has a label, an icon and a hue.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import QuerySet, Subquery
from django.http import HttpResponse, HttpResponseBadRequest, QueryDict, StreamingHttpResponse
from django.shortcuts import render
from django.utils.dateparse import parse_date
from django.views.decorators.http import require_http_methods, require_POST

from approvals.audit.log import SYSTEM_ACTOR
from approvals.audit.queries import (
    FORMATS,
    TEXT_FILTER_NAMES,
    AuditFilters,
    AuditTextFilters,
    entries_for,
    export_entries,
)
from approvals.audit.verification import verify
from approvals.models import AuditEntry, Instance
from catalog.ui.labels import Badge
from catalog.ui.requests import PageRequest, is_fragment_request, parse_number, push_url, sign_in_required

PAGE_SIZE = 100
MAX_TEXT = 200
RECENT_ENTRIES = 5000
"""How many of the newest entries the choices of the filters are read from."""
MAX_CHOICES_SHOWN = 500
MAX_COUNTED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPageQuery(AuditTextFilters):
    """What the URL asks for: `since` and `until` are days as written, `before` and `after` an entry's number."""

    since: date | None = None
    until: date | None = None
    before: int | None = None
    after: int | None = None
    open: int | None = None

    @property
    def filters(self) -> AuditFilters:
        """The filters without the place in the log; the last day counts to its end."""
        day_after = self.until + timedelta(days=1) if self.until and self.until < date.max else None
        texts = {name: getattr(self, name) for name in TEXT_FILTER_NAMES}
        return AuditFilters(**texts, since=_midnight(self.since), until=_midnight(day_after))

    @property
    def export_address(self) -> str:
        """Where all that fits is exported."""
        return self.address().replace("/audit/", "/audit/export/", 1)

    def address(self, **more: int | None) -> str:
        """Return the address of this list, going on elsewhere or with an entry opened."""
        named = (
            {name: getattr(self, name) for name in TEXT_FILTER_NAMES} | {"from": self.since, "to": self.until} | more
        )
        parts = {name: value for name, value in named.items() if value}
        return f"/audit/?{urlencode(parts)}" if parts else "/audit/"


def parse_audit_query(params: QueryDict) -> AuditPageQuery:
    """Read a URL; what means nothing is left out."""
    texts = {name: params.get(name, "").replace("\x00", "").strip()[:MAX_TEXT] for name in TEXT_FILTER_NAMES}
    read: dict[str, Any] = texts | {name: parse_number(params.get(name, "")) for name in ("before", "after", "open")}
    return AuditPageQuery(since=_day(params.get("from", "")), until=_day(params.get("to", "")), **read)


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One entry with its words."""

    entry: AuditEntry
    word: Badge
    who: str
    is_program: bool

    @property
    def mark(self) -> str:
        """The classes of its icon."""
        return f"sti {self.word.hue}"


@dataclass(frozen=True, slots=True)
class AuditPage:
    """All that the page shows; `older` and `newer` are the addresses of the next pages, None at the log's ends.

    `has_more`: more entries fit than `count`, which are all that are counted.
    """

    query: AuditPageQuery
    lines: Sequence[AuditLine]
    count: int
    has_more: bool
    older: str | None
    newer: str | None
    choices: Sequence[tuple[str, str, str, Sequence[tuple[str, str]]]]


def audit_page(viewer: User, query: AuditPageQuery) -> AuditPage:
    """Return the page that a URL asks for, in a fixed number of queries. Raises NotAllowed."""
    fitting = entries_for(viewer, query.filters)
    shown, has_older, has_newer = _fetch_page(fitting, query)
    older = query.address(before=shown[-1].seq) if has_older and shown else None
    newer = query.address(after=shown[0].seq) if has_newer and shown else None
    # Words are looked for in every entry: where one page has all that fit, the log is not searched again to count.
    found = fitting[: MAX_COUNTED + 1].count() if has_older or has_newer else len(shown)
    count, has_more = min(found, MAX_COUNTED), found > MAX_COUNTED
    lines = [_line(entry) for entry in shown]
    return AuditPage(query, lines, count, has_more, older, newer, _choices(viewer, query))


def _fetch_page(fitting: QuerySet[AuditEntry], query: AuditPageQuery) -> tuple[list[AuditEntry], bool, bool]:
    """Return the entries of one page, newest first, and whether there are older and newer ones."""
    if query.after is not None:
        found = list(fitting.filter(seq__gt=query.after).order_by("seq")[: PAGE_SIZE + 1])
        return found[:PAGE_SIZE][::-1], True, len(found) > PAGE_SIZE
    below = fitting.filter(seq__lt=query.before) if query.before is not None else fitting
    found = list(below[: PAGE_SIZE + 1])
    return found[:PAGE_SIZE], len(found) > PAGE_SIZE, query.before is not None


def _line(entry: AuditEntry) -> AuditLine:
    word = action_label(entry.action, str(entry.details_json.get("verdict", "")))
    # The name that the chain covers: the account may be called otherwise since, and nobody would notice.
    return AuditLine(entry, word, entry.actor_name, entry.actor_id is None and entry.actor_name == SYSTEM_ACTOR)


def _choices(viewer: User, query: AuditPageQuery) -> list[tuple[str, str, str, list[tuple[str, str]]]]:
    """Return what the filters offer: who, which actions and which tools the newest entries name, and what is chosen."""
    head = Subquery(Instance.objects.filter(pk=1).values("audit_seq")[:1])
    newest = entries_for(viewer).filter(seq__gt=head - RECENT_ENTRIES).order_by()
    recent = list(newest.values_list("actor_name", "action", "tool_name").distinct()[:MAX_CHOICES_SHOWN])
    who, actions, tools = (set(column) for column in zip(*recent, strict=True)) if recent else (set(), set(), set())
    return [
        ("who", "Anyone", query.who, _options(who | {query.who})),
        (
            "action",
            "All actions",
            query.action,
            [(action, action_label(action).label) for action in sorted(actions | {query.action}) if action],
        ),
        ("tool", "All tools", query.tool, _options(tools | {query.tool})),
    ]


def _options(values: Iterable[str]) -> list[tuple[str, str]]:
    return [(value, value) for value in sorted(values) if value]


def _day(text: str) -> date | None:
    try:
        return parse_date(text)
    except ValueError:
        return None


def _midnight(day: date | None) -> datetime | None:
    return datetime.combine(day, time.min, tzinfo=UTC) if day else None


ACTION_LABELS = {
    "approval.opened": Badge("Asked for approval", "hand", "human"),
    "approval.prepared": Badge("Asked for approval early", "hand", "human"),
    "approval.edited": Badge("Changed what is asked", "edit", "human"),
    "approval.reviewed": Badge("Answered a request", "human", "human"),
    "approval.decided": Badge("Decided a request", "human", "human"),
    "approval.expired": Badge("Expired", "expired", "idle"),
    "approval.withdrawn": Badge("Withdrew the request", "undo", "idle"),
    "approval.invalidated": Badge("Request no longer valid", "retry", "warn"),
    "call.held": Badge("Held a call", "hand", "human"),
    "call.started": Badge("Started a call", "play", "run"),
    "call.succeeded": Badge("Call done", "ok", "ok"),
    "call.failed": Badge("Call failed", "fail", "danger"),
    "call.stopped": Badge("Stopped a call with its plan", "stop", "idle"),
    "call.refused": Badge("Refused a call", "fail", "danger"),
    "call.restored": Badge("Put the files back", "undoable", "warn"),
    "call.revealed": Badge("Revealed a private value", "info", "warn"),
    "call.responded": Badge("Gave the answer as the result", "edit", "human"),
    "call.sent_back": Badge("Requested changes", "undo", "human"),
    "call.released": Badge("Allowed", "play", "run"),
    "call.skipped": Badge("Skipped the step", "skip", "human"),
    "call.edited": Badge("Changed the arguments of a retry", "edit", "human"),
    "call.settled": Badge("Settled an outcome", "check", "ok"),
    "step.outcome_unknown": Badge("Outcome unknown", "hand", "human"),
    "role.given": Badge("Gave a role", "human", "warn"),
    "role.taken": Badge("Took a role away", "human", "warn"),
    "account.switched_on": Badge("Switched an account on", "human", "warn"),
    "account.switched_off": Badge("Switched an account off", "human", "warn"),
    "role.deleted": Badge("Deleted a role", "human", "warn"),
    "account.deleted": Badge("Deleted an account", "human", "warn"),
    "tool.added": Badge("Tool added", "ok", "idle"),
    "tool.changed": Badge("Tool changed in code", "edit", "warn"),
    "tool.removed": Badge("Tool gone from code", "stop", "warn"),
    "tool.drifted": Badge("Tool changed while people were asked", "retry", "warn"),
    "tool.level_kept": Badge("Kept the level that code would lower", "lock", "warn"),
    "tool.level_raised": Badge("Code raised a level set by hand", "dangerous", "warn"),
    "tool.level_set": Badge("Set a tool's level", "edit", "warn"),
    "tool.categories_set": Badge("Set a tool's categories", "edit", "idle"),
    "tool.description_set": Badge("Set what models read of a tool", "edit", "warn"),
    "tool.implementation_set": Badge("Set an implementation's share", "edit", "warn"),
    "tool.enabled": Badge("Switched a tool on", "ok", "ok"),
    "tool.disabled": Badge("Switched a tool off", "stop", "warn"),
    "tool.grantable_set": Badge("Set whether a tool may be granted", "edit", "warn"),
    "token.created": Badge("Made a token", "lock", "warn"),
    "token.changed": Badge("Changed a token", "edit", "idle"),
    "token.revoked": Badge("Revoked a token", "stop", "warn"),
    "approval.claimed": Badge("Claimed", "human", "idle"),
    "approval.released": Badge("Let a request go", "undo", "idle"),
    "approval.delegated": Badge("Handed a request on", "human", "warn"),
    "approval.commented": Badge("Commented", "edit", "idle"),
    "approval.extended": Badge("Gave a request more time", "clock", "idle"),
    "approval.escalated": Badge("Asked others, as nobody answered", "hand", "warn"),
    "approval.consumed": Badge("Used the approval", "check", "ok"),
    "approval.revoked": Badge("Revoked the approval", "undo", "warn"),
    "grant.created": Badge("Granted calls like this", "check", "warn"),
    "grant.used": Badge("Ran on a grant", "play", "run"),
    "grant.revoked": Badge("Ended a grant", "stop", "warn"),
    "policy.refused": Badge("A policy refused a call", "fail", "danger"),
    "policy.created": Badge("Made a policy", "edit", "warn"),
    "policy.changed": Badge("Changed a policy", "edit", "warn"),
    "policy.ended": Badge("Ended a policy", "stop", "warn"),
    "agent.created": Badge("Made an agent", "bot", "warn"),
    "agent.changed": Badge("Changed an agent", "bot", "warn"),
    "agent.ended": Badge("Ended an agent", "stop", "warn"),
    "notifications.retried": Badge("Had a notice sent once more", "retry", "idle"),
    "notifications.changed": Badge("Changed where they are told", "edit", "idle"),
    "epoch.began": Badge("Began a new epoch after a restore", "retry", "danger"),
    "audit.exported": Badge("Exported the audit log", "out", "warn"),
    "sign_in.succeeded": Badge("Signed in", "human", "idle"),
    "sign_in.ended": Badge("Signed out", "out", "idle"),
    "sign_in.failed": Badge("Sign-in failed", "fail", "danger"),
    "sign_in.refused": Badge("Sign-in refused: too many wrong passwords", "lock", "danger"),
}
VERDICTS = {
    "approve": Badge("Approved", "check", "ok"),
    "reject": Badge("Rejected", "fail", "danger"),
    "respond": Badge("Answered in the tool's place", "edit", "human"),
    "request_changes": Badge("Asked for changes", "undo", "human"),
    "undone": Badge("Took the answer back", "undo", "warn"),
}
DECISIONS = {
    "approve": Badge("Decided: it may run", "check", "ok"),
    "reject": Badge("Decided: it does not run", "fail", "danger"),
    "respond": Badge("Decided: answered, it does not run", "edit", "human"),
    "request_changes": Badge("Decided: sent back for changes", "undo", "human"),
}
LABELS_BY_VERDICT = {"approval.reviewed": VERDICTS, "approval.decided": DECISIONS}


def action_label(action: str, verdict: str = "") -> Badge:
    """Say what was done; a review, and what it decided, by its verdict."""
    by_verdict = LABELS_BY_VERDICT.get(action, {}).get(verdict)
    return (
        by_verdict
        or ACTION_LABELS.get(action)
        or Badge(action.replace(".", ": ").replace("_", " ").capitalize(), "info", "idle")
    )


PARTS = {"log": "approvals/_log_answer.html", "chain": "approvals/_chain.html"}


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def audit_log(request: PageRequest) -> HttpResponse:
    """Show the entries that fit; a POST checks the whole chain first."""
    page = audit_page(request.user, parse_audit_query(request.GET))
    shown = {"section": "audit", "log": page, "query": page.query}
    if request.method == "POST":
        shown["verification"] = verify()
    if not is_fragment_request(request, *PARTS):
        return render(request, "approvals/audit.html", shown)
    response = render(request, PARTS[request.headers["HX-Target"]], shown)
    if request.method != "POST":
        push_url(request, response, page.query.address(before=page.query.before, after=page.query.after))
    return response


@require_POST
@sign_in_required
def export_audit_log(request: PageRequest) -> StreamingHttpResponse | HttpResponseBadRequest:
    """Send all entries that fit as a file, and keep in the log who has it."""
    form = request.POST.get("format", "")
    if form not in FORMATS:
        return HttpResponseBadRequest("format is jsonl or csv.")
    lines = export_entries(request.user, parse_audit_query(request.GET).filters, form)
    response = StreamingHttpResponse(lines, content_type=FORMATS[form])
    response["Content-Disposition"] = f'attachment; filename="audit.{form}"'
    return response
