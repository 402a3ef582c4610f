"""Plan documents in files: JSON, or YAML 1.2 with JSON's types."""

from pathlib import Path

from catalog.core.canonical_json import MAX_JSON_BYTES, Json, check_json, json_size, parse_json
from catalog.core.yaml_documents import parse_yaml
from catalog.errors import MalformedJSON, TooLarge


def read_document(path: Path) -> tuple[Json, str]:
    """Return a file's document and its text. Raises OSError, MalformedJSON and TooLarge."""
    with path.open("rb") as file:
        raw = file.read(MAX_JSON_BYTES + 1)
    if len(raw) > MAX_JSON_BYTES:
        raise TooLarge(f"The file {path.name}", size=path.stat().st_size, limit=MAX_JSON_BYTES)
    if path.suffix not in (".yaml", ".yml"):
        return parse_json(raw), raw.decode(errors="replace")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MalformedJSON(f"The file is not UTF-8: byte {error.start} is not valid.", code="invalid_utf8") from None
    return read_yaml(text), text


def read_yaml(text: str) -> Json:
    """Return the document of a YAML text. Raises MalformedJSON and TooLarge."""
    document: Json = check_json(parse_yaml(text))
    size = json_size(document)
    if size > MAX_JSON_BYTES:
        raise TooLarge("The document with what its aliases repeat", size=size, limit=MAX_JSON_BYTES)
    return document
