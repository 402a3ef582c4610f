"""A process that forks the processes under test: imports are done once, so a restart is cheap.

It is started with the environment of the processes to come, sets Django up, and opens no connection. Each line it reads
asks for one process: `{"command": […], "log": path, "late": {…}}`, where `late` is added to the environment; it answers
with the number of the process.
"""

import gc
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

ROOT = Path(__file__).resolve().parents[2]


class Child:
    """One forked process, with the methods of `subprocess.Popen` that the tests use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        """Return None while it is alive, afterwards 0: its exit code is unknown."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return 0
        return None

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float) -> None:
        """Wait for its end. Raises subprocess.TimeoutExpired."""
        ends = monotonic() + timeout
        while self.poll() is None:
            if monotonic() > ends:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            sleep(0.01)


class Nursery:
    """The forking process, as seen from the test."""

    def __init__(self, environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", "tests.chaos.nursery"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, text=True, bufsize=1, stdin=pipe, stdout=pipe
        )

    def fork(self, command: tuple[str, ...], log: Path, late: dict[str, str]) -> Child:
        """Start `manage.py` with a command; its output is appended to the log.

        `late` is added to its environment. It cannot contain settings, which have been read already.
        """
        asks, answers = self._process.stdin, self._process.stdout
        assert asks is not None and answers is not None
        asks.write(json.dumps({"command": command, "log": str(log), "late": late}) + "\n")
        return Child(int(answers.readline()))

    def close(self) -> None:
        """End the forking process; its children continue."""
        self._process.communicate(timeout=60)


def warm_up() -> None:
    """Import what every process needs."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    from django.core.management import load_command_class  # noqa: PLC0415 - only here, in the warm process

    import config.asgi  # noqa: PLC0415
    import config.urls  # noqa: F401, PLC0415

    if os.environ.get("TOOLGATE_MODEL"):
        import pydantic_ai.direct  # noqa: PLC0415 - as above
        import pydantic_ai.models.openai  # noqa: F401, PLC0415

    for name in ("serve", "worker"):
        load_command_class("plans", name)
    gc.freeze()


def live(command: list[str], log: str, late: dict[str, str]) -> None:
    """Run a command in the forked process, and exit."""
    from django.core.management import execute_from_command_line  # noqa: PLC0415 - only in the forked process

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.update(late)
    log_file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log_file), (2, log_file)):
        os.dup2(file, number)
    try:
        execute_from_command_line(["manage.py", *command])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def main() -> None:
    """Fork one process for each line of the input."""
    warm_up()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no children to wait for
    while line := sys.stdin.readline():
        pid = os.fork()
        if not pid:
            live(**json.loads(line))
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
