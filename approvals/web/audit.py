"""Page of the audit log: search, verification and export. Only an export adds an entry.

Filters come from the URL. Each action has a label, an icon and a hue.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import QuerySet, Subquery
from django.http import HttpResponse, HttpResponseBadRequest, QueryDict, StreamingHttpResponse
from django.shortcuts import render
from django.utils.dateparse import parse_date
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
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
"""Number of newest entries that supply the choices of the filters."""
MAX_CHOICES_SHOWN = 500
MAX_COUNTED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPageQuery(AuditTextFilters):
    """Query parameters of the page: `since` and `until` are days, `before` and `after` sequence numbers of entries."""

    since: date | None = None
    until: date | None = None
    before: int | None = None
    after: int | None = None
    open: int | None = None

    @property
    def filters(self) -> AuditFilters:
        """Filters without the position in the log; `until` is inclusive."""
        day_after = self.until + timedelta(days=1) if self.until and self.until < date.max else None
        texts = {name: getattr(self, name) for name in TEXT_FILTER_NAMES}
        return AuditFilters(**texts, since=_midnight(self.since), until=_midnight(day_after))

    @property
    def export_address(self) -> str:
        """URL that exports the matching entries."""
        return self.address().replace("/audit/", "/audit/export/", 1)

    def address(self, **more: int | None) -> str:
        """Return the URL of this list, at another position or with an entry opened."""
        named = (
            {name: getattr(self, name) for name in TEXT_FILTER_NAMES} | {"from": self.since, "to": self.until} | more
        )
        parts = {name: value for name, value in named.items() if value}
        return f"/audit/?{urlencode(parts)}" if parts else "/audit/"


def parse_audit_query(params: QueryDict) -> AuditPageQuery:
    """Return the query of a URL; invalid values are ignored."""
    texts = {name: params.get(name, "").replace("\x00", "").strip()[:MAX_TEXT] for name in TEXT_FILTER_NAMES}
    read: dict[str, Any] = texts | {name: parse_number(params.get(name, "")) for name in ("before", "after", "open")}
    return AuditPageQuery(since=_day(params.get("from", "")), until=_day(params.get("to", "")), **read)


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One entry with its label and the name of its actor."""

    entry: AuditEntry
    word: Badge
    who: str
    is_program: bool

    @property
    def mark(self) -> str:
        """CSS classes of the icon."""
        return f"sti {self.word.hue}"


@dataclass(frozen=True, slots=True)
class AuditPage:
    """One page of the log; `older` and `newer` are URLs of the adjacent pages, None at the ends of the log.

    `has_more` is True if more than `count` entries match; counting stops there.
    """

    query: AuditPageQuery
    lines: Sequence[AuditLine]
    count: int
    has_more: bool
    older: str | None
    newer: str | None
    choices: Sequence[tuple[str, str, str, Sequence[tuple[str, str]]]]


def audit_page(viewer: User, query: AuditPageQuery) -> AuditPage:
    """Return the requested page, in a fixed number of queries. Raises NotAllowed if the viewer may not read the log."""
    fitting = entries_for(viewer, query.filters)
    shown, has_older, has_newer = _fetch_page(fitting, query)
    older = query.address(before=shown[-1].seq) if has_older and shown else None
    newer = query.address(after=shown[0].seq) if has_newer and shown else None
    # A text search reads every entry, so a result that fits on one page is not counted by a second search.
    found = fitting[: MAX_COUNTED + 1].count() if has_older or has_newer else len(shown)
    count, has_more = min(found, MAX_COUNTED), found > MAX_COUNTED
    lines = [_line(entry) for entry in shown]
    return AuditPage(query, lines, count, has_more, older, newer, _choices(viewer, query))


def _fetch_page(fitting: QuerySet[AuditEntry], query: AuditPageQuery) -> tuple[list[AuditEntry], bool, bool]:
    """Return the entries of one page, newest first, has_older and has_newer."""
    if query.after is not None:
        found = list(fitting.filter(seq__gt=query.after).order_by("seq")[: PAGE_SIZE + 1])
        return found[:PAGE_SIZE][::-1], True, len(found) > PAGE_SIZE
    below = fitting.filter(seq__lt=query.before) if query.before is not None else fitting
    found = list(below[: PAGE_SIZE + 1])
    return found[:PAGE_SIZE], len(found) > PAGE_SIZE, query.before is not None


def _line(entry: AuditEntry) -> AuditLine:
    word = action_label(entry.action, str(entry.details_json.get("verdict", "")))
    # Show the name that the chain covers: the account may have been renamed since.
    return AuditLine(entry, word, entry.actor_name, entry.actor_id is None and entry.actor_name == SYSTEM_ACTOR)


def _choices(viewer: User, query: AuditPageQuery) -> list[tuple[str, str, str, list[tuple[str, str]]]]:
    """Return the filters' choices: actors, actions and tools of the newest entries, and the current selection."""
    head = Subquery(Instance.objects.filter(pk=1).values("audit_seq")[:1])
    newest = entries_for(viewer).filter(seq__gt=head - RECENT_ENTRIES).order_by()
    recent = list(newest.values_list("actor_name", "action", "tool_name").distinct()[:MAX_CHOICES_SHOWN])
    who, actions, tools = (set(column) for column in zip(*recent, strict=True)) if recent else (set(), set(), set())
    return [
        ("who", _("Anyone"), query.who, _options(who | {query.who})),
        (
            "action",
            _("All actions"),
            query.action,
            [(action, action_label(action).label) for action in sorted(actions | {query.action}) if action],
        ),
        ("tool", _("All tools"), query.tool, _options(tools | {query.tool})),
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
    "approval.opened": Badge(gettext_noop("Approval requested"), "hand", "human"),
    "approval.prepared": Badge(gettext_noop("Approval requested early"), "hand", "human"),
    "approval.edited": Badge(gettext_noop("Edited a request"), "edit", "human"),
    "approval.reviewed": Badge(gettext_noop("Answered a request"), "human", "human"),
    "approval.decided": Badge(gettext_noop("Decided a request"), "human", "human"),
    "approval.expired": Badge(gettext_noop("Expired"), "expired", "idle"),
    "approval.withdrawn": Badge(gettext_noop("Withdrew the request"), "undo", "idle"),
    "approval.invalidated": Badge(gettext_noop("Request invalidated"), "retry", "warn"),
    "call.held": Badge(gettext_noop("Held a call"), "hand", "human"),
    "call.started": Badge(gettext_noop("Started a call"), "play", "run"),
    "call.succeeded": Badge(gettext_noop("Call succeeded"), "ok", "ok"),
    "call.failed": Badge(gettext_noop("Call failed"), "fail", "danger"),
    "call.stopped": Badge(gettext_noop("Call stopped with its plan"), "stop", "idle"),
    "call.refused": Badge(gettext_noop("Refused a call"), "fail", "danger"),
    "call.restored": Badge(gettext_noop("Restored the files"), "undoable", "warn"),
    "call.revealed": Badge(gettext_noop("Revealed a private value"), "info", "warn"),
    "call.responded": Badge(gettext_noop("Used the answer as the result"), "edit", "human"),
    "call.sent_back": Badge(gettext_noop("Call sent back for changes"), "undo", "human"),
    "call.released": Badge(gettext_noop("Allowed"), "play", "run"),
    "call.skipped": Badge(gettext_noop("Skipped the step"), "skip", "human"),
    "call.edited": Badge(gettext_noop("Changed the arguments of a retry"), "edit", "human"),
    "call.settled": Badge(gettext_noop("Resolved an unknown outcome"), "check", "ok"),
    "step.outcome_unknown": Badge(gettext_noop("Outcome unknown"), "hand", "human"),
    "role.given": Badge(gettext_noop("Added a role"), "human", "warn"),
    "role.taken": Badge(gettext_noop("Removed a role"), "human", "warn"),
    "account.switched_on": Badge(gettext_noop("Enabled an account"), "human", "warn"),
    "account.switched_off": Badge(gettext_noop("Disabled an account"), "human", "warn"),
    "role.deleted": Badge(gettext_noop("Deleted a role"), "human", "warn"),
    "account.deleted": Badge(gettext_noop("Deleted an account"), "human", "warn"),
    "tool.added": Badge(gettext_noop("Tool added"), "ok", "idle"),
    "tool.changed": Badge(gettext_noop("Tool changed in code"), "edit", "warn"),
    "tool.removed": Badge(gettext_noop("Tool removed from code"), "stop", "warn"),
    "tool.drifted": Badge(gettext_noop("Tool changed while requests were open"), "retry", "warn"),
    "tool.held": Badge(gettext_noop("Held a changed tool"), "retry", "warn"),
    "tool.accepted": Badge(gettext_noop("Accepted a changed tool"), "check", "warn"),
    "source.created": Badge(gettext_noop("Added a source"), "plus", "warn"),
    "source.changed": Badge(gettext_noop("Changed a source"), "edit", "warn"),
    "tool.level_kept": Badge(gettext_noop("Kept a level that the code would lower"), "lock", "warn"),
    "tool.level_raised": Badge(gettext_noop("Code raised a manually set level"), "dangerous", "warn"),
    "tool.level_set": Badge(gettext_noop("Set a tool's level"), "edit", "warn"),
    "tool.categories_set": Badge(gettext_noop("Set a tool's categories"), "edit", "idle"),
    "tool.description_set": Badge(gettext_noop("Set a tool's description for models"), "edit", "warn"),
    "tool.implementation_set": Badge(gettext_noop("Set an implementation's share of calls"), "edit", "warn"),
    "tool.enabled": Badge(gettext_noop("Enabled a tool"), "ok", "ok"),
    "tool.disabled": Badge(gettext_noop("Disabled a tool"), "stop", "warn"),
    "tool.grantable_set": Badge(gettext_noop("Changed whether a tool can be granted"), "edit", "warn"),
    "token.created": Badge(gettext_noop("Created a token"), "lock", "warn"),
    "token.changed": Badge(gettext_noop("Changed a token"), "edit", "idle"),
    "token.revoked": Badge(gettext_noop("Revoked a token"), "stop", "warn"),
    "approval.claimed": Badge(gettext_noop("Claimed"), "human", "idle"),
    "approval.released": Badge(gettext_noop("Released a claim"), "undo", "idle"),
    "approval.delegated": Badge(gettext_noop("Delegated a request"), "human", "warn"),
    "approval.commented": Badge(gettext_noop("Commented"), "edit", "idle"),
    "approval.extended": Badge(gettext_noop("Extended a deadline"), "clock", "idle"),
    "approval.escalated": Badge(gettext_noop("Escalated: not answered in time"), "hand", "warn"),
    "approval.consumed": Badge(gettext_noop("Used the approval"), "check", "ok"),
    "approval.revoked": Badge(gettext_noop("Revoked the approval"), "undo", "warn"),
    "grant.created": Badge(gettext_noop("Created a grant"), "check", "warn"),
    "grant.used": Badge(gettext_noop("Ran under a grant"), "play", "run"),
    "grant.revoked": Badge(gettext_noop("Revoked a grant"), "stop", "warn"),
    "policy.refused": Badge(gettext_noop("A policy refused a call"), "fail", "danger"),
    "policy.created": Badge(gettext_noop("Created a policy"), "edit", "warn"),
    "policy.changed": Badge(gettext_noop("Changed a policy"), "edit", "warn"),
    "policy.ended": Badge(gettext_noop("Deleted a policy"), "stop", "warn"),
    "agent.created": Badge(gettext_noop("Created an agent"), "bot", "warn"),
    "agent.changed": Badge(gettext_noop("Changed an agent"), "bot", "warn"),
    "agent.ended": Badge(gettext_noop("Deleted an agent"), "stop", "warn"),
    "notifications.retried": Badge(gettext_noop("Retried a notification"), "retry", "idle"),
    "notifications.changed": Badge(gettext_noop("Changed notification settings"), "edit", "idle"),
    "epoch.began": Badge(gettext_noop("Started a new epoch after a restore"), "retry", "danger"),
    "audit.exported": Badge(gettext_noop("Exported the audit log"), "out", "warn"),
    "sign_in.succeeded": Badge(gettext_noop("Signed in"), "human", "idle"),
    "sign_in.ended": Badge(gettext_noop("Signed out"), "out", "idle"),
    "sign_in.failed": Badge(gettext_noop("Sign-in failed"), "fail", "danger"),
    "sign_in.refused": Badge(gettext_noop("Sign-in blocked: too many wrong passwords"), "lock", "danger"),
}
VERDICTS = {
    "approve": Badge(gettext_noop("Approved"), "check", "ok"),
    "reject": Badge(gettext_noop("Rejected"), "fail", "danger"),
    "respond": Badge(gettext_noop("Answered instead of the tool"), "edit", "human"),
    "request_changes": Badge(gettext_noop("Requested changes"), "undo", "human"),
    "undone": Badge(gettext_noop("Took back an answer"), "undo", "warn"),
}
DECISIONS = {
    "approve": Badge(gettext_noop("Decided: approved"), "check", "ok"),
    "reject": Badge(gettext_noop("Decided: rejected"), "fail", "danger"),
    "respond": Badge(gettext_noop("Decided: answered instead of the tool"), "edit", "human"),
    "request_changes": Badge(gettext_noop("Decided: changes requested"), "undo", "human"),
}
LABELS_BY_VERDICT = {"approval.reviewed": VERDICTS, "approval.decided": DECISIONS}


def action_label(action: str, verdict: str = "") -> Badge:
    """Return the translated label of an action; reviews and decisions are labelled by their verdict."""
    badge = LABELS_BY_VERDICT.get(action, {}).get(verdict) or ACTION_LABELS.get(action)
    if badge is None:
        return Badge(action.replace(".", ": ").replace("_", " ").capitalize(), "info", "idle")
    return replace(badge, text=_(badge.label))


PARTS = {"log": "approvals/_log_answer.html", "chain": "approvals/_chain.html"}


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def audit_log(request: PageRequest) -> HttpResponse:
    """Show the matching entries; a POST verifies the chain first."""
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
    """Send the matching entries as a file and record the export in the log."""
    form = request.POST.get("format", "")
    if form not in FORMATS:
        return HttpResponseBadRequest(_("Choose the format jsonl or csv."))
    lines = export_entries(request.user, parse_audit_query(request.GET).filters, form)
    response = StreamingHttpResponse(lines, content_type=FORMATS[form])
    response["Content-Disposition"] = f'attachment; filename="audit.{form}"'
    return response
