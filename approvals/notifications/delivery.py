"""Delivery of the outbox: after commit, in a separate thread, each notification at most once.

A failure before acceptance is retried with growing delays. If acceptance is unknown, the delivery is marked as failed
and not retried, since a duplicate would be a false alarm. Webhooks carry an idempotency key and are retried even then.
"""

import hashlib
import logging
import smtplib
import threading
from contextlib import suppress
from datetime import datetime, timedelta

from cryptography.fernet import InvalidToken
from django.contrib.auth.models import User
from django.core.mail import EmailMessage, get_connection
from django.db import connection, transaction
from django.db.models import QuerySet

from approvals.messaging import senders, web_push
from approvals.messaging.addresses import CHAT, PUSH, WEBHOOK, decrypt_address
from approvals.messaging.web_push import Subscription
from approvals.models import Delivery
from approvals.notifications import devices
from approvals.notifications.messages import Notice, build_notice
from approvals.notifications.outbox import is_still_due
from catalog.access.roles import ADMINISTRATOR, NotAllowed, agent_token_of, has_role
from catalog.core import clock
from catalog.core.egress import RequestNotSent
from catalog.core.transactions import log_unexpected, retry_on_deadlock, try_move
from catalog.errors import Conflict
from catalog.signals import record_fact

log = logging.getLogger("toolgate.notices")
Status = Delivery.Status
SEND_BATCH_SIZE = 50
RETRY_DELAYS = tuple(timedelta(seconds=seconds) for seconds in (10, 60, 300, 1800, 7200))
LOST_AFTER = timedelta(minutes=10)
LOST_MESSAGE = "The process ended during the delivery. It may have arrived and is not retried."
UNSURE_MESSAGE = "It may have arrived and is not retried."
MAX_ERROR_LENGTH = 255
PERMANENT_FAILURE_CODE = 500
"""SMTP status codes from here on are permanent failures."""
RETENTION_DAYS = 90


def send_due() -> int:
    """Send due deliveries and return the number that this process claimed."""
    now = clock.now()
    lost = Delivery.objects.filter(status=Status.SENDING, due_at__lte=now)
    try_move(lost, to=Status.FAILED, last_error=LOST_MESSAGE)
    due = Delivery.objects.filter(status=Status.DUE, due_at__lte=now).order_by("due_at", "pk")
    keys = list(due.values_list("pk", flat=True)[:SEND_BATCH_SIZE])
    return sum(_send(key) for key in keys)


@retry_on_deadlock
def retry_delivery(delivery: Delivery, *, by: User) -> None:
    """Queue a failed delivery again. It is dropped when it is due if the request was answered meanwhile.

    Raises NotAllowed for users other than administrators, and Conflict if the delivery did not fail.
    """
    if agent_token_of(by) is not None or not has_role(by, ADMINISTRATOR):
        raise NotAllowed("Only administrators may retry notifications.")
    with transaction.atomic():
        if not try_move(Delivery.objects.filter(pk=delivery.pk), to=Status.DUE, due_at=clock.now()):
            raise Conflict("Only failed notifications can be sent again.")
        record_fact("notifications.retried", by=by, notifications=f"delivery_{delivery.pk}", channel=delivery.channel)


def has_due_deliveries() -> bool:
    """Return True if a delivery is due, or was left unfinished by a process that ended."""
    unsent = Delivery.objects.filter(status__in=(Status.DUE, Status.SENDING), due_at__lte=clock.now())
    return unsent.exists()


def clear_deliveries(*, now: datetime, limit: int = 1000) -> int:
    """Delete finished deliveries older than 90 days among the `limit` oldest rows; return the number deleted."""
    oldest = Delivery.objects.order_by("pk").values("pk")[:limit]
    ended = Delivery.objects.filter(pk__in=oldest, status__in=(Status.SENT, Status.FAILED, Status.DROPPED))
    deleted, _ = ended.filter(created_at__lt=now - timedelta(days=RETENTION_DAYS)).delete()
    return deleted


def _send(key: int) -> bool:
    """Claim one delivery and send it; return False if another process has claimed it."""
    mine, now = Delivery.objects.filter(pk=key), clock.now()
    if not try_move(mine.filter(due_at__lte=now, status=Status.DUE), to=Status.SENDING, due_at=now + LOST_AFTER):
        return False
    related = ("request__call__version", "request__call__requested_by", "request__call__token")
    of_call = ("call__version", "call__requested_by", "call__token", "person__personal_settings")
    delivery = mine.select_related(*related, *of_call).get()
    if not is_still_due(delivery):
        try_move(mine, to=Status.DROPPED, last_error="Answered before the notification was due.")
        return True
    try:
        address, notice = decrypt_address(delivery.channel, delivery.address).text, build_notice(delivery)
        if delivery.channel == PUSH:
            _send_push(delivery, Subscription.of_text(address), notice)
        elif delivery.channel == WEBHOOK:
            identity = f"{delivery.event_key}:{delivery.address_key[:16]}"
            senders.post_webhook(address, "notification", notice.document(), identity=identity)
        elif delivery.channel == CHAT:
            senders.send_chat(address, notice.subject, notice.body)
        else:
            _send_mail(address, notice)
    except _NotWanted as reason:
        try_move(mine, to=Status.DROPPED, last_error=str(reason))
    except RequestNotSent as error:
        _handle_not_sent(delivery, error)
    except InvalidToken:
        _schedule_retry(delivery, "The encryption key of the address is no longer available.", again=False)
    except Exception as error:  # noqa: BLE001 - logged without its message
        log_unexpected(error)
        _handle_not_sent(delivery, RequestNotSent(f"Delivery failed: {type(error).__name__}.", unsure=True))
    else:
        try_move(mine, to=Status.SENT, sent_at=clock.now(), attempts=delivery.attempts + 1, last_error="")
    return True


def _handle_not_sent(delivery: Delivery, not_sent: RequestNotSent) -> None:
    """Retry a delivery that certainly failed. If that is unknown, retry only where the receiver detects duplicates."""
    if not_sent.unsure and delivery.channel not in (WEBHOOK, PUSH):
        _schedule_retry(delivery, f"{not_sent} {UNSURE_MESSAGE}", again=False)
    else:
        _schedule_retry(delivery, str(not_sent), again=not_sent.again)


def _schedule_retry(delivery: Delivery, error: str, *, again: bool) -> None:
    """Record the error. Then schedule a retry with a growing delay if `again` and retries are left, or give up."""
    mine: QuerySet[Delivery] = Delivery.objects.filter(pk=delivery.pk, status=Status.SENDING)
    noted = {"attempts": delivery.attempts + 1, "last_error": error[:MAX_ERROR_LENGTH]}
    if again and delivery.attempts < len(RETRY_DELAYS):
        try_move(mine, to=Status.DUE, due_at=clock.now() + RETRY_DELAYS[delivery.attempts], **noted)
    else:
        log.warning("notification failed permanently; see the log of deliveries for the reason")
        try_move(mine, to=Status.FAILED, **noted)


class _NotWanted(Exception):
    """The device of a delivery has ended since its event."""


def _send_push(delivery: Delivery, subscription: Subscription, notice: Notice) -> None:
    """Send a web push. Raises RequestNotSent, and _NotWanted if the device was removed or its subscription ended."""
    if not web_push.is_configured() or not devices.is_still_wanted(delivery, subscription):
        raise _NotWanted("The device was removed.")
    document = notice.push_document()
    topic = hashlib.sha256(document["tag"].encode()).hexdigest()
    try:
        web_push.send_push(subscription, document, topic=topic)
    except web_push.SubscriptionEnded:
        devices.forget_subscription(subscription)
        raise _NotWanted("The browser ended its subscription, so the device was removed.") from None


def _send_mail(to: str, notice: Notice) -> None:
    """Send a mail. Raises RequestNotSent, with `unsure` if the server may have accepted it."""
    headers = {"Auto-Submitted": "auto-generated", "X-Toolgate-Event": notice.kind}
    connection = get_connection()
    mail = EmailMessage(notice.subject, notice.body, to=[to], headers=headers, connection=connection)
    try:
        connection.open()
    except OSError as error:
        raise RequestNotSent(f"The mail server could not be reached: {type(error).__name__}.") from None
    try:
        mail.send()
    except (smtplib.SMTPSenderRefused, smtplib.SMTPRecipientsRefused) as error:
        if isinstance(error, smtplib.SMTPSenderRefused):
            code = error.smtp_code
        else:
            code = max(code for code, _ in error.recipients.values())
        is_permanent = code >= PERMANENT_FAILURE_CODE
        raise RequestNotSent(f"The mail server refused the message: {code}.", again=not is_permanent) from None
    except OSError as error:
        message = f"The mail server did not confirm the message: {type(error).__name__}."
        raise RequestNotSent(message, unsure=True) from None
    finally:
        with suppress(OSError):
            connection.close()


class DeliveryThread:
    """Thread that sends due deliveries, so that slow receivers block nothing else; it ends when none are due."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def look(self) -> None:
        """Start the thread if a delivery is due and the thread is not running."""
        is_sending = self._thread is not None and self._thread.is_alive()
        if not is_sending and not self._stopping.is_set() and has_due_deliveries():
            self._thread = threading.Thread(target=self._send_all, name="toolgate-notices", daemon=True)
            self._thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """Start no further deliveries, and wait up to `seconds` for the current one."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def _send_all(self) -> None:
        try:
            while not self._stopping.is_set() and send_due():
                pass
        except Exception as error:  # noqa: BLE001 - the next start sends the rest
            log_unexpected(error)
        finally:
            connection.close()
