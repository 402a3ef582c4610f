"""Facts of calls that coding agents run themselves, and their previews."""

from collections.abc import Mapping
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.client_tools import commands
from catalog.client_tools.facts import NOT_UNDERSTOOD, DerivedFacts, derived_facts, facts_finder
from catalog.client_tools.inputs import CLIENT_TOOLS
from catalog.client_tools.known_tools import KNOWN_TOOLS, changes_nothing
from catalog.client_tools.paths import effects_of_path
from catalog.client_tools.previews import preview
from catalog.client_tools.programs import describe
from catalog.client_tools.shell_syntax import MAX_COMMAND, MAX_STEPS, STEPS_OF_COMMAND, TOO_MANY
from catalog.results import Preview

CWD = "/srv/project"


def client_of(tool: str) -> str:
    return next(client for client, tools in CLIENT_TOOLS.items() if tool in tools)


def known(tool: str, sent: Mapping[str, Any], cwd: str = CWD) -> DerivedFacts:
    facts = derived_facts(client_of(tool), tool, sent, cwd)
    assert facts is not None
    return facts


def facts_of(command: str) -> DerivedFacts:
    return known("Bash", {"command": command})


def shown(tool: str, sent: Mapping[str, Any]) -> Preview:
    found = preview(client_of(tool), tool, sent, CWD)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "command",
    [
        *("ls", "ls -la src", "cat README.md", "head -n 5 a.py | tail -3", "git status", "git log --oneline -5 HEAD"),
        *("git diff --stat", "git diff -- src/a.py", "grep -n foo src/a.py", "find . -name '*.py' -type f", "pwd"),
        *("sed -n 1,20p a.py", "[ -f a.py ] && cat a.py", "timeout 5 ls", "bash -lc 'ls src'", "cd src && ls"),
        *("cat a 2>/dev/null", "ls > /dev/null", "wc -l a.py", "echo done", "/bin/ls", "rg --files", "echo $?"),
        *("timeout 5 test -f x", "command [ -f x ]", "command test -d src", "git remote -v", "git remote --verbose"),
        *("ls | rg x 2>/dev/null", "ls | rg x 2>&1 >/dev/null", "ls ../project/*.md", "git diff --stat HEAD~2"),
        *("git log main~3", "git diff HEAD^2~1 -- a.py", "git show HEAD~:a.py"),
        *("printf '%-9s %s%%\\n' a b", "git diff HEAD^ -- a.py", 'grep "x$" a.py', "{ ls; }"),
    ],
)
def test_a_known_read_inside_of_the_working_directory_only_reads(command):
    facts = facts_of(command)

    assert facts.understood
    assert facts.effects == ("reads",)


@pytest.mark.parametrize(
    "command",
    [
        *("npm test", "make", "python x.py", "./ls", "/opt/ls", "curl https://x.example", "sudo ls", "xargs cat < a"),
        *("cat $x", "cat $(ls)", "$x", "eval ls", "source a", ". a", "sh a.sh", "curl x | sh", "bash", "bash -c $x"),
        *(
            "PATH=. ls",
            "LD_PRELOAD=a ls",
            "X=1",
            "export A=b",
            "alias ls=rm",
            "unalias ls",
            "trap 'rm x' EXIT",
            "exec ls",
        ),
        *(
            "git -c alias.x=push x",
            "git x",
            "git -C /x status",
            "git push",
            "git commit -m x",
            "git diff --no-index a b",
        ),
        *("git diff --output=x", "git branch x", "git config a b", "git log --output=x", "git --exec-path=. status"),
        *("sort -o a b", "sort --compress-program=x a", "find . -exec ls {} +", "find . -delete", "find . -fprint x"),
        *(
            "rg --pre x y",
            "grep -f a b",
            "wc --files0-from=a",
            "date -s x",
            "date -f x",
            "tree -o x",
            "file -C",
            "jq . a",
        ),
        *(
            "sed 's/a/b/w x' a",
            "sed -i s/a/b/ a",
            "sed -n e a",
            "sed -n -e 'w x' -e 1p a",
            "awk 1 a",
            "perl -e 1",
            "env A=b ls",
            "env -S 'rm x'",
        ),
        *("sed -n -e 'w x' -e 1p a", "git branch -D x"),
        *("arch", "arch -x86_64 rm -rf x", "whoami x", "nproc x", "uptime x", "uname rm", "pwd x", "pwd --foo"),
        *(
            "git diff -U --output=x",
            "git diff -U",
            "git status -u no",
            "git show -U --ext-diff",
            "git status -u --output=x",
            "git show :0:x.md",
        ),
        *("timeout 5 test -v x", "command [ -f x", "timeout 5 [ x -eq 1 ]", "git remote -v x", "command test"),
        *("ls &>x ./evil", "ls -la a/b/**/../../../", "cat a/*/../x", "cat a/[bc]/..", "cat x<1-9>y", "ls x^y/.."),
        *("printf '%d' 'psvar[$(rm x)]'", "printf '%*s' 'psvar[$(rm x)]' a", "printf '.%n' PATH", "LANG[1]=x ls"),
        *("grep s* a.py", "rg s* a.py", "grep ^x a.py"),
        *("printf -v PATH x", "test -v 'a[$(rm x)]'", "cat .*/x", "sort *", "cat a{b,c}", "cat <(ls)", "ls &>$x"),
        *("while :; do ls; done", "ls\nfor x in a; do ls; done", "f() { ls; }", "ls \u202e", "ls\rrm", "cd - && ls"),
        *(
            "cd $x && ls",
            "pushd /",
            "time -o x ls",
            "timeout $x ls",
            "tar xf a",
            "ln -s /etc x",
            "chmod +x a",
            "dd of=a",
        ),
    ],
)
def test_what_rules_do_not_know_is_not_understood(command):
    facts = facts_of(command)

    assert not facts.understood
    assert "unknown" in facts.effects


@pytest.mark.parametrize(
    ("command", "effect"),
    [
        *(("rm -rf build", "deletes"), ("rm x && ls", "deletes"), ("find . -name x -delete", "deletes")),
        *(("git push", "pushes"), ("npm publish", "pushes"), ("docker push x", "pushes"), ("gh pr create", "pushes")),
        *(("npm i x", "installs"), ("pip install x", "installs"), ("apt-get install x", "installs")),
        *(("python -m pip install x", "installs"), ("uv add x", "installs")),
        *(("curl https://x.example", "sends"), ("ssh me@x.example ls", "sends"), ("exec 3<>/dev/tcp/x/80", "sends")),
        *(("cat .env", "credentials"), ("cat ~/.ssh/id_rsa", "credentials"), ("printenv", "credentials")),
        *(("env", "credentials"), ("cat config/prod.env", "credentials"), ("git show HEAD:.env", "credentials")),
        *(("cat SECRETS.yml", "credentials"), ("cat .\u200benv", "credentials"), ("cat server.KEY", "credentials")),
        *(("tee .claude/settings.json", "client_settings"), ("cat > .mcp.json", "client_settings")),
        *(("touch .config/opencode/plugin/a.js", "client_settings"), ("rm a/toolgate_hook.py", "client_settings")),
        *(("echo x >> CLAUDE.md", "client_settings"), ("cp a .codex/hooks.json", "client_settings")),
        *(("cat a > .GIT/config", "git"), ("tee .git/hooks/pre-commit", "git"), ("touch sub/HEAD", "git")),
        *(("tee .github/workflows/x.yml", "ci"), ("touch .gitlab-ci.yml", "ci"), ("rm Jenkinsfile", "ci")),
        *(
            ("cat ../x", "outside"),
            ("ls /", "outside"),
            ("cat a/../../x", "outside"),
            ("cd sub; cat ../../x", "outside"),
        ),
        *(("cd nonexistent; cat ../x", "outside"), ("cat ~/x", "outside"), ("cat ~root/x", "outside")),
        *(
            ("cat < /etc/passwd", "outside"),
            ("ls > ../x", "outside"),
            ("cd && cat x", "outside"),
            ("cat $HOME/x", "outside"),
        ),
        *(("git show --stat main:.env HEAD", "credentials"), ("git show -s 1234567", "searches")),
        *(("git diff 1234567 -- src/a.py", "searches"), ("git log -p -- a.py", "searches")),
        *(("cp .venv/bin/pip .venv/bin/x", "executes"), ("echo x > ls", "executes"), ("touch hooks/pre-push", "git")),
        *(("cp x bin", "executes"), ("cat .env-prod", "credentials"), ("cat .envs/live/x", "credentials")),
        *(("cat .e#nv", "searches"), ("cat .x^y", "searches"), ("git blame s*", "searches")),
        *(("grep x .env", "credentials"), ("ls | rg x ../y", "outside"), ("sed -n 1p .env", "credentials")),
        *(
            ("uniq .env", "credentials"),
            ("uniq a .env", "credentials"),
            ("x~/../.ssh/y", "credentials"),
            ("$x rm y", "deletes"),
        ),
        *(("cat id_rsa~x", "searches"), ("cat a/x~", "searches"), ("cat _^x", "searches"), ("cat X~Y", "searches")),
        *(("ls | rg x </dev/null", "searches"), ("ls | rg x <&-", "searches"), ("ls | rg x 0>a", "searches")),
        *(("ls | { rg x; } </dev/null", "searches"), ("ls | rg x <<<a", "searches"), ("ls |& rg x", "searches")),
        *(("git diff --check", "searches"), ("git diff --stat --check", "searches"), ("git diff -s -U", "searches")),
        *(("tar xf a --checkpoint-action=exec=sh", "executes"), ("zip -T -TT sh a", "executes")),
        *(("rsync -e sh a b:c", "executes"), ("wget --use-askpass=sh x", "executes"), ("less a", "executes")),
        *(("sed 1e a", "executes"), ("sed -n -e 1e a", "executes"), ("sed -i s/a/b/ a", "writes")),
        *(("git diff --ext-diff", "executes"), ("git log --textconv", "executes"), ("git diff --output=x", "writes")),
        *(("git -C x status", "executes"), ("git grep -Osh x", "executes"), ("git rebase -x sh", "executes")),
        *(("git fetch --upload-pack=sh", "executes"), ("git submodule foreach sh", "executes")),
        *(("sort --compress-program=sh a", "executes"), ("rg --pre sh x", "executes"), ("sort -o a b", "writes")),
        *(("test -v 'a[$(rm x)]'", "executes"), ("printf %d 'a[$(rm x)]'", "executes"), ("tree -o x", "writes")),
        *(
            ("script -c sh", "executes"),
            ("flock a -c sh", "executes"),
            ("parallel", "executes"),
            ("fd -x sh", "executes"),
        ),
        *(("psql -c '\\! sh'", "executes"), ("kubectl exec a sh", "executes"), ("op run sh", "executes")),
        *(("ssh-keygen -D a.so", "executes"), ("strace -o '|sh' ls", "executes"), ("compgen -C sh", "executes")),
        *(("cat *", "searches"), ("grep -r x .", "searches"), ("rg x", "searches"), ("git diff", "searches")),
        *(("npm test; rm -rf ~", "deletes"), ("ls & git push", "pushes"), ('echo "$(git push)"', "pushes")),
        *(("echo `git push`", "pushes"), ("eval 'git push'", "pushes"), ("bash -c 'git push'", "pushes")),
        *(
            ("sudo git push", "pushes"),
            ("env A=b git push", "pushes"),
            ("xargs git push", "pushes"),
            ("(git push)", "pushes"),
        ),
        *(
            ("if ls; then git push; fi", "pushes"),
            ("cat <<E\n$(git push)\nE", "pushes"),
            ("bash <<E\ngit push\nE", "pushes"),
        ),
        *(("find . -exec git push \\;", "pushes"), ("find . -exec ls \\; -exec git push \\;", "pushes")),
        *(("g\\it pu'sh'", "pushes"), ("ls\ngit push", "pushes"), ("bash -c \"bash -c 'git push'\"", "pushes")),
    ],
)
def test_effects_are_found_wherever_they_are(command, effect):
    assert effect in facts_of(command).effects


@pytest.mark.parametrize(
    ("path", "effects"),
    [
        (".claude/worktrees/w/src/a.py", set()),
        (".cursor/worktrees/.w/a.py", set()),
        (".claude/worktrees/.claude/settings.json", {"client_settings"}),
        (".claude/worktrees/CLAUDE.md", {"client_settings"}),
        (".codex/worktrees/.git", {"client_settings", "git"}),
        (".codex/worktrees/.git/config", {"git"}),
        (".claude/worktrees/w", {"client_settings"}),
        (".claude/worktrees/.env", {"client_settings", "credentials"}),
        (".claude/worktrees/w/.claude/worktrees/a/b", {"client_settings"}),
        (".claude/worktrees/.github/a", {"ci"}),
        ("server:443.key", {"credentials"}),
        (".env:stream", {"credentials"}),
        *(
            (name, {"credentials"})
            for name in ("id_rsa2", "deploy_key", "kubeconfig", "auth.json", ".token", "a/token.txt")
        ),
        *(
            (name, {"credentials"})
            for name in (".vault_pass", "gha-creds-1.json", "x_token", "key.p8", "id_rsa_old.txt")
        ),
        *((name, {"credentials"}) for name in ("prod.kubeconfig", "deploy-key.old", ".vault-password", "Token.TXT")),
        *((name, set()) for name in ("id_rsa2.pub", "deploy_key.pub", "tokenizer.json", "token/lexer.go", "auth.ts")),
        *((name, {"client_settings"}) for name in (".qwen/settings.json", ".trae/x", ".crush.json", ".goosehints")),
        *(
            (name, {"client_settings"})
            for name in (".rules", "QWEN.md", "CRUSH.md", ".augment/x", ".roomodes", "WARP.md")
        ),
        *((name, set()) for name in ("rules", "docs/warp.txt", "src/crush.py")),
    ],
)
def test_every_name_of_a_path_that_may_matter_is_judged(path, effects):
    assert effects_of_path(f"{CWD}/{path}", CWD) == effects


def test_a_copy_of_the_repository_may_be_the_working_directory():
    cwd = f"{CWD}/.claude/worktrees/w"

    assert known("Bash", {"command": "ls . src"}, cwd).effects == ("reads",)
    assert "client_settings" in known("Bash", {"command": "touch ../w2"}, cwd).effects


def test_paths_are_taken_from_every_directory_in_which_a_command_may_run():
    facts = facts_of("cd a; cat ../x")

    assert facts.paths == (f"{CWD}/a", "/srv/x", f"{CWD}/x")


@pytest.mark.parametrize("cwd", ["", "project", "C:\\project", "/a\nb", "/a\0"])
def test_without_a_working_directory_nothing_is_understood(cwd):
    assert not known("Bash", {"command": "ls x"}, cwd).understood
    assert not known("Read", {"file_path": "x"}, cwd).understood


def test_the_root_is_no_working_directory_in_which_everything_is_inside():
    assert "outside" in known("Read", {"file_path": "/etc/passwd"}, "/").effects


@pytest.mark.parametrize(
    ("tool", "sent", "effects"),
    [
        ("Read", {"file_path": "src/a.py"}, ("reads",)),
        ("read_file", {"absolute_path": f"{CWD}/a"}, ("reads",)),
        ("read", {"filePath": f"{CWD}/../a"}, ("reads", "outside")),
        ("Read", {"file_path": f"{CWD}2/a"}, ("reads", "outside")),
        ("Glob", {"pattern": "**/*.py"}, ("reads",)),
        ("Grep", {"pattern": "x"}, ("reads", "searches")),
        ("Grep", {"pattern": "x", "glob": "*.py"}, ("reads",)),
        ("Write", {"file_path": "a", "content": ""}, ("writes",)),
        ("edit", {"filePath": "a", "oldString": "b", "newString": "c"}, ("writes",)),
        ("Write", {"file_path": "node_modules/.bin/x", "content": ""}, ("writes", "executes")),
        ("replace", {"file_path": ".git/config", "old_string": "b", "new_string": "c"}, ("writes", "git")),
        ("MultiEdit", {"file_path": "a", "edits": [{"old_string": "b", "new_string": "c"}]}, ("writes",)),
        ("NotebookEdit", {"notebook_path": "a.ipynb", "new_source": "b"}, ("writes",)),
        ("WebFetch", {"url": "https://docs.example/x", "prompt": "y"}, ("sends",)),
        ("WebSearch", {"query": "x"}, ("sends",)),
        ("shell", {"command": ["bash", "-lc", "ls src"]}, ("reads",)),
        ("shell", {"command": ["rm", "-rf", "x"]}, ("deletes",)),
        ("bash", {"command": "ls", "workdir": "/etc"}, ("reads", "outside")),
    ],
)
def test_tools_of_every_client_have_effects(tool, sent, effects):
    facts = known(tool, sent)

    assert facts.effects == effects
    assert facts.understood


@pytest.mark.parametrize(
    ("tool", "sent"),
    [
        ("Bash", {"command": "ls", "dangerouslyDisableSandbox": True}),
        ("Bash", {"command": ["ls"], "shell": "/opt/x"}),
        ("Bash", {"command": 5}),
        ("Bash", {}),
        ("Read", {"file_path": " /etc/passwd"}),
        ("Read", {"file_path": "C:/x"}),
        ("Bash", {"command": "cat C:/x"}),
        ("Read", {"file_path": "file:///etc/passwd"}),
        ("Read", {"file_path": "a", "path": "/etc/passwd"}),
        ("Read", {"file_path": "a\\..\\..\\b"}),
        ("Read", {"file_path": ["a"]}),
        ("Read", {}),
        ("Glob", {"pattern": "{/etc/*,a}"}),
        ("Glob", {"pattern": "a/../../*"}),
        ("MultiEdit", {"file_path": "a", "edits": [{"old_string": "b"}]}),
        ("WebFetch", {"url": "https://good.example@evil.example/"}),
        ("WebFetch", {"url": "https://good.example\\@evil.example/"}),
        ("WebFetch", {"url": "file:///etc/passwd"}),
        ("web_fetch", {"prompt": "read https://a.example"}),
        ("apply_patch", {"input": "*** Begin Patch\n*** Add File: a\n+b"}),
        ("apply_patch", {"input": "rm x"}),
    ],
)
def test_inputs_that_a_client_may_read_in_another_way_are_not_understood(tool, sent):
    facts = known(tool, sent)

    assert not facts.understood
    assert "unknown" in facts.effects


def test_a_patch_names_every_file_that_it_touches():
    patch = (
        "*** Begin Patch\n*** Update File: src/a.py\n*** Move to: ../b.py\n@@\n-x\n+y\n"
        "*** Add File: .github/workflows/x.yml\n+on: push\n*** Delete File: c\n*** End Patch"
    )
    facts = known("apply_patch", {"command": patch})

    assert facts.paths == (
        f"{CWD}/src/a.py",
        "/srv/b.py",
        f"{CWD}/.github/workflows/x.yml",
        f"{CWD}/c",
    )
    assert facts.effects == ("writes", "deletes", "outside", "ci")


@pytest.mark.parametrize(
    ("client", "tool", "sent"),
    [
        ("claude-code", "Task", {"prompt": "x"}),
        ("python", "update_plan", {"plan": "enterprise"}),
        ("python", "list", {"path": "a"}),
        ("python", "Read", {"file_path": "a"}),
        ("opencode", "update_plan", {"plan": []}),
        ("opencode", "TaskUpdate", {"taskId": "1"}),
        ("gemini-cli", "list", {"path": "a"}),
        ("codex", "read", {"filePath": "a"}),
        ("claude-code", "todoread", {}),
        ("", "Bash", {"command": "ls"}),
    ],
)
def test_a_tool_that_its_client_does_not_have_may_do_anything(client, tool, sent):
    assert derived_facts(client, tool, sent, CWD) is None
    assert preview(client, tool, sent, CWD) is None
    find = facts_finder(client, tool, sent, CWD)
    assert find is not None and find() == NOT_UNDERSTOOD
    assert not changes_nothing(client, tool)


def test_the_preview_of_a_command_lists_its_parts():
    found = shown("Bash", {"command": "cd sub && rm -rf ../..; $x"})

    assert found.kind == "rows"
    assert [row["Part"] for row in found.rows] == ["cd sub", "rm -rf ../..", "$x"]
    assert "/srv" in found.rows[1]["Paths and hosts"]
    assert found.rows[2]["Cannot be told"]


def test_the_preview_of_an_edit_compares_what_the_client_sent():
    found = shown("Edit", {"file_path": "a", "old_string": "b", "new_string": "c"})

    assert (found.kind, found.before, found.after) == ("diff", "b", "c")


def test_a_long_command_is_cut_in_its_preview():
    found = shown("Bash", {"command": "\n".join(f"echo {'x' * 500}; cat /{'y' * 300}{n}" for n in range(500))})

    assert len(found.rows) <= 102
    assert all(len(text) <= 2000 for row in found.rows for text in row.values())


@pytest.mark.parametrize(
    "names", [[f"a{number}" for number in range(3000)], ["./" * number + "a" for number in range(400)]]
)
def test_a_path_cannot_hide_behind_many_others(names):
    facts = facts_of(f"cd b; cd c; cd d; cat {' '.join(names)} .env")

    assert "credentials" in facts.effects
    assert not facts.understood


def test_a_command_beyond_the_limit_is_not_understood():
    assert facts_of("a" * (MAX_COMMAND + 1)).effects == ("unknown",)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from([(client, tool) for client, tools in CLIENT_TOOLS.items() for tool in tools]), st.data())
def test_no_input_raises(names, data):
    client, tool = names
    roles = [name for names in CLIENT_TOOLS[client][tool].roles.values() for name in names]
    sent = data.draw(st.dictionaries(st.sampled_from([*roles, "other"]) | st.text(max_size=5), JSON, max_size=4))

    derived_facts(client, tool, sent, CWD)
    preview(client, tool, sent, CWD)


@pytest.mark.parametrize(("client", "understood"), [("claude-code", True), ("codex", False)])
def test_a_directory_that_the_model_chooses_makes_nothing_known(client, understood):
    find = facts_finder(client, "Bash", {"command": "cat hosts > x"}, "/etc")
    assert find is not None
    facts = find()

    assert (facts.understood, facts.is_plain, "unknown" in facts.effects) == (understood, understood, not understood)
    assert facts.paths == ("/etc/x", "/etc/hosts")


@pytest.mark.parametrize(
    "command",
    [
        " ; ".join(["bash -c '" + "a;" * 100 + "'"] * 50),
        " ; ".join(["bash -c 'rm " + "a " * 400 + "'"] * 50),
        "ssh host " + "a " * 100_000,
        "`" + "'a' " * 50_000 + "`",
        "cat " + "<<E " * 2_500 + "()" * 2_500,
    ],
    ids=["scripts", "words of scripts", "words", "backquotes", "here-documents"],
)
def test_work_on_a_hostile_command_is_limited_in_all_its_texts(command, monkeypatch):
    described = Mock(wraps=describe)
    monkeypatch.setattr(commands, "describe", described)
    analysis = commands.analyse_command(command, CWD)
    assert TOO_MANY in analysis.doubts and not analysis.is_understood
    assert described.call_count <= MAX_STEPS / STEPS_OF_COMMAND
    assert sum(len(each.args[0].words) for each in described.call_args_list) <= MAX_STEPS


def test_a_long_here_document_is_read_whole():
    command = "cat > notes.md <<'E'\n" + "a line; of | text\n" * 5_000 + "E"
    facts = derived_facts("claude-code", "Bash", {"command": command}, CWD)
    assert facts is not None and (facts.effects, facts.understood) == (("reads", "writes"), True)


@pytest.mark.parametrize("tool", ["Read", "Write", "Glob"])
def test_a_path_that_is_too_long_may_be_any(tool):
    sent = {"file_path": "a/" * 3000, "content": ""} if tool != "Glob" else {"pattern": "a/" * 3000}
    facts = known(tool, sent)
    assert not facts.understood and "credentials" in facts.effects


def test_fields_of_known_tools_are_those_that_facts_are_read_from():
    for client, tools in KNOWN_TOOLS.items():
        for name, tool in tools.items():
            read = CLIENT_TOOLS[client].get(name)
            listed = (
                set(read.harmless).union(*read.roles.values()) if read is not None else set(tool.schema["properties"])
            )
            assert set(tool.schema["properties"]) <= listed, name
            assert tool.is_harmless == (read is not None and read.kind == "notes"), name
