"""What a notice says: facts and a link, made when it is sent. Never arguments, previews, reasons or comments."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from approvals.models import ApprovalRequest, Delivery
from catalog.access.roles import user_display_name
from catalog.core.canonical_json import format_utc
from catalog.models import Call
from catalog.text.safety import split_hidden

MAX_NAME_LENGTH = 80
TITLES: Mapping[str, str] = {
    "approval.opened": "{tool} waits for your answer",
    "approval.reminded": "{tool} still waits for your answer",
    "approval.escalated": "{tool} was not answered in time and waits for you",
    "approval.delegated": "{tool} was handed to you to answer",
    "approval.commented": "New comment about {tool}",
    "approval.decided": "{tool} was answered",
    "approval.changes_requested": "{tool}: changes are asked for",
    "approval.revoked": "The approval of {tool} was revoked",
    "approval.expired": "{tool} expired: nobody answered in time",
    "step.outcome_unknown": "Nobody knows whether {tool} happened",
}
KIND_LABELS: Mapping[str, str] = {
    "approval.opened": "Waits for an answer",
    "approval.reminded": "Still waits for an answer",
    "approval.escalated": "Not answered in time",
    "approval.delegated": "Handed on",
    "approval.commented": "New comment",
    "approval.decided": "Was answered",
    "approval.changes_requested": "Changes are asked for",
    "approval.revoked": "Approval revoked",
    "approval.expired": "Expired",
    "step.outcome_unknown": "Nobody knows whether it happened",
}
"""The same as the log of notices says it, which names no tools."""
KINDS_ASKING_FOR_ANSWER = frozenset(
    {"approval.opened", "approval.reminded", "approval.escalated", "approval.delegated"}
)
"""The kinds that want an answer of whom they tell."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A subject of one line, the facts in order, and where the page is."""

    kind: str
    subject: str
    facts: Mapping[str, str]
    url: str

    @property
    def body(self) -> str:
        """The text of mails and chats."""
        lines = [f"{name}: {value}" for name, value in self.facts.items()]
        return "\n".join([*lines, "", self.url, "", self._request])

    @property
    def _request(self) -> str:
        if self.kind in KINDS_ASKING_FOR_ANSWER:
            return "Answer on that page; nothing is decided by opening it."
        if self.kind == "step.outcome_unknown":
            return "Say on that page what happened; nothing is decided by opening it."
        return "That page says more; nothing is decided by opening it."

    def document(self) -> dict[str, Any]:
        """Return the JSON of webhooks."""
        facts = {name.lower().replace(" ", "_"): value for name, value in self.facts.items()}
        return {"event": self.kind, "subject": self.subject, "facts": facts, "url": self.url}


def build_notice(delivery: Delivery) -> Notice:
    """Return what a delivery says, with the facts as they are now."""
    request = delivery.request
    call = request.call if request is not None else delivery.call
    if call is None:
        raise LookupError("This delivery is about nothing.")
    facts = {
        "Tool": one_line(call.tool_name),
        "Level": call.version.safety_level,
        "Asked for by": _requester_name(call),
    }
    if call.plan_ref:
        facts["Plan"] = call.plan_ref
    path = f"/plans/{call.plan_ref}/"
    if request is not None:
        facts |= {"Request": request.public_id, **_status_facts(request)}
        path = f"/approvals/?item={request.public_id}"
    subject = f"Toolgate: {TITLES[delivery.kind].format(tool=one_line(call.tool_name))}"
    return Notice(delivery.kind, subject, facts, f"{settings.TOOLGATE_URL}{path}")


def _requester_name(call: Call) -> str:
    person = one_line(user_display_name(call.requested_by)) if call.requested_by else "Toolgate"
    return f"{one_line(call.token.name)}, for {person}" if call.token is not None else person


def _status_facts(request: ApprovalRequest) -> dict[str, str]:
    facts = {"Status": request.get_status_display()}
    if request.status == "pending":
        facts["Expires"] = format_utc(request.expires_at)
    review = request.reviews.filter(undone_at=None).select_related("person").order_by("-pk").first()
    if request.decided_at is not None and review is not None:
        facts |= {"Answer": review.get_verdict_display(), "Answered by": one_line(user_display_name(review.person))}
    return facts


def one_line(text: str) -> str:
    """Return a name on one line, what does not show spelled out: no name ends a header or begins another fact."""
    spelled = "".join(piece.text for piece in split_hidden(text))
    spelled = "".join(f"U+{ord(each):04X}" if each in "\n\t" else each for each in spelled)
    return spelled if len(spelled) <= MAX_NAME_LENGTH else f"{spelled[: MAX_NAME_LENGTH - 1]}…"
