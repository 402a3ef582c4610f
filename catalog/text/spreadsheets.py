"""CSV that spreadsheets read as text: no cell is evaluated as a formula, and hidden characters are spelled out."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from datetime import datetime

from catalog.text.deceptive_text import split_hidden

FORMULA_START = re.compile(r"(^|;)(?= *[=+\-@\t\r\uff1d\uff0b\uff0d\uff20])")
"""The place before a formula. In many languages a semicolon ends a cell, and wide signs count as their plain ones."""


def escape_formula(text: str) -> str:
    """Return a cell that spreadsheets do not evaluate, with line breaks and hidden characters spelled out."""
    quoted = FORMULA_START.sub(r"\1'", text)
    spelled = "".join(piece.text for piece in split_hidden(quoted))
    return "".join(f"U+{ord(each):04X}" if each in "\t\n\r" else each for each in spelled)


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as lines of CSV. Times are written in ISO 8601, None as an empty cell, numbers as they are."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    if value is None or isinstance(value, int | float):
        return value
    return escape_formula(value.isoformat() if isinstance(value, datetime) else str(value))
