"""Rules on programs: the effects of a command by its name and arguments.

A program without a rule runs code that nobody sees here. A rule that vouches for a command (`_RULES`) lists the options
that it knows; any other option is a doubt. Rules that do not vouch (`_EFFECTS`) only name effects for reviewers and for
policies that hold or deny.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from catalog.client_tools.paths import CLIENT_SETTINGS, CREDENTIALS, GIT, is_source_file
from catalog.client_tools.shell_syntax import DESCRIPTOR, SimpleCommand, Word

READS, SEARCHES, WRITES, DELETES = "reads", "searches", "writes", "deletes"
PUSHES, INSTALLS, SENDS, EXECUTES, UNKNOWN = "pushes", "installs", "sends", "executes", "unknown"

MAX_WRAPPERS = 8
SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ash", "ksh", "mksh", "fish", "pwsh", "powershell", "cmd"})
TRUSTED_DIRECTORIES = ("/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/", "/opt/homebrew/bin/")
HARMLESS_VARIABLES = frozenset({"LC_ALL", "LC_CTYPE", "LANG", "NO_COLOR", "FORCE_COLOR", "CI"})
HARMLESS_DEVICES = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr"})

NOT_LITERAL = "A word is known to the shell alone."
STARTS_ANOTHER = "It starts a program with arguments that are not known here."


@dataclass(slots=True)
class DescribedPart:
    """One simple command as far as rules tell what it does; `doubts` is empty if they tell everything.

    `touched` are words that are paths, `directories` those to which it changes, `scripts` texts that a shell runs.
    """

    text: str
    programs: list[str] = field(default_factory=list)
    effects: set[str] = field(default_factory=set)
    touched: list[str] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)

    def doubt(self, sentence: str) -> None:
        if sentence not in self.doubts:
            self.doubts.append(sentence)

    def touch(self, word: Word, *effects: str) -> None:
        """Note a path and what is done with it; one that only the shell knows is a doubt."""
        self.effects.update(effects)
        if not word.is_literal:
            self.doubt(NOT_LITERAL)
        if re.match(r"[A-Za-z]:", word.text):
            self.doubt("A path may begin with the letter of a drive.")
        if word.has_glob:
            if re.search(r"(^|/)\.[^/]*[*?\[]", word.text):
                self.doubt("A pattern of file names may match the directory above.")
            wildcard = _WILDCARD.search(word.text)
            if wildcard is not None and _ABOVE.search(word.text, wildcard.end()):
                self.doubt("A pattern of file names leads to the directory above what it matches.")
            if READS in effects:
                self.effects.add(SEARCHES)
        elif word.text.startswith("~") and not word.has_tilde:
            self.touched.append(f"./{word.text}")
            return
        if word.is_literal or word.text[:1] in ("/", "~"):
            self.touched.append(word.text)


_WILDCARD = re.compile(r"[*?\[#^~]")
_ABOVE = re.compile(r"/\.\.(/|\Z)")
"""After a wildcard, `..` may lead anywhere: `**` matches any number of directories, and a name may be a link."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options that a rule knows: letters without a value, letters with one, and long ones, with a final = for a value.

    `attached` has letters whose value is never the next word. `numbers` allows -5. `lenient` means that no option of
    the program does harm, `any_words` that it does the same with all words, so that none is read as an option.
    `others` are effects that an option has which is not known.
    """

    flags: str = ""
    valued: str = ""
    long: frozenset[str] = frozenset()
    attached: str = ""
    numbers: bool = False
    lenient: bool = False
    any_words: bool = False
    others: tuple[str, ...] = ()


@dataclass(slots=True)
class Arguments:
    """The arguments of a command by its rule's options; options given are named by their letter or long name."""

    operands: list[Word] = field(default_factory=list)
    given: dict[str, str] = field(default_factory=dict)
    after_dashes: int | None = None
    """Number of operands before `--`; None without it."""
    words: Sequence[Word] = ()
    """All arguments as they are given."""


def describe(command: SimpleCommand) -> DescribedPart:
    """Return what a simple command does, as far as rules tell."""
    part = DescribedPart(command.text, doubts=list(command.doubts))
    for name, _ in command.assignments:
        if name not in HARMLESS_VARIABLES or not command.words:
            part.doubt(f"It sets the variable {name}.")
    for redirect in command.redirects:
        _describe_redirect(redirect.operator, redirect.target, part)
    words: Sequence[Word] = command.words
    for _ in range(MAX_WRAPPERS):
        if not words:
            break
        words = _describe_program(words, part, command)
    else:
        part.doubt("Too many programs start each other.")
    if part.doubts:
        part.effects.add(UNKNOWN)
    return part


def _describe_redirect(operator: str, word: Word, part: DescribedPart) -> None:
    if operator in ("<<", "<<-", "<<<"):
        return
    if operator in (">&", "<&") and DESCRIPTOR.fullmatch(word.text) and word.is_known:
        return
    network = re.match(r"/dev/(tcp|udp)/([^/]+)/", word.text)
    if network:
        part.effects.add(SENDS)
        part.hosts.append(network[2])
        part.doubt("It opens a network connection.")
    elif word.text not in HARMLESS_DEVICES or not word.is_known:
        if word.has_glob:
            part.doubt("A pattern of file names is the target of a redirection.")
        part.touch(word, *((READS,) if operator in ("<", "<&") else (READS, WRITES) if operator == "<>" else (WRITES,)))


def _describe_program(words: Sequence[Word], part: DescribedPart, command: SimpleCommand) -> Sequence[Word]:
    """Describe the program of these words; return the words of another command that it starts, or none."""
    first = words[0]
    name = first.text
    if not first.is_known or first.has_tilde:
        part.doubt("The program is known to the shell alone.")
        part.effects.add(EXECUTES)
        part.programs.append(name)
        if "/" in name:
            part.touch(first)
        _describe_by_effects(name, words, part)
        return ()
    if "/" in name:
        base = name.rpartition("/")[2]
        if not any(name == f"{directory}{base}" for directory in TRUSTED_DIRECTORIES):
            part.programs.append(name)
            part.touch(first, EXECUTES)
            part.doubt("It runs a program by its path.")
        name = base
    part.programs.append(name)
    wrapper = _WRAPPERS.get(name)
    if wrapper is not None:
        return wrapper(words, part)
    if name in SHELLS:
        _shell(name, words, part, command)
    elif name in ("eval", "source", "."):
        _evaluated(name, words, part)
    elif name == "git":
        _git(words, part)
    elif name == "find":
        _find(words, part)
    elif (rule := _RULES.get(name)) is not None:
        arguments = _arguments(words[1:], rule.options, part)
        rule.apply(arguments, part, command)
    else:
        _describe_by_effects(name, words, part)
    return ()


# --- arguments


def _arguments(words: Sequence[Word], options: Options, part: DescribedPart) -> Arguments:
    """Sort arguments into options and operands; what the rule does not know is a doubt."""
    if options.any_words:
        return Arguments(list(words), words=words)
    arguments = Arguments(words=words)
    valued = ""
    for word in words:
        if valued:
            arguments.given[valued] = word.text
            if not word.is_known:
                part.doubt(NOT_LITERAL)
            valued = ""
        elif arguments.after_dashes is not None or not word.text.startswith("-") or word.text == "-":
            is_open = not word.is_known and word.text[:1] in ("*", "?", "[", "…")
            if is_open and arguments.after_dashes is None and not options.lenient:
                part.doubt("A file name that the shell fills in may be taken for an option.")
            arguments.operands.append(word)
        else:
            valued = _option(word, options, arguments, part)
    if valued:
        part.doubt(f"The option -{valued} has no value.")
    return arguments


def _option(word: Word, options: Options, arguments: Arguments, part: DescribedPart) -> str:
    """Take up an option; return its letter if its value is the next word."""
    text = word.text
    if text == "--":
        arguments.after_dashes = len(arguments.operands)
    elif not word.is_known:
        part.doubt(NOT_LITERAL)
    elif text.startswith("--"):
        name, equals, value = text[2:].partition("=")
        if f"{name}{equals}" not in options.long:
            part.doubt(f"The option --{name[:40]} is not known here.")
            part.effects.update(options.others)
        arguments.given[name] = value
    elif options.numbers and text[1:].isascii() and text[1:].isdigit():
        arguments.given["number"] = text[1:]
    else:
        return _short_options(text, options, arguments, part)
    return ""


def _short_options(text: str, options: Options, arguments: Arguments, part: DescribedPart) -> str:
    """Take up a cluster of short options; return the last one if its value is the next word."""
    for place, letter in enumerate(text[1:], start=1):
        if letter in options.valued or letter in options.attached:
            rest = text[place + 1 :]
            arguments.given[letter] = rest
            if not rest and letter in options.attached:
                part.doubt(f"The option -{letter} has no value.")
            return "" if rest or letter in options.attached else letter
        arguments.given[letter] = ""
        if letter not in options.flags:
            part.doubt(f"The option -{letter} is not known here.")
            part.effects.update(options.others)
            return ""
    return ""


# --- rules that vouch for a command

Apply = Callable[[Arguments, DescribedPart, SimpleCommand], None]


@dataclass(frozen=True, slots=True)
class _Rule:
    options: Options
    apply: Apply


def _reads_files(arguments: Arguments, part: DescribedPart, command: SimpleCommand) -> None:
    part.effects.add(READS)
    for word in arguments.operands:
        if word.text != "-" or not word.is_known:
            part.touch(word, READS)


def _lists(arguments: Arguments, part: DescribedPart, command: SimpleCommand) -> None:
    """Names and sizes of files alone are read, so a pattern of names is no search."""
    part.effects.add(READS)
    for word in arguments.operands:
        part.touch(word)


def _reads_or_searches(arguments: Arguments, part: DescribedPart, command: SimpleCommand) -> None:
    """Like `_reads_files`, but of a directory the files in it are read."""
    _reads_files(arguments, part, command)
    if not all(word.is_known and is_source_file(word.text) for word in arguments.operands):
        part.effects.add(SEARCHES)


def _touches_nothing(arguments: Arguments, part: DescribedPart, command: SimpleCommand) -> None:
    part.effects.add(READS)
    if not all(word.is_known for word in arguments.operands):
        part.doubt(NOT_LITERAL)


def _takes_no_operands(arguments: Arguments, part: DescribedPart, command: SimpleCommand) -> None:
    """Vouch for options alone: elsewhere a program of this name may start the one that an operand names."""
    part.effects.add(READS)
    if arguments.operands:
        part.doubt("It takes no operands.")


def _echo(arguments: Arguments, part: DescribedPart, command: SimpleCommand) -> None:
    part.effects.add(READS)
    for word in arguments.operands:
        if not word.is_literal:
            part.doubt(NOT_LITERAL)
        elif word.has_glob:
            part.touch(word)


def _printf(arguments: Arguments, part: DescribedPart, command: SimpleCommand) -> None:
    """Vouch for formats of text alone: bash sets variables by %n, and zsh evaluates numbers, with commands in them."""
    form = arguments.operands[0] if arguments.operands else Word("%")
    if not form.is_known or not _TEXT_FORMAT.fullmatch(form.text):
        part.doubt("Its format is not known here.")
        part.effects.add(EXECUTES)
    _echo(arguments, part, command)


_TEXT_FORMAT = re.compile(r"([^%]|%%|%-?[0-9]*(\.[0-9]+)?[sbcq])*", re.DOTALL)


def _date(arguments: Arguments, part: DescribedPart, command: SimpleCommand) -> None:
    part.effects.add(READS)
    if not all(word.is_known and word.text.startswith("+") for word in arguments.operands):
        part.doubt("It may set the time.")


def _test(arguments: Arguments, part: DescribedPart, command: SimpleCommand) -> None:
    """Vouch for a test of one file: others evaluate names of variables, with commands in them."""
    words = arguments.words
    if len(words) == 2 and words[0].is_known and words[0].text in ("-e", "-f", "-d", "-s", "-r", "-w", "-x", "-L"):
        part.effects.add(READS)
        part.touch(words[1])
    else:
        part.doubt("The test is not known here.")
        part.effects.add(EXECUTES)


def _bracket(arguments: Arguments, part: DescribedPart, command: SimpleCommand) -> None:
    words = arguments.words
    _test(Arguments(words=words[:-1] if words and words[-1].text == "]" else ()), part, command)


def _uniq(arguments: Arguments, part: DescribedPart, command: SimpleCommand) -> None:
    _reads_files(Arguments(arguments.operands[:1]), part, command)
    for word in arguments.operands[1:]:
        part.touch(word, WRITES)
    if any(not word.is_known for word in arguments.operands):
        part.doubt(NOT_LITERAL)


def _sed(arguments: Arguments, part: DescribedPart, command: SimpleCommand) -> None:
    """Vouch for `sed -n 1,20p FILE` alone: scripts can write files and run commands."""
    script = arguments.operands[0] if arguments.operands else Word("")
    if "n" not in arguments.given or not script.is_known or not _PRINTED_LINES.fullmatch(script.text):
        part.doubt("Its script is not known here.")
        part.effects.update(_ANY_SCRIPT)
    _reads_files(Arguments(arguments.operands[1:]), part, command)


_ANY_SCRIPT = (WRITES, EXECUTES)
"""Effects of commands of sed beside those that print."""
_PRINTED_LINES = re.compile(r"([0-9]+|\$)(,([0-9]+|\$))?p")


def _grep(arguments: Arguments, part: DescribedPart, command: SimpleCommand) -> None:
    files = arguments.operands if "e" in arguments.given else arguments.operands[1:]
    # A pattern with wildcards for the shell becomes names of files, and all but the first are read.
    if "e" not in arguments.given and (not arguments.operands or not arguments.operands[0].is_known):
        part.doubt(NOT_LITERAL)
    is_recursive = not arguments.given.keys().isdisjoint({"r", "R", "recursive"})
    _reads_files(Arguments(files), part, command)
    if is_recursive and not (files and all(word.is_known and is_source_file(word.text) for word in files)):
        part.effects.add(SEARCHES)


def _ripgrep(arguments: Arguments, part: DescribedPart, command: SimpleCommand) -> None:
    if "files" in arguments.given:
        _lists(arguments, part, command)
        return
    files = arguments.operands if "e" in arguments.given else arguments.operands[1:]
    if "e" not in arguments.given and (not arguments.operands or not arguments.operands[0].is_known):
        part.doubt(NOT_LITERAL)
    _reads_files(Arguments(files), part, command)
    reads_input = command.is_piped and not files and not any(each.is_input for each in command.redirects)
    if not reads_input and not (files and all(word.is_known and is_source_file(word.text) for word in files)):
        part.effects.add(SEARCHES)


def _makes(arguments: Arguments, part: DescribedPart, command: SimpleCommand) -> None:
    _change(arguments.operands, part, WRITES)


def _removes(arguments: Arguments, part: DescribedPart, command: SimpleCommand) -> None:
    _change(arguments.operands, part, DELETES)


def _copies(arguments: Arguments, part: DescribedPart, command: SimpleCommand) -> None:
    for word in arguments.operands[:-1]:
        part.touch(word, READS)
    _change(arguments.operands, part, WRITES)


def _moves(arguments: Arguments, part: DescribedPart, command: SimpleCommand) -> None:
    _change(arguments.operands, part, WRITES, DELETES)


def _change(words: Sequence[Word], part: DescribedPart, *effects: str) -> None:
    part.effects.update(effects)
    for word in words:
        part.touch(word, *effects)
        if word.has_glob:
            part.doubt("A pattern of file names is changed.")


def _changes_directory(arguments: Arguments, part: DescribedPart, command: SimpleCommand) -> None:
    part.effects.add(READS)
    if len(arguments.operands) > 1 or any(word.text == "-" or not word.is_known for word in arguments.operands):
        part.doubt("The directory is known to the shell alone.")
    for word in arguments.operands[:1]:
        is_name = word.text.startswith("~") and not word.has_tilde
        part.directories.append(f"./{word.text}" if is_name else word.text)
    if not arguments.operands:
        part.directories.append("~")


_FIND_TESTS = {
    **dict.fromkeys(("name", "iname", "path", "ipath", "type", "maxdepth", "mindepth", "size", "mtime", "mmin"), 1),
    **dict.fromkeys(("ctime", "cmin", "perm", "regex", "iregex", "user", "group", "printf"), 1),
    **dict.fromkeys(("not", "o", "a", "or", "and", "prune", "print", "print0", "empty", "ls", "depth", "xdev"), 0),
    **dict.fromkeys(("true", "false", "quit"), 0),
}
"""Tests and actions of find that only read, with the number of their values."""


def _find(words: Sequence[Word], part: DescribedPart) -> None:
    part.effects.add(READS)
    place = 1
    while place < len(words) and words[place].text in ("-L", "-H", "-P"):
        place += 1
    while place < len(words) and words[place].text[:1] not in ("-", "(", "!", ")"):
        part.touch(words[place])
        if not words[place].is_known and words[place].text[:1] in ("*", "?", "[", "…"):
            part.doubt("A file name that the shell fills in may be taken for an option.")
        place += 1
    while place < len(words):
        word = words[place]
        text = word.text
        if text in ("(", ")", "!"):
            place += 1
        elif text[1:] in _FIND_TESTS and text.startswith("-"):
            values = words[place + 1 : place + 1 + _FIND_TESTS[text[1:]]]
            if any(not value.is_known for value in values):
                part.doubt(NOT_LITERAL)
            place += 1 + _FIND_TESTS[text[1:]]
        else:
            _find_action(text, words[place + 1 :], part)
            return


def _find_action(name: str, words: Sequence[Word], part: DescribedPart) -> None:
    """Describe the first action of find that does more than read, and every program named after it."""
    part.doubt(f"find {name[:40]} is not known here.")
    if any(word.text == "-delete" for word in words) or name == "-delete":
        part.effects.add(DELETES)
    if any(word.text.startswith("-fprint") or word.text == "-fls" for word in words) or name.startswith(("-fp", "-fl")):
        part.effects.add(WRITES)
    starts = [0] if name in _FIND_EXEC else []
    starts += [place + 1 for place, word in enumerate(words[:-1]) if word.text in _FIND_EXEC]
    for start in starts[:MAX_WRAPPERS]:
        # Up to the next action, so that one find after another is not read again and again.
        rest = words[start : start + 200]
        end = next((place for place, word in enumerate(rest) if word.text in _FIND_ENDS), len(rest))
        _describe_inner(rest[:end], part)
    _note_paths(words, part)


_FIND_EXEC = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_FIND_ENDS = _FIND_EXEC | {";", "+"}


def _describe_inner(words: Sequence[Word], part: DescribedPart) -> None:
    """Add what a command does that another one starts with arguments of its own; it is never vouched for."""
    inner = describe(SimpleCommand(words=list(words)))
    part.programs += inner.programs
    part.effects |= inner.effects
    part.hosts += inner.hosts
    part.scripts += inner.scripts
    part.touched += inner.touched
    part.doubt(STARTS_ANOTHER)


def _long(names: str) -> frozenset[str]:
    return frozenset(names.split())


def _vouched(
    flags: str = "",
    valued: str = "",
    long: str = "",
    *,
    numbers: bool = False,
    lenient: bool = False,
) -> Options:
    return Options(flags, valued, _long(long), numbers=numbers, lenient=lenient)


def _with_others(options: Options, *effects: str) -> Options:
    return replace(options, others=effects)


_HASH = _Rule(_vouched("bt", "a", lenient=True), _reads_files)
_ANY_WORDS = _Rule(Options(any_words=True), _touches_nothing)
_RULES: Mapping[str, _Rule] = {
    "cat": _Rule(_vouched("AbeEnstTuv", lenient=True), _reads_files),
    "head": _Rule(_vouched("qvz", "nc", "lines= bytes=", numbers=True, lenient=True), _reads_files),
    "tail": _Rule(_vouched("qvzr", "nc", "lines= bytes=", numbers=True, lenient=True), _reads_files),
    "wc": _Rule(_vouched("clLmw", "", "lines words bytes"), _reads_files),
    "nl": _Rule(_vouched("p", "bdfhilnsvw", lenient=True), _reads_files),
    "tac": _Rule(_vouched(lenient=True), _reads_files),
    "rev": _Rule(_vouched(lenient=True), _reads_files),
    "fold": _Rule(_vouched("bs", "w", lenient=True), _reads_files),
    "paste": _Rule(_vouched("sz", "d", lenient=True), _reads_files),
    "comm": _Rule(_vouched("123z", lenient=True), _reads_files),
    "cmp": _Rule(_vouched("bls", lenient=True), _reads_files),
    "cut": _Rule(_vouched("sz", "bcdf", lenient=True), _reads_files),
    "column": _Rule(_vouched("t", "s", lenient=True), _reads_files),
    "sort": _Rule(
        _with_others(
            _vouched("bdfghMnRrVzuci", "kt", "reverse unique numeric-sort human-numeric-sort"), WRITES, EXECUTES
        ),
        _reads_files,
    ),
    "uniq": _Rule(_vouched("cdiuDz", "fsw", "count"), _uniq),
    **dict.fromkeys(("md5sum", "sha1sum", "sha256sum", "sha512sum", "shasum", "cksum"), _HASH),
    "ls": _Rule(
        _vouched("aAbBcCdfFgGhHiklLmnNopqQrRsStuUvxXZ1", "", "all almost-all color= color recursive", lenient=True),
        _lists,
    ),
    "stat": _Rule(_vouched("Lx", "c", "format="), _lists),
    "du": _Rule(_vouched("achsSkmxb0", "d", "max-depth= apparent-size"), _lists),
    "df": _Rule(_vouched("ahiklmTP", lenient=True), _lists),
    "file": _Rule(_with_others(_vouched("bikL", "", "brief mime-type"), WRITES), _lists),
    "readlink": _Rule(_vouched("efmnqsvz", lenient=True), _lists),
    "realpath": _Rule(_vouched("emqsz", lenient=True), _lists),
    "tree": _Rule(_with_others(_vouched("adfpshDFiCAv", "LIP", "noreport dirsfirst gitignore"), WRITES), _lists),
    "diff": _Rule(_vouched("abBciNpqrstuwy", "UC", "color= color brief unified="), _reads_or_searches),
    "grep": _Rule(
        _vouched(
            "aEFGHILPcbhilnoqrRsvwxzZ",
            "eABCm",
            "color= colour= color include= exclude= exclude-dir= line-number ignore-case count files-with-matches "
            "only-matching word-regexp fixed-strings extended-regexp perl-regexp max-count= context= after-context= "
            "before-context= no-messages recursive invert-match with-filename no-filename quiet",
            numbers=True,
        ),
        _grep,
    ),
    "rg": _Rule(
        _with_others(
            _vouched(
                "ilnNcHIhvwxFoSsUqP",
                "eABCmgtTj",
                "files glob= iglob= type= type-not= no-heading heading line-number ignore-case smart-case "
                "case-sensitive files-with-matches count max-count= context= after-context= before-context= color= "
                "word-regexp fixed-strings multiline no-ignore hidden sort= max-depth= only-matching json",
            ),
            EXECUTES,
        ),
        _ripgrep,
    ),
    "sed": _Rule(_with_others(_vouched("nEr"), *_ANY_SCRIPT), _sed),
    "echo": _Rule(Options(any_words=True), _echo),
    "printf": _Rule(_vouched(), _printf),
    "pwd": _Rule(_vouched("LP"), _takes_no_operands),
    "true": _ANY_WORDS,
    "false": _ANY_WORDS,
    ":": _ANY_WORDS,
    "sleep": _ANY_WORDS,
    "seq": _Rule(_vouched("w", "fs", numbers=True), _touches_nothing),
    "basename": _Rule(_vouched("az", "s"), _touches_nothing),
    "dirname": _Rule(_vouched("z"), _touches_nothing),
    "tr": _Rule(_vouched("cCdst"), _touches_nothing),
    "whoami": _Rule(_vouched(), _takes_no_operands),
    "id": _Rule(_vouched("ugnGr"), _touches_nothing),
    "uname": _Rule(_vouched("asnrvmpio"), _takes_no_operands),
    "nproc": _Rule(_vouched("", "", "all ignore="), _takes_no_operands),
    "uptime": _Rule(_vouched("ps", "", "pretty since"), _takes_no_operands),
    "which": _Rule(_vouched("a"), _touches_nothing),
    "type": _Rule(_vouched("at"), _touches_nothing),
    "date": _Rule(_vouched("uR", "", "utc"), _date),
    "test": _Rule(_vouched("efdsrwxL"), _test),
    "[": _Rule(_vouched("efdsrwxL"), _bracket),
    "cd": _Rule(_vouched(), _changes_directory),
    "mkdir": _Rule(_vouched("pv", "", "parents"), _makes),
    "touch": _Rule(_vouched("acm"), _makes),
    "tee": _Rule(_vouched("a", "", "append"), _makes),
    "cp": _Rule(_vouched("finpuv"), _copies),
    "mv": _Rule(_vouched("finuv"), _moves),
    "rm": _Rule(_vouched("rRfivd", "", "recursive force verbose"), _removes),
    "rmdir": _Rule(_vouched("pv"), _removes),
    "unlink": _Rule(_vouched(), _removes),
}


# --- git

_GIT_OPTIONS: Mapping[str, Options] = {
    "status": Options(
        "sb",
        attached="u",
        long=_long("short branch porcelain porcelain= untracked-files= ignored show-stash no-renames"),
    ),
    "log": _vouched(
        "zpuw",
        "nSG",
        "oneline graph all decorate decorate= stat name-only name-status max-count= author= since= until= after= "
        "before= format= pretty= pretty no-merges merges reverse abbrev-commit follow first-parent date= grep= patch "
        "no-color shortstat numstat branches tags no-decorate",
        numbers=True,
    ),
    "diff": Options(
        "bwpuzR",
        attached="U",
        long=_long(
            "stat name-only name-status cached staged numstat shortstat summary quiet color= color no-color word-diff "
            "check unified= ignore-all-space ignore-space-change exit-code no-ext-diff no-textconv merge-base "
            "diff-filter="
        ),
    ),
    "show": Options(
        "swpz",
        attached="U",
        long=_long(
            "stat name-only name-status oneline format= pretty= no-patch no-color numstat shortstat quiet color="
        ),
    ),
    "branch": _vouched("avr", "", "list all remotes show-current verbose no-color merged no-merged"),
    "rev-parse": _vouched(
        "",
        "",
        "show-toplevel abbrev-ref abbrev-ref= short short= git-dir is-inside-work-tree show-prefix verify show-cdup",
    ),
    "ls-files": _vouched("comdkz", "", "others exclude-standard cached modified deleted error-unmatch"),
    "blame": _vouched("wMCslep", "L", "date="),
    "describe": _vouched("", "", "tags always dirty abbrev= all"),
    "remote": _vouched("v", "", "verbose"),
    "rev-list": _vouched("", "n", "count all max-count= oneline"),
}
"""Subcommands that read, with the options that are known not to do more."""
_GIT_EFFECTS: Mapping[str, tuple[str, ...]] = {
    "push": (PUSHES, SENDS),
    "send-email": (PUSHES, SENDS, EXECUTES),
    **dict.fromkeys(("fetch", "pull", "clone", "submodule", "lfs"), (SENDS, WRITES, EXECUTES)),
    "ls-remote": (SENDS, EXECUTES),
    **dict.fromkeys(("add", "commit", "merge", "revert", "cherry-pick", "am", "apply", "mv", "tag"), (WRITES,)),
    "rebase": (WRITES, EXECUTES),
    **dict.fromkeys(("checkout", "switch", "restore", "reset", "stash", "rm", "clean", "worktree"), (WRITES, DELETES)),
    "grep": (READS, SEARCHES, EXECUTES),
    **dict.fromkeys(("init", "update-ref", "symbolic-ref", "gc", "prune"), (GIT, WRITES)),
    **dict.fromkeys(("config", "hook", "filter-branch"), (GIT, WRITES, EXECUTES)),
    **dict.fromkeys(("credential", "credential-store", "credential-cache"), (CREDENTIALS, EXECUTES)),
    "archive": (READS, SEARCHES, WRITES, EXECUTES),
    **dict.fromkeys(("bundle", "format-patch"), (READS, SEARCHES, WRITES)),
    "bisect": (EXECUTES, WRITES),
}
"""Effects of other subcommands; those that run a program named by an argument, or by a setting they write, execute."""
_GIT_GLOBAL_VALUED = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"})


def _git(words: Sequence[Word], part: DescribedPart) -> None:
    place = 1
    while place < len(words) and words[place].text.startswith("-"):
        text = words[place].text
        if text not in ("--no-pager", "-P"):
            part.doubt(f"git {text[:40]} is not known here.")
            part.effects.add(EXECUTES)  # of the settings of another repository, too
        place += 2 if text in _GIT_GLOBAL_VALUED else 1
    if place >= len(words) or not words[place].is_known:
        part.doubt("git's command is not known here.")
        part.effects.add(EXECUTES)
        _note_paths(words[1:], part)
        return
    name, rest = words[place].text, words[place + 1 :]
    options = _GIT_OPTIONS.get(name)
    if options is None:
        part.effects.update(_GIT_EFFECTS.get(name, (EXECUTES,)))
        part.doubt(f"git {name[:40]} may run hooks, aliases or filters.")
        for word in rest:
            part.hosts += _hosts_in(word.text)
        _note_paths(rest, part)
        return
    part.effects.add(READS)
    arguments = _arguments(rest, _with_others(options, WRITES, EXECUTES), part)
    _GIT_APPLY.get(name, _git_names)(arguments, part)


_REVISION = re.compile(r"([\w.-]+/)?(HEAD|ORIG_HEAD|FETCH_HEAD|MERGE_HEAD|@)([~^][0-9]*)*")


def _git_names(arguments: Arguments, part: DescribedPart) -> None:
    """Revisions and paths look alike; each is checked as a path, which does no harm to a revision."""
    for word in arguments.operands:
        if not (word.is_known and _REVISION.fullmatch(word.text)):
            part.touch(word)
        if word.text.startswith(":"):
            part.doubt("A pattern of git names its files.")
        elif ":" in word.text:  # a file of a revision
            part.touch(Word(word.text.partition(":")[2] or "."), READS, SEARCHES)


def _git_content(arguments: Arguments, part: DescribedPart) -> None:
    """Content of files is shown; unless each is named as a file of source code, others may be among them."""
    _git_names(arguments, part)
    is_summary = not arguments.given.keys().isdisjoint(
        {"stat", "name-only", "name-status", "numstat", "shortstat", "no-patch", "s", "quiet"}
    ) and arguments.given.keys().isdisjoint({"p", "u", "patch", "U", "unified", "check"})
    names = arguments.operands[: arguments.after_dashes]
    paths = arguments.operands[arguments.after_dashes :] if arguments.after_dashes is not None else []
    # A name may be that of any content of the repository, which is then shown or compared with the file.
    is_narrow = bool(paths) and all(word.is_known and is_source_file(word.text) for word in paths)
    is_narrow = is_narrow and all(word.is_known and _REVISION.fullmatch(word.text) for word in names)
    if not is_summary and not is_narrow:
        part.effects.add(SEARCHES)


def _git_log(arguments: Arguments, part: DescribedPart) -> None:
    if arguments.given.keys().isdisjoint({"p", "u", "patch", "S", "G", "L"}):
        _git_names(arguments, part)
    else:
        _git_content(arguments, part)
        part.effects.add(SEARCHES)


def _git_show(arguments: Arguments, part: DescribedPart) -> None:
    """Content is shown whatever the options, if a name is that of content; `REVISION:PATH` names one file."""
    revision, colon, path = arguments.operands[0].text.partition(":") if len(arguments.operands) == 1 else ("", "", "")
    if revision and colon and arguments.operands[0].is_known:
        part.touch(Word(path or "."), READS, *(() if is_source_file(path) else (SEARCHES,)))
        return
    _git_content(arguments, part)
    part.effects.add(SEARCHES)


def _git_without_names(arguments: Arguments, part: DescribedPart) -> None:
    if arguments.operands:
        part.doubt("git may change something of this name.")


def _git_file(arguments: Arguments, part: DescribedPart) -> None:
    _git_names(arguments, part)
    part.effects.update((READS,) if all(word.is_known for word in arguments.operands) else (READS, SEARCHES))


_GIT_APPLY: Mapping[str, Callable[[Arguments, DescribedPart], None]] = {
    "diff": _git_content,
    "show": _git_show,
    "log": _git_log,
    "branch": _git_without_names,
    "remote": _git_without_names,
    "blame": _git_file,
}


# --- programs that start others


def _after_options(words: Sequence[Word], valued: str, part: DescribedPart, *, operands: int = 0) -> Sequence[Word]:
    """Return the words after a wrapper's options and its first operands."""
    place = 1
    while place < len(words):
        text = words[place].text
        if text == "--":
            place += 1
            break
        if not text.startswith("-") or text == "-":
            break
        part.doubt(f"The option {text[:40]} is not known here.")
        place += 2 if text[1:] in valued.split() or text in valued.split() else 1
    return words[place + operands :]


def _time(words: Sequence[Word], part: DescribedPart) -> Sequence[Word]:
    return _after_options(words, "f o", part)


def _timeout(words: Sequence[Word], part: DescribedPart) -> Sequence[Word]:
    rest = _after_options(words, "k s", part)
    if not rest or not re.fullmatch(r"[0-9.]+[smhd]?", rest[0].text) or not rest[0].is_known:
        part.doubt("The time is not known here.")
    return rest[1:]


def _command(words: Sequence[Word], part: DescribedPart) -> Sequence[Word]:
    if len(words) > 2 and words[1].text in ("-v", "-V") and words[1].is_known:
        part.effects.add(READS)
        if not all(word.is_known for word in words):
            part.doubt(NOT_LITERAL)
        return ()
    return _after_options(words, "", part)


def _privileged(words: Sequence[Word], part: DescribedPart) -> Sequence[Word]:
    part.doubt("It runs with the rights of another account.")
    part.effects.add(EXECUTES)
    rest = _after_options(words, "u g h p C D R T U r t", part)
    while rest and re.match(r"[A-Za-z_]\w*=", rest[0].text):
        rest = rest[1:]
    return rest


def _env(words: Sequence[Word], part: DescribedPart) -> Sequence[Word]:
    rest = _after_options(words, "u C S", part)
    if any(
        word.text in ("-S", "--split-string") or word.text.startswith(("-S", "--split-string=")) for word in words[1:3]
    ):
        part.scripts.append(
            " ".join(word.text.removeprefix("-S").removeprefix("--split-string=") for word in words[1:])
        )
    while rest and re.match(r"[^=]+=", rest[0].text):
        part.doubt("It sets variables.")
        rest = rest[1:]
    if not rest:
        part.effects.update((READS, CREDENTIALS))
    return rest


def _wrapper(
    valued: str = "", operands: int = 0, *, why: str = "", effects: tuple[str, ...] = ()
) -> Callable[[Sequence[Word], DescribedPart], Sequence[Word]]:
    def describe_wrapper(words: Sequence[Word], part: DescribedPart) -> Sequence[Word]:
        if why:
            part.doubt(why)
        part.effects.update(effects)
        return _after_options(words, valued, part, operands=operands)

    return describe_wrapper


_WRAPPERS: Mapping[str, Callable[[Sequence[Word], DescribedPart], Sequence[Word]]] = {
    **dict.fromkeys(("sudo", "doas", "su", "runuser", "pkexec"), _privileged),
    "env": _env,
    "time": _time,
    "timeout": _timeout,
    "gtimeout": _timeout,
    "command": _command,
    "builtin": _wrapper(),
    "nice": _wrapper("n"),
    "nohup": _wrapper(why="It leaves a process behind."),
    "setsid": _wrapper(why="It leaves a process behind."),
    "exec": _wrapper("a", why="It replaces the shell."),
    "stdbuf": _wrapper("i o e"),
    "ionice": _wrapper("c n p"),
    "xargs": _wrapper("I i L l n P s d E e a", why=STARTS_ANOTHER),
    "parallel": _wrapper("j I a", why=STARTS_ANOTHER, effects=(EXECUTES,)),
    "watch": _wrapper("n d", why=STARTS_ANOTHER, effects=(EXECUTES,)),
    "entr": _wrapper("", why=STARTS_ANOTHER, effects=(EXECUTES,)),
    "caffeinate": _wrapper("t w"),
    "chronic": _wrapper(),
    "script": _wrapper("c", why=STARTS_ANOTHER, effects=(EXECUTES,)),
    "unbuffer": _wrapper(),
    "noglob": _wrapper(),
    "nocorrect": _wrapper(),
    "busybox": _wrapper(),
    "toybox": _wrapper(),
    "winpty": _wrapper(),
    "firejail": _wrapper(),
    "chroot": _wrapper("", 1, why="It runs in another root directory."),
    "flock": _wrapper("w E", 1, why="It locks a file.", effects=(EXECUTES,)),
    "strace": _wrapper("e o p s", why=STARTS_ANOTHER, effects=(EXECUTES,)),
}


def _shell(name: str, words: Sequence[Word], part: DescribedPart, command: SimpleCommand) -> None:
    """Describe a shell: the text after -c, or its here-document, is read as a command; anything else is not seen."""
    part.effects.add(EXECUTES)
    options = [word.text for word in words[1:] if word.text.startswith(("-", "+"))]
    place = next((n for n, word in enumerate(words) if re.fullmatch(r"-[a-z]*c[a-z]*", word.text) and n), 0)
    if place and place + 1 < len(words):
        script = words[place + 1]
        part.scripts.append(script.text)
        is_plain = place == 1 and words[1].text in ("-c", "-lc") and len(words) == 3
        if is_plain and script.is_known and name in ("sh", "bash", "zsh", "dash"):
            part.effects.discard(EXECUTES)
            return
        part.doubt("It runs a shell with options or a text that are not known here.")
        _note_paths(words[1:], part)
        return
    part.scripts += command.stdin
    part.doubt("It runs a shell with what it reads." if not options else "It runs a shell with options not known here.")
    _note_paths(words[1:], part)


def _evaluated(name: str, words: Sequence[Word], part: DescribedPart) -> None:
    part.effects.add(EXECUTES)
    if name == "eval":
        part.scripts.append(" ".join(word.text for word in words[1:]))
        part.doubt("It runs a text as a command.")
    else:
        part.doubt("It runs the commands of a file.")
        for word in words[1:2]:
            part.touch(word, READS)


# --- programs whose effects are named, but not vouched for

_EFFECTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("curl", "http", "https", "xh", "nc", "telnet", "ftp"), (SENDS,)),
    **dict.fromkeys(("dig", "nslookup", "host", "ping", "whois", "redis-cli", "doctl", "gsutil", "s3cmd"), (SENDS,)),
    **dict.fromkeys(("wget", "aria2c", "lynx", "w3m", "ncat", "netcat", "socat", "sftp", "nmap"), (SENDS, EXECUTES)),
    **dict.fromkeys(("openssl", "mail", "sendmail", "mutt", "rclone"), (SENDS, EXECUTES)),
    **dict.fromkeys(("ssh", "mosh", "autossh"), (SENDS, EXECUTES)),
    **dict.fromkeys(("scp", "rsync"), (SENDS, READS, WRITES, EXECUTES)),
    **dict.fromkeys(("gh", "glab", "hub", "aws", "gcloud", "az", "heroku", "fly", "flyctl"), (SENDS, EXECUTES)),
    **dict.fromkeys(("vercel", "netlify", "wrangler", "firebase", "terraform", "tofu", "pulumi"), (SENDS, EXECUTES)),
    **dict.fromkeys(("kubectl", "helm", "oc", "ansible", "ansible-playbook"), (SENDS, EXECUTES)),
    **dict.fromkeys(("psql", "mysql", "mongosh", "sqlcmd"), (SENDS, EXECUTES)),
    **dict.fromkeys(("printenv", "set", "export", "declare", "typeset"), (READS, CREDENTIALS)),
    "compgen": (READS, CREDENTIALS, EXECUTES),
    **dict.fromkeys(("security", "bw", "keyring", "secret-tool", "kwallet-query"), (CREDENTIALS,)),
    **dict.fromkeys(("pass", "gpg", "gpg2", "ssh-add", "ssh-keygen", "vault", "op"), (CREDENTIALS, EXECUTES)),
    **dict.fromkeys(("age", "sops", "aws-vault"), (CREDENTIALS, EXECUTES)),
    **dict.fromkeys(("claude", "codex", "gemini", "opencode", "toolgate"), (EXECUTES, CLIENT_SETTINGS)),
    **dict.fromkeys(("shred", "srm", "trash", "wipefs", "mkfs", "fdisk", "dropdb"), (DELETES,)),
    **dict.fromkeys(("truncate", "dd"), (WRITES, DELETES)),
    **dict.fromkeys(("chmod", "chown", "chgrp", "chattr", "ln", "link", "setfacl", "mkfifo"), (WRITES,)),
    **dict.fromkeys(("install", "patch"), (WRITES, EXECUTES)),
    **dict.fromkeys(("unzip", "gzip", "gunzip", "7z", "xz", "pax"), (READS, SEARCHES, WRITES)),
    **dict.fromkeys(("tar", "zip", "cpio"), (READS, SEARCHES, WRITES, EXECUTES)),
    **dict.fromkeys(("split", "csplit", "ed", "ex", "vi", "vim", "nvim", "nano", "emacs"), (READS, WRITES, EXECUTES)),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk", "perl", "jq", "yq"), (READS, EXECUTES)),
    **dict.fromkeys(("fd", "fdfind", "ag", "ack"), (READS, SEARCHES, EXECUTES)),
    **dict.fromkeys(("less", "more"), (READS, EXECUTES)),
    **dict.fromkeys(("xxd", "od", "hexdump", "strings", "base64"), (READS,)),
    **dict.fromkeys(
        ("kill", "pkill", "killall", "shutdown", "reboot", "systemctl", "service", "launchctl"), (EXECUTES,)
    ),
    **dict.fromkeys(("crontab", "at", "batch"), (EXECUTES, WRITES)),
    "twine": (PUSHES, SENDS),
}
"""Programs with their likely effects. Those that can run another program, by an option or a script, execute."""
_INSTALLERS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        ("npm", "pnpm", "yarn", "bun"), frozenset({"install", "i", "ci", "add", "update", "upgrade", "link"})
    ),
    **dict.fromkeys(
        ("pip", "pip3", "pipx", "conda", "mamba", "gem", "bundle", "composer"), frozenset({"install", "require"})
    ),
    **dict.fromkeys(
        ("apt", "apt-get", "dnf", "yum", "zypper", "brew", "snap", "choco", "winget"), frozenset({"install"})
    ),
    **dict.fromkeys(
        ("uv", "poetry", "cargo", "go", "apk", "deno"), frozenset({"add", "install", "sync", "get", "pip"})
    ),
    "pacman": frozenset({"-S", "-Sy", "-Syu", "-U"}),
}
_PUBLISHERS = frozenset({"publish", "push", "upload", "release", "deploy"})
_PUBLISHING = frozenset(
    {
        "npm",
        "pnpm",
        "yarn",
        "bun",
        "cargo",
        "poetry",
        "uv",
        "gem",
        "docker",
        "podman",
        "helm",
        "gh",
        "glab",
        "hub",
        "twine",
    }
)


def _describe_by_effects(name: str, words: Sequence[Word], part: DescribedPart) -> None:
    """Name the effects that are likely; a program without a row runs code that is not seen."""
    part.effects.update(_EFFECTS.get(name, (EXECUTES,)))
    part.doubt(f"The effects of {name[:40]} cannot be told from its arguments.")
    given = [word.text for word in words[1:]]
    if not _INSTALLERS.get(name, frozenset()).isdisjoint(given) or (name == "yarn" and not given):
        part.effects.update((INSTALLS, SENDS, EXECUTES))
    if (name.startswith("python") or name == "py") and "pip" in given and "install" in given:
        part.effects.update((INSTALLS, SENDS))
    if name in _PUBLISHING and not _PUBLISHERS.isdisjoint(given):
        part.effects.update((PUSHES, SENDS))
    if name == "gh" and "pr" in given:
        part.effects.add(PUSHES)
    if SENDS in part.effects:
        for text in given:
            part.hosts += _hosts_in(text, is_address=name in ("curl", "wget", "http", "https", "ssh", "nc", "ping"))
    if DELETES not in part.effects and not {"delete", "destroy", "rm", "drop", "prune", "--delete"}.isdisjoint(given):
        part.effects.add(DELETES)
    _note_paths(words[1:], part)


def _hosts_in(text: str, *, is_address: bool = False) -> list[str]:
    """Return the hosts that an argument names: that of a URL, or of `user@host:path`."""
    found = []
    for each in re.findall(r"[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s'\"<>]+", text[:4096]):
        host = host_of(each)
        if host:
            found.append(host)
    if not found and (remote := re.match(r"[\w.-]+@([\w.-]+)(:|$)", text)):
        found.append(remote[1].casefold())
    if (
        not found
        and is_address
        and (plain := re.fullmatch(r"((?:[\w-]+\.)+[A-Za-z]{2,}|localhost)(?::\d+)?(/.*)?", text))
    ):
        found.append(plain[1].casefold())
    return found


def host_of(url: str) -> str:
    """Return the host of a URL in lower case; empty if it has none that can be told."""
    try:
        return (urlsplit(url).hostname or "").casefold().rstrip(".")
    except ValueError:
        return ""


def _note_paths(words: Sequence[Word], part: DescribedPart) -> None:
    """Note what looks like a path, for rules that hold or deny: whole words, and what follows =, @, : or an option."""
    for word in words:
        text = re.sub(r"(?i)file:///?", "/", word.text[:4096])
        text = re.sub(r"[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s'\"]*", "", text)
        pieces = {text, *re.split(r"[=@:,]", text), text[2:] if text.startswith("-") else text}
        part.touched += sorted(each for each in pieces if _PATH.match(each))


_PATH = re.compile(r"[~.]|[^-][^/]{0,254}[/.]|/")


KNOWN_PROGRAMS = frozenset({*_RULES, *_WRAPPERS, *SHELLS, "git", "find"})
"""Programs that rules vouch for by their names. A file of such a name may be run in place of one."""
_PROGRAM_DIRECTORIES = frozenset({"bin", ".bin", "sbin", "scripts", "shims"})


def may_be_run_by_name(path: str) -> bool:
    """Return True if a file at this path may be found in place of a program: by its name, or in a directory of them."""
    *directories, name = path.casefold().split("/")
    if name.removesuffix(".exe") in KNOWN_PROGRAMS or name in _PROGRAM_DIRECTORIES:
        return True
    return bool(directories and directories[-1] in _PROGRAM_DIRECTORIES)
