"""Submitted fields of a form made from JSON Schema: flat fields named by paths, strictly read.

A field's name is a word, a colon and a path, such as `value:plan.0.title`. A step of a path is a member's name
(percent-encoded), the index of a list entry, or `+` and the index of a member that the schema does not declare.
"""

import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote

from django.http import QueryDict
from django.utils.translation import gettext as _

from catalog.errors import ParameterError
from catalog.schemas import ArgumentProblem, raise_for_problems

FIELD_PREFIXES = ("value", "json", "reference", "given", "null", "pick", "was", "size", "key")
MAX_LIST_ROWS = 200
MAX_PATH_STEPS = 24
MAX_FIELD_NAME = 4000
STEP_PATTERN = r"(?:[A-Za-z0-9_~-]|%[0-9A-F]{2})+|\+[0-9]{0,3}"
PATH_PATTERN = re.compile(rf"(?:{STEP_PATTERN})(?:\.(?:{STEP_PATTERN}))*|")
ROW_PATTERN = re.compile(r"\+?([0-9]{1,3})")


def member_step(member: str) -> str:
    """Return a member's name as a step of a path. The empty name becomes `+`."""
    return quote(member, safe="").replace(".", "%2E") or "+"


class FormFields:
    def __init__(self, fields: Mapping[str, str] | None = None) -> None:
        self._fields = dict(fields or {})

    @classmethod
    def read(cls, form: QueryDict) -> "FormFields":
        """Read submitted fields; names without a colon belong to the page. Raises ParameterError for invalid names."""
        problems, fields = [], {}
        for name, values in form.lists():
            word, colon, path = name.partition(":")
            if not colon:
                continue
            if word not in FIELD_PREFIXES or not is_field_path(path) or len(values) != 1:
                problems.append(ArgumentProblem("", "unknown_field", _("The form contains an unknown field.")))
                break
            fields[name] = values[0].replace("\r\n", "\n")
        raise_for_problems(problems)
        return cls(fields)

    def text(self, word: str, name: str) -> str | None:
        return self._fields.get(f"{word}:{name}")

    @property
    def hidden(self) -> list[tuple[str, str]]:
        """All fields with their full names, to be sent again unseen."""
        return list(self._fields.items())

    def put(self, word: str, name: str, text: str) -> None:
        self._fields[f"{word}:{name}"] = text

    def inside(self, name: str) -> dict[str, str]:
        """Return the filled fields at and inside a path; a variant replaced by another is not among them."""
        return {
            f"{word}:{path}": text
            for word, path in self._paths()
            if word != "was" and f"{path}.".startswith(f"{name}.") and (text := self._fields[f"{word}:{path}"])
        }

    def size(self, name: str) -> int:
        """Return the number of rows of the list at a path. Raises ParameterError if the number is invalid."""
        text = self.text("size", name) or "0"
        if not re.fullmatch(r"[0-9]{1,3}", text) or int(text) > MAX_LIST_ROWS:
            raise_for_problems([ArgumentProblem("", "size", _list_full_message())])
        return int(text)

    def places(self) -> frozenset[str]:
        """Return all paths with submitted fields, and all paths that enclose them."""
        paths = {path for _, path in self._paths()}
        return frozenset(".".join(path_steps(path)[:end]) for path in paths for end in range(path.count(".") + 2))

    def add_row(self, name: str) -> int:
        """Add a row to a list and return its index. Raises ParameterError if the list is full."""
        if self.size(name) >= MAX_LIST_ROWS:
            raise ParameterError(_list_full_message())
        self.put("size", name, str(self.size(name) + 1))
        return self.size(name) - 1

    def remove_row(self, name: str) -> None:
        """Remove the row at a path and move later rows up. Does nothing if the path is not that of a row."""
        *parent, last = path_steps(name) or [""]
        row, owner = ROW_PATTERN.fullmatch(last), ".".join(parent)
        if row is None or int(row[1]) >= self.size(owner):
            return
        kept = ((_shifted_name(field, parent, last), text) for field, text in self._fields.items())
        self._fields = {field: text for field, text in kept if field}
        self.put("size", owner, str(self.size(owner) - 1))

    def drop(self, name: str) -> None:
        """Remove all fields at and inside a path."""
        for word, path in list(self._paths()):
            if not name or path == name or path.startswith(f"{name}."):
                del self._fields[f"{word}:{path}"]

    def settled(self) -> "FormFields":
        """Return these fields without those of a variant that the user has just replaced by another."""
        fields = FormFields(self._fields)
        for word, name in self._paths():
            picked = fields.text("pick", name)
            if word == "was" and picked is not None and picked != fields.text("was", name):
                fields.drop(name)
                fields.put("pick", name, picked)
        return fields

    def with_previous_variants(self) -> "FormFields":
        old = {f"pick:{name}": self._fields[f"was:{name}"] for word, name in self._paths() if word == "was"}
        return FormFields(self._fields | old)

    def _paths(self) -> Iterator[tuple[str, str]]:
        for field in self._fields:
            word, _, path = field.partition(":")
            yield word, path


def is_field_path(text: str) -> bool:
    return len(text) <= MAX_FIELD_NAME and text.count(".") < MAX_PATH_STEPS and PATH_PATTERN.fullmatch(text) is not None


def path_steps(name: str) -> list[str]:
    return name.split(".") if name else []


def _shifted_name(field: str, parent: list[str], gone: str) -> str | None:
    """Return a field's name after row `gone` of `parent` was removed; None if the field is inside that row."""
    word, _, path = field.partition(":")
    steps, at = path_steps(path), len(parent)
    row = ROW_PATTERN.fullmatch(steps[at]) if len(steps) > at and steps[:at] == parent else None
    sign = "+" if gone.startswith("+") else ""
    if row is None or steps[at].startswith("+") != bool(sign):
        return field
    number, limit = int(row[1]), int(gone.removeprefix("+"))
    if number == limit:
        return None
    steps[at] = f"{sign}{number - (number > limit)}"
    return f"{word}:{'.'.join(steps)}"


def _list_full_message() -> str:
    return _("A list in a form can have at most %(most)d rows. Use JSON for more.") % {"most": MAX_LIST_ROWS}
