"""The addresses of the product's pages, as its URL configuration lists them."""

import re
from collections.abc import Iterator, Sequence

from django.urls import URLPattern, URLResolver, get_resolver

from tests.rest import ROOT


def pages_without_parameters() -> list[str]:
    """Return the address of every page that takes no parameter, except for those of the API and of Django's admin."""
    return [each for each in _addresses(get_resolver().url_patterns) if not each.startswith((ROOT, "/admin/"))]


def _addresses(patterns: Sequence[URLPattern | URLResolver], before: str = "/") -> Iterator[str]:
    for each in patterns:
        address = f"{before}{each.pattern}"
        if isinstance(each, URLResolver):
            yield from _addresses(each.url_patterns, address)
        elif not re.search(r"[<(]", address):
            yield address
