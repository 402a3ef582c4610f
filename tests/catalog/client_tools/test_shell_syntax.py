"""Commands as a shell reads them: the commands found in a text, and the texts about which there are doubts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.client_tools.shell_syntax import MAX_COMMAND, MAX_COMMANDS, read_command


def words(text):
    return [[word.text for word in command.words] for command in read_command(text).commands]


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("ls -la src", [["ls", "-la", "src"]]),
        ("npm test; rm -rf ~", [["npm", "test"], ["rm", "-rf", "~"]]),
        ("a && b || c | d |& e & f\ng", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"], ["g"]]),
        ("'r'm \"a b\" c\\ d", [["rm", "a b", "c d"]]),
        ("{ ls; rm a; }", [["ls"], ["rm", "a"]]),
        ("(cd x; ls) > f", [["cd", "x"], ["ls"], []]),
        ("# all of them\nls", [["ls"]]),
        ("ls a#b", [["ls", "a#b"]]),
        ("ls \\\n  x", [["ls", "x"]]),
        ("! ls", [["ls"]]),
        ("2>/dev/null ls", [["ls"]]),
        ("cat <<'EOF' > f\n$(rm x)\nEOF\nrm y", [["cat"], ["rm", "y"]]),
        ("cat <<-E\n\tx\n\tE\nls", [["cat"], ["ls"]]),
    ],
)
def test_plain_commands_are_read_without_doubt(text, commands):
    assert words(text) == commands
    assert read_command(text).doubts == ()


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ('echo "x `git push`"', ["git", "push"]),
        (" a=b }", ["}"]),
        ("echo ${x:=$(rm w)}", ["rm", "w"]),
        ("echo $((1<<2))\ngit push", ["git", "push"]),
        ("echo $((rm a); (rm b))", ["rm", "b"]),
        ("if true; then rm x; fi", ["rm", "x"]),
        ("case $x in a) rm p;; esac", ["rm", "p"]),
        ("f() { rm q; }; f", ["rm", "q"]),
        ("function g { rm h; }; g", ["rm", "h"]),
        ("diff <(ls) <(rm k)", ["rm", "k"]),
        ("cat <<EOF\n$(rm z)\nEOF", ["rm", "z"]),
        ("a=(1 $(rm v))", ["rm", "v"]),
        ("echo `echo \\`rm u\\``", ["rm", "u"]),
        ("for x in a; do rm t; done", ["rm", "t"]),
        ("((x)); rm s", ["rm", "s"]),
        ('echo "${a:-"$(rm r)"}"', ["rm", "r"]),
        ("coproc rm x", ["rm", "x"]),
        ("ls &>a rm x", ["rm", "x"]),
        ("git &>>a push x", ["git", "push", "x"]),
    ],
)
def test_commands_inside_of_other_constructs_are_found(text, hidden):
    assert hidden in words(text)


@pytest.mark.parametrize(
    "text",
    [
        *("ls 'a", 'ls "a', "ls $(a", "(ls", "ls)", "ls `a", "ls ${x:=y}", "ls $((1))", "ls {a,b}", "{rm,-rf,/}"),
        *("if a; then b; fi", "f() { ls; }", "a=(b)", "ls @(a|b)", "diff <(a) b", "ls $'a'", 'ls $"a"', "ls $[1]"),
        *(
            "ls ;; a",
            "; ls",
            "ls |",
            "ls\r\nrm x",
            "ls # rm x",
            "# ; rm x",
            "ls\u00a0x",
            "ls \u202e",
            "ls\x00",
            "ls \u2028x",
            "a <<E\nx",
        ),
        *(
            "a <<$x\nE",
            "a <<E\n$(b)\nE",
            "a <<E\nx\\\nE\nE",
            'ls \\"',
            "=ls",
            "[[ a < b ]]",
            "((a))",
            "ls >",
            "a >&-x",
            "a >& b",
        ),
        *("ls # rm x", "# ; rm x"),
        *("ls $\\\nHOME/x", 'ls "$\\\nHOME"', "ls > $\\\n'\\x2egit/config'", "ls $=HOME", 'ls "$^HOME"', "ls $~HOME/x"),
        *("{ ls } always { rm x }", "{ ls > } always { rm x }", "ls {", "ls >! x", "ls >>!x", 'ls "$?[a[\\$(rm x)]]"'),
        *("for x in y; do z; done", "coproc a", "select x in y; do z; done", "a <<E $(\nE\n)", "a <&b"),
        *("ls &>a ./b", "ls &>>a", "ls 12>a", "ls 01<a", "ls >&12", "ls 2>&1-", "LANG+=/../a ls"),
        *("cat x<1-9>y", "cat <->", "ls <5->a"),
    ],
)
def test_what_shells_may_read_in_another_way_is_a_doubt(text):
    read = read_command(text)

    assert read.doubts or text.endswith("|")


def test_words_that_only_the_shell_knows_are_marked():
    (command,) = read_command('a $x "$y" ~/z *.py "~" \'*\' $HOME/k').commands

    marks = [(word.is_literal, word.has_glob, word.has_tilde) for word in command.words[1:]]
    assert marks == [
        (False, False, False),
        (False, False, False),
        (True, False, True),
        (True, True, False),
        (True, False, False),
        (True, False, False),
        (False, False, True),
    ]


def test_assignments_and_redirections_are_no_words():
    (command,) = read_command("A=1 B+='2' ls x=3 > out 2>> err < in").commands

    assert [name for name, _ in command.assignments] == ["A", "B"]
    assert [word.text for word in command.words] == ["ls", "x=3"]
    assert [(each.operator, each.target.text) for each in command.redirects] == [
        (">", "out"),
        (">>", "err"),
        ("<", "in"),
    ]


@pytest.mark.parametrize("piece", ["$(", "`", '"$(', "`\\`", "a;", "$((", "f(", "<<a\n"])
def test_hostile_texts_are_read_in_one_pass(piece):
    read = read_command((piece * MAX_COMMAND)[:MAX_COMMAND])  # quadratic work would run into the timeout of tests

    assert len(read.commands) <= MAX_COMMANDS


def test_a_text_that_is_too_long_is_not_read():
    read = read_command("a" * (MAX_COMMAND + 1))

    assert not read.commands
    assert read.doubts


@given(st.text(alphabet="ab ;&|<>()${}`'\"\\\n#=~*[]!^@E", max_size=60))
def test_any_text_is_read_without_an_error(text):
    read_command(text)
