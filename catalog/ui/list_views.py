"""Responses of list pages: the page, its results alone for htmx, or the matching rows as CSV."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import Model, QuerySet
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from catalog.rest.pagination import PageParameters, paginate
from catalog.text.spreadsheets import csv_text
from catalog.ui.lists import ListDefinition, ListQuery, list_page
from catalog.ui.requests import PageRequest, is_fragment_request, push_list_url

MAX_CSV_ROWS = 10_000
CSV_CHUNK = 500


def render_list(
    request: PageRequest, definition: ListDefinition[Any], template: str, shown: Mapping[str, Any]
) -> HttpResponseBase:
    """Answer a request for a list; `shown` is the context of `template` besides `listed`."""
    if request.GET.get("format") == "csv" and definition.csv_columns:
        query = definition.read(request.GET, definition.offered(request.user, request.GET))
        rows = definition.rows(request.user, query)
        found = rows.filter(definition.condition(query) & definition.tab_condition(query))
        response = StreamingHttpResponse(_csv_chunks(definition, request.user, found, query), content_type="text/csv")
        response["Content-Disposition"] = f'attachment; filename="{definition.name}.csv"'
        return response
    if (
        request.method == "GET" and "" in request.GET.values() and not request.htmx
    ):  # a form without JavaScript sends every field
        filled = [(name, value) for name, values in request.GET.lists() for value in values if value]
        return redirect(f"{definition.path}?{urlencode(filled)}" if filled else definition.path)
    listed = list_page(definition, request.user, request.GET)
    context = {**shown, "listed": listed}
    if not is_fragment_request(request, "results"):
        return render(request, template, context)
    answer: HttpResponse = render(request, "lists/_answer.html", context)
    return push_list_url(request, answer, listed.query.url)


def _csv_chunks(
    definition: ListDefinition[Any], viewer: User, found: "QuerySet[Model]", query: ListQuery
) -> Iterator[str]:
    """Yield the text of some rows at a time. Each chunk has its own queries, so a slow reader holds no cursor."""
    # The answer is sent after its request, so that the formats are those for programs: ISO 8601 in UTC.
    yield csv_text([list(definition.csv_columns)])
    ordered, order = definition.sorted_rows(found, query)
    cursor, written = None, 0
    while written < MAX_CSV_ROWS:
        page = paginate(ordered, order=order, at=PageParameters(CSV_CHUNK, cursor))
        rows = (definition.csv_present or definition.present)(viewer, page.rows)
        yield csv_text([[value_of(row) for value_of in definition.csv_columns.values()] for row in rows])
        written, cursor = written + len(rows), page.next
        if cursor is None:
            return
    yield csv_text([[_("Only the first %(count)s rows are listed. Narrow the filters.") % {"count": MAX_CSV_ROWS}]])
