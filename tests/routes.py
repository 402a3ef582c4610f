"""The addresses of the pages and of the REST API: from the URL configuration, and from the OpenAPI document."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver

from tests import answers
from tests.rest import ROOT


def addresses() -> list[str]:
    """Return the pattern of every page and of every path of the API, except for those of Django's admin."""
    return [each for each in _addresses(get_resolver().url_patterns) if not each.startswith("/admin/")]


def pages() -> list[str]:
    """Return the pattern of every page, except for those of the API and of Django's admin."""
    return [each for each in addresses() if not each.startswith(ROOT)]


def pages_without_parameters() -> list[str]:
    """Return the address of every page that takes no parameter."""
    return [each for each in pages() if not re.search(r"[<(]", each)]


def operations(method: str) -> dict[str, Mapping[str, Any]]:
    """Return what the OpenAPI document says of each path that takes this method."""
    paths = answers.document()["paths"]
    return {path: methods[method] for path, methods in paths.items() if method in methods}


def filled(path: str, places: Mapping[str, str]) -> str:
    """Return the path with something that exists in place of each parameter.

    A place is named after the part before the parameter, or if REST names an object otherwise, also after that.
    """

    def place(found: re.Match[str]) -> str:
        return f"{found[1]}/{places.get(f'{found[1]}/{found[2]}', places[found[1]])}"

    return re.sub(r"(\w+)/(?:\{(\w+)\}|<\w+:\w+>)", place, path)


def _addresses(patterns: Sequence[URLPattern | URLResolver], before: str = "/") -> Iterator[str]:
    for each in patterns:
        address = f"{before}{each.pattern}"
        if isinstance(each, URLResolver):
            yield from _addresses(each.url_patterns, address)
        else:
            yield address
