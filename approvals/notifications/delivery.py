"""Sending what is in the outbox: after commit, in a thread of its own, each notice at most once.

A delivery is taken by one conditional UPDATE (due → sending) and ended by another. What was surely not taken is tried
again, later and later. Where nobody knows whether it arrived (a process that ended in between, a server that fell
silent after a mail or a message was handed over) it is not sent again but shown as failed. A notice more would be a
second alarm; one less is made up for by the reminder. Webhooks name each notice, so that theirs are sent again.
"""

import logging
import smtplib
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta

from cryptography.fernet import InvalidToken
from django.contrib.auth.models import User
from django.core.mail import EmailMessage, get_connection
from django.db import connection, transaction
from django.db.models import QuerySet

from approvals.messaging import senders
from approvals.messaging.addresses import CHAT, MAIL, WEBHOOK, Address, decrypt_address
from approvals.models import Delivery
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
LOST_MESSAGE = "The process ended while it was sent: whether it arrived is not known, and it is not sent again."
UNSURE_MESSAGE = "Whether it arrived is not known, and it is not sent again."
MAX_ERROR_LENGTH = 255
PERMANENT_FAILURE_CODE = 500
"""The SMTP statuses from here on will not change."""
RETENTION_DAYS = 90


def send_due() -> int:
    """Send what is due; return how many were taken on."""
    now = clock.now()
    lost = Delivery.objects.filter(status=Status.SENDING, due_at__lte=now)
    try_move(lost, to=Status.FAILED, last_error=LOST_MESSAGE)
    due = Delivery.objects.filter(status=Status.DUE, due_at__lte=now).order_by("due_at", "pk")
    keys = list(due.values_list("pk", flat=True)[:SEND_BATCH_SIZE])
    return sum(_send(key) for key in keys)


@retry_on_deadlock
def retry_delivery(delivery: Delivery, *, by: User) -> None:
    """Let a notice that failed be sent once more, by who may read the log of all; what was answered since is not sent.

    Whoever asks for it has read why it failed: where that is not known, it may arrive twice.
    Raises NotAllowed, and Conflict when it did not fail.
    """
    if agent_token_of(by) is not None or not has_role(by, ADMINISTRATOR):
        raise NotAllowed("Only administrators have notices sent once more.")
    with transaction.atomic():
        if not try_move(Delivery.objects.filter(pk=delivery.pk), to=Status.DUE, due_at=clock.now()):
            raise Conflict("Only what failed is sent once more.")
        record_fact("notifications.retried", by=by, notifications=f"delivery_{delivery.pk}", channel=delivery.channel)


def has_due_deliveries() -> bool:
    """Say whether there is something to send, or to be found lost."""
    unsent = Delivery.objects.filter(status__in=(Status.DUE, Status.SENDING), due_at__lte=clock.now())
    return unsent.exists()


def clear_deliveries(*, now: datetime, limit: int = 1000) -> int:
    """Delete some of the deliveries that ended and are older than 90 days; return how many.

    The oldest are those with the smallest keys: only so many are looked at, however long the log is.
    """
    oldest = Delivery.objects.order_by("pk").values("pk")[:limit]
    ended = Delivery.objects.filter(pk__in=oldest, status__in=(Status.SENT, Status.FAILED, Status.DROPPED))
    deleted, _ = ended.filter(created_at__lt=now - timedelta(days=RETENTION_DAYS)).delete()
    return deleted


def _send(key: int) -> bool:
    """Take one delivery and send it; False when another process has it."""
    mine = Delivery.objects.filter(pk=key)
    if not try_move(mine.filter(due_at__lte=clock.now(), status=Status.DUE), to=Status.SENDING, due_at=_lease()):
        return False
    related = ("request__call__version", "request__call__requested_by", "request__call__token")
    of_call = ("call__version", "call__requested_by", "call__token")
    delivery = mine.select_related(*related, *of_call).get()
    if not is_still_due(delivery):
        try_move(mine, to=Status.DROPPED, last_error="Answered before it was to be sent.")
        return True
    try:
        SENDERS[delivery.channel](decrypt_address(delivery.channel, delivery.address), build_notice(delivery), delivery)
    except RequestNotSent as error:
        _handle_not_sent(delivery, error)
    except InvalidToken:
        _schedule_retry(delivery, "The key that the address was kept with is gone.", again=False)
    except Exception as error:  # noqa: BLE001 - logged without its message
        log_unexpected(error)
        _handle_not_sent(delivery, RequestNotSent(f"It could not be sent: {type(error).__name__}.", unsure=True))
    else:
        try_move(mine, to=Status.SENT, sent_at=clock.now(), attempts=delivery.attempts + 1, last_error="")
    return True


def _lease() -> datetime:
    return clock.now() + LOST_AFTER


def _handle_not_sent(delivery: Delivery, error: RequestNotSent) -> None:
    """Try again what surely was not taken, and what its receiver can tell to be a repeat: a webhook."""
    if error.unsure and delivery.channel != WEBHOOK:
        _schedule_retry(delivery, f"{error} {UNSURE_MESSAGE}", again=False)
    else:
        _schedule_retry(delivery, str(error), again=error.again)


def _schedule_retry(delivery: Delivery, error: str, *, again: bool) -> None:
    """Note why it was not sent; try again after a pause that grows, or give up."""
    mine: QuerySet[Delivery] = Delivery.objects.filter(pk=delivery.pk, status=Status.SENDING)
    noted = {"attempts": delivery.attempts + 1, "last_error": error[:MAX_ERROR_LENGTH]}
    if again and delivery.attempts < len(RETRY_DELAYS):
        try_move(mine, to=Status.DUE, due_at=clock.now() + RETRY_DELAYS[delivery.attempts], **noted)
    else:
        log.warning("a notice was given up; its line in the log of deliveries says why")
        try_move(mine, to=Status.FAILED, **noted)


def _mail(address: Address, notice: Notice, delivery: Delivery) -> None:
    """Hand a mail over. Raises RequestNotSent; after the headers it may have arrived all the same."""
    headers = {"Auto-Submitted": "auto-generated", "X-Toolgate-Event": notice.kind}
    connection = get_connection()
    mail = EmailMessage(notice.subject, notice.body, to=[address.text], headers=headers, connection=connection)
    try:
        connection.open()
    except OSError as error:
        raise RequestNotSent(f"The mail server could not be reached: {type(error).__name__}.") from None
    try:
        mail.send()
    except (smtplib.SMTPSenderRefused, smtplib.SMTPRecipientsRefused) as error:
        code = _smtp_code(error)
        raise RequestNotSent(f"The mail server refused it: {code}.", again=code < PERMANENT_FAILURE_CODE) from None
    except OSError as error:
        raise RequestNotSent(
            f"The mail server did not say that it took it: {type(error).__name__}.", unsure=True
        ) from None
    finally:
        with suppress(OSError):
            connection.close()


def _smtp_code(error: smtplib.SMTPSenderRefused | smtplib.SMTPRecipientsRefused) -> int:
    """Return the status that a server refused the sender or the one recipient with."""
    if isinstance(error, smtplib.SMTPSenderRefused):
        return error.smtp_code
    return max(code for code, _ in error.recipients.values())


def _webhook(address: Address, notice: Notice, delivery: Delivery) -> None:
    identity = f"{delivery.event_key}:{delivery.address_key[:16]}"
    senders.post_webhook(address.text, "notification", notice.document(), identity=identity)


def _chat(address: Address, notice: Notice, delivery: Delivery) -> None:
    senders.send_chat(address.text, notice.subject, notice.body)


SENDERS: Mapping[str, Callable[[Address, Notice, Delivery], None]] = {MAIL: _mail, WEBHOOK: _webhook, CHAT: _chat}


class DeliveryThread:
    """The thread that sends, there only while something is due: what is slow to take it holds up nothing else."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def look(self) -> None:
        """Begin to send when something is due and nobody here is sending."""
        is_sending = self._thread is not None and self._thread.is_alive()
        if not is_sending and not self._stopping.is_set() and has_due_deliveries():
            self._thread = threading.Thread(target=self._send_all, name="toolgate-notices", daemon=True)
            self._thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """Begin nothing more, and wait a moment for what is being sent."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def _send_all(self) -> None:
        try:
            while not self._stopping.is_set() and send_due():
                pass
        except Exception as error:  # noqa: BLE001 - the next look sends what is left
            log_unexpected(error)
        finally:
            connection.close()
