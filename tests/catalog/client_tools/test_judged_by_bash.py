"""Random texts, with bash as the judge: what it runs must be among the commands that were read."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from catalog.client_tools.shell_syntax import Script, read_command

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")]
PIECES = [
    *("pa", "pb", "pc", "x", "-f", "--", "a=b", " ", " ", " ", "\t", "\n", ";", "&&", "||", "|", "&", "|&", "(", ")"),
    *(
        "{",
        "}",
        "!",
        "'",
        '"',
        "\\",
        "`",
        "$",
        "$(",
        "${",
        "<",
        ">",
        ">>",
        "<<",
        ">|",
        "&>",
        "2>",
        "<<<",
        "<<E",
        "\nE\n",
    ),
    *("<<'E'", "<<-E", "#", "~", "*", "?", "[", "]", "=", "$x", "$((", "))", "\\\n", "\r", "if", "then", "fi", "do"),
    *("done", "for", "case", "esac", "in", "function", "coproc", "[[", "]]", "$'", '$"', "0", "1", ">&", "<&", "&1"),
    *(";;", "^", "%", "@", "+=", '\\"', "\\'", "\u00a0", "é", ",", "..", "{a,b}", "-", "E"),
]
# Every program is unknown to this bash, so it hands all words of a command to the function instead.
PRELUDE = r"""
command_not_found_handle() { local all; printf -v all '%s\036' "$@"; printf '%s\035' "$all" >&9; return 0; }
PATH=/nonexistent; exec 9>>"$OUT"; eval "$TEXT"
"""


def commands_run(text: str, directory: Path) -> list[list[str]]:
    """Return the words of each command that bash runs for a text, in an empty directory."""
    out, inside = directory / "out", directory / "inside"
    out.write_bytes(b"")
    shutil.rmtree(inside, ignore_errors=True)
    inside.mkdir()
    subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", PRELUDE],
        cwd=inside,
        env={"OUT": str(out), "TEXT": text, "HOME": "/home", "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
    )
    runs = out.read_text(errors="surrogateescape").split("\x1d")
    return [run.split("\x1e")[:-1] for run in runs if run]


def was_read(words: list[str], script: Script) -> bool:
    """Return True if a command with these words was read; others may be any words."""
    for command in script.commands:
        is_open = not all(word.is_known and not word.has_tilde for word in command.words)
        if is_open or [word.text for word in command.words] == words:
            return True
    return False


def test_bash_runs_nothing_that_was_not_read(tmp_path):
    draw = random.Random()  # noqa: S311 (texts for a test)
    checked = 0
    while checked < 3000:
        text = "".join(draw.choice(PIECES) for _ in range(draw.randint(1, 12)))
        script = read_command(text)
        if script.doubts or any(command.doubts for command in script.commands):
            continue
        checked += 1
        unread = [words for words in commands_run(text, tmp_path) if not was_read(words, script)]
        assert unread == [], repr(text)
