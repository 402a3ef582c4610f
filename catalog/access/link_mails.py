"""Mails with the links of `catalog.access.people`, sent at once: whoever made a link must learn of a failure."""

import smtplib

from django.conf import settings
from django.contrib.auth.models import User
from django.core.mail import EmailMessage
from django.utils.translation import gettext as _

from catalog.access.people import NewLink, record_mailed
from catalog.access.personal_settings import formats_of
from catalog.access.roles import user_display_name
from catalog.errors import field_error
from catalog.models import AccountLink
from catalog.text.formats import format_moment, written_for

MAIL, LINK = "mail", "link"
"""Ways of a link to its person: sent by mail, or shown to whoever made it, who hands it over."""


def can_mail(person: User) -> bool:
    return bool(settings.TOOLGATE_SENDS_MAIL and person.email)


def check_can_mail(email: str) -> None:
    """Raise ParameterError unless links can be mailed to this address."""
    if not settings.TOOLGATE_SENDS_MAIL:
        message = _("No mail server is set up (TOOLGATE_EMAIL_URL). Hand the link over instead.")
        raise field_error("delivery", "invalid", message)
    if not email:
        raise field_error("email", "required", _("Enter the address to which the link is sent."))


def mail_link(new_link: NewLink, *, server: str = "") -> str:
    """Send a link to the mail address of its person; return why that failed, or an empty text.

    The link leads to `server`, by default to TOOLGATE_URL.
    """
    link = new_link.link
    lines = [
        _("Hello %(name)s,") % {"name": user_display_name(link.person)},
        _("%(name)s invites you to Toolgate. Your username is %(username)s. Open this link to set your password:")
        if link.kind == AccountLink.Kind.INVITATION
        else _("%(name)s has reset your access to Toolgate. Open this link to set a new password for %(username)s:"),
        new_link.address(server),
        _("The link works once, until %(time)s."),
        _("If you do not expect this mail, ignore it."),
    ]
    with written_for(formats_of(link.person)):
        ends = format_moment(link.expires_at)
    facts = {"name": user_display_name(link.made_by), "username": link.person.get_username(), "time": ends}
    body = "\n\n".join([lines[0], lines[1] % facts, lines[2], lines[3] % facts, lines[4]])
    subject = (
        _("Your invitation to Toolgate") if link.kind == AccountLink.Kind.INVITATION else _("Your access to Toolgate")
    )
    try:
        EmailMessage(subject, body, to=[link.person.email], headers={"Auto-Submitted": "auto-generated"}).send()
    except (OSError, smtplib.SMTPException) as error:
        return _("The mail could not be sent (%(error)s).") % {"error": type(error).__name__}
    record_mailed(new_link)
    return ""
