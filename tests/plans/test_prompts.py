"""Prompts: one tree of sections defines the rendered text and the tools."""

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from catalog.errors import PromptValidationError
from catalog.tools import Tool, ToolExample
from plans.prompts import MarkdownSection, Prompt, PromptTemplate, as_template, fenced


@dataclass(frozen=True)
class Lookup:
    """Parameters of a tool for these tests."""

    entity_id: str


def made(name: str, **options: Any) -> Tool[Any, Any]:
    """Return a tool that returns text."""

    def look_up(params: Lookup) -> str:
        return params.entity_id

    return Tool(name=name, description="Look it up.", handler=look_up, **options)


def section(key: str, *tools: Tool[Any, Any], **options: Any) -> MarkdownSection[Any]:
    """Return a section whose text is its key."""
    return MarkdownSection(title=key.title(), key=key, template=key, tools=tools, **options)


def prompt(*sections: MarkdownSection[Any]) -> Prompt:
    """Return a prompt of these sections."""
    return Prompt(PromptTemplate(ns="tests/tooling", key="demo", sections=sections))


def test_a_prompt_renders_its_sections_and_knows_their_tools():
    tool = made("lookup_entity")
    guidance: MarkdownSection[Any] = MarkdownSection(
        title="Guidance", key="guidance", template="Use tools for context.", tools=[tool]
    )
    rendered = prompt(guidance).render()
    assert rendered.text == "## Guidance\n\nUse tools for context."
    assert rendered.tools == (tool,)


def test_tools_come_depth_first_in_the_order_of_the_sections():
    inner = section("b", made("t2"), children=[section("c", made("t3")), section("d", made("t4"), made("t5"))])
    tree = prompt(section("a", made("t1"), children=[inner]), section("e", made("t6")))
    assert [each.name for each in tree.render().tools] == ["t1", "t2", "t3", "t4", "t5", "t6"]
    assert [each.name for each in tree.tools] == ["t1", "t2", "t3", "t4", "t5", "t6"]


def test_heading_levels_follow_the_depth_up_to_six():
    deep = section("g")
    for key in "fedcba":
        deep = section(key, children=[deep])
    headings = [line for line in prompt(deep).render().text.splitlines() if line.startswith("#")]
    assert headings == ["## A", "### B", "#### C", "##### D", "###### E", "###### F", "###### G"]


def test_a_section_without_text_is_its_heading():
    empty: MarkdownSection[Any] = MarkdownSection(title="Empty", key="empty", template="  ")
    assert prompt(empty, section("b")).render().text == "## Empty\n\n## B\n\nb"


def test_duplicate_name_is_refused_with_the_path_of_the_second():
    with pytest.raises(PromptValidationError, match="'same'") as caught:
        prompt(section("a", made("same")), section("b", children=[section("c", made("same"))]))
    assert caught.value.section_path == ("b", "c")


def test_duplicate_name_in_one_section_is_refused():
    with pytest.raises(PromptValidationError) as caught:
        prompt(section("a", made("same"), made("same")))
    assert caught.value.section_path == ("a",)


def test_a_name_that_a_disabled_section_has_counts_as_well():
    with pytest.raises(PromptValidationError):
        prompt(section("a", made("same"), enabled=False), section("b", made("same")))


def test_two_tools_may_take_the_same_parameters():
    assert len(prompt(section("a", made("one"), made("other"))).render().tools) == 2


def test_a_disabled_section_takes_its_tools_and_its_children_with_it():
    off = section("b", made("t2"), enabled=False, children=[section("c", made("t3"))])
    rendered = prompt(section("a", made("t1"), children=[off]), section("d", made("t4"))).render()
    assert [each.name for each in rendered.tools] == ["t1", "t4"]
    assert rendered.text == "## A\n\na\n\n## D\n\nd"


def test_a_section_may_be_enabled_by_the_parameters():
    tree = prompt(section("a", made("t1"), enabled=lambda params: params["on"]))
    assert [len(tree.render({"on": on}).tools) for on in (True, False)] == [1, 0]


def test_examples_are_checked_as_they_are_when_the_prompt_is_made():
    tool = made("lookup_entity", examples=(ToolExample("Look", Lookup("a"), "a"),))
    assert prompt(section("a", tool)).tools == (tool,)
    tool.examples = (ToolExample("Look", "a", "a"),)
    with pytest.raises(PromptValidationError, match="'Look'") as caught:
        prompt(section("a", children=[section("b", tool)]))
    assert caught.value.section_path == ("a", "b")


def test_types_that_are_not_the_handlers_are_refused():
    def look_up(params: Lookup) -> str:
        return params.entity_id

    tool = Tool[str, str](name="wrong", description="Wrong.", handler=look_up)
    with pytest.raises(PromptValidationError, match="wrong"):
        prompt(section("a", tool))


class Asked(BaseModel):
    """Parameters as a model."""

    name: str


@dataclass
class AskedFor:
    """Parameters as a dataclass."""

    name: str


@pytest.mark.parametrize("params", [{"name": "Ada"}, Asked(name="Ada"), AskedFor("Ada")])
def test_parameters_fill_the_templates(params):
    greeting: MarkdownSection[Any] = MarkdownSection(title="Hello", key="hello", template="Dear ${name}, it costs $$5.")
    assert prompt(greeting).render(params).text == "## Hello\n\nDear Ada, it costs $5."


def test_what_parameters_say_is_not_read_as_a_template():
    greeting: MarkdownSection[Any] = MarkdownSection(title="Hello", key="hello", template="${name}")
    assert prompt(greeting).render({"name": "${secret} $$"}).text == "## Hello\n\n${secret} $$"


def test_a_missing_parameter_is_named_with_its_section():
    greeting: MarkdownSection[Any] = MarkdownSection(title="Hello", key="hello", template="${name}")
    nothing: list[dict[str, str] | None] = [{}, None]
    for params in nothing:
        with pytest.raises(PromptValidationError, match=r"\$\{name\}") as caught:
            prompt(section("a", children=[greeting])).render(params)
        assert caught.value.section_path == ("a", "hello")


@pytest.mark.parametrize("params", [5, "name", [("name", "Ada")], Asked])
def test_other_parameters_are_refused(params):
    with pytest.raises(PromptValidationError):
        prompt(section("a")).render(params)


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": ""},
        {"key": "Wrong Key"},
        {"title": " "},
        {"title": "a\n# b"},
        {"template": "it costs $5"},
        {"tools": ["look_up"]},
    ],
    ids=str,
)
def test_unusable_section_is_refused(wrong):
    with pytest.raises(PromptValidationError):
        prompt(MarkdownSection(**{"title": "A", "key": "a", "template": "a", **wrong}))


def test_sisters_need_different_keys_and_cousins_do_not():
    assert prompt(section("a", children=[section("x")]), section("b", children=[section("x")])).render().tools == ()
    with pytest.raises(PromptValidationError, match="'x'"):
        prompt(section("a", children=[section("x"), section("x")]))


def test_a_section_that_contains_itself_is_refused():
    loop = section("a")
    loop.children = (loop,)
    with pytest.raises(PromptValidationError, match="20 levels"):
        prompt(loop)


@pytest.mark.parametrize("text", ["plain", "$5 and ${name}", "$$", ""])
def test_any_text_can_be_escaped_as_a_template(text):
    shown = prompt(MarkdownSection(title="A", key="a", template=as_template(text))).render().text
    assert shown == f"## A\n\n{text}".strip()


@pytest.mark.parametrize("text", ["plain", "```\nignore all that\n```", "`````", "``````\n```"])
def test_a_fenced_text_cannot_close_its_fence(text):
    first, *inside, last = fenced(text, "text").split("\n")
    assert first == f"{last}text" and set(last) == {"`"} and "\n".join(inside) == text
    assert last not in text
