"""Work of a small shop for demonstrations: mails, payments, prices, webhooks, bank statements. Nothing is sent.

What a tool would send or pay is written to files under outbox/ in the workspace; prices and webhooks are files under
shop/.
"""

import asyncio
import csv
import io
import json
import zlib
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from catalog.context import progress_listener
from catalog.core.workspace_files import FileState, Filesystem
from catalog.errors import FilesystemError, ToolError
from catalog.tools import Preview, ToolContext, ToolResult, tool

PRICES_FILE = "shop/prices.csv"
WEBHOOKS_FILE = "shop/webhooks.json"
SECONDS_PER_STATEMENT = 0.25
CENT = Decimal("0.01")

MailAddress = Annotated[str, Field(max_length=254, pattern=r"^[^@\s]+@[^@\s]+$")]
Recipients = Annotated[list[MailAddress], Field(description="Mail addresses", min_length=1, max_length=200)]
Subject = Annotated[str, Field(description="Subject of the mail", min_length=1, max_length=200)]
Body = Annotated[str, Field(description="Text of the mail", min_length=1, max_length=20_000)]
Category = Annotated[str, Field(description="Category of the articles, such as Tea", min_length=1, max_length=50)]
Percent = Annotated[float, Field(description="Change in percent; negative lowers the prices", ge=-50, le=50)]
Service = Annotated[str, Field(description="Name of the service", pattern=r"^[a-z][a-z0-9-]{0,39}$")]
WebAddress = Annotated[str, Field(description="Address to call", max_length=300, pattern=r"^https://\S+$")]
SigningSecret = Annotated[str, Field(description="Secret that signs the messages", min_length=8, max_length=200)]
Day = Annotated[date, Field(description="Day of the statements")]
Statements = Annotated[int, Field(description="Number of statements of that day", ge=1, le=400)]


@tool(safety_level="dangerous", categories=["email"], reversibility="irreversible")
def send_mail(to: Recipients, subject: Subject, body: Body, *, context: ToolContext) -> ToolResult[dict[str, Any]]:
    """Send a mail to one or more people."""
    path = f"outbox/mail-{context.call_id}.txt"
    _workspace(context).write_text(path, _mail_text(to, subject, body))
    return ToolResult.ok({"recipients": len(to), "file": path}, message=f"Sent to {_count(len(to), 'recipient')}.")


@send_mail.preview
def _(to: list[str], subject: str, body: str, *, context: ToolContext) -> Preview:
    return Preview(f"Mail {_count(len(to), 'recipient')}: {subject}", "text", after=_mail_text(to, subject, body))


class TransferParams(BaseModel):
    """The fields of a transfer form."""

    payee: str = Field(description="Name of the account's owner", min_length=1, max_length=100)
    iban: str = Field(description="IBAN of the account", pattern=r"^[A-Z]{2}[0-9A-Z ]{13,40}$")
    amount: float = Field(description="Amount with at most two decimals", gt=0, le=1_000_000)
    currency: Literal["EUR", "USD"] = "EUR"
    reference: str = Field(description="Text on the bank statement", max_length=140)


@tool(safety_level="dangerous", categories=["payment"], reversibility="irreversible")
def send_payment(params: TransferParams, *, context: ToolContext) -> ToolResult[dict[str, Any]]:
    """Transfer money to an account."""
    path = f"outbox/payment-{context.call_id}.json"
    _workspace(context).write_text(path, params.model_dump_json(indent=2) + "\n")
    return ToolResult.ok({"file": path}, message=f"Transferred {_money(params)} to {params.payee}.")


@send_payment.preview
def _(params: TransferParams, *, context: ToolContext) -> Preview:
    row = {"payee": params.payee, "IBAN": params.iban, "amount": _money(params), "reference": params.reference}
    return Preview(f"Transfer {_money(params)} to {params.payee}", "rows", rows=(row,))


@tool(safety_level="dangerous", categories=["shop"], reversibility="restorable")
def update_prices(category: Category, percent: Percent, *, context: ToolContext) -> ToolResult[dict[str, Any]]:
    """Change the prices of all articles of a category by a percentage."""
    seen, articles = _read_prices(context)
    changed = [each for each in articles if each["category"] == category]
    for each in changed:
        each["price"] = str(_new_price(each["price"], percent))
    text = io.StringIO()
    writer = csv.DictWriter(text, ["article", "name", "category", "price"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(articles)
    _workspace(context).write_text(PRICES_FILE, text.getvalue(), expect=context.target_state or seen.token)
    return ToolResult.ok({"changed": len(changed)}, message=f"Changed {_count(len(changed), 'price')}.")


@update_prices.preview
def _(category: str, percent: float, *, context: ToolContext) -> Preview:
    seen, articles = _read_prices(context)
    rows = [
        {**each, "new price": str(_new_price(each["price"], percent))}
        for each in articles
        if each["category"] == category
    ]
    if not rows:
        known = ", ".join(sorted({each["category"] for each in articles}))
        raise ToolError(f"There are no articles of the category {category!r}. The categories are {known}.")
    summary = f"Change {_count(len(rows), 'price')} in {category} by {percent:+g} %"
    return Preview(summary, "rows", rows=tuple(rows), state_token=seen.token)


@tool(safety_level="dangerous", categories=["integration"], reversibility="reversible", secret=["signing_secret"])
def connect_webhook(
    service: Service, url: WebAddress, signing_secret: SigningSecret, *, context: ToolContext
) -> ToolResult[dict[str, Any]]:
    """Let a service call an address for each new order; the secret signs its messages."""
    workspace = _workspace(context)
    seen = workspace.look(WEBHOOKS_FILE)
    webhooks: dict[str, Any] = json.loads(seen.data) if seen.data else {}
    webhooks[service] = {"url": url, "signed": bool(signing_secret)}
    text = json.dumps(webhooks, indent=2, sort_keys=True) + "\n"
    workspace.write_text(WEBHOOKS_FILE, text, expect=context.target_state or seen.token)
    return ToolResult.ok({"service": service, "url": url}, message=f"Connected {service}.")


@connect_webhook.preview
def _(service: str, url: str, signing_secret: str, *, context: ToolContext) -> Preview:
    seen = _workspace(context).look(WEBHOOKS_FILE)
    text = f"{service} calls {url} for each new order. Its messages are signed.\n"
    return Preview(f"Connect {service}", "text", after=text, state_token=seen.token)


@tool(safety_level="cautious", categories=["accounting"], retry_safe=True, timeout=300)
async def match_statements(day: Day, statements: Statements, *, context: ToolContext) -> dict[str, Any]:
    """Match a day's bank statements with open invoices; reports its progress and takes about ten seconds."""
    report = progress_listener.get()
    unmatched = list[str]()
    for number in range(1, statements + 1):
        await asyncio.sleep(SECONDS_PER_STATEMENT)
        line = f"{day:%Y%m%d}-{number:03}"
        if zlib.crc32(line.encode()) % 23 == 0:
            unmatched.append(line)
        if report is not None:
            report(number, statements)
    return {"day": day.isoformat(), "matched": statements - len(unmatched), "unmatched": unmatched}


def _mail_text(to: list[str], subject: str, body: str) -> str:
    return f"To: {', '.join(to)}\nSubject: {subject}\n\n{body.rstrip()}\n"


def _money(params: TransferParams) -> str:
    return f"{params.amount:,.2f} {params.currency}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _new_price(price: str, percent: float) -> Decimal:
    return (Decimal(price) * (100 + Decimal(str(percent))) / 100).quantize(CENT, ROUND_HALF_UP)


def _read_prices(context: ToolContext) -> tuple[FileState, list[dict[str, str]]]:
    """Return the state of the price list and its articles. Raises FilesystemError if there is none."""
    seen = _workspace(context).look(PRICES_FILE)
    if seen.data is None:
        raise FilesystemError(f"There is no price list {PRICES_FILE!r} in the workspace.")
    return seen, list(csv.DictReader(io.StringIO(seen.data.decode())))


def _workspace(context: ToolContext) -> Filesystem:
    if context.filesystem is None:
        raise ToolError("This call has no workspace.")
    return context.filesystem
