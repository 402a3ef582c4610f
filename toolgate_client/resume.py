"""Runner that resumes deferred sessions where the agent lives: `python -m toolgate_client resume --config FILE`.

A client such as `claude -p` can end while a person decides. The runner asks Toolgate over REST which sessions have
their decision, claims one, starts the command that the configuration has for its client, and reports how that ended.
Nothing of the decision is passed to the command: the resumed client asks Toolgate again by its hook. Toolgate hands an
allowed call out once, so that whatever dies here, the call does not run twice.

The owner's configuration says what may be started; without it, or without `enabled = true`, nothing is:

    enabled = true
    url = "https://toolgate.example.org"
    token_file = "token"                    # mode 0600, relative to this file; the token of the client's hook
    proxy = "http://proxy.example.org:3128" # if one is needed: none is taken from the environment
    certificates = "authorities.pem"        # if the server's certificate is not of a usual authority

    [clients.claude-code]
    command = ["claude", "-p", "--resume", "{session}"]     # no shell; {session} is a whole argument
    directories = ["/srv/agents/work"]        # where sessions may be resumed
    environment = ["HOME", "PATH"]          # the variables that the command gets
"""

import logging
import os
import re
import signal
import socket
import stat
import subprocess
import threading
import tomllib
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic
from typing import IO, Any

from toolgate_client.client import NAME, Client
from toolgate_client.errors import ConfigurationError, Conflict, NotFound, ToolgateError
from toolgate_client.records import Deferred, Fields
from toolgate_client.transport import Request, exchange, path_to

logger = logging.getLogger("toolgate_client.resume")

POLL_SECONDS = 50.0
QUIET_SECONDS = 5.0
"""Pause after a round in which nothing could be started, although something was listed."""
LONGEST_PAUSE_SECONDS = 60.0
LEASE_SECONDS = 60
RENEWALS = 3
"""Renewals of a lease in its life."""
LOOK_SECONDS = 0.5
STOP_SECONDS = 10.0
"""Time that a process has to end after SIGTERM."""
REPORT_SECONDS = 600.0
"""Time for which the report of an end is repeated while Toolgate is away."""
NOT_STARTED = 127
SESSION = "{session}"
# An id that begins with a dash could be an option of the command.
SESSION_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_FILE_BYTES = 64 * 1024
MAX_LAST_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ClientCommand:
    """The command that resumes a session of one client, and what it may use.

    `seconds` is the longest run. Its output is appended to files in `output`, or dropped. `gone` is a part of what it
    says about a session that it does not know any more, if it says so.
    """

    command: tuple[str, ...]
    directories: tuple[Path, ...]
    environment: tuple[str, ...]
    seconds: float
    output: Path | None
    gone: str

    def arguments(self, session: str) -> list[str]:
        """Return the command for a session."""
        return [session if part == SESSION else part for part in self.command]

    def directory(self, cwd: str) -> Path | None:
        """Return the directory in which to resume; None if the claimed one is missing or not in the list."""
        try:
            found = Path(cwd).resolve(strict=True) if Path(cwd).is_absolute() else None
        except (OSError, ValueError, RuntimeError):
            return None
        if found is None or not found.is_dir():
            return None
        return found if any(found.is_relative_to(allowed.resolve()) for allowed in self.directories) else None

    def variables(self) -> dict[str, str]:
        """Return the environment of the command."""
        return {name: os.environ[name] for name in self.environment if name in os.environ}


@dataclass(frozen=True, slots=True)
class RunnerConfig:
    """An owner's configuration file; `parallel` is the largest number of sessions at a time."""

    url: str
    token: str
    parallel: int
    clients: Mapping[str, ClientCommand]
    proxy: str | None = None
    certificates: Path | None = None

    @classmethod
    def read(cls, path: Path) -> "RunnerConfig":
        """Read a file. Raises ConfigurationError, also if others may write it or if it is not enabled."""
        try:
            document = tomllib.loads(_text_of(path, forbidden=stat.S_IWGRP | stat.S_IWOTH, wanted="0600 or 0644"))
        except tomllib.TOMLDecodeError:
            raise ConfigurationError(f"{path} is not valid TOML.") from None
        table = Table(document, str(path))
        if table.take("enabled", bool, default=False) is not True:
            raise ConfigurationError(f"Resuming is off. Set `enabled = true` in {path}.")
        token_file = path.parent / table.take("token_file", str)
        clients = table.take("clients", dict)
        certificates = table.take("certificates", str, default=None)
        config = cls(
            table.take("url", str),
            _text_of(token_file, forbidden=stat.S_IRWXG | stat.S_IRWXO, wanted="0600").strip(),
            table.take("parallel", int, default=4),
            {name: _client_command(name, Table(entry, f"{path}, clients.{name}")) for name, entry in clients.items()},
            table.take("proxy", str, default=None),
            path.parent / certificates if certificates is not None else None,
        )
        table.require_empty()
        if not config.clients or not 1 <= config.parallel <= 64:
            raise ConfigurationError(f"{path} needs a table of `clients`, and `parallel` from 1 to 64.")
        return config


class Table:
    """A table of a configuration file; every field must be taken."""

    def __init__(self, document: Any, where: str) -> None:
        if not isinstance(document, dict):
            raise ConfigurationError(f"{where} must be a table.")
        self._left = dict(document)
        self._where = where

    def take(self, name: str, kind: type, default: Any = ...) -> Any:
        """Return a field. Raises ConfigurationError if it is missing without a default, or of another type."""
        if name not in self._left and default is not ...:
            return default
        value = self._left.pop(name, None)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ConfigurationError(f"{self._where}: `{name}` must be given as {kind.__name__}.")
        return value

    def texts(self, name: str, default: Any = ...) -> tuple[str, ...]:
        """Return a list of texts, none of them empty."""
        found = self.take(name, list, default)
        if not all(isinstance(each, str) and each and "\0" not in each for each in found):
            raise ConfigurationError(f"{self._where}: `{name}` must be a list of texts.")
        return tuple(found)

    def require_empty(self) -> None:
        """Raise ConfigurationError if a field was not taken: it is misspelt, or of another version."""
        if self._left:
            raise ConfigurationError(f"{self._where}: unknown field `{sorted(self._left)[0]}`.")


def _client_command(name: str, table: Table) -> ClientCommand:
    command = table.texts("command")
    directories = tuple(map(Path, table.texts("directories")))
    environment = table.texts("environment", ())
    output = table.take("output", str, default="")
    seconds = table.take("seconds", int, default=3600)
    gone = table.take("gone", str, default="")
    table.require_empty()
    problems = {
        "the name must have 1 to 40 lower-case letters, digits and `-`": not NAME.fullmatch(name),
        "`command` must name a program and have one argument `{session}`, alone": (
            len(command) < 2 or command[0] == SESSION or [part for part in command if SESSION in part] != [SESSION]
        ),
        "`directories` must be absolute paths": not directories or not all(map(Path.is_absolute, directories)),
        "`environment` must be names of variables": not all(map(VARIABLE.fullmatch, environment)),
        "`output` must be an absolute path": bool(output) and not Path(output).is_absolute(),
        "`seconds` must be at least 1": seconds < 1,
    }
    for problem, exists in problems.items():
        if exists:
            raise ConfigurationError(f"clients.{name}: {problem}.")
    return ClientCommand(command, directories, environment, seconds, Path(output) if output else None, gone)


def _text_of(path: Path, *, forbidden: int, wanted: str) -> str:
    """Read a file that is this user's alone. Raises ConfigurationError."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe without a writer would block
        with os.fdopen(number, "rb") as file:
            facts = os.fstat(number)
            if not stat.S_ISREG(facts.st_mode) or facts.st_uid not in (os.getuid(), 0) or facts.st_mode & forbidden:
                raise ConfigurationError(f"{path} must be a file of this user with mode {wanted}.")
            content = file.read(MAX_FILE_BYTES + 1)
            if len(content) > MAX_FILE_BYTES:
                raise ConfigurationError(f"{path} has more than {MAX_FILE_BYTES:,} bytes.")
            return content.decode()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not UTF-8.") from None


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to resume one session for a while."""

    id: str
    deferred: Deferred


class Runner:
    """Resumes sessions, several at a time but each once, until it is told to stop."""

    def __init__(self, config: RunnerConfig, client: Client) -> None:
        self.config, self.client = config, client
        self.stopping = threading.Event()
        self.ending = threading.Event()
        self._name = f"{socket.gethostname()[:40]}-{os.getpid()}".encode("ascii", "replace").decode()
        self._active: dict[tuple[str, str], threading.Thread] = {}
        self._refused: set[str] = set()
        self._error: Exception | None = None
        self._failures = 0
        self._lock = threading.Lock()

    def run(self, *, once: bool = False) -> None:
        """Resume what is listed, again and again, until `stop`; with `once`, what is listed now. Wait for what runs."""
        if once:
            self._start_all(self._listed(0.0))
        else:
            threading.Thread(target=self._poll, daemon=True).start()
            self.stopping.wait()
        for thread in self._threads():
            thread.join()
        if self._error is not None:
            raise self._error

    def _poll(self) -> None:
        try:
            while not self.stopping.is_set():
                self.stopping.wait(self._poll_once())
        except Exception as error:  # noqa: BLE001 - raised by `run`; the end of the client's connections ends the wait
            if not self.stopping.is_set():
                self._error = error
                self.stopping.set()

    def _poll_once(self) -> float:
        """Start what is listed; return the seconds to pause."""
        try:
            listed = self._listed(POLL_SECONDS)
        except ToolgateError as error:
            self._failures += 1
            logger.warning("Toolgate cannot be asked for sessions (%s).", type(error).__name__)
            return min(QUIET_SECONDS * 2.0 ** min(self._failures, 8), LONGEST_PAUSE_SECONDS)
        self._failures = 0
        return 0.0 if self._start_all(listed) or not listed else QUIET_SECONDS

    def stop(self) -> None:
        """Start nothing more; at the second call, also end what runs."""
        if self.stopping.is_set():
            self.ending.set()
        self.stopping.set()

    def _threads(self) -> list[threading.Thread]:
        with self._lock:
            return list(self._active.values())

    def _listed(self, wait_seconds: float) -> list[Deferred]:
        query: dict[str, str | int | float] = {"wait_seconds": wait_seconds}
        if len(self.config.clients) == 1:
            query["client"] = next(iter(self.config.clients))
        request = Request("GET", "permissions/deferred/", query, wait_seconds=wait_seconds)
        page = Fields(self.client.follow(self.client.exchange(request)), "page")
        return list(map(Deferred.read, page.items("results")))

    def _start_all(self, all_deferred: list[Deferred]) -> int:
        """Start a thread for each session that may be resumed and is not yet; return their number."""
        started = 0
        self._refused &= {deferred.call for deferred in all_deferred}
        for deferred in all_deferred:
            key = deferred.client, deferred.session
            problem = self._problem(deferred)
            if problem and deferred.call not in self._refused:
                self._refused.add(deferred.call)
                logger.warning("%s is not resumed: %s", deferred.call, problem)
            with self._lock:
                is_full = len(self._active) >= self.config.parallel
                if problem or is_full or key in self._active or self.stopping.is_set():
                    continue
                thread = threading.Thread(target=self._work, args=(key, deferred))
                thread.start()  # before another thread can see it: one that has not started cannot be joined
                self._active[key] = thread
            started += 1
        return started

    def _problem(self, deferred: Deferred) -> str:
        """Return why a session may not be resumed here, or an empty text."""
        client = self.config.clients.get(deferred.client)
        if client is None:
            return "its client is not in the configuration."
        if not SESSION_ID.fullmatch(deferred.session):
            return "its session id is malformed."
        return "" if client.directory(deferred.cwd) else "its directory is not in the configuration's list."

    def _work(self, key: tuple[str, str], deferred: Deferred) -> None:
        try:
            self.resume(deferred)
        except ToolgateError as error:
            logger.warning("%s could not be resumed (%s).", deferred.call, type(error).__name__)
        finally:
            with self._lock:
                del self._active[key]

    def resume(self, deferred: Deferred) -> None:
        """Claim one session, run its command to the end, and report that. Raises ToolgateError."""
        claim = self._claim(deferred)
        if claim is None:
            return
        problem = self._problem(claim.deferred)
        if problem:
            self._report_end(claim, NOT_STARTED, message=f"It was not resumed: {problem}")
            return
        client = self.config.clients[claim.deferred.client]
        with ExitStack() as stack:
            try:
                output = stack.enter_context(_output_file(client, claim.deferred))
                began = output.seek(0, os.SEEK_END)
                process = _start(client, claim.deferred, output)
            except OSError as error:
                self._report_end(claim, NOT_STARTED, message=f"The command could not be started: {error.strerror}.")
                return
            logger.info("%s: session %s is resumed.", claim.deferred.call, claim.deferred.session)
            if self._supervise(process, claim, client.seconds):
                is_gone = bool(client.gone) and process.returncode != 0 and client.gone in _last_text(output, began)
                self._report_end(claim, process.returncode, session_gone=is_gone)

    def _post(self, call: str, body: Mapping[str, Any], retry_seconds: float) -> Fields:
        request = Request("POST", path_to("permissions", call, "resumed"), {}, body)
        return Fields(self.client.follow(exchange(request, retry_seconds=retry_seconds)), "answer")

    def _claim(self, deferred: Deferred) -> Claim | None:
        """Return the claim of a session, or None if another runner has it or it is no longer to be resumed."""
        body = {"state": "starting", "runner": self._name, "lease_seconds": LEASE_SECONDS}
        try:
            answer = self._post(deferred.call, body, 0.0)  # after a lost answer, the lease runs out
        except (Conflict, NotFound):
            return None
        return Claim(answer.required("claim", str), Deferred.read(answer.required("deferred", dict)))

    def _supervise(self, process: "subprocess.Popen[bytes]", claim: Claim, seconds: float) -> bool:
        """Wait for the end of a process and renew the lease meanwhile; return False if the lease was lost."""
        ends, renews = monotonic() + seconds, monotonic() + LEASE_SECONDS / RENEWALS
        while True:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=LOOK_SECONDS)
                return True
            if monotonic() >= ends or self.ending.is_set():
                _end(process)
                return True
            if monotonic() < renews:
                continue
            renews = monotonic() + LEASE_SECONDS / RENEWALS
            body = {"state": "running", "claim": claim.id, "lease_seconds": LEASE_SECONDS}
            try:
                self._post(claim.deferred.call, body, 0.0)
            except (Conflict, NotFound):
                logger.warning("%s: the lease was lost, so its process is ended.", claim.deferred.call)
                _end(process)
                return False
            except ToolgateError:
                continue  # the call is handed out once, whoever asks: a second process would do no harm

    def _report_end(self, claim: Claim, exit_code: int, *, message: str = "", session_gone: bool = False) -> None:
        body: dict[str, Any] = {"state": "ended", "claim": claim.id, "exit_code": exit_code}
        body |= {"message": message} if message else {}
        body |= {"session_gone": True} if session_gone else {}
        outcome = self._post(claim.deferred.call, body, REPORT_SECONDS).optional("outcome", str)
        logger.info("%s: the command ended with %s (%s).", claim.deferred.call, exit_code, outcome)


def _output_file(client: ClientCommand, deferred: Deferred) -> IO[bytes]:
    """Open the file for the output of a session's command, or one that vanishes. Raises OSError."""
    if client.output is None:
        return TemporaryFile()
    path = client.output / f"{deferred.client}-{deferred.session}.log"
    return os.fdopen(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b")


def _last_text(output: IO[bytes], began: int) -> str:
    """Return the end of the output since a position."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(began, size - MAX_LAST_BYTES))
    return output.read(MAX_LAST_BYTES).decode(errors="replace")


def _start(client: ClientCommand, deferred: Deferred, output: IO[bytes]) -> "subprocess.Popen[bytes]":
    """Start the command of a session in a process group of its own. Raises OSError."""
    directory = client.directory(deferred.cwd)
    if directory is None:
        raise NotADirectoryError(20, "its directory has vanished")
    return subprocess.Popen(  # noqa: S603 - the owner's command, without a shell; the session id was checked
        client.arguments(deferred.session),
        cwd=directory,
        env=client.variables(),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and its group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=STOP_SECONDS)
            return


def main(path: Path, *, once: bool) -> None:
    """Run with a configuration file until SIGTERM or SIGINT. Raises ConfigurationError."""
    config = RunnerConfig.read(path)
    route: dict[str, Any] = {"proxy": config.proxy, "certificates": config.certificates}
    with Client(config.url, config.token, retry_seconds=10.0, **route) as client:
        runner = Runner(config, client)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: runner.stop())
        runner.run(once=once)
