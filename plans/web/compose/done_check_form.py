"""The `done_check` of a step by parts: rows of a result, a comparison and a value, joined by and/or.

Parts and text are two sides of one value: a text that parts cannot express exactly stays text.
"""

import ast
import json
import keyword
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from catalog.core.expressions import ExpressionError, parse
from catalog.ui.forms.form import NUMBER_PATTERN, UNWRITABLE_PATTERN
from plans.conditions import is_constant

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

AND, OR = "and", "or"
PARTS_MODE, TEXT_MODE = "parts", "text"
MAX_CONDITIONS = 40
"""A check of 500 characters has fewer."""
ONE, LIST, NUMBER, NOTHING = "one", "list", "number", ""


@dataclass(frozen=True, slots=True)
class Operator:
    """A comparison: its text with `{0}` for the subject and `{1}` for the value, and which values it takes."""

    label: "StrOrPromise"
    text: str
    takes: str = ONE


OPERATORS: Mapping[str, Operator] = {
    "set": Operator(gettext_lazy("is there"), "{0} is not None", NOTHING),
    "missing": Operator(gettext_lazy("is nothing"), "{0} is None", NOTHING),
    "true": Operator(gettext_lazy("is true or not empty"), "{0}", NOTHING),
    "false": Operator(gettext_lazy("is false or empty"), "not {0}", NOTHING),
    "is": Operator(gettext_lazy("equals"), "{0} == {1}"),
    "is_not": Operator(gettext_lazy("does not equal"), "{0} != {1}"),
    "less": Operator(gettext_lazy("is less than"), "{0} < {1}"),
    "most": Operator(gettext_lazy("is at most"), "{0} <= {1}"),
    "more": Operator(gettext_lazy("is more than"), "{0} > {1}"),
    "least": Operator(gettext_lazy("is at least"), "{0} >= {1}"),
    "contains": Operator(gettext_lazy("contains"), "{1} in {0}"),
    "lacks": Operator(gettext_lazy("does not contain"), "{1} not in {0}"),
    "in": Operator(gettext_lazy("is one of"), "{0} in {1}", LIST),
    "not_in": Operator(gettext_lazy("is none of"), "{0} not in {1}", LIST),
    "length": Operator(gettext_lazy("has the length"), "len({0}) == {1}", NUMBER),
    "longer": Operator(gettext_lazy("has at least the length"), "len({0}) >= {1}", NUMBER),
    "shorter": Operator(gettext_lazy("has at most the length"), "len({0}) <= {1}", NUMBER),
}
KINDS: Mapping[str, "StrOrPromise"] = {
    "text": gettext_lazy("text"),
    "number": gettext_lazy("number"),
    "true": gettext_lazy("true"),
    "false": gettext_lazy("false"),
    "null": gettext_lazy("nothing"),
    "result": gettext_lazy("another result"),
}
CONSTANTS = {"true": "True", "false": "False", "null": "None"}
_COMPARISONS = {
    ast.Is: "missing",
    ast.IsNot: "set",
    ast.Eq: "is",
    ast.NotEq: "is_not",
    ast.Lt: "less",
    ast.LtE: "most",
    ast.Gt: "more",
    ast.GtE: "least",
    ast.In: "in",
    ast.NotIn: "not_in",
}
_LENGTHS = {"is": "length", "least": "longer", "most": "shorter"}
_MEMBERSHIPS = {"in": "contains", "not_in": "lacks"}


@dataclass(frozen=True, slots=True)
class Condition:
    """One row: `subject` is a dotted path that begins with a key of memory or `value`, the value is as typed.

    A list has one item in each line. `joiner` connects the row to the row before it; `and` binds closer than `or`.
    """

    subject: str
    operator: str = "set"
    kind: str = "text"
    value: str = ""
    joiner: str = AND

    @property
    def takes(self) -> str:
        return OPERATORS[self.operator].takes

    @property
    def problem(self) -> str:
        """The reason why the row has no text, or an empty string."""
        if not _is_subject(self.subject):
            return _("Choose a result, such as revenue or value.0.name.")
        if self.takes == LIST and self.kind not in ("text", "number"):
            return _("A list has texts or numbers.")
        if self.takes == NUMBER and not NUMBER_PATTERN.fullmatch(self.value.strip()):
            return _("Enter a number.")
        if self.takes in (ONE, LIST) and self.kind == "number":
            items = self.value.split("\n") if self.takes == LIST else [self.value]
            if not all(NUMBER_PATTERN.fullmatch(item.strip()) for item in items):
                return _("Enter numbers, one in each line.") if self.takes == LIST else _("Enter a number.")
        if self.takes == ONE and self.kind == "result" and not _is_subject(self.value):
            return _("Choose the result to compare with.")
        return ""

    @property
    def text(self) -> str:
        """The expression of a row without a problem."""
        value = ""
        if self.takes == LIST:
            value = f"[{self._list_text}]"
        elif self.takes:
            value = _literal(self._literal_kind, self.value)
        return OPERATORS[self.operator].text.format(_subject_text(self.subject), value)

    @property
    def sentence(self) -> str:
        words = f"{self.subject} {OPERATORS[self.operator].label}"
        if self.takes == LIST:
            return f"{words} {self._list_text}"
        if self.takes == ONE and self.kind in CONSTANTS:
            return f"{words} {KINDS[self.kind]}"
        if self.takes:
            return f"{words} {self.value if self.kind == 'result' else _literal(self._literal_kind, self.value)}"
        return words

    @property
    def _list_text(self) -> str:
        return ", ".join(_literal(self.kind, item) for item in self.value.split("\n"))

    @property
    def _literal_kind(self) -> str:
        return "number" if self.takes == NUMBER else self.kind


def check_text(conditions: Sequence[Condition]) -> str:
    """Return the text of rows that have no problems."""
    pieces = [f"{f' {each.joiner} ' if place else ''}{each.text}" for place, each in enumerate(conditions)]
    return "".join(pieces)


def check_rows(text: str) -> list[Condition] | None:
    """Return the rows that say exactly what a text says; None if no rows do."""
    if not text.strip():
        return []
    try:
        tree = parse(text)
        rows = list(_rows(tree))
        is_exact = not any(row.problem for row in rows) and ast.dump(parse(check_text(rows))) == ast.dump(tree)
    except (ExpressionError, _NotParts):
        return None
    return rows if is_exact else None


class _NotParts(Exception):
    """An expression that no row can say."""


def _rows(tree: ast.expr) -> Iterator[Condition]:
    groups = tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.Or) else [tree]
    for at, group in enumerate(groups):
        nodes = group.values if isinstance(group, ast.BoolOp) and isinstance(group.op, ast.And) else [group]
        for place, node in enumerate(nodes):
            yield replace(_row(node), joiner=OR if at and not place else AND)


def _row(node: ast.expr) -> Condition:
    if not isinstance(node, ast.Compare):
        negated = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) else None
        return Condition(_subject(negated or node), "false" if negated else "true")
    left, right, name = node.left, node.comparators[0], _COMPARISONS[type(node.ops[0])]
    if name in ("missing", "set"):  # compared with None, or the text differs
        return Condition(_subject(left), name)
    if name in _MEMBERSHIPS:
        if not isinstance(right, ast.List):
            return Condition(_subject(right), _MEMBERSHIPS[name], *_value(left))
        items = [_value(item) for item in right.elts]
        return Condition(_subject(left), name, items[0][0] if items else "text", "\n".join(text for _, text in items))
    if isinstance(left, ast.Call) and isinstance(left.func, ast.Name) and left.func.id == "len" and name in _LENGTHS:
        return Condition(_subject(left.args[0]) if left.args else "", _LENGTHS[name], *_value(right))
    return Condition(_subject(left), name, *_value(right))


def _value(node: ast.expr) -> tuple[str, str]:
    """Return the kind and the typed text of a value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if UNWRITABLE_PATTERN.search(node.value):
            raise _NotParts
        return "text", node.value
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool)):
        return next(kind for kind, text in CONSTANTS.items() if text == str(node.value)), ""
    if isinstance(node, ast.Constant | ast.UnaryOp):
        return "number", ast.unparse(node)
    return "result", _subject(node)


def _subject(node: ast.expr) -> str:
    """Return the dotted path that an expression reads."""
    steps: list[str] = []
    while isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        steps.append(str(node.slice.value))
        node = node.value
    if not isinstance(node, ast.Name):
        raise _NotParts
    return ".".join([node.id, *reversed(steps)])


def _is_subject(path: str) -> bool:
    key, *steps = path.split(".")
    is_key = key.isascii() and key.isidentifier() and not keyword.iskeyword(key)
    return is_key and all(steps) and not UNWRITABLE_PATTERN.search(path) and "\n" not in path


def _subject_text(path: str) -> str:
    key, *steps = path.split(".")
    return key + "".join(f"[{step if _is_index(step) else json.dumps(step, ensure_ascii=False)}]" for step in steps)


def _is_index(step: str) -> bool:
    return step.isascii() and step.isdecimal() and len(step) < 10 and (step == "0" or step[0] != "0")


def _literal(kind: str, text: str) -> str:
    if kind in CONSTANTS:
        return CONSTANTS[kind]
    if kind == "result":
        return _subject_text(text)
    return text.strip() if kind == "number" else json.dumps(text, ensure_ascii=False)


@dataclass(kw_only=True)
class DoneCheckForm:
    """The check while it is edited, by parts or as text; `problems` are those of the whole check."""

    mode: str = PARTS_MODE
    rows: list[Condition] = field(default_factory=list)
    text: str = ""
    problems: list[str] = field(default_factory=list)
    focus: int | None = None
    """Place of the row whose first control gets the focus."""

    @classmethod
    def of_text(cls, text: str) -> "DoneCheckForm":
        rows = check_rows(text)
        return cls(text=text, mode=TEXT_MODE) if rows is None else cls(text=text, rows=rows)

    @classmethod
    def read(cls, sent: QueryDict) -> "DoneCheckForm":
        """Read a submitted form; what it does not know counts as the first choice."""
        if sent.get("check_mode") == TEXT_MODE:
            return cls(mode=TEXT_MODE, text=sent.get("check_text", "").replace("\r\n", "\n"))
        columns = [sent.getlist(f"check_{name}")[:MAX_CONDITIONS] for name in ("subject", "operator", "kind", "value")]
        joiners = sent.getlist("check_joiner")
        rows = [
            Condition(
                subject.strip(),
                operator if operator in OPERATORS else "set",
                kind if kind in KINDS else "text",
                value.replace("\r\n", "\n"),
                OR if place < len(joiners) and joiners[place] == OR else AND,
            )
            for place, (subject, operator, kind, value) in enumerate(zip(*columns, strict=False))
        ]
        return cls(rows=rows)

    @property
    def is_exact(self) -> bool:
        """True if parts can say the text."""
        return self.mode == PARTS_MODE or check_rows(self.text) is not None

    @property
    def said_rows(self) -> list[Condition]:
        """The rows with a subject; an empty row says nothing."""
        return [row for row in self.rows if row.subject or row.value]

    @property
    def has_problems(self) -> bool:
        return self.mode == PARTS_MODE and any(row.problem for row in self.said_rows)

    def done_check(self, before: str = "") -> str:
        """Return the text of the check; `before` unchanged if the rows say the same. Rows must have no problems."""
        if self.mode == TEXT_MODE:
            return self.text
        return before if check_rows(before) == self.said_rows else check_text(self.said_rows)

    @property
    def sentence(self) -> str:
        """The meaning of a check without problems in words."""
        if self.has_problems:
            return ""
        if self.mode == TEXT_MODE and self.text.strip():
            try:
                constant = is_constant(self.text)
            except ExpressionError as error:
                return str(error)
            if constant:
                return _("It reads no result, so it is always the same.")
        rows = self.said_rows if self.mode == PARTS_MODE else check_rows(self.text)
        if rows is None:
            return _("The step counts as done, without running, when the text is true.")
        if not rows:
            return _("No condition: the step always runs. Where a condition is true already, it counts as done.")
        joined = rows[0].sentence
        for row in rows[1:]:
            joined += f"{_(', or ') if row.joiner == OR else _(' and ')}{row.sentence}"
        return _("The step counts as done, without running, if %(check)s.") % {"check": joined}

    def press(self, action: str, place: str) -> None:
        """Handle a button: add or remove a row, or show the check by parts or as text."""
        if action == "add" and len(self.rows) < MAX_CONDITIONS:
            self.rows.append(Condition(""))
            self.focus = len(self.rows) - 1
        elif action == "remove" and place.isascii() and place.isdecimal() and len(place) < 4:
            del self.rows[int(place) : int(place) + 1]
            self.focus = max(0, int(place) - 1) if self.rows else None
        elif action == "show" and place == TEXT_MODE and not self.has_problems:
            self.text, self.mode = self.done_check(), TEXT_MODE
        elif action == "show" and place == PARTS_MODE and (rows := check_rows(self.text)) is not None:
            self.rows, self.mode = rows, PARTS_MODE
