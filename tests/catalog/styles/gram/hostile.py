"""Twenty hostile gram texts that must be refused or parsed quickly: deep, long, wide, unfinished.

Used by the tests and by whoever measures how long the worst input takes.
"""

DEEPEST = 64 * 1024


def _repeated(text: str, before: str = "", after: str = "") -> str:
    """Return the text as often as it fits into what is accepted."""
    return before + text * ((DEEPEST - len(before) - len(after)) // len(text)) + after


HOSTILE: tuple[str, ...] = (
    _repeated("("),
    _repeated("[", "(a: "),
    _repeated("{a:", "(::Object {default:"),
    _repeated("(::Text)==>"),
    _repeated("==>", "(::Text)"),
    _repeated("(a:", "", "Text"),
    _repeated("Maybe ", "(a: ", "Int) --> Text"),
    _repeated("[[[[]]]],", "(::Array {default:[", "]})==>(::Text)"),
    _repeated("1,", "(::Array {default:[", "1]})==>(::Text)"),
    _repeated("a:1,", "(::Object {default:{", "b:2}})==>(::Text)"),
    _repeated("9", "(::Int {default:", "})==>(::Text)"),
    _repeated("x", "(::", ")==>(::Text)"),
    _repeated("\\", '(::Text {default:"', '"})==>(::Text)'),
    _repeated('"', "(::Text {default:", "})==>(::Text)"),
    _repeated("//", "(::Text)", ""),
    _repeated("\n", "(::Text", ")==>(::Text"),
    _repeated('{name:"a",type:"[Text]"},', "(::Object {fields:[", '{name:"b",type:"Text"}]})==>(::Text)'),
    "(::Object {fields:["
    + ",".join(f'{{name:"f{n}",type:"{{a: Maybe [Int]}}"}}' for n in range(1500))
    + "]})==>(::Text)",
    "(" + ",".join(f"p{n}: Maybe [[Text]]" for n in range(3000)) + ") --> IO Text",
    "(::Text {paramName:\ud800})==>(::Text)",
)
