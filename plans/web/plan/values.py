"""Pages of values: one value of a plan's memory or one part of a step's call; private values are masked."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import quote

from django.contrib.auth.models import User
from django.db.models.functions import Length
from django.http import StreamingHttpResponse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from catalog.access.roles import user_display_name
from catalog.calls.blobs import CONTENT_HEADERS
from catalog.calls.privacy import PrivateCallParts, mask_response
from catalog.core.canonical_json import json_size
from catalog.models import Call
from catalog.results import NO_MESSAGE
from catalog.secrets.placeholders import without_macs
from catalog.text.diff import DiffRow
from catalog.ui.json_values import (
    MAX_QUERY,
    TEXT_PAGE,
    Hits,
    Place,
    ShownMember,
    ValueTable,
    diff_rows_of,
    kind_in_words,
    kind_of,
    members_of,
    path_of_names,
    place_at,
    search,
    table_of,
)
from catalog.ui.requests import parse_number
from catalog.ui.results import ShownResult, result_document, shown_result, value_path
from plans.models import MemoryItem, Plan, Step
from plans.store.privacy import PrivatePlanParts, can_see_private_in_plan, hidden_parts
from plans.web.plan.step_detail import PARTS, masked_json
from plans.web.plan.value_uses import ValueUse, uses_of

MAX_READ = 16 * 1024 * 1024
"""Characters of the JSON of a value that pages read; a longer one can only be downloaded."""
CHUNK = 64 * 1024
"""Characters of a download that are encoded at once."""
PART_NAMES = {
    "arguments": gettext_lazy("Arguments of step %(number)s"),
    "result": gettext_lazy("Result of step %(number)s"),
    "evidence": gettext_lazy("Late response of step %(number)s"),
}
VIEWS = {
    "diff": gettext_lazy("Diff"),
    "table": gettext_lazy("Table"),
    "text": gettext_lazy("Text"),
    "content": gettext_lazy("Images and files"),
    "json": gettext_lazy("JSON"),
    "model": gettext_lazy("For models"),
}


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A JSON text that `read` loads and masks: a value in memory under its `key`, or a `part` of a step's call.

    `version` changes when another value takes the place of this one.
    """

    address: str
    title: str
    size: int
    version: str
    read: Callable[[], str]
    key: str = ""
    part: str = ""
    step: Step | None = None
    writer: int | None = None
    written_at: datetime | None = None
    is_private: bool = False

    @property
    def is_too_large(self) -> bool:
        return self.size > MAX_READ


def value_in_memory(plan: Plan, key: str, private: PrivatePlanParts) -> StoredValue | None:
    """Return the value under a key of a plan's memory, masked if it is private; None if there is none."""
    if "\0" in key:  # PostgreSQL cannot compare it
        return None
    values = plan.memory.filter(type=MemoryItem.Type.VALUE, key=key)
    row = values.annotate(size=Length("value")).defer("value").first()
    if row is None:
        return None
    is_private = key in private.keys

    def read() -> str:
        text = without_macs(values.values_list("value", flat=True).first() or "null")
        return masked_json(text) if is_private else text

    writer = plan.steps.filter(step_id=row.step_id).select_related("call__version").first() if row.step_id else None
    return StoredValue(
        address=f"/plans/{plan.public_id}/values/{key}/",
        title=key,
        size=row.size,
        version=f"{row.at.timestamp():.6f}",
        read=read,
        key=key,
        step=writer,
        writer=row.step_id,
        written_at=row.at,
        is_private=is_private,
    )


def part_of_call(plan: Plan, step_id: int, name: str, private: PrivatePlanParts) -> StoredValue | None:
    """Return one part of a step's call, masked if it is private; None if there is none."""
    if name not in PARTS:
        return None
    rows = plan.steps.filter(step_id=step_id)
    step = rows.annotate(size=Length(PARTS[name])).select_related("call__version").first()
    if step is None or step.call is None or not step.size:
        return None
    hidden = private.steps.get(step_id)

    def read() -> str:
        return _part_text(without_macs(rows.values_list(PARTS[name], flat=True).first() or "null"), name, hidden)

    return StoredValue(
        address=f"/plans/{plan.public_id}/steps/{step_id}/{name}/",
        title=PART_NAMES[name] % {"number": step_id},
        size=step.size,
        version=step.call.public_id,
        read=read,
        key=step.expected_key if name == "result" and not step.output_path else "",
        part=name,
        step=step,
        writer=step_id,
        written_at=step.call.finished_at if name == "result" else None,
        is_private=hidden is not None,
    )


def _part_text(text: str, name: str, private_parts: PrivateCallParts | None) -> str:
    if private_parts is None:
        return json.dumps(result_document(json.loads(text)), ensure_ascii=False) if name == "result" else text
    if name == "evidence":
        return masked_json(text)
    value = json.loads(text)
    if name == "arguments":
        return json.dumps(private_parts.mask_arguments(value), ensure_ascii=False)
    return json.dumps(result_document(mask_response(value)), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class ValuePage:
    """One value, or the value at `place` inside it, in the view `view`.

    `setback` says why the URL could not be followed; `rest_of_text` is where the next page of a text begins.
    """

    plan: Plan
    stored: StoredValue
    owner: str
    may_reveal: bool
    place: Place = field(default_factory=lambda: Place(None))
    view: str = "json"
    views: Sequence[tuple[str, str]] = ()
    setback: str = ""
    has_changed: bool = False
    query: str = ""
    start: int = 0
    size: int = 0
    is_error: bool = False
    own_path: str = ""
    whole: ShownMember | None = None
    tree: ShownMember | None = None
    table: ValueTable | None = None
    text: str = ""
    rest_of_text: int | None = None
    diff: Sequence[DiffRow] = ()
    hits: Hits | None = None
    result: ShownResult | None = None
    uses: Sequence[ValueUse] = ()

    @property
    def words(self) -> str:
        """The kind of the value with its extent."""
        if self.is_error:
            return _("error")
        if self.view == "content":
            return _("images and files")
        return kind_in_words(self.place.value)

    @property
    def file_address(self) -> str:
        query = "?" + urlencode({"path": self.place.path}) if self.place.path != "" else ""
        return f"{self.stored.address}file/{query}"

    @property
    def reference_begin(self) -> str:
        """The text before a path that makes it a reference; empty for values that are in no memory."""
        return "${" + self.stored.key if self.stored.key else ""

    @property
    def path_to_copy(self) -> str:
        """The reference to this place, or its path where a reference cannot lead."""
        if not self.stored.key or "~" in self.place.path:
            return self.place.path
        return self.reference_begin + (f".{self.place.path}" if self.place.path else "") + "}"

    @property
    def shows_texts_of_result(self) -> bool:
        """True if the texts that a result has besides its value are shown below the value."""
        has_texts = self.result is not None and bool(self.result.blocks) and not self.result.has_files
        return has_texts and self.view in ("diff", "table", "text")

    @property
    def rows(self) -> Sequence[DiffRow]:
        return self.diff

    @property
    def here(self) -> str:
        """The query of this place in this view, without what is paged, sorted or searched."""
        return urlencode({"path": self.place.path, "as": self.view})

    @property
    def short_value(self) -> str | None:
        """The value as text to copy; None if it is too long."""
        value = self.place.value
        if isinstance(value, dict | list) and len(value) > TEXT_PAGE:
            return None
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
        return text if len(text) <= TEXT_PAGE else None

    @property
    def earlier_uses(self) -> Sequence[ValueUse]:
        return [use for use in self.uses if use.has_started]

    @property
    def later_uses(self) -> Sequence[ValueUse]:
        return [use for use in self.uses if not use.has_started]

    @property
    def call(self) -> Call | None:
        return self.stored.step.call if self.stored.step else None


def value_page(viewer: User, plan: Plan, stored: StoredValue, query: Mapping[str, str]) -> ValuePage:
    """Return the page of a value: the place `path` in it, the view `as`, and the text `q` to find."""
    private = hidden_parts(viewer, plan)
    page = partial(
        ValuePage,
        plan=plan,
        stored=stored,
        owner=user_display_name(plan.author),
        may_reveal=can_see_private_in_plan(viewer, plan),
        has_changed=query.get("seen", stored.version) != stored.version,
        uses=uses_of(plan, stored.key, private) if stored.key else (),
    )
    if stored.is_too_large:
        return page(setback=_("This value is too large to be shown. Download it."), size=stored.size)
    text = stored.read()
    start = parse_number(query.get("from", ""), most_digits=9) or 0
    try:
        return page(**_shown(stored, text, query, start))
    except (ValueError, RecursionError):  # not JSON, or nested too deeply
        shown = {"view": "text", "views": _named(["text"]), **_text_view(text, start)}
        return page(place=Place(text), size=stored.size, start=start, **shown)


def _shown(stored: StoredValue, text: str, query: Mapping[str, str], start: int) -> dict[str, Any]:
    """Return the fields of a value's page. Raises ValueError for a text that is not JSON, and RecursionError."""
    document = _readable(text)
    own_path = path_of_names(value_path(document)) if stored.part != "arguments" else ""
    path, setback = query.get("path", own_path), ""
    place = place_at(document, path)
    if place is None:
        place, path = place_at(document, own_path) or Place(document), own_path
        setback = _("This value has no such path any more. You see the whole value.")
    at_home = path == own_path
    result = _result_of(stored) if at_home and not stored.is_private else None
    views = _views_of(place.value, result, has_model=at_home and _has_result(stored))
    asked = query.get("q", "").strip()[:MAX_QUERY]
    view = query.get("as", "")
    view = view if view in views else views[0]
    shown: dict[str, Any] = {"view": view}
    if asked:
        shown = {"view": "json", "hits": search(place, asked, start)}
    elif view == "table":
        sort = query.get("sort", "")
        number = parse_number(sort.removeprefix("-"), most_digits=4) or 0
        shown["table"] = table_of(place, start, -number if sort.startswith("-") else number)
    elif view == "diff":
        shown["diff"] = diff_rows_of(place.value)
    elif isinstance(place.value, str) and view in ("text", "content"):  # the caption of an image is below it
        shown |= _text_view(place.value, start)
    elif view == "json":
        shown["tree"] = members_of(place, start)
    return {
        "place": place,
        "views": _named(views),
        "setback": setback,
        "query": asked,
        "start": start,
        "size": json_size(place.value) - (2 if isinstance(place.value, str) else 0),
        "is_error": at_home and own_path in ("error", "warning"),
        "own_path": own_path,
        "whole": members_of(Place(document), room=0) if at_home and own_path and not asked else None,
        "result": result,
        **shown,
    }


_MAY_BE_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def _readable(text: str) -> Any:
    """Return JSON text as a value; a lone surrogate, which no page can contain, becomes a question mark."""
    document = json.loads(text)
    if _MAY_BE_SURROGATE.search(text) is None:
        return document
    return json.loads(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace"))


def _named(views: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, str(VIEWS[name])) for name in views]


def _text_view(text: str, start: int) -> dict[str, Any]:
    end = start + TEXT_PAGE
    return {"text": text[start:end], "rest_of_text": end if end < len(text) else None}


def _has_result(stored: StoredValue) -> bool:
    """Return whether a model can have received this value as the result of a call."""
    call = stored.step.call if stored.step else None
    return call is not None and bool(call.response) and stored.part in ("", "result")


def _result_of(stored: StoredValue) -> ShownResult | None:
    """Return the result of a call that has more than its value: a message, warnings, or images and files."""
    call = stored.step.call if stored.step else None
    if call is None or stored.step is None or not _has_result(stored):
        return None
    path = tuple(stored.step.output_path_json or ()) if stored.key else ()
    if path and value_path(call.response_json)[: len(path)] != path:  # a part of the value
        return None
    return shown_result(call) if call.content or call.warnings or call.message != NO_MESSAGE else None


def _views_of(value: Any, result: ShownResult | None, *, has_model: bool) -> list[str]:
    """Return the views that fit a value, the best one first."""
    kind = kind_of(value)
    views = [kind] if kind in ("diff", "table") else []
    blocks = result.blocks if result is not None else ()
    if result is not None and blocks and (result.has_files or value in (None, "", []) or not result.shows_value):
        views.insert(0, "content")
    if isinstance(value, str):
        views.append("text")
    views.append("json")
    if blocks and "content" not in views:
        views.append("content")
    return [*views, *(["model"] if has_model else [])]


def file_response(stored: StoredValue, path: str) -> StreamingHttpResponse | None:
    """Return a download: JSON of the whole value or of the one at `path`, or a text as it is; None if there is none."""
    text, kind, ending = stored.read(), "application/json", "json"
    if path:
        try:
            place = None if stored.is_too_large else place_at(_readable(text), path)
        except (ValueError, RecursionError):
            place = None
        if place is None:
            return None
        if isinstance(place.value, str):
            text, kind, ending = place.value, "text/plain; charset=utf-8", "txt"
        else:
            text = json.dumps(place.value, ensure_ascii=False)
    response = StreamingHttpResponse(_chunks(text), content_type=kind, headers=CONTENT_HEADERS)
    name = f"{stored.key or f'step-{stored.writer}-{stored.part}'}.{ending}"
    response["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(name)}"
    return response


def _chunks(text: str) -> Iterator[bytes]:
    for start in range(0, len(text), CHUNK):
        yield text[start : start + CHUNK].encode("utf-8", "replace")
