"""The one parser of request bodies: strict JSON, at most a mebibyte."""

from collections.abc import Mapping
from typing import IO, Any

from rest_framework.parsers import BaseParser

from catalog.core.canonical_json import MAX_BYTES, parse_json
from catalog.errors import TooLarge


class StrictJSONParser(BaseParser):
    """Reads `application/json` through `catalog.core.canonical_json`."""

    media_type = "application/json"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the document; raise MalformedJSON, or TooLarge before reading where the size is announced."""
        meta = parser_context["request"].META if parser_context else {}
        announced = int(meta.get("CONTENT_LENGTH") or 0)
        if announced > MAX_BYTES:
            raise TooLarge("The request body", size=announced, limit=MAX_BYTES)
        return parse_json(stream.read(MAX_BYTES + 1))
