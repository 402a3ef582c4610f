"""Mails about one's own account. They are sent in a thread: the time of an answer must not say whether one is sent."""

import logging
import smtplib
from concurrent.futures import Future, ThreadPoolExecutor

from django.conf import settings
from django.contrib.auth.models import User
from django.core.mail import EmailMessage
from django.db import transaction
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _

from catalog.access.roles import user_display_name
from catalog.core import clock
from catalog.core.rate_limits import RateLimit, RateLimitKey, acquire_use

LINK_RATES = (RateLimit(3, "h"),)
"""Mails with a link to one address, which may be a stranger's."""

log = logging.getLogger("toolgate.accounts")
_senders = ThreadPoolExecutor(max_workers=1, thread_name_prefix="account-mail")


def count_link(email: str) -> None:
    """Count a mail with a link to this address, whether it is sent or not. Raises RateLimited: it must not be sent."""
    owner = salted_hmac("toolgate.accounts.link", email.lower(), algorithm="sha256").hexdigest()
    acquire_use(RateLimitKey("mails with a link", LINK_RATES, owner), now=clock.now())


def send_soon(email: str, subject: str, *paragraphs: str) -> None:
    """Send a mail after the open transaction. A failure is logged without address and text."""
    message = EmailMessage(subject, "\n\n".join(paragraphs), to=[email], headers={"Auto-Submitted": "auto-generated"})
    transaction.on_commit(lambda: _submit(message))


def _submit(message: EmailMessage) -> "Future[None]":
    return _senders.submit(_send, message)


def _send(message: EmailMessage) -> None:
    try:
        message.send()
    except (OSError, smtplib.SMTPException) as error:
        log.warning("a mail about an account could not be sent: %s", type(error).__name__)


def notify_of_change(user: User, change: str) -> None:
    """Tell a person by mail that their account was changed, in case it was somebody else; `change` is a sentence."""
    if not settings.TOOLGATE_SENDS_MAIL or not user.email:
        return
    send_soon(
        user.email,
        _("Your Toolgate account was changed"),
        _("Hello %(name)s,") % {"name": user_display_name(user)},
        change,
        _("If this was not you, ask an administrator at once to deactivate your account."),
    )
