"""`manage.py export_audit`: writes the audit log to standard output as JSON Lines or CSV, and records the export."""

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from approvals.audit.queries import FORMATS, TEXT_FILTER_NAMES, AuditFilters, export_entries_from_shell


class Command(BaseCommand):
    help = "Write the audit log to standard output, oldest entry first, with the filters of its page."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--format", choices=sorted(FORMATS), default="jsonl")
        for name in TEXT_FILTER_NAMES:
            parser.add_argument(f"--{name}", default="", metavar="TEXT")
        parser.add_argument("--since", default="", metavar="TIME", help="from this date or time on (ISO 8601, UTC)")
        parser.add_argument("--until", default="", metavar="TIME", help="before this date or time")

    def handle(self, *args: Any, **options: Any) -> None:
        texts = {name: options[name] for name in TEXT_FILTER_NAMES}
        filters = AuditFilters(**texts, since=_parse_time(options["since"]), until=_parse_time(options["until"]))
        for text in export_entries_from_shell(filters, options["format"]):
            self.stdout.write(text, ending="")


def _parse_time(text: str) -> datetime | None:
    """Parse a time, or a date as its first moment, in UTC unless it has an offset. Raises CommandError."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(f"'{text}' is not a date or time. Use 2026-01-31 or 2026-01-31T09:00:00Z.") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
