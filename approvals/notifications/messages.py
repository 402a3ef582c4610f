"""Text of notifications: facts and a link, composed at delivery. Never arguments, previews, reasons or comments."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from approvals.messaging.addresses import WEBHOOK
from approvals.models import Delivery, Stop
from catalog.access.personal_settings import formats_of
from catalog.access.roles import user_display_name
from catalog.client_tools.known_tools import client_title
from catalog.core.canonical_json import format_utc
from catalog.models import ApiToken, UngatedRun
from catalog.text.deceptive_text import split_hidden
from catalog.text.formats import format_exactly, written_for

MAX_NAME_LENGTH = 80
OWN_PAGE = "/profile/notifications/"
TEST_KIND = "push.tested"
TITLES: Mapping[str, str] = {
    "approval.opened": gettext_noop("Approval needed: %(tool)s"),
    "approval.reminded": gettext_noop("Reminder: %(tool)s still needs approval"),
    "approval.escalated": gettext_noop("Escalated to you: %(tool)s was not answered in time"),
    "approval.delegated": gettext_noop("Delegated to you: %(tool)s"),
    "approval.commented": gettext_noop("New comment on %(tool)s"),
    "approval.decided": gettext_noop("%(tool)s was answered"),
    "approval.changes_requested": gettext_noop("Changes requested: %(tool)s"),
    "approval.revoked": gettext_noop("Approval revoked: %(tool)s"),
    "approval.expired": gettext_noop("Expired without an answer: %(tool)s"),
    "step.outcome_unknown": gettext_noop("Unknown outcome: %(tool)s may or may not have run"),
    "token.reused": gettext_noop("Connection ended: a credential of %(client)s was used twice"),
    "run.ungated": gettext_noop("Not asked: %(client)s ran a tool without permission"),
    "stop.set": gettext_noop("Stopped: %(scope)s"),
    TEST_KIND: gettext_noop("This device is notified"),
}
KIND_LABELS: Mapping[str, str] = {
    "approval.opened": gettext_noop("Approval needed"),
    "approval.reminded": gettext_noop("Reminder"),
    "approval.escalated": gettext_noop("Escalated"),
    "approval.delegated": gettext_noop("Delegated"),
    "approval.commented": gettext_noop("New comment"),
    "approval.decided": gettext_noop("Answered"),
    "approval.changes_requested": gettext_noop("Changes requested"),
    "approval.revoked": gettext_noop("Approval revoked"),
    "approval.expired": gettext_noop("Expired"),
    "step.outcome_unknown": gettext_noop("Unknown outcome"),
    "token.reused": gettext_noop("Connection ended"),
    "run.ungated": gettext_noop("Ran without permission"),
    "stop.set": gettext_noop("Stopped"),
    TEST_KIND: gettext_noop("Test"),
}
"""Labels of the kinds in the log of deliveries, which names no tools."""
FACT_LABELS: Mapping[str, str] = {
    "Tool": gettext_noop("Tool"),
    "Level": gettext_noop("Safety level"),
    "Asked for by": gettext_noop("Requester"),
    "Plan": gettext_noop("Plan"),
    "Request": gettext_noop("Request"),
    "Status": gettext_noop("Status"),
    "Expires": gettext_noop("Expires"),
    "Answer": gettext_noop("Decision"),
    "Answered by": gettext_noop("Decided by"),
    "Client": gettext_noop("Client"),
    "Owner": gettext_noop("Owner"),
    "Session": gettext_noop("Session"),
    "Set by": gettext_noop("Set by"),
}
"""Labels of the facts in mails and chats; webhooks send the names in lower case as JSON fields."""
KINDS_ASKING_FOR_ANSWER = frozenset(
    {"approval.opened", "approval.reminded", "approval.escalated", "approval.delegated"}
)
"""Kinds whose recipients are expected to decide."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A notification: one-line subject, ordered facts, and URL of the page."""

    kind: str
    subject: str
    facts: Mapping[str, str]
    url: str

    @property
    def body(self) -> str:
        """Text of mails and chat messages."""
        lines = [f"{_(FACT_LABELS.get(name, name))}: {value}" for name, value in self.facts.items()]
        return "\n".join([*lines, "", self.url, "", self._request])

    @property
    def _request(self) -> str:
        if self.kind in KINDS_ASKING_FOR_ANSWER:
            return _("Answer on this page. Opening the link decides nothing.")
        if self.kind == "step.outcome_unknown":
            return _("State the outcome on this page. Opening the link decides nothing.")
        return _("See this page for details. Opening the link decides nothing.")

    def push_document(self) -> dict[str, str]:
        """Return the message of a web push: what a mail's subject says, who asks, and the path of the page.

        `tag` is the same for all messages about one request, so that a device shows the last one alone.
        """
        asker = self.facts.get("Asked for by", "")
        return {
            "title": self.subject.removeprefix("Toolgate: "),
            "body": _("Asked for by %(name)s") % {"name": asker} if asker else "",
            "path": self.url.removeprefix(settings.TOOLGATE_URL),
            "tag": self.facts.get("Request") or self.facts.get("Plan") or self.kind,
        }

    def document(self) -> dict[str, Any]:
        """Return the JSON document of a webhook."""
        facts = {name.lower().replace(" ", "_"): value for name, value in self.facts.items()}
        return {"event": self.kind, "subject": self.subject, "facts": facts, "url": self.url}


def build_notice(delivery: Delivery) -> Notice:
    """Return the notification of a delivery with the current facts. Raises LookupError if its call is gone."""
    if delivery.kind == "token.reused":
        return _notice_of_connection(delivery)
    if delivery.kind == "run.ungated":
        return _notice_of_ungated_run(delivery)
    if delivery.kind == "stop.set":
        return _notice_of_stop(delivery)
    if delivery.kind == TEST_KIND:
        return Notice(TEST_KIND, f"Toolgate: {_(TITLES[TEST_KIND])}", {}, f"{settings.TOOLGATE_URL}{OWN_PAGE}")
    request = delivery.request
    call = request.call if request is not None else delivery.call
    if call is None:
        raise LookupError("The delivery has neither a request nor a call.")
    requester = one_line(user_display_name(call.requested_by)) if call.requested_by else "Toolgate"
    if call.token is not None:
        requester = _("%(token)s, for %(person)s") % {"token": one_line(call.token.name), "person": requester}
    facts = {"Tool": one_line(call.tool_name), "Level": call.version.safety_level, "Asked for by": requester}
    if call.plan_ref:
        facts["Plan"] = call.plan_ref
    path = f"/plans/{call.plan_ref}/"
    if request is not None:
        facts |= {"Request": request.public_id, "Status": request.get_status_display()}
        if request.status == "pending":
            facts["Expires"] = _expiry(delivery, request.expires_at)
        review = request.reviews.filter(undone_at=None).select_related("person").order_by("-pk").first()
        if request.decided_at is not None and review is not None:
            facts |= {"Answer": review.get_verdict_display(), "Answered by": one_line(user_display_name(review.person))}
        path = f"/approvals/?item={request.public_id}"
    subject = f"Toolgate: {_(TITLES[delivery.kind]) % {'tool': one_line(call.tool_name)}}"
    return Notice(delivery.kind, subject, facts, f"{settings.TOOLGATE_URL}{path}")


def _notice_of_connection(delivery: Delivery) -> Notice:
    """Return the notification of a connection that has ended. Raises LookupError if it is gone."""
    prefix = delivery.event_key.partition(":")[2]
    token = ApiToken.objects.select_related("user", "connection").filter(prefix=prefix).order_by("-pk").first()
    if token is None or not hasattr(token, "connection"):
        raise LookupError("The connection is gone.")
    client = one_line(token.connection.client_name)
    facts = {"Client": client, "Owner": one_line(user_display_name(token.user))}
    subject = f"Toolgate: {_(TITLES[delivery.kind]) % {'client': client}}"
    return Notice(delivery.kind, subject, facts, f"{settings.TOOLGATE_URL}/tokens/{token.pk}/")


def _notice_of_ungated_run(delivery: Delivery) -> Notice:
    """Return the notification of a run that nobody allowed. Raises LookupError if its alarm is gone."""
    key = delivery.event_key.split(":")[1]  # the time follows, if the alarm was raised again
    run = UngatedRun.objects.select_related("user").filter(pk=int(key)).first() if key.isdecimal() else None
    if run is None:
        raise LookupError("The alarm is gone.")
    facts = {
        "Client": client_title(run.client),
        "Tool": one_line(run.client_tool),
        "Session": one_line(run.session),
        "Owner": one_line(user_display_name(run.user)),
    }
    subject = f"Toolgate: {_(TITLES[delivery.kind]) % {'client': client_title(run.client)}}"
    return Notice(delivery.kind, subject, facts, f"{settings.TOOLGATE_URL}/#ungated-runs")


def _notice_of_stop(delivery: Delivery) -> Notice:
    """Return the notification of a stop that no person has set. Raises LookupError if it is gone."""
    stop = Stop.objects.filter(public_id=delivery.event_key.partition(":")[2]).first()
    if stop is None:
        raise LookupError("The stop is gone.")
    scope = one_line(f"{stop.get_kind_display()} {stop.name}".rstrip())
    subject = f"Toolgate: {_(TITLES[delivery.kind]) % {'scope': scope}}"
    return Notice(delivery.kind, subject, {"Set by": one_line(stop.set_by_name)}, f"{settings.TOOLGATE_URL}/stops/")


def _expiry(delivery: Delivery, moment: datetime) -> str:
    """Return a deadline in the recipient's time zone and formats; for programs, and without a person, in UTC."""
    if delivery.person is None or delivery.channel == WEBHOOK:
        return format_utc(moment)
    with written_for(formats_of(delivery.person)):
        return format_exactly(moment)


def one_line(text: str) -> str:
    """Return a name on one line with hidden characters spelled out, so that it cannot forge a header or a fact."""
    spelled = "".join(piece.text for piece in split_hidden(text))
    spelled = "".join(f"U+{ord(each):04X}" if each in "\n\t" else each for each in spelled)
    return spelled if len(spelled) <= MAX_NAME_LENGTH else f"{spelled[: MAX_NAME_LENGTH - 1]}…"
