"""`manage.py sync_tools`: write the tools of code and sources into the catalog and print the changes."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from catalog.errors import ToolDefinitionError, ToolgateError
from catalog.inventory.source_sync import sync_source
from catalog.inventory.sources import imported_sources
from catalog.inventory.sync import sync_tools
from catalog.tools.registry import broken_modules


class Command(BaseCommand):
    help = "Write the tools of Python modules and of sources into the catalog and print the changes."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print one JSON object instead of lines.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            changes = sync_tools()
        except ToolDefinitionError as error:
            raise CommandError(error.message) from None
        for name, why in broken_modules().items():
            self.stderr.write(f"broken {name}: {why}")
        for source in imported_sources().filter(enabled=True):
            try:
                changes = changes.merged(sync_source(source))
            except ToolgateError as error:
                self.stderr.write(f"failing {source.name}: {error.message}")
        for problem in changes.problems:
            self.stderr.write(problem)
        if options["json"]:
            self.stdout.write(json.dumps(changes.as_dict()))
            return
        for line in changes.lines():
            self.stdout.write(line)
