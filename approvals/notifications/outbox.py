"""Outbox of notifications: a fact creates deliveries in its own transaction; they are sent after the commit."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q

from approvals.messaging.addresses import MAIL, Address, decrypt_address, read_address
from approvals.models import ApprovalRequest, Comment, Delivery, NotificationChoice, PushDevice
from approvals.notifications.devices import addresses_of_devices
from approvals.notifications.preferences import mail_reaches
from approvals.policies.eligibility import candidate_reviewers
from catalog.access.personal_settings import formats_of
from catalog.access.roles import ADMINISTRATOR
from catalog.core import clock
from catalog.core.canonical_json import format_utc
from catalog.core.transactions import log_unexpected, try_move
from catalog.errors import ParameterError
from catalog.signals import Fact
from catalog.states import CallStatus

if TYPE_CHECKING:
    from django.db.models import QuerySet

REQUEST_KINDS = {
    f"approval.{word}"
    for word in ("opened", "reminded", "escalated", "delegated", "commented", "decided", "revoked", "expired")
}
OUTCOME_UNKNOWN_KIND = "step.outcome_unknown"
CONNECTION_REUSED_KIND = "token.reused"
"""A credential of a connection was used twice, so that the connection was ended: it concerns no call."""
UNGATED_KIND = "run.ungated"
"""A client ran a tool without asking: it concerns no call."""
STOP_KIND = "stop.set"
"""A stop was set by a policy or a command: it concerns no call. What people set, they tell."""
REVIEWER_KINDS = {"approval.opened", "approval.reminded", "approval.escalated"}
CHANGES_REQUESTED_KIND = "approval.changes_requested"
KINDS_WITH_LOADED_REQUEST = {"approval.opened", "approval.decided"}
"""Kinds of facts recorded by code that has just written the request and still holds it."""


@dataclass(frozen=True, slots=True)
class NotificationEvent:
    """An event to notify users of; `key` differs between events of the same kind about the same request."""

    kind: str
    key: str
    request: ApprovalRequest | None
    fact: Fact
    due_at: datetime


def on_fact(sender: object, *, fact: Fact, **kwargs: Any) -> None:
    if fact.kind == CONNECTION_REUSED_KIND:
        event = NotificationEvent(fact.kind, f"{fact.kind}:{fact.data['token']}", None, fact, clock.now())
        Delivery.objects.bulk_create(list(_deliveries(event)), ignore_conflicts=True)
        return
    if fact.kind == UNGATED_KIND:
        if fact.data["is_first"]:
            key = ":".join(str(fact.data[name]) for name in ("run", "again") if name in fact.data)
            event = NotificationEvent(fact.kind, f"{fact.kind}:{key}", None, fact, clock.now())
            Delivery.objects.bulk_create(list(_deliveries(event)), ignore_conflicts=True)
        return
    if fact.kind == STOP_KIND:
        if fact.by is None:
            event = NotificationEvent(fact.kind, f"{fact.kind}:{fact.data['stop']}", None, fact, clock.now())
            Delivery.objects.bulk_create(list(_deliveries(event)), ignore_conflicts=True)
        return
    if fact.kind == "approval.reviewed" and fact.data.get("verdict") == "undone":
        kinds = ("approval.decided", CHANGES_REQUESTED_KIND)
        waiting = Delivery.objects.filter(request__public_id=str(fact.data.get("approval")), kind__in=kinds)
        try_move(waiting, to=Delivery.Status.DROPPED)
    if (fact.kind not in REQUEST_KINDS and fact.kind != OUTCOME_UNKNOWN_KIND) or fact.call is None:
        return
    if fact.kind in KINDS_WITH_LOADED_REQUEST:
        request = getattr(fact.call, "approval", None)
    else:
        requests = ApprovalRequest.objects.filter(call=fact.call)
        request = requests.select_related("policy_revision__policy").first()
    if request is None and fact.kind in REQUEST_KINDS:
        return
    now = clock.now()
    kind, due_at, about = fact.kind, now, request.public_id if request else fact.call.public_id
    if kind == "approval.decided" and request is not None:
        due_at = request.effective_at or now  # the decision can be undone until then
        kind = CHANGES_REQUESTED_KIND if fact.data.get("verdict") == "request_changes" else kind
    which = "" if kind == "approval.opened" else str(fact.data.get("number") or format_utc(now))
    event = NotificationEvent(kind, f"{kind}:{about}:{which}", request, fact, due_at)
    Delivery.objects.bulk_create(list(_deliveries(event)), ignore_conflicts=True)


def _recipients(event: NotificationEvent) -> "QuerySet[User]":
    """Return the users to notify. The user who caused the event is left out."""
    users = User.objects.filter(is_active=True)
    request, call, by = event.request, event.fact.call, event.fact.by
    if event.kind == CONNECTION_REUSED_KIND:
        return users.filter(Q(groups__name=ADMINISTRATOR) | Q(username=event.fact.data["owner"]))
    if event.kind in (UNGATED_KIND, STOP_KIND):
        return users.filter(groups__name=ADMINISTRATOR)
    if by is not None and event.kind != "approval.opened":
        users = users.exclude(pk=by.pk)
    if request is None or call is None or event.kind == OUTCOME_UNKNOWN_KIND:
        asker = call.requested_by_id if call else None
        return users.filter(Q(groups__name=ADMINISTRATOR) | Q(pk__in=[] if asker is None else [asker]))
    if event.kind in REVIEWER_KINDS:
        return candidate_reviewers(users, request)
    if event.kind == "approval.delegated":
        return users.filter(username=str(event.fact.data.get("to") or ""))
    involved = Q(pk__in=[each.user_id for each in call.requesters.all()])
    if event.kind == "approval.commented":
        involved |= Q(pk__in=Comment.objects.filter(request=request).values("person_id"))
        involved |= Q(pk=request.claimed_by_id or 0)
    return users.filter(involved)


def _deliveries(event: NotificationEvent) -> Iterator[Delivery]:
    """Yield the deliveries of an event to people and to the addresses of the policy and the installation."""
    has_device = Exists(PushDevice.objects.filter(person=OuterRef("pk")))
    recipients = _recipients(event).select_related("notification_choice", "personal_settings").distinct()
    people = list(recipients.annotate(has_device=has_device))
    devices = addresses_of_devices([person for person in people if person.has_device])
    for person in people:
        choice = getattr(person, "notification_choice", None) or NotificationChoice(person=person)
        due_at = after_quiet_hours(choice, event.due_at)
        for address in (*addresses_of(choice), *devices.get(person.pk, ())):
            yield _delivery(event, address, due_at, person)
    if event.kind in REVIEWER_KINDS or event.kind in (OUTCOME_UNKNOWN_KIND, UNGATED_KIND, STOP_KIND):
        of_policy = event.request.policy_revision.notify if event.request is not None else []
        found = (*_readable_addresses(of_policy), *_readable_addresses(settings.TOOLGATE_NOTIFY_URLS))
        for address in {each.key: each for each in found}.values():
            yield _delivery(event, address, event.due_at, None)


def _readable_addresses(stored: Iterable[Any]) -> Iterator[Address]:
    """Yield the usable addresses. Others are skipped, so that a lost key or a malformed address blocks no call."""
    for each in stored:
        try:
            is_kept = isinstance(each, dict)
            yield decrypt_address(each["channel"], each["ciphertext"]) if is_kept else read_address(str(each))
        except ParameterError:
            continue
        except Exception as error:  # noqa: BLE001 - a lost key may cost a notification, never a call
            log_unexpected(error)


def addresses_of(choice: NotificationChoice) -> Iterator[Address]:
    """Yield a user's addresses: the mail address if mail can be sent to it, and the addresses in the preferences."""
    if choice.by_mail and mail_reaches(choice.person):
        # An account's mail field may hold any text, such as an address of another kind.
        yield from (each for each in _readable_addresses([choice.person.email]) if each.channel == MAIL)
    yield from _readable_addresses(choice.addresses)


def _delivery(event: NotificationEvent, address: Address, due_at: datetime, person: User | None) -> Delivery:
    return Delivery(
        event_key=event.key,
        kind=event.kind,
        request=event.request,
        call=event.fact.call,
        person=person,
        channel=address.channel,
        address_key=address.key,
        address=address.encrypted(),
        shown_address=address.shown,
        due_at=due_at,
        created_at=clock.now(),
    )


def after_quiet_hours(choice: NotificationChoice, moment: datetime) -> datetime:
    """Return `moment`, or the end of the user's quiet hours if `moment` is within them. They may span midnight."""
    begin, end = choice.quiet_from, choice.quiet_until
    if begin is None or end is None or begin == end:
        return moment
    local = moment.astimezone(formats_of(choice.person).zone)
    now = local.time()
    if not (begin <= now < end if begin < end else now >= begin or now < end):
        return moment
    day = local.date() + timedelta(days=1 if local.time() >= end else 0)
    return datetime.combine(day, end, tzinfo=local.tzinfo).astimezone(moment.tzinfo)


def is_still_due(delivery: Delivery) -> bool:
    """Return True if the notification is still relevant: its request was not answered meanwhile."""
    if delivery.kind in REVIEWER_KINDS or delivery.kind == "approval.delegated":
        return delivery.request is not None and delivery.request.status == "pending"
    if delivery.kind == OUTCOME_UNKNOWN_KIND:
        return delivery.call is not None and delivery.call.status == CallStatus.OUTCOME_UNKNOWN
    return True
