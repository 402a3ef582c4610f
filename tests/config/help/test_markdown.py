"""Markdown of guides: known elements only, anchors as on GitHub."""

import pytest

from config.help.markdown import Rendering, parse


def render(text: str) -> str:
    """Return the HTML of a text in which only https addresses are linked."""
    rendering = Rendering(lambda link: link if link.startswith("https:") else "")
    return rendering.blocks(parse(text).children)


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("<script>x</script>", "&lt;script&gt;x&lt;/script&gt;"),
        ("Press <kbd>A</kbd> <b onclick=x>", "<p>Press <kbd>A</kbd> &lt;b onclick=x&gt;</p>"),
        ("<kbd onclick=x>A", "<p>&lt;kbd onclick=x&gt;A</p>"),
        ('[a](https://a.example/"x)', '<p><a href="https://a.example/%22x">a</a></p>'),
        ("[a **b**](javascript:x) ![c](c.png)", "<p>[a <strong>b</strong>](javascript:x) </p>"),
        ("[code](other.py)", "<p>code</p>"),
        ("`{{ a }} <b>`", "<p><code>{{ a }} &lt;b&gt;</code></p>"),
        ("- a\n- b", "<ul><li>a</li><li>b</li></ul>"),
    ],
)
def test_only_known_elements_become_html(text: str, html: str) -> None:
    assert render(text).strip() == html


def test_headings_have_different_anchors() -> None:
    rendering = Rendering(str)
    rendering.blocks(parse("# Title\n## `a_b` and C's, d\n## Tests\n### Tests").children)
    assert [each.anchor for each in rendering.headings] == ["title", "a_b-and-cs-d", "tests", "tests-1"]
