"""compose.yaml: its settings and commands exist, and together they are a working cluster."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import get_commands, load_command_class

from plans.models import Event, Plan, Step
from tests.builders import step
from tests.chaos.redis import RedisServer
from tests.chaos.serving import ROOT, Serving, database_url
from tests.cluster.callers import bearer, get, page_socket, post, said
from tests.cluster.conftest import Start, is_up
from tests.house.source import settings_read
from tests.waiting import eventually

VARIABLE = re.compile(r"\$\{(\w+)(:[-?])([^}]*)\}")
SERVICES = {"postgres", "redis", "migrate", "web", "worker"}
SECRETS = {"SECRET_KEY", "TOOLGATE_AUDIT_KEY", "TOOLGATE_SECRET_KEYS", "POSTGRES_PASSWORD"}
COMPOSED: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]


def filled_in(text: str) -> str:
    """Replace a variable by its default, or a required one by a value for tests."""
    return VARIABLE.sub(lambda found: found[3] if found[2] == ":-" else "for-the-tests-only-" * 3, text)


def environment_of(service: str) -> dict[str, str]:
    """Return the settings of a service without a .env file."""
    return {name: filled_in(str(value)) for name, value in COMPOSED[service]["environment"].items()}


def test_every_secret_must_be_given() -> None:
    """None has a default, and each has an error message."""
    assert COMPOSED.keys() == SERVICES
    found = VARIABLE.findall((ROOT / "compose.yaml").read_text())
    assert {name for name, kind, said in found if kind == ":?" and "set it in .env" in said} == SECRETS
    assert not SECRETS & {name for name, kind, _ in found if kind == ":-"}


@pytest.mark.parametrize("service", ["migrate", "web", "worker"])
def test_settings_and_commands_exist(service: str) -> None:
    """Each setting is read by the product, and each command accepts its options."""
    assert environment_of(service).keys() <= settings_read(ROOT)
    python, manage, name, *options = COMPOSED[service]["command"]
    assert (python, manage) == ("python", "manage.py")
    load_command_class(get_commands()[name], name).create_parser("manage.py", name).parse_args(options)
    assert COMPOSED[service]["stop_grace_period"] == "40s"
    assert COMPOSED[service]["env_file"] == [{"path": ".env", "required": False}]


def test_the_image_holds_what_runs() -> None:
    """Every folder of the product is copied, dependencies are checked by hash, and the user is not root."""
    written = (ROOT / "Dockerfile").read_text()
    for name in ("approvals", "catalog", "config", "plans", "static", "templates"):
        assert f"COPY {name} {name}\n" in written
        assert f"!{name}\n" in (ROOT / ".dockerignore").read_text()
    assert "--require-hashes" in written
    assert "\nUSER toolgate\n" in written
    check = COMPOSED["web"]["healthcheck"]["test"][2]
    assert (ROOT / check).exists()
    assert f"COPY {check} " in written


@pytest.fixture
def cluster(start: Start, redis: RedisServer, tmp_path: Path) -> dict[str, list[Serving]]:
    """Two web processes and two workers, as composed, but on the test's database, Redis and ports."""
    redis.start()
    here = {"DATABASE_URL": database_url(), "REDIS_URL": redis.url, "TOOLGATE_WORKSPACE": str(tmp_path / "workspace")}
    here |= {"SECRET_KEY": settings.SECRET_KEY, "TOOLGATE_AUDIT_KEY": settings.TOOLGATE_AUDIT_KEY}
    here |= {"TOOLGATE_SECRET_KEYS": ",".join(settings.TOOLGATE_SECRET_KEYS), "TOOLGATE_TOOLS": "tests.chaos.tools"}

    def composed(service: str) -> list[Serving]:
        command = COMPOSED[service]["command"][2:]
        if "--port" in command:
            command = [*command[: command.index("--host")], "--port", "0"]
        environment = {**environment_of(service), **here}
        return [start(tuple(command), **environment) for _ in range(COMPOSED[service]["deploy"]["replicas"])]

    return {service: composed(service) for service in ("web", "worker")}


@pytest.mark.service
@pytest.mark.slow
def test_a_plan_goes_through_every_process(cluster: dict[str, list[Serving]], ada: User, rosa: User) -> None:
    """Created at one web process, run by a worker, approved at the other, seen live on the first one's page."""
    for process in (*cluster["web"], *cluster["worker"]):
        eventually(lambda process=process: is_up(process), what="a process")  # type: ignore[misc]
    first, second = [str(process.url()) for process in cluster["web"]]
    document = {"goal": "Do it", "steps": [step(1, "safe_work"), step(2, "dangerous_work", dependencies=[1])]}
    plan = post(f"{first}/api/v1/plans/", json=document, headers=bearer(ada)).json()["id"]
    with page_socket(first, plan, ada) as socket:
        news = said(socket)
        next(text for text in news if "approval" in text)
        [waiting] = eventually(lambda: _waiting(second, rosa), what="the request")
        answer = {"verdict": "approve", "seen_digest": waiting["digest"]}
        review = f"{second}/api/v1/approvals/{waiting['id']}/reviews/"
        assert post(review, json=answer, headers=bearer(rosa)).status_code == 201
        next(text for text in news if Plan.objects.get().status == "completed")
    ran = [json.loads(each.data)["call"] for each in Event.objects.filter(type="call.succeeded").order_by("seq")]
    assert len(ran) == Step.objects.filter(status="completed").count() == 2
    assert get(f"{first}/readyz").json()["checks"]["cluster"] == "ok"


def _waiting(url: str, reviewer: User) -> list[dict[str, Any]]:
    headers = bearer(reviewer)
    listed = get(f"{url}/api/v1/approvals/?status=pending", headers=headers).json()["results"]
    return [get(f"{url}/api/v1/approvals/{each['id']}/", headers=headers).json() for each in listed]
