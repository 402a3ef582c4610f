"""Finding tools by the words of their names, descriptions and parameters, with FTS5 or PostgreSQL's full text.

Words are cut and folded here, for both alike, so that both find the same. A word finds what starts with it, and in a
name whatever holds it. Knows nothing of pages: it turns words into a condition, and tools into words.
"""

import unicodedata
from collections.abc import Iterable, Iterator

from django.db import connection
from django.db.models import Case, F, IntegerField, Q, Value, When
from django.db.models.expressions import RawSQL

from catalog.models import Tool, ToolText
from catalog.schemas.description import parameter_tables

LONGEST_QUERY = 200
MOST_WORDS = 10
LONGEST_WORD = 64
LONGEST_TEXT = 64 * 1024
"""Characters of a tool's description and parameters that are looked into."""
AT_ONCE = 500
NO_SPACES_FROM = "\u2e80"
"""From here on lie the scripts that write words without spaces between them; each of their letters is a word."""
SELECTS = {
    "sqlite": "SELECT rowid FROM catalog_toolsearch WHERE catalog_toolsearch MATCH %s",
    "postgresql": "SELECT tool_id FROM catalog_tooltext WHERE {} @@ %s::tsquery",
}


def words_of(text: str) -> list[str]:
    """Cut a text into its different words, in their order, without case and accents."""
    plain = unicodedata.normalize("NFKD", text).casefold()
    kept = "".join(each if each.isascii() and each.isalnum() else _fitted(each) for each in plain)
    return list(dict.fromkeys(word[:LONGEST_WORD] for word in kept.split()))


def _fitted(letter: str) -> str:
    """Return what stands for a character: nothing for an accent, a space for what parts words."""
    if unicodedata.combining(letter):
        return ""
    if letter >= NO_SPACES_FROM and letter.isalpha():
        return f" {letter} "
    return letter if letter.isalnum() or unicodedata.category(letter).startswith("M") else " "


def matching(text: str) -> Q:
    """Return the condition that a tool has every word of the text; without any word no tool fits."""
    return _having(text, name_only=False)


def nearness(text: str) -> Case:
    """Return how near a tool's name is to the text: 0 is the name, 1 starts it, 2 is in it, 3 lies elsewhere."""
    said = text.strip()[:LONGEST_QUERY]
    return Case(
        When(name__iexact=said, then=Value(0)),
        When(name__istartswith=said, then=Value(1)),
        When(_having(text, name_only=True), then=Value(2)),
        default=Value(3),
        output_field=IntegerField(),
    )


def _having(text: str, *, name_only: bool) -> Q:
    words = words_of(text[:LONGEST_QUERY])[:MOST_WORDS]
    if not words:
        return Q(pk__in=())
    # Words hold letters and digits alone, so they need no escaping in either language.
    if connection.vendor == "postgresql":
        select = SELECTS["postgresql"].format("name_index" if name_only else "whole_index")
        return Q(pk__in=RawSQL(select, [" & ".join(f"'{word}':*" for word in words)]))  # noqa: S611 - no input in it
    asked = " AND ".join(f'"{word}"*' for word in words)
    return Q(pk__in=RawSQL(SELECTS["sqlite"], [f"name_words : ({asked})" if name_only else asked]))  # noqa: S611


def index_changed() -> None:
    """Read the words of each tool whose current version is not the one they were read from.

    Called in the transaction that changes tools, so that what is found is what is there.
    """
    stale = Q(text=None) | ~Q(text__version=F("current_version"))
    tools = Tool.objects.filter(stale, current_version__isnull=False).select_related("current_version")
    ToolText.objects.bulk_create(
        (_text_of(tool) for tool in tools),
        batch_size=AT_ONCE,
        update_conflicts=True,
        unique_fields=["tool"],
        update_fields=["version", "name_words", "other_words"],
    )


def _text_of(tool: Tool) -> ToolText:
    other = " ".join(_described(tool))[:LONGEST_TEXT]
    return ToolText(
        tool=tool,
        version=tool.current_version,
        name_words=" ".join(dict.fromkeys(_parts(words_of(tool.name)))),
        other_words=" ".join(words_of(other)),
    )


def _parts(words: Iterable[str]) -> Iterator[str]:
    """Yield the name in one word, and each of its words from each of its letters on: what starts there is in it."""
    words = list(words)
    yield "".join(words)
    for word in words:
        yield from (word[start:] for start in range(len(word)))


def _described(tool: Tool) -> Iterator[str]:
    version = tool.current_version
    if version is None:
        return
    yield version.description
    for table in parameter_tables(version.input_schema, version.query_types):
        yield from (table.query_type, table.description)
        for row in table.rows:
            yield from (row.name, row.description)
