"""Import the tools of an MCP server."""

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from catalog.management.importing import add_keep_argument, administrator, import_source


class Command(BaseCommand):
    """`import_mcp NAME (--url URL | --command PROGRAM ARGUMENT…) [--trusted] [--keep]`."""

    help = "Add an MCP server as a source, or change one, and import its tools."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="1 to 40 of a-z, 0-9, '_' and '-'")
        parser.add_argument("--url", help="address of a Streamable HTTP server")
        parser.add_argument("--trusted", action="store_true", help="trust its safety hints")
        parser.add_argument("--timeout", type=int, default=30, help="seconds for connecting, listing and each call")
        parser.add_argument("--user", help="administrator to record as the actor (default: the first one)")
        add_keep_argument(parser)
        parser.add_argument("--command", dest="program", nargs="...", help="command and arguments; must come last")

    def handle(self, *args: Any, **options: Any) -> None:
        if bool(options["url"]) == bool(options["program"]):
            raise CommandError("Give either --url or --command.")
        values = {
            "name": options["name"],
            "kind": "mcp",
            "url": options["url"] or "",
            "command": options["program"] or [],
            "trusted": options["trusted"],
            "timeout": options["timeout"],
        }
        by = administrator(options["user"])
        sys.exit(import_source(values, by=by, keep=options["keep"], write=self.stdout.write))
