"""The environments of the peers: installed once into `var/`, and again when their lock file has changed."""

import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figures import ROOT

HERE = Path(__file__).parent


class PeerMissing(Exception):
    """A peer could not be installed."""


def environment_of(peer: str) -> Path:
    """Return the environment of a peer, installed from its lock. Raises PeerMissing."""
    lock, environment = HERE / f"{peer}.lock", ROOT / "var" / f"bench-{peer}"
    installed = environment / "installed.lock"
    if installed.exists() and installed.read_bytes() == lock.read_bytes():
        return environment
    venv.create(environment, with_pip=True, clear=True)
    command = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "--require-hashes"]
    done = subprocess.run([*command, "-r", str(lock)], capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise PeerMissing(f"pip cannot install {lock.name}.\n{done.stderr[-500:]}")
    installed.write_bytes(lock.read_bytes())
    return environment


class PeerProcess:
    """A peer that runs one round for each line it receives, and prints the milliseconds of the round."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def measure(self) -> float:
        """Run one round of the peer and return its milliseconds. Raises RuntimeError if the peer has ended."""
        assert self._process.stdin is not None  # noqa: S101 - opened as a pipe
        assert self._process.stdout is not None  # noqa: S101 - opened as a pipe
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"The peer ended: {self._process.args!r}")
        return float(answer)


@contextmanager
def started(peer: str, script: str, *arguments: str) -> Iterator[PeerProcess]:
    """Run a script of this folder in the peer's environment; it ends when its standard input is closed."""
    command: Sequence[str] = [str(environment_of(peer) / "bin" / "python"), str(HERE / script), *arguments]
    with subprocess.Popen(  # noqa: S603 - our own script
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr, text=True
    ) as process:
        yield PeerProcess(process)
