"""Full-text search of tools by name, description and parameters, with SQLite's FTS5 or PostgreSQL.

Words are split and normalized here, so that both databases return the same tools.
"""

import unicodedata

from django.db.models import Case, F, IntegerField, Q, Value, When
from django.db.models.expressions import RawSQL

from catalog.core.database import on_sqlite
from catalog.models import Tool, ToolText
from catalog.schemas.description import parameter_tables

MAX_QUERY_LENGTH = 200
MAX_QUERY_WORDS = 10
MAX_WORD_LENGTH = 64
MAX_INDEXED_TEXT = 64 * 1024
"""Characters of a tool's description and parameters that are indexed."""
INDEX_BATCH_SIZE = 500
NO_SPACES_FROM = "\u2e80"
"""Above this code point are the scripts without spaces between words; each of their letters counts as a word."""
MATCH_SQL = {
    "sqlite": "SELECT rowid FROM catalog_toolsearch WHERE catalog_toolsearch MATCH %s",
    "postgresql": "SELECT tool_id FROM catalog_tooltext WHERE {} @@ %s::tsquery",
}


def search_words(text: str) -> list[str]:
    """Split a text into its distinct words, in order, without case and accents."""
    plain = unicodedata.normalize("NFKD", text).casefold()
    kept = "".join(each if each.isascii() and each.isalnum() else _normalize_character(each) for each in plain)
    return list(dict.fromkeys(word[:MAX_WORD_LENGTH] for word in kept.split()))


def _normalize_character(letter: str) -> str:
    """Return the replacement of a character: nothing for an accent, a space for a separator."""
    if unicodedata.combining(letter):
        return ""
    if letter >= NO_SPACES_FROM and letter.isalpha():
        return f" {letter} "
    return letter if letter.isalnum() or unicodedata.category(letter).startswith("M") else " "


def matching_words(text: str) -> Q:
    """Return the condition that a tool matches every word of the text. A text without words matches no tool."""
    return _matching_keys(text, name_only=False)


def name_match_rank(text: str) -> Case:
    """Return the rank of a match: 0 the name equals the text, 1 starts with it, 2 contains it, 3 matches elsewhere."""
    said = text.strip()[:MAX_QUERY_LENGTH]
    return Case(
        When(name__iexact=said, then=Value(0)),
        When(name__istartswith=said, then=Value(1)),
        When(_matching_keys(text, name_only=True), then=Value(2)),
        default=Value(3),
        output_field=IntegerField(),
    )


def _matching_keys(text: str, *, name_only: bool) -> Q:
    words = search_words(text[:MAX_QUERY_LENGTH])[:MAX_QUERY_WORDS]
    if not words:
        return Q(pk__in=())
    # Words contain only letters and digits, so they need no escaping in either query language.
    if not on_sqlite():
        select = MATCH_SQL["postgresql"].format("name_index" if name_only else "whole_index")
        return Q(pk__in=RawSQL(select, [" & ".join(f"'{word}':*" for word in words)]))  # noqa: S611 - no input in it
    asked = " AND ".join(f'"{word}"*' for word in words)
    return Q(pk__in=RawSQL(MATCH_SQL["sqlite"], [f"name_words : ({asked})" if name_only else asked]))  # noqa: S611


def index_changed_tools() -> None:
    """Index the tools whose current version is not indexed yet. Call it in the transaction that changes tools."""
    stale = Q(text=None) | ~Q(text__version=F("current_version"))
    tools = Tool.objects.filter(stale, current_version__isnull=False).select_related("current_version")
    texts = []
    for tool in tools:
        words = search_words(tool.name)
        whole = "".join(words)
        # Suffixes of the name and of each of its words, so that a prefix search finds any part of the name.
        fragments = [whole, *(word[start:] for word in words for start in range(len(word)))]
        name_words = " ".join(dict.fromkeys(fragments))
        others = []
        if (version := tool.current_version) is not None:
            others.append(version.description)
            for table in parameter_tables(version.input_schema, version.query_types):
                others += [table.query_type, table.description]
                others += [text for row in table.rows for text in (row.name, row.description)]
        other_words = " ".join(search_words(" ".join(others)[:MAX_INDEXED_TEXT]))
        texts.append(ToolText(tool=tool, version=tool.current_version, name_words=name_words, other_words=other_words))
    ToolText.objects.bulk_create(
        texts,
        batch_size=INDEX_BATCH_SIZE,
        update_conflicts=True,
        unique_fields=["tool"],
        update_fields=["version", "name_words", "other_words"],
    )
