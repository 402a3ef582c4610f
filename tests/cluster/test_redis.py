"""Redis carries notifications between processes; without it everything works, and pages poll the database."""

import pytest
from django.contrib.auth.models import User

from plans.models import Plan
from tests.builders import step
from tests.chaos.redis import RedisServer
from tests.cluster.callers import bearer, get, page_socket, post, said, signed_in
from tests.cluster.conftest import WEB, WORKER, Start, is_up
from tests.waiting import eventually

pytestmark = [pytest.mark.service, pytest.mark.slow]
PAGES = ("/plans/", "/plans/new/", "/approvals/", "/tools/")


def see_one_through(url: str, user: User) -> None:
    """Create a plan, see it complete over its page's socket, make a direct call, and read the pages."""
    document = {"goal": "Do it", "steps": [step(1, "safe_work"), step(2, "safe_work", dependencies=[1])]}
    plan = post(f"{url}/api/v1/plans/", json=document, headers=bearer(user))
    assert plan.status_code == 201
    with page_socket(url, plan.json()["id"], user) as socket:
        next(text for text in said(socket) if not Plan.objects.exclude(status="completed").exists())
    asked = {"tool": "safe_work", "arguments": {}, "wait_seconds": 30}
    call = post(f"{url}/api/v1/calls/", json=asked, headers=bearer(user))
    assert (call.status_code, call.json()["status"]) == (201, "completed")
    statuses = {page: get(url + page, cookies=signed_in(user), follow_redirects=True).status_code for page in PAGES}
    assert statuses == dict.fromkeys(PAGES, 200)


def test_redis_comes_and_goes(start: Start, redis: RedisServer, ada: User) -> None:
    """Redis is away at the start, then up, then killed: plans run, pages are live, nothing fails."""
    web, worker = start(WEB), start(WORKER)
    for process in (web, worker):
        eventually(lambda process=process: is_up(process), what="a process")  # type: ignore[misc]
    url = str(web.url())
    see_one_through(url, ada)
    redis.start()
    eventually(lambda: "Redis is back" in web.log(), what="Redis")
    see_one_through(url, ada)
    redis.kill()
    see_one_through(url, ada)
    assert get(f"{url}/readyz").status_code == 200
    assert "status=500" not in web.log()
    eventually(lambda: web.log().count("Redis cannot be reached") > 1, what="the second warning")
