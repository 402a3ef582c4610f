"""Page of the audit log: search, verification and export. Only an export adds an entry."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, ClassVar
from urllib.parse import urlencode

from django import forms
from django.contrib.auth.models import User
from django.db.models import Subquery
from django.forms.boundfield import BoundField
from django.http import HttpResponse, QueryDict, StreamingHttpResponse
from django.shortcuts import render
from django.urls import reverse_lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop
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
from catalog.templatetags.toolgate import revealed
from catalog.ui.labels import Badge
from catalog.ui.page_forms import PageForm
from catalog.ui.requests import PageRequest, is_fragment_request, push_list_url, sign_in_required

PAGE_SIZE = 100
MAX_TEXT = 200
RECENT_ENTRIES = 5000
"""Number of newest entries that supply the choices of the filters."""
MAX_CHOICES_SHOWN = 500
MAX_COUNTED = 1000
MAX_SEQ = 10**18
DAY_FORMAT = "%Y-%m-%d"


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
        return self.address().replace("/audit/", "/audit/export/", 1)

    def address(self, **more: int | None) -> str:
        """Return the URL of this list with other parameters, such as another position or an opened entry."""
        named = (
            {name: getattr(self, name) for name in TEXT_FILTER_NAMES} | {"from": self.since, "to": self.until} | more
        )
        parts = {name: value for name, value in named.items() if value}
        return f"/audit/?{urlencode(parts)}" if parts else "/audit/"


class AuditFilterForm(PageForm):
    """Filters and position of the audit log, from the URL. Invalid values are reported and not applied."""

    q = forms.CharField(label=gettext_lazy("Search the log"), required=False, max_length=MAX_TEXT)
    who = forms.CharField(label=gettext_lazy("Actor"), required=False, max_length=MAX_TEXT, widget=forms.Select)
    action = forms.CharField(label=gettext_lazy("Action"), required=False, max_length=MAX_TEXT, widget=forms.Select)
    tool = forms.CharField(label=gettext_lazy("Tool"), required=False, max_length=MAX_TEXT, widget=forms.Select)
    plan = forms.CharField(label=gettext_lazy("Plan id"), required=False, max_length=MAX_TEXT)
    object = forms.CharField(label=gettext_lazy("Object id"), required=False, max_length=MAX_TEXT)
    since = forms.DateField(label=gettext_lazy("From"), required=False, input_formats=[DAY_FORMAT])
    until = forms.DateField(label=gettext_lazy("To"), required=False, input_formats=[DAY_FORMAT])
    before = forms.IntegerField(required=False, min_value=0, max_value=MAX_SEQ, widget=forms.HiddenInput)
    after = forms.IntegerField(required=False, min_value=0, max_value=MAX_SEQ, widget=forms.HiddenInput)
    open = forms.IntegerField(required=False, min_value=0, max_value=MAX_SEQ, widget=forms.HiddenInput)

    COMPACT_FIELDS = ("who", "action", "tool", "plan", "object")
    DATE_FIELDS = ("since", "until")
    PARAMETERS: ClassVar = {"since": "from", "until": "to"}
    """URL parameters whose names differ from the fields'."""

    def __init__(self, params: QueryDict) -> None:
        super().__init__(params, auto_id="f-%s")
        search = self.fields["q"].widget
        search.input_type = "search"
        search.attrs |= {
            "id": "q",
            "form": "filters",
            "autocomplete": "off",
            "placeholder": _("Id, tool, person or reason"),
        }
        search.attrs |= {
            "hx-get": reverse_lazy("audit"),
            "hx-include": "#filters",
            "hx-trigger": "input changed delay:250ms",
        }
        search.attrs |= {"hx-target": "#log", "hx-sync": "#filters:replace"}
        for name in ("plan", "object", *self.DATE_FIELDS):
            self.fields[name].widget.attrs["class"] = "input day"
        for name in ("plan", "object"):
            self.fields[name].widget.attrs |= {"placeholder": self.fields[name].label, "autocomplete": "off"}
        for name in self.DATE_FIELDS:
            self.fields[name].widget.input_type = "date"

    def add_prefix(self, field_name: str) -> str:
        return self.PARAMETERS.get(field_name, field_name)

    @property
    def query(self) -> AuditPageQuery:
        self.is_valid()
        return AuditPageQuery(**{name: value for name, value in self.cleaned_data.items() if value not in ("", None)})

    @property
    def compact_fields(self) -> list[BoundField]:
        """Fields without a visible label; their first choice or their placeholder names them."""
        return [self[name] for name in self.COMPACT_FIELDS]

    @property
    def date_fields(self) -> list[BoundField]:
        return [self[name] for name in self.DATE_FIELDS]

    @property
    def fields_with_errors(self) -> list[BoundField]:
        return [field for field in self.visible_fields() if field.errors]

    def offer_choices(self, viewer: User) -> None:
        """Offer the actors, actions and tools of the newest entries, and the current selection."""
        head = Subquery(Instance.objects.filter(pk=1).values("audit_seq")[:1])
        newest = entries_for(viewer).filter(seq__gt=head - RECENT_ENTRIES).order_by()
        recent = list(newest.values_list("actor_name", "action", "tool_name").distinct()[:MAX_CHOICES_SHOWN])
        every = {"who": _("Anyone"), "action": _("All actions"), "tool": _("All tools")}
        columns = zip(*recent, strict=True) if recent else ((), (), ())
        for (name, everything), column in zip(every.items(), columns, strict=True):
            values = sorted({*column, self.cleaned_data.get(name, "")} - {""})
            labels = [action_label(value).label if name == "action" else value for value in values]
            choices = [(value, revealed(label)) for value, label in zip(values, labels, strict=True)]
            self.fields[name].widget.choices = [("", everything), *choices]


class AuditExportForm(forms.Form):
    format = forms.ChoiceField(choices=[("jsonl", "JSON Lines"), ("csv", "CSV")])


@dataclass(frozen=True, slots=True)
class AuditLine:
    entry: AuditEntry
    word: Badge
    who: str
    is_program: bool


@dataclass(frozen=True, slots=True)
class AuditPage:
    """One page of the log; `older` and `newer` are URLs of adjacent pages. With `has_more`, `count` is a minimum."""

    query: AuditPageQuery
    lines: Sequence[AuditLine]
    count: int
    has_more: bool
    older: str | None
    newer: str | None


def audit_page(viewer: User, query: AuditPageQuery) -> AuditPage:
    """Return the requested page, in a fixed number of queries. Raises NotAllowed if the viewer may not read the log."""
    fitting = entries_for(viewer, query.filters)
    if query.after is not None:
        rows = list(fitting.filter(seq__gt=query.after).order_by("seq")[: PAGE_SIZE + 1])
        shown, has_older, has_newer = rows[:PAGE_SIZE][::-1], True, len(rows) > PAGE_SIZE
    else:
        below = fitting.filter(seq__lt=query.before) if query.before is not None else fitting
        rows = list(below[: PAGE_SIZE + 1])
        shown, has_older, has_newer = rows[:PAGE_SIZE], len(rows) > PAGE_SIZE, query.before is not None
    older = query.address(before=shown[-1].seq) if has_older and shown else None
    newer = query.address(after=shown[0].seq) if has_newer and shown else None
    # A text search reads every entry, so a result that fits on one page is not counted by a second search.
    found = fitting[: MAX_COUNTED + 1].count() if has_older or has_newer else len(shown)
    count, has_more = min(found, MAX_COUNTED), found > MAX_COUNTED
    lines = []
    for entry in shown:
        badge = action_label(entry.action, str(entry.details_json.get("verdict", "")))
        # Show the name that the chain covers: the account may have been renamed since.
        is_system = entry.actor_id is None and entry.actor_name == SYSTEM_ACTOR
        lines.append(AuditLine(entry, badge, entry.actor_name, is_system))
    return AuditPage(query, lines, count, has_more, older, newer)


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
    "account.created": Badge(gettext_noop("Created an account"), "human", "warn"),
    "account.changed": Badge(gettext_noop("Changed an account"), "human", "warn"),
    "role.created": Badge(gettext_noop("Created a role"), "human", "warn"),
    "role.changed": Badge(gettext_noop("Changed a role"), "human", "warn"),
    "role.deleted": Badge(gettext_noop("Deleted a role"), "human", "warn"),
    "rights.recorded": Badge(gettext_noop("Recorded all rights"), "info", "idle"),
    "account.deleted": Badge(gettext_noop("Deleted an account"), "human", "warn"),
    "tool.added": Badge(gettext_noop("Tool added"), "ok", "idle"),
    "tool.changed": Badge(gettext_noop("Tool changed"), "edit", "warn"),
    "tool.removed": Badge(gettext_noop("Tool removed from code"), "stop", "warn"),
    "tool.drifted": Badge(gettext_noop("Tool changed while requests were open"), "retry", "warn"),
    "tool.held": Badge(gettext_noop("Held a changed tool"), "retry", "warn"),
    "tool.accepted": Badge(gettext_noop("Accepted a changed tool"), "check", "warn"),
    "source.created": Badge(gettext_noop("Added a source"), "plus", "warn"),
    "source.changed": Badge(gettext_noop("Changed a source"), "edit", "warn"),
    "tool.level_kept": Badge(gettext_noop("Kept a level that the code would lower"), "lock", "warn"),
    "tool.level_raised": Badge(gettext_noop("A raised declaration ended a manually set level"), "dangerous", "warn"),
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
    "demo.created": Badge(gettext_noop("Created the demo: entries before this one are invented"), "info", "human"),
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
    context = _log_context(request, AuditFilterForm(request.GET))
    if request.method == "POST":
        context["verification"] = verify()
    if not is_fragment_request(request, *PARTS):
        return render(request, "approvals/audit.html", context)
    response = render(request, PARTS[request.htmx.target or ""], context)
    if request.method == "POST":
        return response
    query = context["query"]
    return push_list_url(request, response, query.address(before=query.before, after=query.after))


def _log_context(request: PageRequest, form: AuditFilterForm) -> dict[str, Any]:
    query = form.query
    page = audit_page(request.user, query)
    form.offer_choices(request.user)
    return {"section": "audit", "log": page, "query": query, "form": form, "export_form": AuditExportForm()}


@require_POST
@sign_in_required
def export_audit_log(request: PageRequest) -> StreamingHttpResponse | HttpResponse:
    """Send the matching entries as a file and record that. Invalid filters export nothing rather than everything."""
    filters, form = AuditFilterForm(request.GET), AuditExportForm(request.POST)
    if not (filters.is_valid() and form.is_valid()):
        problem = _("Nothing was exported. Correct the filters and choose one of the formats.")
        context = _log_context(request, filters) | {"export_problem": problem}
        return render(request, "approvals/audit.html", context, status=400)
    name = form.cleaned_data["format"]
    lines = export_entries(request.user, filters.query.filters, name)
    response = StreamingHttpResponse(lines, content_type=FORMATS[name])
    response["Content-Disposition"] = f'attachment; filename="audit.{name}"'
    return response
