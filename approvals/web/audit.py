"""Page of the audit log: filters, verification and export. Only an export adds an entry."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.db.models import Q, QuerySet, Subquery
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop, ngettext_lazy
from django.views.decorators.http import require_http_methods, require_POST

from approvals.audit.log import SYSTEM_ACTOR
from approvals.audit.queries import FORMATS, AuditFilters, entries_for, export_entries, words_condition
from approvals.audit.verification import verify
from approvals.models import AuditEntry, Instance
from catalog.rest.pagination import PageCursor
from catalog.text.formats import local_time
from catalog.ui.labels import Badge
from catalog.ui.list_views import render_list
from catalog.ui.lists import (
    MAX_CHOICES,
    Choice,
    Column,
    ListDefinition,
    ListFilter,
    ListQuery,
    Offer,
    SortOrder,
    list_page,
    register_list,
    start_of_day,
)
from catalog.ui.requests import PageRequest, is_fragment_request, sign_in_required

RECENT_ENTRIES = 5000
"""Number of newest entries that supply the choices of the filters."""


class AuditExportForm(forms.Form):
    format = forms.ChoiceField(choices=[("jsonl", "JSON Lines"), ("csv", "CSV")])


@dataclass(frozen=True, slots=True)
class AuditLine:
    """An entry in the list; `begins_day` is true if the entry before it is of another day."""

    entry: AuditEntry
    word: Badge
    who: str
    is_program: bool
    begins_day: bool


def _lines(_viewer: User, entries: Sequence[AuditEntry]) -> list[AuditLine]:
    lines: list[AuditLine] = []
    for entry in entries:
        badge = action_label(entry.action, str(entry.details_json.get("verdict", "")))
        # Show the name that the chain covers: the account may have been renamed since.
        is_system = entry.actor_id is None and entry.actor_name == SYSTEM_ACTOR
        begins_day = not lines or local_time(lines[-1].entry.at).date() != local_time(entry.at).date()
        lines.append(AuditLine(entry, badge, entry.actor_name, is_system, begins_day))
    return lines


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
    "account.renamed": Badge(gettext_noop("Changed their name"), "human", "idle"),
    "account.changed": Badge(gettext_noop("Changed an account"), "human", "warn"),
    "role.created": Badge(gettext_noop("Created a role"), "human", "warn"),
    "role.changed": Badge(gettext_noop("Changed a role"), "human", "warn"),
    "role.deleted": Badge(gettext_noop("Deleted a role"), "human", "warn"),
    "rights.recorded": Badge(gettext_noop("Recorded all rights"), "info", "idle"),
    "account.deleted": Badge(gettext_noop("Deleted an account"), "human", "warn"),
    "link.created": Badge(gettext_noop("Made a link to set a password"), "link", "warn"),
    "link.sent": Badge(gettext_noop("Mailed the link"), "link", "idle"),
    "link.used": Badge(gettext_noop("Set a password with a link"), "key", "warn"),
    "link.ended": Badge(gettext_noop("Ended a link"), "stop", "idle"),
    "link.deleted": Badge(gettext_noop("Deleted a link"), "stop", "idle"),
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
    "token.connected": Badge(gettext_noop("Connected a client"), "plus", "warn"),
    "token.reused": Badge(gettext_noop("Ended a connection: a credential was used twice"), "stop", "danger"),
    "resumption.claimed": Badge(gettext_noop("Claimed a deferred session"), "play", "run"),
    "resumption.given_back": Badge(gettext_noop("Gave back a deferred session"), "undo", "idle"),
    "resumption.lost": Badge(gettext_noop("Lost a deferred session: the lease ran out"), "expired", "warn"),
    "resumption.ended": Badge(gettext_noop("A resumed session ended"), "bot", "idle"),
    "run.seen": Badge(gettext_noop("Marked a run without permission as seen"), "check", "idle"),
    "run.ungated": Badge(gettext_noop("A client ran a tool without permission"), "stop", "danger"),
    "connection.issued": Badge(gettext_noop("Gave a connection its first tokens"), "key", "warn"),
    "connection.refreshed": Badge(gettext_noop("Refreshed the tokens of a connection"), "retry", "idle"),
    "connection.cleared": Badge(gettext_noop("Deleted expired tokens of a connection"), "stop", "idle"),
    "client.allowed": Badge(gettext_noop("Allowed a client"), "check", "warn"),
    "client.forbidden": Badge(gettext_noop("Took back the permission of a client"), "stop", "warn"),
    "approval.claimed": Badge(gettext_noop("Claimed"), "human", "idle"),
    "approval.released": Badge(gettext_noop("Released a claim"), "undo", "idle"),
    "approval.delegated": Badge(gettext_noop("Delegated a request"), "human", "warn"),
    "approval.commented": Badge(gettext_noop("Commented"), "edit", "idle"),
    "approval.extended": Badge(gettext_noop("Extended a deadline"), "clock", "idle"),
    "approval.reminded": Badge(gettext_noop("Reminded the reviewers"), "clock", "idle"),
    "approval.escalated": Badge(gettext_noop("Escalated: not answered in time"), "hand", "warn"),
    "approval.consumed": Badge(gettext_noop("Used the approval"), "check", "ok"),
    "approval.revoked": Badge(gettext_noop("Revoked the approval"), "undo", "warn"),
    "grant.created": Badge(gettext_noop("Created a grant"), "check", "warn"),
    "grant.used": Badge(gettext_noop("Ran under a grant"), "play", "run"),
    "grant.revoked": Badge(gettext_noop("Revoked a grant"), "stop", "warn"),
    "envelope.proposed": Badge(gettext_noop("Proposed an envelope"), "pending", "human"),
    "envelope.edited": Badge(gettext_noop("Narrowed a proposed envelope"), "edit", "human"),
    "envelope.opened": Badge(gettext_noop("Opened an envelope"), "check", "warn"),
    "envelope.used": Badge(gettext_noop("Ran inside an envelope"), "play", "run"),
    "envelope.used_up": Badge(gettext_noop("Used up an envelope"), "check", "idle"),
    "envelope.ended": Badge(gettext_noop("Ended an envelope"), "stop", "warn"),
    "envelope.refused": Badge(gettext_noop("Did not approve an envelope"), "fail", "idle"),
    "policy.combined": Badge(gettext_noop("Combined the terms of several policies"), "edit", "idle"),
    "policy.refused": Badge(gettext_noop("A policy blocked a call"), "fail", "danger"),
    "limits.refused": Badge(gettext_noop("The limits of a token refused a call"), "fail", "danger"),
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
    "account.password_changed": Badge(gettext_noop("Changed their password"), "lock", "warn"),
    "account.password_reset": Badge(gettext_noop("Reset their password by mail"), "lock", "warn"),
    "account.mail_changed": Badge(gettext_noop("Changed their mail address"), "edit", "warn"),
    "account.second_factor_added": Badge(gettext_noop("Added a second factor"), "lock", "warn"),
    "account.second_factor_removed": Badge(gettext_noop("Removed a second factor"), "stop", "warn"),
    "account.passkey_added": Badge(gettext_noop("Added a passkey"), "key", "warn"),
    "account.passkey_removed": Badge(gettext_noop("Removed a passkey"), "stop", "warn"),
    "account.recovery_codes_made": Badge(gettext_noop("Made new recovery codes"), "lock", "warn"),
    "account.sso_linked": Badge(gettext_noop("Linked single sign-on"), "link", "warn"),
    "account.sso_unlinked": Badge(gettext_noop("Unlinked single sign-on"), "stop", "warn"),
    "account.session_ended": Badge(gettext_noop("Ended one of their sessions"), "out", "idle"),
    "account.signed_out_everywhere": Badge(gettext_noop("Signed out everywhere else"), "out", "warn"),
    "sign_in.succeeded": Badge(gettext_noop("Signed in"), "human", "idle"),
    "sign_in.ended": Badge(gettext_noop("Signed out"), "out", "idle"),
    "sign_in.failed": Badge(gettext_noop("Sign-in failed"), "fail", "danger"),
    "sign_in.refused": Badge(gettext_noop("Sign-in blocked: too many wrong attempts"), "lock", "danger"),
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


def _values_of(column: str) -> Offer:
    """Return the choices of a filter: the values of a column in the newest entries, and those that are set."""

    def offer(viewer: User, chosen: Sequence[str]) -> list[Choice]:
        head = Subquery(Instance.objects.filter(pk=1).values("audit_seq")[:1])
        newest = entries_for(viewer).filter(seq__gt=head - RECENT_ENTRIES).order_by()
        recent = newest.exclude(**{column: ""}).values_list(column, flat=True).distinct()[:MAX_CHOICES]
        values = sorted({*recent, *chosen} - {""})
        return [Choice(each, action_label(each).label if column == "action" else each) for each in values]

    return offer


def _rows(viewer: User, _query: ListQuery) -> QuerySet[AuditEntry]:
    return entries_for(viewer)


def _day_after(day: str) -> str:
    last = date.fromisoformat(day)
    return str(last + timedelta(days=1) if last < date.max else last)


AUDIT_LIST = register_list(
    ListDefinition[AuditEntry](
        name="audit",
        path="/audit/",
        count_text=ngettext_lazy("%(shown)s entry", "%(shown)s entries", "count"),
        search_label=gettext_lazy("Search the log"),
        search_hint=gettext_lazy("ID, tool, person or reason"),
        rows=_rows,
        present=_lines,
        search=words_condition,
        filters=(
            ListFilter(
                name="who",
                label=gettext_lazy("Actor"),
                offer=_values_of("actor_name"),
                several=False,
                condition=lambda values: Q(actor_name=values[0]),
            ),
            ListFilter(
                name="action",
                label=gettext_lazy("Action"),
                offer=_values_of("action"),
                several=False,
                condition=lambda values: Q(action=values[0]),
            ),
            ListFilter(
                name="tool",
                label=gettext_lazy("Tool"),
                offer=_values_of("tool_name"),
                several=False,
                condition=lambda values: Q(tool_name=values[0]),
            ),
            ListFilter(name="plan", label=gettext_lazy("Plan ID"), condition=lambda values: Q(plan_ref=values[0])),
            ListFilter(
                name="object", label=gettext_lazy("Object ID"), condition=lambda values: Q(object_ref=values[0])
            ),
            ListFilter(
                name="from",
                label=gettext_lazy("From"),
                kind="day",
                condition=lambda values: Q(at__gte=start_of_day(values[0])),
            ),
            ListFilter(
                name="to",
                label=gettext_lazy("To"),
                kind="day",
                condition=lambda values: Q(at__lt=start_of_day(_day_after(values[0]))),
            ),
        ),
        orders={
            "-seq": SortOrder(gettext_lazy("Newest first"), "-seq"),
            "seq": SortOrder(gettext_lazy("Oldest first"), "seq"),
        },
        columns=(
            Column(gettext_lazy("Action")),
            Column(gettext_lazy("Target")),
            Column(gettext_lazy("Plan")),
            Column(gettext_lazy("Object ID")),
            Column(gettext_lazy("Actor")),
            Column(gettext_lazy("Time"), "seq", "-seq"),
        ),
        row_template="approvals/_audit_entry.html",
        empty_template="approvals/_no_entries.html",
        footer_template="approvals/_audit_export.html",
    )
)


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def audit_log(request: PageRequest) -> HttpResponseBase:
    """Show the matching entries; a POST verifies the chain first."""
    context: dict[str, Any] = {"section": "audit", "export_form": AuditExportForm()}
    if request.method == "POST":
        entries_for(request.user)  # only for those who may read the log
        verification = verify()
        context["verification"] = verification
        if verification.first_bad:
            cursor = PageCursor(back=False, value=verification.first_bad + 1, pk=0)
            context["broken_url"] = f"/audit/?cursor={cursor.text()}&open={verification.first_bad}"
        if is_fragment_request(request, "chain"):
            return render(request, "approvals/_chain.html", context)
    return render_list(request, AUDIT_LIST, "approvals/audit.html", context)


@require_POST
@sign_in_required
def export_audit_log(request: PageRequest) -> StreamingHttpResponse | HttpResponse:
    """Send the matching entries as a file and record that. Invalid filters export nothing rather than everything."""
    query, form = (
        AUDIT_LIST.read(request.GET, AUDIT_LIST.offered(request.user, request.GET)),
        AuditExportForm(request.POST),
    )
    if query.ignored or not form.is_valid():
        context = {
            "section": "audit",
            "listed": list_page(AUDIT_LIST, request.user, request.GET),
            "export_form": AuditExportForm(),
            "export_problem": _("Nothing was exported. Correct the filters and choose one of the formats."),
        }
        return render(request, "approvals/audit.html", context, status=400)
    since, until = query.values("from"), query.values("to")
    filters = AuditFilters(
        q=query.q,
        who="".join(query.values("who")),
        action="".join(query.values("action")),
        tool="".join(query.values("tool")),
        plan="".join(query.values("plan")),
        object="".join(query.values("object")),
        since=start_of_day(since[0]) if since else None,
        until=start_of_day(_day_after(until[0])) if until else None,
    )
    name = form.cleaned_data["format"]
    response = StreamingHttpResponse(export_entries(request.user, filters, name), content_type=FORMATS[name])
    response["Content-Disposition"] = f'attachment; filename="audit.{name}"'
    return response
