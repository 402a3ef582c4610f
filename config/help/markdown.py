"""Markdown of the guides as HTML, of known elements only.

HTML in a guide is shown as text, except `<kbd>`. Attributes, such as the alignment of table cells, are left out.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

PARSER = MarkdownIt("commonmark").enable("table")
ELEMENTS = {
    "paragraph": "<p>{}</p>",
    "bullet_list": "<ul>{}</ul>",
    "ordered_list": "<ol>{}</ol>",
    "list_item": "<li>{}</li>",
    "blockquote": "<blockquote>{}</blockquote>",
    "strong": "<strong>{}</strong>",
    "em": "<em>{}</em>",
    "thead": "<thead>{}</thead>",
    "tbody": "<tbody>{}</tbody>",
    "tr": "<tr>{}</tr>",
    "th": '<th scope="col">{}</th>',
    "td": "<td>{}</td>",
    "softbreak": " {}",
    "hardbreak": "<br>{}",
    "hr": "<hr>{}",
}
TABLE = '<div class="table" role="group" tabindex="0" aria-label="{}"><table class="data-table">{}</table></div>'
CODE = (
    '<div class="snippet">'
    '<pre class="code" id="code-{number}" tabindex="0" role="group" aria-label="{name}">{text}</pre>'
    '<button class="button compact js-only" type="button" data-copy-from="code-{number}">{copy}'
    '<span class="visually-hidden"> {name}</span></button></div>'
)
TAGS_KEPT = {"<kbd>": "<kbd>{}", "</kbd>": "</kbd>{}"}
NOT_IN_ANCHOR = re.compile(r"[^\w\- ]")


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading below the title; `anchor` is its id in the page, formed as on GitHub."""

    level: int
    text: str
    anchor: str


@dataclass(slots=True)
class Rendering:
    """Renders one document. `address_of` returns the address of a link or image, or an empty string to drop it."""

    address_of: Callable[[str], str]
    headings: list[Heading] = field(default_factory=list)
    snippets: int = 0

    def blocks(self, nodes: Iterable[SyntaxTreeNode]) -> str:
        return format_html_join("", "{}", ((self._block(node),) for node in nodes))

    def _block(self, node: SyntaxTreeNode) -> str:
        match node.type:
            case "heading":
                html = self._heading(node)
            case "link" | "image":
                html = self._link(node)
            case "table":
                html = format_html(TABLE, plain_text(node.children[0]), self.blocks(node.children))
            case "fence" | "code_block":
                self.snippets += 1
                name = _("example %(number)s") % {"number": self.snippets}
                html = format_html(CODE, number=self.snippets, name=name, text=node.content, copy=_("Copy"))
            case "code_inline":
                html = format_html("<code>{}</code>", node.content)
            case "html_inline" if node.content in TAGS_KEPT:
                html = format_html(TAGS_KEPT[node.content], "")
            case known if known in ELEMENTS:
                # Paragraphs of a tight list are its bare text.
                pattern = "{}" if known == "paragraph" and node.hidden else ELEMENTS[known]
                html = format_html(pattern, self.blocks(node.children))
            case _:
                html = self.blocks(node.children) if node.children else format_html("{}", node.content)
        return html

    def _heading(self, node: SyntaxTreeNode) -> str:
        text, level = plain_text(node), int(node.tag[1])
        anchor = NOT_IN_ANCHOR.sub("", text.lower()).replace(" ", "-")
        same = sum(re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", each.anchor) is not None for each in self.headings)
        heading = Heading(level, text, f"{anchor}-{same}" if same else anchor)
        self.headings.append(heading)
        # The title of a page stands in the head of the page.
        pattern = {1: "", 2: '<h2 id="{}">{}</h2>', 3: '<h3 id="{}">{}</h3>'}.get(level, '<h4 id="{}">{}</h4>')
        return format_html(pattern, heading.anchor, self.blocks(node.children))

    def _link(self, node: SyntaxTreeNode) -> str:
        if node.type == "image":
            address = self.address_of(str(node.attrs["src"]))
            image = '<img src="{}" alt="{}" loading="lazy">'
            return format_html(image, address, plain_text(node)) if address else ""
        address = self.address_of(str(node.attrs["href"]))
        text = self.blocks(node.children)
        return format_html('<a href="{}">{}</a>', address, text) if address else text


def plain_text(node: SyntaxTreeNode) -> str:
    """Return the words of a node without marks."""
    if node.children:
        return (", " if node.type == "tr" else "").join(map(plain_text, node.children))
    return {"softbreak": " ", "html_inline": ""}.get(node.type, node.content)


def parse(text: str) -> SyntaxTreeNode:
    return SyntaxTreeNode(PARSER.parse(text))
