"""Released coding agents, run headless in a home of their own: what ran, and what the client said."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from plans.client_setup.clients import CODING_AGENTS, CodingAgent, Setup, find_python
from plans.client_setup.configuration import apply_changes
from plans.client_setup.headless import headless_run, shell_use
from plans.client_setup.scripted_model import Script, ScriptedModel, scripted_model
from tests.waiting import eventually

PROGRAMS = {
    "claude-code": "@anthropic-ai/claude-code-linux-x64/claude",
    "codex": ".bin/codex",
    "gemini-cli": ".bin/gemini",
    "opencode": "opencode-linux-x64-baseline/bin/opencode",
}
SECONDS = 180
OFFLINE = {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1,localhost"}
"""No client reaches the network; opencode would install packages for its plugins first."""


@dataclass
class Home:
    """A home with one client, the folder it works in, and the commands that it ran there."""

    agent: CodingAgent
    folder: Path
    model: ScriptedModel | None = None
    output: list[str] = field(default_factory=list)
    turns: Script = ()
    """Turns of the model in place of those that `running` makes of names."""

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def ran(self) -> list[str]:
        """The names of the files that commands have written, in the order of the alphabet."""
        return sorted(path.name for path in self.work.iterdir())

    def connect(self, url: str, token: str) -> None:
        apply_changes(self.agent.changes(Setup(url, token, find_python())))

    def script(self, *names: str) -> Script:
        """Return a script of one turn for each name, whose command writes a file of that name."""
        return [[shell_use(self.agent.slug, f"echo ran > {name}")] for name in names]

    @contextmanager
    def running(self, *names: str) -> Iterator["subprocess.Popen[str]"]:
        """Run the client with a script while the block lasts, and then until it ends."""
        program = self.agent.find_program()
        assert program is not None
        number = len(self.output)
        (self.folder / f"run-{number}").mkdir()
        with scripted_model(self.turns or self.script(*names)) as model:
            self.model = model
            run = headless_run(self.agent, program, model.url, self.folder / f"run-{number}")
            path = self.folder / f"output-{number}"
            with path.open("w") as output:
                process = subprocess.Popen(
                    run.command,
                    cwd=self.work,
                    env=run.environment | {"PWD": str(self.work)},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    text=True,
                    start_new_session=True,
                )
                try:
                    yield process
                    process.wait(SECONDS)
                finally:
                    stop(process)
            self.output.append(path.read_text(errors="replace"))

    def run(self, *names: str) -> None:
        with self.running(*names):
            pass

    @property
    def told(self) -> str:
        """The end of the last request's messages, which is the result of the last tool."""
        assert self.model is not None
        body = self.model.requests[-1]
        messages = body.get("messages") or body.get("input") or body.get("contents")
        return str(messages)[-500:]

    def hook_process(self) -> int | None:
        """Return the process of the hook that is running, or None."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if bytes(self.agent.wrapper) in words and b"ask" in words:
                return int(path.parent.name)
        return None

    def kill_hook(self) -> None:
        os.kill(eventually(self.hook_process, what="The hook"), signal.SIGKILL)


def stop(process: "subprocess.Popen[str]") -> None:
    """End a client and its children, which are in a process group of their own."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def home_in(folder: Path, slug: str, modules: Path) -> Home:
    """Make a home with one client, found on PATH under its own name."""
    agent_class = CODING_AGENTS[slug]
    (folder / "work").mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / agent_class.program).symlink_to(modules / PROGRAMS[slug])
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    environment = {"HOME": str(folder), "PATH": path, **OFFLINE}
    return Home(agent_class(environment), folder)
