"""Registrations of a fictional conference: look one up, mail its holder a badge, an invoice or a confirmation.

Written as BaseTool classes. The data is shipped; registrations are private and never logged.
"""

import asyncio
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any, Literal

from django.core.mail import EmailMessage
from pydantic import BaseModel, Field

from catalog.core.canonical_json import canonical_text
from catalog.errors import ToolError
from catalog.tools import BaseTool, Preview, register_tool

REGISTRATIONS_FILE = Path(__file__).parent / "data" / "registrations.json"
NOT_FOUND_MESSAGE = "I could not find that registration. Could you check the email or the registration ID?"

Registration = dict[str, str]
Document = Literal["badge", "invoice", "confirmation"]


class LookupParams(BaseModel):
    """Whose registration."""

    identifier: str = Field(description="Your registration email or registration ID", max_length=254)


class EmailParams(BaseModel):
    """The mail to send, and its registration."""

    registration_id: str = Field(description="Your registration ID, such as R-20400", max_length=32)
    document: Document = Field(default="confirmation", description="What to send again")
    note: str = Field(default="", description="A line to put before the text", max_length=500)


class RegistrationLookup(BaseTool):
    """Find a registration by its email or id."""

    name = "lookup_registration"
    description = "Look up a conference registration by its email or registration ID."
    parameters = LookupParams
    categories = ("registration",)
    requires_identifier = True
    returns_private_data = True
    rate_limit_key = "registration_lookup"
    rate_limit = "1/5s,5/min,20/h"
    retry_safe = True

    async def execute(self, args: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
        """Return the registration."""
        found = _find_registration(args["identifier"])
        if found is None:
            return {"success": False, "error": "No registration was found.", "user_message": NOT_FOUND_MESSAGE}
        return {"success": True, "data": found}


class SendRegistrationEmail(BaseTool):
    """Mail a registration's holder one of its documents again."""

    name = "send_registration_email"
    description = "Send the badge, invoice or confirmation of a registration again, to the email it was made with."
    parameters = EmailParams
    categories = ("registration", "email")
    safety_level = "dangerous"
    requires_identifier = True
    returns_private_data = True
    rate_limit_key = "email_send"
    rate_limit = "1/30s,2/min,5/h"

    async def execute(self, args: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
        """Send the mail if it is still the approved one."""
        mail = _compose_mail(args)
        if mail is None:
            return {"success": False, "error": "No registration was found.", "user_message": NOT_FOUND_MESSAGE}
        approved = getattr(context.get("tool_context"), "target_state", None)
        if approved not in (None, _mail_state_token(mail)):
            raise ToolError("The registration has changed since this mail was approved. Request it again.")
        await asyncio.to_thread(mail.send)
        sent = {"registration_id": args["registration_id"], "document": args.get("document", "confirmation")}
        return {"success": True, "data": sent, "user_message": "It is on its way to the email of the registration."}

    async def preview(self, args: dict[str, Any], context: dict[str, Any]) -> Preview:
        """Return the mail to be sent."""
        mail = _compose_mail(args)
        if mail is None:
            raise ToolError(NOT_FOUND_MESSAGE)
        text = f"From: {mail.from_email}\nTo: {', '.join(mail.to)}\nSubject: {mail.subject}\n\n{mail.body}"
        summary = f"Mail the {args.get('document', 'confirmation')} of {args['registration_id']} to its holder"
        return Preview(summary, "text", after=text, state_token=_mail_state_token(mail))


def _compose_mail(args: dict[str, Any]) -> EmailMessage | None:
    found = _find_registration(args["registration_id"], "registration_id")
    if found is None:
        return None
    document: Document = args.get("document", "confirmation")
    lines = [
        args.get("note", ""),
        f"Dear {found['name']},",
        _MAIL_TEXTS[document].format(**found),
        "The registration desk",
    ]
    return EmailMessage(
        subject=f"Your {document} for registration {found['registration_id']}",
        body="\n\n".join(line for line in lines if line) + "\n",
        to=[found["email"]],
    )


_MAIL_TEXTS: dict[Document, str] = {
    "badge": "your badge has the number {badge}. Show this mail at the entrance, and it is printed for you.",
    "invoice": "your invoice {invoice} for one {ticket} ticket is ready at the registration desk.",
    "confirmation": "your registration {registration_id} ({ticket} ticket) is {status}.",
}


def _mail_state_token(mail: EmailMessage) -> str:
    """Return the state token of a mail: a digest of everything to be sent."""
    whole = canonical_text([mail.from_email, mail.to, mail.subject, mail.body])
    return f"sha256:{hashlib.sha256(whole.encode()).hexdigest()}"


def _find_registration(identifier: str, *fields: str) -> Registration | None:
    needle = identifier.strip().casefold()
    names = fields or ("registration_id", "email")
    return next((each for each in _load_registrations() if needle in (each[name].casefold() for name in names)), None)


@cache
def _load_registrations() -> list[Registration]:
    registrations: list[Registration] = json.loads(REGISTRATIONS_FILE.read_text("utf-8"))["registrations"]
    return registrations


lookup_registration = register_tool(RegistrationLookup())
send_registration_email = register_tool(SendRegistrationEmail())
