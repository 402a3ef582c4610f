"""Keyset pagination: pages are `{"next", "previous", "results"}`, and every page costs the same."""

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

from django.core.exceptions import ValidationError as InvalidValue
from django.db.models import Model, Q, QuerySet
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from catalog.core.canonical_json import canonical_text, parse_json
from catalog.errors import ToolgateError

RowT = TypeVar("RowT", bound=Model)


@dataclass(frozen=True, slots=True)
class PageCursor:
    """Sort value and key of one row: the page has the rows after it, or if `back`, the rows before it."""

    back: bool
    value: str | int
    pk: int

    def text(self) -> str:
        return base64.urlsafe_b64encode(canonical_text([self.back, self.value, self.pk]).encode()).decode()

    @classmethod
    def read(cls, text: str) -> "PageCursor | None":
        """Return the cursor in a text, None if it is empty. Raises ValidationError if it is invalid."""
        if not text:
            return None
        try:
            match parse_json(base64.urlsafe_b64decode(text.encode())):
                case [bool(back), str() | int() as value, int(pk)] if "\0" not in str(value):
                    return cls(back, value, pk)
        except (binascii.Error, ToolgateError, ValueError):
            pass
        raise _invalid_cursor_error()


@dataclass(frozen=True, slots=True)
class PageParameters:
    size: int = 50
    cursor: PageCursor | None = None


@dataclass(frozen=True, slots=True)
class Page(Generic[RowT]):
    """One page of rows, with the cursors of the next and previous pages."""

    rows: Sequence[RowT]
    next: PageCursor | None
    previous: PageCursor | None


def paginate(queryset: "QuerySet[RowT]", *, order: str, at: PageParameters) -> Page[RowT]:
    """Return one page, sorted by the field `order` and then by id. `-` before the field sorts descending."""
    back = at.cursor is not None and at.cursor.back
    name, descending = order.lstrip("-"), order.startswith("-") != back
    sign, side = ("-", "lt") if descending else ("", "gt")
    ordered = queryset.order_by(f"{sign}{name}", f"{sign}pk")
    try:
        if at.cursor is not None:
            value, pk = at.cursor.value, at.cursor.pk
            ordered = ordered.filter(Q(**{f"{name}__{side}": value}) | Q(**{name: value, f"pk__{side}": pk}))
        found = list(ordered[: at.size + 1])  # one more if there is a further page
    except (ValueError, TypeError, OverflowError, InvalidValue):
        raise _invalid_cursor_error() from None
    more, found = len(found) > at.size, found[: at.size]
    rows = found[::-1] if back else found
    is_more_after, is_more_before = (True, more) if back else (more, at.cursor is not None)
    return Page(
        rows=rows,
        next=_cursor_for(rows[-1], name, back=False) if rows and is_more_after else None,
        previous=_cursor_for(rows[0], name, back=True) if rows and is_more_before else None,
    )


def paginated_response(request: Request, page: Page[RowT], show: Callable[[RowT], Any]) -> Response:
    """Return the response for a page; `show` serializes each row."""
    url = request.build_absolute_uri()

    def link(cursor: PageCursor | None) -> str | None:
        return replace_query_param(url, "cursor", cursor.text()) if cursor else None

    rows = [show(row) for row in page.rows]
    return Response({"next": link(page.next), "previous": link(page.previous), "results": rows})


@cache
def page_schema(serializer: type[serializers.Serializer[Any]]) -> type[serializers.Serializer[Any]]:
    """Return a serializer class for pages of these objects, for the OpenAPI document."""
    name = f"Page{serializer.__name__.removesuffix('Serializer')}Serializer"
    link = serializers.URLField
    fields = {
        "next": link(allow_null=True),
        "previous": link(allow_null=True),
        "results": serializer(many=True),
    }
    return type(name, (serializers.Serializer,), fields)


def _cursor_for(row: Model, name: str, *, back: bool) -> PageCursor:
    value = getattr(row, name)
    return PageCursor(back, value if isinstance(value, int) else str(value), row.pk)


def _invalid_cursor_error() -> ValidationError:
    return ValidationError({"cursor": ["This cursor is invalid. Start again without one."]}, code="cursor")
