"""Reader of shell commands: the simple commands in a text, at every depth, and a list of doubts.

It accepts the part of the grammar on which POSIX shells agree and reports everything else as a doubt: a text without
doubts means the same to each of them. After a doubt it goes on and finds as many commands as it can, since rules that
hold or deny should see them. It uses one pass and a stack of its own, so that hostile nesting costs nothing more.
"""

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Final

MAX_COMMAND = 262_144
"""Maximum characters of a command that is read."""
MAX_COMMANDS = 1000
MAX_DEPTH = 100
"""Maximum constructs inside of each other; what lies deeper is not read."""
MAX_STEPS = 8_000
"""Maximum steps of reading, in all texts of a command: each is a word, a sign, or a letter that is read on its own.

Long texts in quotes and here-documents are few steps. So many steps take 0.1 s to read and to judge at most.
"""
STEPS_OF_COMMAND = 10
"""Steps that one simple command counts for, beside those of its words: it is described as a whole."""
MAX_TEXT = 400
"""Characters that are kept of the source of one command."""
MAX_READ = 4 * MAX_COMMAND
"""Maximum characters read in total: texts inside backquotes and here-documents are read again."""
TOO_MANY = "The command has too many parts; some were not read."
UNKNOWN_PIECE: Final = "…"
"""Stands in a word for text that only the shell knows."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]]*\])?\+?=")
_BRACED_NAME = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*|[0-9]|[?#$!@*-])\}")
_PLAIN = re.compile(r"[A-Za-z0-9_./:,+@%^-]+")
"""Characters that mean nothing to the shell; = is left out for the start of a word in zsh."""
_PLAIN_QUOTED = re.compile(r"[^\"\\$`\n]+")
_REDIRECT = re.compile(r"<<<|<<-|<<|<&|<>|<|>>|>&|>\||>")
_METACHARACTER = re.compile(r"[;&|<>()$`\\{}]")
DESCRIPTOR = re.compile(r"[0-9]|-")
"""Target of `>&` that is a file descriptor for every shell. For zsh, `1-` is a file; for dash, `12` is an error."""
_AFTER_PLAIN_DOLLAR = frozenset(("", *' \t\n")|/.,:;%'))
"""Characters, or the end, that leave a dollar sign before them plain. In zsh, $=x, $^x and $~x are the variable x."""
_REVISION_WITH_PARENT = re.compile(r"((ORIG_|FETCH_|MERGE_)?HEAD|@)(\^[~^0-9]*|[~0-9]+)((\.\.\.?|:)[^~^]*)?")
"""Revision of git, or what begins with one; in other words, ^ and ~ are wildcards of zsh."""
_NUMBERS = re.compile(r"<[0-9]*-[0-9]*>")
"""Wildcard of zsh for numbers."""
_STRANGE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\xa0\xad\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ud800-\udfff]"
)
"""Control, space and format characters beyond ASCII's space, tab and line feed: shells and people read them apart."""
_BACKQUOTED = re.compile(r"(?:[^`\\]+|\\.|\\\Z)*+", re.DOTALL)
_ESCAPED_IN_BACKQUOTES = re.compile(r"\\([`\\$])")
_ANSI_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}

SKIPPED_WORDS = frozenset({"if", "then", "else", "elif", "fi", "while", "until", "do", "done", "esac", "coproc"})
"""Keywords of compound commands after which a command may follow."""
HEADS = frozenset({"for", "select", "case", "function"})
"""Keywords after which names and values follow, not a command."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word as the shell passes it on.

    `is_literal` is False if a part of it, `UNKNOWN_PIECE`, is known to the shell alone. `has_glob` means that file
    names take the place of wildcards. `has_tilde` means that it begins with the home directory of a person.
    """

    text: str
    is_literal: bool = True
    has_glob: bool = False
    has_tilde: bool = False
    is_quoted: bool = False

    @property
    def is_known(self) -> bool:
        """True if exactly this text is passed."""
        return self.is_literal and not self.has_glob


@dataclass(frozen=True, slots=True)
class Redirect:
    """`descriptor` is the number before the operator; empty without one."""

    operator: str
    target: Word
    descriptor: str = ""

    @property
    def is_input(self) -> bool:
        """True if it changes what the command reads as its standard input, by any shell's reading."""
        return self.operator.startswith("<") or self.descriptor.strip("0") == "" != self.descriptor


@dataclass(slots=True)
class SimpleCommand:
    """Words, variables set for them, and redirections; `doubts` are those about this command alone.

    `text` is the source, cut after `MAX_TEXT` characters. `stdin` has the texts of its here-documents. `is_piped` is
    True if it reads the output of another command.
    """

    words: list[Word] = field(default_factory=list)
    assignments: list[tuple[str, Word]] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    stdin: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    is_piped: bool = False
    ends: list[int] = field(default_factory=list)
    """Numbers of words after each of which some shells end the command, and take what follows for another one."""
    start: int = 0
    text: str = ""

    @property
    def is_empty(self) -> bool:
        return not (self.words or self.assignments or self.redirects)


@dataclass(frozen=True, slots=True)
class Script:
    """The commands of a text in the order of their ends, the doubts about it as a whole, and the steps it took."""

    commands: tuple[SimpleCommand, ...]
    doubts: tuple[str, ...]
    steps: int = 0


def read_command(text: str, steps: int = MAX_STEPS) -> Script:
    """Return the simple commands in a text, as far as they can be read in `steps`.

    Never raises; a text that is too long gives no commands and a doubt.
    """
    if len(text) > MAX_COMMAND:
        return Script((), (f"The command has more than {MAX_COMMAND:,} characters and was not read.",))
    doubts: dict[str, None] = {}
    commands: list[SimpleCommand] = []
    waiting: deque[tuple[str, bool]] = deque([(text, False)])
    unread, left = MAX_READ, steps
    while waiting:
        each, is_document = waiting.popleft()
        unread -= len(each)
        if unread < 0 or left <= 0 or len(commands) >= MAX_COMMANDS:
            doubts[TOO_MANY] = None
            break
        reader = _Reader(each, doubts, waiting, left)
        reader.read(is_document=is_document)
        left = reader.left
        commands += reader.commands
    if len(commands) > MAX_COMMANDS:
        doubts[TOO_MANY] = None
    return Script(tuple(commands[:MAX_COMMANDS]), tuple(doubts), steps - left)


@dataclass(slots=True)
class _WordBuilder:
    pieces: list[str] = field(default_factory=list)
    is_literal: bool = True
    has_glob: bool = False
    has_tilde: bool = False
    has_brace: bool = False
    has_exclusion: bool = False
    """True if it has a letter that excludes names in patterns of zsh."""
    plain_length: int | None = None
    """Length of the text before the first quote or unknown piece; None if there is none yet."""

    def mark(self) -> None:
        """Note that what follows is quoted or unknown, so that it is no keyword and no name of a variable."""
        if self.plain_length is None:
            self.plain_length = sum(map(len, self.pieces))

    def add_unknown(self) -> None:
        self.mark()
        self.is_literal = False
        self.pieces.append(UNKNOWN_PIECE)


@dataclass(slots=True)
class _Frame:
    """One open construct: a list of commands, or text in double quotes, braces or arithmetic parentheses."""

    kind: str  # "list", "quote", "braces", "arithmetic" or "document"
    builder: _WordBuilder | None = None
    """The word to which the construct belongs; None for lists that are no part of a word."""
    closer: str = ""
    command: SimpleCommand = field(default_factory=SimpleCommand)
    word: _WordBuilder | None = None
    redirect: str = ""
    descriptor: str = ""
    """Number before the sign of `redirect`."""
    head: str = ""
    depth: int = 0
    start: int = 0
    is_plain_arithmetic: bool = True
    has_documents: bool = False
    """True if here-documents of this list begin on the next line."""


class _Reader:
    """Reads one text; commands are collected, and texts to be read on their own are put into `waiting`."""

    def __init__(self, text: str, doubts: dict[str, None], waiting: deque[tuple[str, bool]], steps: int) -> None:
        self.text, self.doubts, self.waiting, self.left = text, doubts, waiting, steps
        self.at = 0
        self.commands: list[SimpleCommand] = []
        self.documents: list[tuple[_Frame, SimpleCommand, str, Word]] = []
        self.stack: list[_Frame] = []

    def doubt(self, sentence: str) -> None:
        self.doubts[sentence] = None

    def read(self, *, is_document: bool) -> None:
        if _STRANGE.search(self.text):
            self.doubt("It contains invisible or control characters.")
        self.stack = [_Frame("document", _WordBuilder()) if is_document else _Frame("list")]
        steps = {
            "list": self._in_list,
            "quote": self._in_quotes,
            "braces": self._in_braces,
            "arithmetic": self._in_arithmetic,
            "document": self._in_quotes,
        }
        while self.at < len(self.text) and len(self.commands) < MAX_COMMANDS and len(self.stack) < MAX_DEPTH:
            if self.left <= 0:
                break
            self.left -= 1
            frame = self.stack[-1]
            steps[frame.kind](frame, self.text[self.at])
        if self.at < len(self.text):
            self.doubt(TOO_MANY)
        if len(self.stack) > 1:
            self.doubt("A quote or a parenthesis is not closed.")
        for frame in reversed(self.stack):
            if frame.kind == "list":
                self._end_command(frame)
        if self.documents:
            self.doubt("A here-document does not end.")

    def _starts(self, prefix: str) -> bool:
        return self.text.startswith(prefix, self.at)

    # --- lists of commands

    def _in_list(self, frame: _Frame, letter: str) -> None:
        if letter in " \t":
            self._end_word(frame)
            self.at += 1
        elif letter == "\n":
            self._end_command(frame)
            self.at += 1
            self._read_documents(frame)
        elif letter in ";&|":
            self._separator(frame, letter)
        elif letter == "(":
            self._open_parenthesis(frame)
        elif letter == ")":
            self._close_parenthesis(frame)
        elif letter in "<>":
            self._start_redirect(frame)
        elif self._starts("\\\n"):
            self.at += 2  # the line goes on
        elif letter == "#" and frame.word is None:
            self._skip_comment(frame)
        else:
            self._in_word(self._word(frame), letter)

    def _skip_comment(self, frame: _Frame) -> None:
        end = self.text.find("\n", self.at)
        end = len(self.text) if end < 0 else end
        if not frame.command.is_empty or _METACHARACTER.search(self.text, self.at, end):
            self.doubt("A comment may be read as words by an interactive shell.")
        self.at = end

    def _word(self, frame: _Frame) -> _WordBuilder:
        if frame.word is None:
            frame.word = _WordBuilder()
            if frame.command.is_empty and not frame.redirect:
                frame.command.start = self.at
        return frame.word

    def _separator(self, frame: _Frame, letter: str) -> None:
        if letter == "&" and self._starts("&>"):
            self.doubt("A command may end before &>: some shells read it as & and >.")
            self._end_word(frame)
            frame.command.ends.append(len(frame.command.words))
            self.at += 3 if self._starts("&>>") else 2
            self._expect_target(frame, "&>")
            return
        is_missing = frame.word is None and frame.command.is_empty
        operator = next(each for each in ("&&", "||", "|&", ";;", letter) if self._starts(each))
        if operator == ";;":
            self.doubt("It contains a case statement.")
        elif is_missing and not (self.commands and self._follows_group()):
            self.doubt("A command is missing before an operator.")
        self._end_command(frame)
        frame.command.is_piped = operator == "|"  # in ksh, |& starts a coprocess
        self.at += len(operator)

    def _follows_group(self) -> bool:
        """Return True if the text before is the end of a group: `( … );` and `{ … };` are complete commands."""
        before = self.text[max(0, self.at - 64) : self.at].rstrip(" \t")
        return before.endswith((")", "}"))

    def _open_parenthesis(self, frame: _Frame) -> None:
        if frame.word is None and frame.command.is_empty and not frame.head:
            if self._starts("(("):
                self.doubt("It contains arithmetic.")
                self.stack.append(_Frame("arithmetic", _WordBuilder(), depth=2, start=self.at + 2))
                self.at += 2
                return
            self.stack.append(_Frame("list", closer=")"))
            self.at += 1
            return
        self.doubt("It contains a function, an array or a pattern in parentheses.")
        rest = self.text[self.at + 1 : self.at + 65].lstrip(" \t")
        if rest.startswith(")"):  # the head of a function: what follows is its body
            frame.word, frame.command = None, SimpleCommand()
            self.at = self.text.index(")", self.at) + 1
            return
        builder = self._word(frame)
        builder.add_unknown()
        self.stack.append(_Frame("list", builder, closer=")"))
        self.at += 1

    def _close_parenthesis(self, frame: _Frame) -> None:
        self._end_command(frame)
        self.at += 1
        if frame.closer != ")":
            self.doubt("A parenthesis is closed that was not opened.")
            return
        if frame.has_documents:
            self.doubt("A here-document does not end.")
            self.documents = [each for each in self.documents if each[0] is not frame]
        self.stack.pop()

    def _start_redirect(self, frame: _Frame) -> None:
        found = _REDIRECT.match(self.text, self.at)
        operator = found[0] if found else self.text[self.at]
        if operator in "<>" and self._starts(f"{operator}("):
            self.doubt("It contains a process substitution.")
            builder = self._word(frame)
            builder.add_unknown()
            self.stack.append(_Frame("list", builder, closer=")"))
            self.at += 2
            return
        if _NUMBERS.match(self.text, self.at):
            self.doubt("It contains a pattern of numbers of zsh.")
        word, descriptor = frame.word, ""
        if word is not None and word.plain_length is None and "".join(word.pieces).isdigit():
            frame.word = None  # the number of a file descriptor
            descriptor = "".join(word.pieces)
            if len(descriptor) > 1:
                self.doubt("A number before a redirection is a word to some shells.")
        self._end_word(frame)
        self.at += len(operator)
        self._expect_target(frame, operator, descriptor)

    def _expect_target(self, frame: _Frame, operator: str, descriptor: str = "") -> None:
        if frame.redirect:
            self.doubt("A redirection has no target.")
        if frame.command.is_empty:
            frame.command.start = self.at - len(operator)
        frame.redirect, frame.descriptor = operator, descriptor

    def _end_word(self, frame: _Frame) -> None:
        builder, frame.word = frame.word, None
        if builder is None:
            return
        text = "".join(builder.pieces)
        is_quoted = builder.plain_length is not None
        command = frame.command
        # In zsh, a closing brace ends a group wherever it is: `{ ls } always { rm x }`.
        is_group = text in ("{", "}") and command.is_empty and not frame.redirect
        if builder.has_brace and (is_quoted or not (is_group or text == "{}")):
            self.doubt("It contains braces that the shell may expand.")
            builder.is_literal = False
        has_glob = builder.has_glob or (builder.has_exclusion and not _REVISION_WITH_PARENT.fullmatch(text))
        word = Word(text, builder.is_literal, has_glob and text != "[", builder.has_tilde, is_quoted)
        if frame.redirect:
            self._end_target(frame, word, starts_quoted=builder.plain_length == 0)
            return
        if frame.head:
            self._end_word_of_head(frame, text)
            return
        if not command.words:
            if not is_quoted and builder.is_literal and command.is_empty and self._is_keyword(frame, text):
                return
            found = _ASSIGNMENT.match(text)
            if found and (builder.plain_length is None or found.end() <= builder.plain_length):
                if found[0].endswith("+="):
                    self.doubt("It adds to a variable by +=, which is the name of a program to some shells.")
                command.assignments.append(
                    (f"{found[1]}{found[2] or ''}", Word(text[found.end() :], word.is_literal, word.has_glob))
                )
                return
        command.words.append(word)

    def _end_target(self, frame: _Frame, word: Word, *, starts_quoted: bool) -> None:
        """Take up the target of a redirection, or the delimiter of a here-document."""
        command, operator, frame.redirect = frame.command, frame.redirect, ""
        if word.text.startswith("!") and not starts_quoted:
            self.doubt("A redirection is followed by !, which zsh takes for a part of its sign.")
        if operator in ("<<", "<<-"):
            self.documents.append((frame, command, operator, word))
            frame.has_documents = True
        elif operator == "<<<":
            command.stdin.append(word.text)
            if not word.is_known:
                command.doubts.append("Its input is known to the shell alone.")
        elif operator in (">&", "<&") and not DESCRIPTOR.fullmatch(word.text):  # bash expands another word twice
            self.doubt("A redirection names a file descriptor in a way that is not known here.")
        command.redirects.append(Redirect(operator, word, frame.descriptor))

    def _is_keyword(self, frame: _Frame, text: str) -> bool:
        """Take up a keyword where a command may begin. Return False if the text is none."""
        if text in ("!", "{", "}"):
            frame.command.is_piped = False  # a redirection after a group may be its input
            return True
        if text in SKIPPED_WORDS or text in HEADS:
            self.doubt("It contains control structures or functions.")
            frame.head = text if text in HEADS else ""
            return True
        if text == "[[":
            self.doubt("It contains a test in double brackets.")
        return False

    def _end_word_of_head(self, frame: _Frame, text: str) -> None:
        """Skip a word after `for`, `select`, `case` or `function`; their values are in substitutions if in any."""
        if frame.head == "function" or (frame.head == "case" and text == "in"):
            frame.head = ""

    def _end_command(self, frame: _Frame) -> None:
        self._end_word(frame)
        if frame.redirect:
            self.doubt("A redirection has no target.")
            frame.redirect = ""
        frame.head = ""
        command, frame.command = frame.command, SimpleCommand()
        if not command.is_empty:
            # Cut: the text of a command contains those of all commands nested in it.
            self.left -= STEPS_OF_COMMAND
            command.text = self.text[command.start : min(self.at, command.start + MAX_TEXT)].strip()
            self.commands.append(command)
            for end in command.ends:
                if command.words[end:]:
                    self.left -= STEPS_OF_COMMAND
                    self.commands.append(SimpleCommand(words=command.words[end:], text=command.text))

    # --- here-documents

    def _read_documents(self, frame: _Frame) -> None:
        """Read the here-documents that begin on this line."""
        documents, self.documents, frame.has_documents = self.documents, [], False
        for owner, command, operator, delimiter in documents:
            if owner is not frame or not delimiter.is_known:
                self.doubt("A here-document is inside of another construct, or its end is unknown.")
            body = self._body_until(delimiter.text, strip_tabs=operator == "<<-")
            command.stdin.append(body)
            if delimiter.is_quoted:
                continue
            if "\\" in body:
                self.doubt("A here-document contains backslashes that the shell may remove.")
            if "$" in body or "`" in body:
                self.doubt("A here-document contains substitutions.")
                self.waiting.append((body, True))

    def _body_until(self, delimiter: str, *, strip_tabs: bool) -> str:
        lines: list[str] = []
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            end = len(self.text) if end < 0 else end
            line = self.text[self.at : end]
            self.at = end + 1
            line = line.lstrip("\t") if strip_tabs else line
            if line == delimiter:
                break
            lines.append(line)
        else:
            self.doubt("A here-document does not end.")
        self.at = min(self.at, len(self.text))
        return "\n".join(lines)

    # --- words

    def _in_word(self, builder: _WordBuilder, letter: str) -> None:
        plain = _PLAIN.match(self.text, self.at)
        if plain is not None:
            builder.pieces.append(plain[0])
            builder.has_exclusion = builder.has_exclusion or "^" in plain[0]
            self.at = plain.end()
        elif letter == "\\":
            self._escape(builder)
        elif letter == "'":
            self._single_quotes(builder)
        elif letter == '"':
            builder.mark()
            self.stack.append(_Frame("quote", builder))
            self.at += 1
        elif letter in "$`":
            self._substitution(builder, in_quotes=False)
        else:
            self._special(builder, letter)
            builder.pieces.append(letter)
            self.at += 1

    def _special(self, builder: _WordBuilder, letter: str) -> None:
        """Note the meaning of a letter outside of quotes."""
        if letter in "*?[#":  # zsh may repeat what is before #
            builder.has_glob = True
        elif letter in "{}":
            builder.has_brace = True
        elif letter == "~":
            builder.has_tilde = builder.has_tilde or not builder.pieces
            builder.has_exclusion = builder.has_exclusion or bool(builder.pieces)
        elif letter == "=" and not builder.pieces:
            self.doubt("A word begins with =, which zsh replaces by a path.")

    def _escape(self, builder: _WordBuilder) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        if following in ("'", '"', ""):
            self.doubt("It contains an escaped quote, which shells read apart.")
        builder.mark()
        builder.pieces.append(following or "\\")

    def _single_quotes(self, builder: _WordBuilder) -> None:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            self.doubt("A quote or a parenthesis is not closed.")
            end = len(self.text)
        builder.mark()
        inside = self.text[self.at + 1 : end]
        if self.documents and "\n" in inside:
            self.doubt("A here-document is inside of another construct, or its end is unknown.")
        builder.pieces.append(inside)
        self.at = end + 1

    def _in_quotes(self, frame: _Frame, letter: str) -> None:
        builder = frame.builder or _WordBuilder()
        plain = _PLAIN_QUOTED.match(self.text, self.at)
        if plain is not None:
            builder.pieces.append(plain[0])
            self.at = plain.end()
        elif letter == '"' and frame.kind == "quote":
            self.stack.pop()
            self.at += 1
        elif letter == "\\":
            following = self.text[self.at + 1 : self.at + 2]
            if following == '"':
                self.doubt("It contains an escaped quote, which shells read apart.")
            builder.pieces.append("" if following == "\n" else following if following in '$`"\\' else f"\\{following}")
            self.at += 2
        elif letter in "$`":
            self._substitution(builder, in_quotes=True)
        else:
            if letter == "\n" and self.documents:
                self.doubt("A here-document is inside of another construct, or its end is unknown.")
            builder.pieces.append(letter)
            self.at += 1

    # --- what the shell fills in

    def _substitution(self, builder: _WordBuilder, *, in_quotes: bool) -> None:
        if self.text[self.at] == "`":
            self._backquotes(builder)
            return
        rest = self.text[self.at + 1 : self.at + 3]
        if rest == "((":
            self.doubt("It contains arithmetic.")
            builder.add_unknown()
            self.stack.append(_Frame("arithmetic", builder, depth=2, start=self.at + 3))
            self.at += 3
        elif rest.startswith("("):
            builder.add_unknown()
            self.stack.append(_Frame("list", builder, closer=")"))
            self.at += 2
        elif rest.startswith("{"):
            self._open_braces(builder)
        elif not in_quotes and rest.startswith("'"):
            self._ansi_quotes(builder)
        elif not in_quotes and rest.startswith('"'):
            self.doubt("It contains a text that the shell may translate.")
            self.at += 1
        elif rest.startswith("["):
            self.doubt("It contains arithmetic.")
            builder.add_unknown()
            self.at += 2
        elif rest.startswith("?"):
            self._status(builder, rest[1:])
        elif found := _NAME.match(self.text, self.at + 1):
            self._variable(builder, found[0])
            self.at = found.end()
        elif rest[:1] and rest[0] in "0123456789#$!@*-":
            builder.add_unknown()
            self.at += 2
        else:
            self._plain_dollar(builder, rest[:1])

    def _status(self, builder: _WordBuilder, following: str) -> None:
        """Take up the status of the last command, which is digits."""
        builder.mark()
        builder.pieces.append("0")
        self.at += 2
        if following in ("[", ":", "\\"):
            self.doubt("zsh evaluates what follows $?.")

    def _plain_dollar(self, builder: _WordBuilder, following: str) -> None:
        if following not in _AFTER_PLAIN_DOLLAR:
            self.doubt("It contains a dollar sign that some shells expand.")
            builder.is_literal = False
        builder.pieces.append("$")
        self.at += 1

    def _variable(self, builder: _WordBuilder, name: str) -> None:
        if name == "HOME" and not builder.pieces:  # shown as a path, though it may be set to another
            builder.mark()
            builder.has_tilde, builder.is_literal = True, False
            builder.pieces.append("~")
            return
        builder.add_unknown()

    def _open_braces(self, builder: _WordBuilder) -> None:
        simple = _BRACED_NAME.match(self.text, self.at + 1)
        if simple is not None:
            self._variable(builder, simple[1])
            self.at = simple.end()
            return
        self.doubt("It contains an expansion that can set variables or run code.")
        builder.add_unknown()
        self.stack.append(_Frame("braces", builder))
        self.at += 2

    def _in_braces(self, frame: _Frame, letter: str) -> None:
        builder = frame.builder or _WordBuilder()
        if letter == "}":
            self.stack.pop()
            self.at += 1
        elif letter == "\\":
            self.at += 2
        elif letter == '"':
            self.stack.append(_Frame("quote", builder))
            self.at += 1
        elif letter in "$`":
            self._substitution(builder, in_quotes=True)
        else:
            self.at += 1

    def _in_arithmetic(self, frame: _Frame, letter: str) -> None:
        if letter in "$`":
            self._substitution(frame.builder or _WordBuilder(), in_quotes=True)
            return
        self.at += 1
        if letter == "(":
            frame.depth += 1
        elif letter == ")":
            frame.depth -= 1
            if frame.depth == 1 and not self._starts(")"):
                frame.is_plain_arithmetic = False
            if frame.depth == 0:
                self.stack.pop()
                if not frame.is_plain_arithmetic:  # the shell reads it as commands
                    self.waiting.append((f"({self.text[frame.start : self.at - 1]}", False))

    def _ansi_quotes(self, builder: _WordBuilder) -> None:
        builder.mark()
        place = start = self.at + 2
        while place < len(self.text) and self.text[place] != "'":
            letter = self.text[place]
            if letter == "\\":
                following = self.text[place + 1 : place + 2]
                if following not in _ANSI_ESCAPES:
                    self.doubt("It contains characters written as codes.")
                    builder.is_literal = False
                letter = _ANSI_ESCAPES.get(following, UNKNOWN_PIECE)
                place += 1
            builder.pieces.append(letter)
            place += 1
        if place >= len(self.text):
            self.doubt("A quote or a parenthesis is not closed.")
        self.doubt("It contains $'…', which some shells read apart.")
        self.left -= place - start
        self.at = place + 1

    def _backquotes(self, builder: _WordBuilder) -> None:
        builder.add_unknown()
        inside = _BACKQUOTED.match(self.text, self.at + 1)
        end = inside.end() if inside else len(self.text)
        if end >= len(self.text):
            self.doubt("A quote or a parenthesis is not closed.")
        self.waiting.append((_ESCAPED_IN_BACKQUOTES.sub(r"\1", self.text[self.at + 1 : end]), False))
        self.at = end + 1
