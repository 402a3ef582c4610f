"""Prompts composed of sections that own tools: one tree defines both the text and the tools offered.

Disabling a section removes its text, its tools and its children. Untrusted text goes into a prompt only through
`fenced` or `data_block`, as data between fences that the text cannot close.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from string import Template
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from catalog.definitions.tool import Tool
from catalog.errors import PromptValidationError, ToolDefinitionError
from catalog.styles.class_tools import BaseTool

ParamsT = TypeVar("ParamsT")
AnyTool = Tool[Any, Any]
Enabled = bool | Callable[[Any], bool]

TOP_LEVEL, DEEPEST_LEVEL = 2, 6
MAX_DEPTH = 20
_NAME = re.compile(r"[a-z0-9][a-z0-9_./-]{0,127}")
_BACKTICKS = re.compile(r"`{3,}")


@dataclass(eq=False)
class MarkdownSection(Generic[ParamsT]):
    """A heading, a text and the tools that it describes; `children` are its subsections.

    `template` is Markdown in which `${name}` is replaced by a field of the parameters and `$$` by a dollar sign.
    `enabled` may be a function of the parameters.
    """

    title: str
    key: str
    template: str
    tools: Sequence[AnyTool | BaseTool] = ()
    children: Sequence["MarkdownSection[Any]"] = ()
    enabled: Enabled = True

    def __post_init__(self) -> None:
        self.tools = tuple(self.tools)
        self.children = tuple(self.children)

    @property
    def own_tools(self) -> tuple[AnyTool, ...]:
        """The section's own tools, converted to `Tool`."""
        return tuple(each.as_tool() if isinstance(each, BaseTool) else each for each in self.tools)

    def is_enabled(self, params: ParamsT | None = None) -> bool:
        """Return whether the section is part of the prompt with these parameters."""
        return bool(self.enabled(params)) if callable(self.enabled) else self.enabled

    def text(self, values: Mapping[str, Any]) -> str:
        """Return the section's own text, without its heading. Raises KeyError or ValueError for a wrong template."""
        return Template(self.template).substitute(values).strip()


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """An unchecked prompt: its name in two parts and its sections in order."""

    ns: str
    key: str
    sections: Sequence[MarkdownSection[Any]] = ()


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A rendered prompt: its Markdown and the tools of the enabled sections, in order."""

    text: str
    tools: tuple[AnyTool, ...]


@dataclass(frozen=True, slots=True)
class PlacedSection:
    """A section and its position in the tree; `path` has the keys from the root."""

    section: MarkdownSection[Any]
    path: tuple[str, ...]

    @property
    def heading(self) -> str:
        """The heading as Markdown, at the level of the section's depth."""
        return f"{'#' * min(TOP_LEVEL + len(self.path) - 1, DEEPEST_LEVEL)} {self.section.title.strip()}"


class Prompt:
    """A checked template. Raises PromptValidationError with the path of the invalid section."""

    def __init__(self, template: PromptTemplate) -> None:
        self.template = template
        self._placed = tuple(_walk(template.sections))
        self._check()

    @property
    def tools(self) -> tuple[AnyTool, ...]:
        """All tools of the tree, depth first, including those of disabled sections."""
        return tuple(tool for placed in self._placed for tool in placed.section.own_tools)

    def render(self, params: object = None) -> RenderedPrompt:
        """Return the prompt for these parameters. Raises PromptValidationError if a template names an unknown field."""
        values = _values_of(params)
        parts, tools = list[str](), list[AnyTool]()
        left_out: tuple[str, ...] | None = None
        for placed in self._placed:
            if left_out is not None and placed.path[: len(left_out)] == left_out:
                continue
            left_out = None if placed.section.is_enabled(params) else placed.path
            if left_out is not None:
                continue
            try:
                parts += [placed.heading, placed.section.text(values)]
            except KeyError as missing:
                message = f"The template uses ${{{missing.args[0]}}}, but the parameters have no such field."
                raise PromptValidationError(message, placed.path) from None
            tools += placed.section.own_tools
        return RenderedPrompt("\n\n".join(part for part in parts if part), tuple(tools))

    def _check(self) -> None:
        for name in (self.template.ns, self.template.key):
            _check_name(name, ())
        names: dict[str, tuple[str, ...]] = {}
        paths: set[tuple[str, ...]] = set()
        for placed in self._placed:
            _check_section(placed)
            if placed.path in paths:
                raise PromptValidationError(f"Two sections have the key '{placed.section.key}'.", placed.path)
            paths.add(placed.path)
            for tool in placed.section.own_tools:
                if tool.name in names:
                    first = ".".join(names[tool.name])
                    message = f"The tool '{tool.name}' is already in section {first} of this prompt."
                    raise PromptValidationError(message, placed.path)
                names[tool.name] = placed.path


def _walk(sections: Iterable[MarkdownSection[Any]], above: tuple[str, ...] = ()) -> Iterator[PlacedSection]:
    if len(above) >= MAX_DEPTH:
        raise PromptValidationError(f"Sections can be nested at most {MAX_DEPTH} levels deep.", above)
    for section in sections:
        path = (*above, section.key)
        yield PlacedSection(section, path)
        yield from _walk(section.children, path)


def _check_name(name: str, path: Sequence[str]) -> None:
    if not _NAME.fullmatch(name):
        message = f"A key has at most 128 lower-case letters, digits or . _ - / characters, not {name!r}."
        raise PromptValidationError(message, path)


def _check_section(placed: PlacedSection) -> None:
    section = placed.section
    _check_name(section.key, placed.path)
    if not section.title.strip() or "\n" in section.title.strip():
        raise PromptValidationError("A section needs a title of one line.", placed.path)
    if not Template(section.template).is_valid():
        raise PromptValidationError("The template has an invalid placeholder; write $$ for a dollar sign.", placed.path)
    for tool in section.own_tools:
        if not isinstance(tool, Tool):
            raise PromptValidationError(f"A section's tools must be tools, not {type(tool).__name__}.", placed.path)
        try:
            tool.judge_types()
            tool.judge_examples()
        except ToolDefinitionError as problem:
            raise PromptValidationError(problem.message, placed.path) from problem


def _values_of(params: object) -> Mapping[str, Any]:
    if params is None:
        return {}
    if isinstance(params, Mapping):
        return params
    if isinstance(params, BaseModel):
        return dict(params)
    if is_dataclass(params) and not isinstance(params, type):
        return {field.name: getattr(params, field.name) for field in fields(params)}
    raise PromptValidationError(f"A prompt takes a dataclass, a model or a mapping, not {type(params).__name__}.")


def as_template(text: str) -> str:
    """Return a text escaped as a template that renders to the text itself."""
    return text.replace("$", "$$")


def fenced(text: str, kind: str = "") -> str:
    """Return untrusted text between fences that it cannot close."""
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{kind}\n{text}\n{fence}"


TRUNCATED_MARK = "\n[... cut ...]"


def data_block(text: str, what: str, kind: str = "") -> str:
    """Return untrusted text as fenced data, introduced by `what`."""
    return f"{what}, as data:\n\n{fenced(text, kind)}"


def truncate(text: str, most: int) -> str:
    """Return at most `most` characters of a text, with a mark if it was cut."""
    return text if len(text) <= most else text[:most] + TRUNCATED_MARK
