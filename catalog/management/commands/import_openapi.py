"""Import the operations of an OpenAPI document."""

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from catalog.errors import ParameterError
from catalog.management.importing import add_keep_argument, administrator, import_source
from catalog.sources.selection import parse_only


class Command(BaseCommand):
    """`import_openapi NAME FILE_OR_URL [--only CHOICE] [--base-url URL] [--header|--query NAME=VALUE] [--keep]`."""

    help = "Add an OpenAPI document as a source, or change one, and import its operations."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="1 to 40 of a-z, 0-9, '_' and '-'")
        parser.add_argument("document", help="a file, or an http(s) address")
        parser.add_argument("--base-url", default="", help="replaces the first server of the document")
        parser.add_argument(
            "--only",
            action="append",
            metavar="CHOICE",
            help="operations to import: tag=NAME, path=/PREFIX or operation=NAME, repeatable, or a JSON object; "
            "it is kept for later synchronisations, and '{}' imports all again",
        )
        parser.add_argument(
            "--query", action="append", default=[], metavar="NAME=VALUE", help="API key in the query of each call"
        )
        parser.add_argument(
            "--header", action="append", default=[], metavar="NAME=VALUE", help="sent with each request"
        )
        add_keep_argument(parser)
        parser.add_argument("--timeout", type=int, default=30, help="seconds for fetching and each call")
        parser.add_argument("--user", help="administrator to record as the actor (default: the first one)")

    def handle(self, *args: Any, **options: Any) -> None:
        place = options["document"]
        values: dict[str, Any] = {"name": options["name"], "kind": "openapi", "base_url": options["base_url"]}
        if place.startswith(("http://", "https://")):
            values |= {"url": place, "document": ""}
        else:
            try:
                values |= {"document": Path(place).read_text(encoding="utf-8"), "url": ""}
            except (OSError, UnicodeError) as error:
                raise CommandError(f"{place} cannot be read: {error}") from None
        if options["header"]:
            values["headers"] = dict(each.partition("=")[::2] for each in options["header"])
        if options["query"]:
            values["query"] = dict(each.partition("=")[::2] for each in options["query"])
        if options["only"] is not None:
            try:
                values["only"] = parse_only(options["only"])
            except ParameterError as error:
                raise CommandError(f"--only: {error.message}") from None
        values["timeout"] = options["timeout"]
        by = administrator(options["user"])
        sys.exit(import_source(values, by=by, keep=options["keep"], write=self.stdout.write))
