"""The cast: six people with their roles, the shipped tools in the catalog, and a real executor."""

import shutil
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group, User
from django.test import Client, override_settings
from django.utils import timezone

from approvals.audit import checkpoints as audit_checkpoints
from approvals.policies import gate
from catalog.core import clock
from catalog.inventory import snapshot
from catalog.tools import registry
from catalog.tools.registry import initialize_tools, register_tool
from plans.engine import retries
from plans.executor import ticker as ticker_module
from plans.executor.pool import ExecutorPool
from plans.executor.ticker import Ticker
from plans.web.home import agents_today, first_steps, last_days
from tests import answers
from tests.catalogs import fill_catalog
from tests.chaos.nursery import Nursery
from tests.chaos.serving import SERVE, Serving
from tests.plans.secret_tools import ACTS, GIVEN
from tests.plans.secret_tools import TOOLS as KEEPERS
from tests.tools_for_tests import STAGE, TOOLS, Stage

MakeServing = Callable[..., Serving]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let emptying the tables after a test that commits send no signal: what migrations made is written again."""
    for item in items:
        if isinstance(item, pytest.Function) and commits(item):
            item.add_marker(pytest.mark.django_db(transaction=True, serialized_rollback=True), append=False)


def commits(item: pytest.Function) -> bool:
    """Say whether a test works outside of a transaction that is rolled back after it."""
    if "transactional_db" in item.fixturenames or "live_server" in item.fixturenames:
        return True
    marker = item.get_closest_marker("django_db")
    return marker is not None and marker.kwargs.get("transaction", False)


def person(username: str, *roles: str) -> User:
    """Make someone with a name, a password `secret-<username>` and roles."""
    password = make_password(f"secret-{username}")
    # Past the signals: the audit logs that tests look at begin empty.
    [user] = User.objects.bulk_create([User(username=username, password=password, first_name=username.title())])
    groups = [Group.objects.get_or_create(name=role)[0] for role in roles]
    User.groups.through.objects.bulk_create(User.groups.through(user=user, group=group) for group in groups)
    return user


@pytest.fixture
def ada(db: None) -> User:
    """An operator."""
    return person("ada", "operator")


@pytest.fixture
def ben(db: None) -> User:
    """Another operator."""
    return person("ben", "operator")


@pytest.fixture
def rosa(db: None) -> User:
    """A reviewer."""
    return person("rosa", "reviewer")


@pytest.fixture
def tomas(db: None) -> User:
    """Another reviewer."""
    return person("tomas", "reviewer")


@pytest.fixture
def vera(db: None) -> User:
    """A viewer."""
    return person("vera", "viewer")


@pytest.fixture
def admin(db: None) -> User:
    """An administrator."""
    return person("admin", "administrator")


@pytest.fixture
def workspace(tmp_path: Path, settings: object) -> Path:
    """An empty workspace of this test's own."""
    root = tmp_path / "workspace"
    root.mkdir()
    settings.TOOLGATE_WORKSPACE = root  # type: ignore[attr-defined]
    return root


@pytest.fixture(scope="session", autouse=True)
def quick_passwords() -> Iterator[None]:
    """Hash passwords with MD5: the product's Argon2 takes a quarter of a second for each on purpose."""
    hashers = ["django.contrib.auth.hashers.MD5PasswordHasher", *django_settings.PASSWORD_HASHERS]
    with override_settings(PASSWORD_HASHERS=hashers):
        yield


@pytest.fixture(scope="session", autouse=True)
def answers_as_documented() -> Iterator[None]:
    """Compare each answer under /api/ that a test client gets with the OpenAPI document."""
    request = Client.request

    def compared(client: Client, **environ: Any) -> Any:
        response = request(client, **environ)
        if environ["PATH_INFO"].startswith(answers.API):
            answers.check(response, environ["REQUEST_METHOD"], environ["PATH_INFO"])
        return response

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "request", compared)
        yield


@pytest.fixture(scope="session")
def checkpoints_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file of checkpoints of this process's test database."""
    path = tmp_path_factory.mktemp("checkpoints") / "audit.checkpoints"
    with override_settings(TOOLGATE_AUDIT_CHECKPOINTS=path):
        yield path


@pytest.fixture(autouse=True)
def checkpoints(checkpoints_file: Path) -> Path:
    """The file of checkpoints, which does not exist when a test begins: the database is set back after each test."""
    if checkpoints_file.is_dir():  # of a test in which it cannot be written
        checkpoints_file.rmdir()
    audit_checkpoints._write_fault = ""
    checkpoints_file.unlink(missing_ok=True)
    return checkpoints_file


@pytest.fixture(scope="session", autouse=True)
def installed() -> Iterator[None]:
    """Look through what is installed for tools once for each path that it may be on, instead of before each test."""
    look = metadata.entry_points

    @cache
    def found(path: tuple[str, ...], **chosen: str) -> Any:
        return look(**chosen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata, "entry_points", lambda **chosen: found(tuple(sys.path), **chosen))
        yield


@pytest.fixture(scope="session", autouse=True)
def patience() -> Iterator[None]:
    """Wait for what probes ask the database for as long as a busy machine takes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("config.operations.health.PROBE_TIMEOUT_SECONDS", 60.0)
        yield


@pytest.fixture
def trust_for(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that sets how many seconds the process goes by what it has read of tools and policies."""
    return lambda seconds: monkeypatch.setattr(snapshot, "SNAPSHOT_SECONDS", seconds)


@pytest.fixture
def read_anew(trust_for: Callable[[float], None]) -> None:
    """Read tools and policies again at each look."""
    trust_for(0.0)


@pytest.fixture
def trusted_for_long(trust_for: Callable[[float], None]) -> None:
    """Go by what was once read of tools and policies, however long a busy machine takes."""
    trust_for(3600.0)


@pytest.fixture
def catalog(db: None) -> Iterator[None]:
    """The shipped tools, registered and synced into the database."""
    initialize_tools()
    forget_what_was_read()
    fill_catalog()
    yield
    forget_what_was_read()


def forget_what_was_read() -> None:
    """Drop what this process remembers of the tables that the next test starts without."""
    snapshot.drop_snapshot()
    gate._view = gate._View()
    retries._released_until.clear()
    last_days.forget()
    agents_today._calls_by_token.cache_clear()
    first_steps._is_complete = False


@pytest.fixture
def stage(catalog: None) -> Iterator[Stage]:
    """The tools of `tests.tools_for_tests` beside the shipped ones, and what their handlers do."""
    STAGE.clear()  # a thread of the test before may have called one late
    for each in TOOLS:
        register_tool(each)
    fill_catalog()
    yield STAGE
    STAGE.clear()
    for each in TOOLS:
        registry._TOOLS.pop(each.name)


@pytest.fixture
def keepers(catalog: None, workspace: Path) -> Iterator[list[Any]]:
    """The tools of `tests.plans.secret_tools`, and what their handlers were given."""
    GIVEN.clear()
    ACTS.clear()
    for each in KEEPERS:
        register_tool(each)
    fill_catalog()
    yield GIVEN
    GIVEN.clear()
    ACTS.clear()
    for each in KEEPERS:
        registry._TOOLS.pop(each.name)


@pytest.fixture
def distant_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is tried again before its test lets the time pass, however slow the machine is."""
    monkeypatch.setattr(retries, "RETRY_JITTER", (50.0, 50.0))  # then 100 s for the second


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let calls be tried again at once."""
    monkeypatch.setattr(retries, "RETRY_JITTER", (0.0, 0.0))


@pytest.fixture
def long_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few seconds ago is just now, however long a busy machine takes for a page."""
    monkeypatch.setattr("catalog.ui.labels.JUST_NOW_SECONDS", 60)


@pytest.fixture
def short_leases(settings: Any) -> None:
    """Leases that are renewed several times while a test lasts: asked for before the threads that go by them."""
    settings.TOOLGATE_LEASE_SECONDS = 2.0


@pytest.fixture
def executor(
    transactional_db: None, catalog: None, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ExecutorPool]:
    """Threads that claim and run for real, with a ticker that ticks often; everything is committed."""
    monkeypatch.setattr(ticker_module, "TICK_SECONDS", 0.2)
    pool = ExecutorPool(threads=2)
    ticker = Ticker(pool)
    pool.start()
    ticker.start()
    yield pool
    ticker.stop()
    pool.stop(seconds=10)


@pytest.fixture
def set_clock(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[timedelta], None]]:
    """A way to set this process's clock so far from where it is, as someone might while it runs."""
    right = timezone.now

    def set_by(amount: timedelta) -> None:
        monkeypatch.setattr(timezone, "now", lambda: right() + amount)

    yield set_by
    monkeypatch.setattr(timezone, "now", right)
    clock.refresh()


@pytest.fixture(scope="session")
def make_serving(tmp_path_factory: pytest.TempPathFactory, django_db_setup: None) -> Iterator[MakeServing]:
    """Return what makes a process that serves: those of one environment share a warm one and an emptied folder.

    `{folder}` in a value is that folder; `late` is the part of the environment that is not alike each time.
    """
    warm: dict[frozenset[tuple[str, str]], tuple[Path, Nursery]] = {}

    def serving_in(folder: Path, environment: dict[str, str]) -> Serving:
        named = {name: value.replace("{folder}", str(folder)) for name, value in environment.items()}
        return Serving(folder, SERVE, TOOLGATE_AUDIT_CHECKPOINTS=str(folder / "audit.checkpoints"), **named)

    def make(late: dict[str, str] | None = None, **environment: str) -> Serving:
        key = frozenset(environment.items())
        if key not in warm:
            folder = tmp_path_factory.mktemp("served")
            warm[key] = folder, Nursery(serving_in(folder, environment).environment)
        folder, nursery = warm[key]
        shutil.rmtree(folder)
        (folder / "workspace").mkdir(parents=True)
        process = serving_in(folder, environment)
        process.nursery, process.late = nursery, late or {}
        return process

    yield make
    for _, nursery in warm.values():
        nursery.close()
