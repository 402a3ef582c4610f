"""The result of a call as people see it, without arguments: its value, its images and files, and its warnings."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from catalog.calls.blobs import has_bytes, pictures_of
from catalog.core.canonical_json import json_size
from catalog.core.content_blocks import described_block, holds_json, media_type_of, says, text_of
from catalog.models import Call
from catalog.results import NO_MESSAGE
from catalog.secrets.placeholders import without_macs
from catalog.states import CallStatus
from catalog.ui.json_values import kind_in_words

TEXT_SHOWN, RAW_SHOWN, CELL_SHOWN = 20_000, 20_000, 200
"""Characters shown of a text, of the raw result, and of one cell of a table."""
ROWS_SHOWN, COLUMNS_SHOWN, BLOCKS_SHOWN = 50, 8, 50
ENVELOPE = frozenset({"query_type", "parameters", "output_key", "success"})
"""Members of a standard response that say nothing about the result."""
NOTES = frozenset({"results", "error", "warning", "user_message", "edited", "settled"})
"""Other members that are not part of the value."""
SIZE_NAMES = frozenset({"bytes", "size", "size_bytes", "bytes_written"})


@dataclass(frozen=True, slots=True)
class ShownText:
    """The beginning of a text; if it was cut, `size` is the length of the whole text in bytes, else None."""

    head: str
    size: int | None = None


@dataclass(frozen=True, slots=True)
class ShownTable:
    """A list of objects as rows with one column for each member, or one object as rows of name and value."""

    columns: Sequence[str]
    rows: Sequence[Sequence[ShownText]]
    more: int = 0


@dataclass(frozen=True, slots=True)
class ShownBlock:
    """One content block: an image, a file to download, or a text. `label` describes it."""

    label: str
    url: str = ""
    is_image: bool = False
    text: ShownText | None = None


@dataclass(frozen=True, slots=True)
class ShownResult:
    """A result. Its value is in at most one of the fields from `scalar` to `items`; `blocks` has other content.

    `kind` is the kind of the value in words, `size` its bytes as JSON.
    """

    message: str
    raw: ShownText
    scalar: str = ""
    text: ShownText | None = None
    path: str = ""
    path_size: int | None = None
    table: ShownTable | None = None
    fields: ShownTable | None = None
    items: Sequence[ShownText] = ()
    items_more: int = 0
    has_value: bool = True
    blocks: Sequence[ShownBlock] = ()
    blocks_more: int = 0
    kind: str = ""
    size: int = 0
    warnings: Sequence[str] = ()

    @property
    def shows_value(self) -> bool:
        return bool(self.scalar or self.text or self.path or self.table or self.fields or self.items)

    @property
    def has_files(self) -> bool:
        """True if it has images, sounds or other files of its own."""
        return any(block.url for block in self.blocks)

    @property
    def is_empty(self) -> bool:
        return self.has_value and not self.shows_value and not self.blocks


def result_document(response: Any) -> Any:
    """Return a standard response without its copy of the arguments."""
    if not isinstance(response, Mapping):
        return response
    return {name: each for name, each in response.items() if name not in ENVELOPE - {"success"}}


def value_of(response: Mapping[str, Any]) -> Any:
    """Return the value in a standard response: its only result or the list of results, with the tool's own members."""
    results = response.get("results", [])
    own = {name: each for name, each in response.items() if name not in ENVELOPE | NOTES}
    if own:
        return {"results": results, **own}
    return results[0] if isinstance(results, list) and len(results) == 1 else results


def value_path(response: Any) -> tuple[str, ...]:
    """Return the path to the value in a standard response, or to its error; empty for any other JSON value."""
    if not isinstance(response, Mapping) or not response.keys() >= {"results", "success"}:
        return ()
    failure = next((name for name in ("error", "warning") if name in response), "")
    if not response["success"] and failure:
        return (failure,)
    if response.keys() - (ENVELOPE | NOTES):
        return ()
    results = response["results"]
    return ("results", "0") if isinstance(results, list) and len(results) == 1 else ("results",)


def value_text(response: Any) -> str:
    """Return the value in a standard response as one line of JSON; a text is returned unchanged."""
    value = value_of(response) if isinstance(response, Mapping) else response
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def shown_result(call: Call) -> ShownResult:
    """Return the result of an ended call for display; at most one query."""
    response = json.loads(without_macs(call.response)) if call.response else {}
    content = call.content_json
    value = value_of(response) if isinstance(response, dict) else response
    document = result_document(response)
    if content and isinstance(document, dict):
        document = {**document, "content": content}
    texts = [each for each in content if each.get("type") == "text"]
    is_told = isinstance(value, str) and bool(content) and says(content, value)
    has_value = call.status == CallStatus.COMPLETED
    shown = _shown_value(value) if has_value and (texts or not is_told) else {}
    kept = [
        (number, each)
        for number, each in enumerate(content)
        if each.get("type") != "text" or not (is_told or holds_json([each], value))
    ]
    return ShownResult(
        message=call.message if has_value and call.message != NO_MESSAGE else "",
        has_value=has_value,
        raw=_cut(json.dumps(document, indent=2, ensure_ascii=False), RAW_SHOWN),
        blocks=list(shown_blocks(call, kept[:BLOCKS_SHOWN])),
        blocks_more=max(0, len(kept) - BLOCKS_SHOWN),
        kind=kind_in_words(value) if has_value else "",
        size=json_size(value),
        warnings=[each["message"] for each in call.warnings_json],
        **shown,
    )


def _shown_value(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"text": _cut(value, TEXT_SHOWN)}
    if isinstance(value, bool | int | float):
        return {"scalar": json.dumps(value)}
    if isinstance(value, dict):
        path, size = value.get("path"), next((value[name] for name in SIZE_NAMES & value.keys()), None)
        if isinstance(path, str) and value.keys() <= SIZE_NAMES | {"path"} and isinstance(size, int | None):
            return {"path": path[:CELL_SHOWN], "path_size": size}
        if not value:
            return {"scalar": "{}"}
        members = [[ShownText(name[:CELL_SHOWN]), _cell(each, 10 * CELL_SHOWN)] for name, each in value.items()]
        return {"fields": ShownTable((), members[:ROWS_SHOWN], max(0, len(members) - ROWS_SHOWN))}
    return _shown_list(value) if value else {}


def _shown_list(value: list[Any]) -> dict[str, Any]:
    if all(isinstance(each, dict) for each in value):
        columns = list(dict.fromkeys(name for each in value[:ROWS_SHOWN] for name in each))
        if 0 < len(columns) <= COLUMNS_SHOWN:
            rows = [[_cell(each[name]) if name in each else ShownText("") for name in columns] for each in value]
            return {"table": ShownTable(columns, rows[:ROWS_SHOWN], max(0, len(value) - ROWS_SHOWN))}
    if not any(isinstance(each, dict | list) for each in value):
        return {"items": [_cell(each) for each in value[:ROWS_SHOWN]], "items_more": max(0, len(value) - ROWS_SHOWN)}
    return {"text": _cut(json.dumps(value, indent=2, ensure_ascii=False), TEXT_SHOWN)}


def _cell(value: Any, limit: int = CELL_SHOWN) -> ShownText:
    return _cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), limit)


def _cut(text: str, limit: int) -> ShownText:
    return ShownText(text) if len(text) <= limit else ShownText(text[:limit], len(text.encode("utf-8", "replace")))


def shown_blocks(call: Call, blocks: Iterable[tuple[int, Mapping[str, Any]]]) -> Iterator[ShownBlock]:
    """Yield the given blocks of a call, each with its index. Bytes decide whether a block is an image, not its type."""
    pictures = pictures_of(call)
    for number, block in blocks:
        text, label = text_of(block), described_block(block)
        if has_bytes(block):
            url = reverse("call-content", args=[call.public_id, number])
            yield ShownBlock(label, url, is_image=number in pictures)
        elif text is not None and block.get("type") == "text":
            yield ShownBlock("", text=_cut(text, TEXT_SHOWN))
        elif text is not None:
            resource = block.get("resource")
            uri = resource.get("uri") if isinstance(resource, Mapping) else ""
            yield ShownBlock(
                ", ".join(str(each)[:CELL_SHOWN] for each in (uri, media_type_of(block)) if each),
                text=_cut(text, TEXT_SHOWN),
            )
        else:
            yield ShownBlock(label)
