"""Access to WebSockets, and refusals."""

import pytest
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session

from catalog.models import ApiToken
from plans.live import access_marks
from plans.live.sockets import SocketRefused, is_allowed_origin, parse_after
from plans.models import Plan
from tests.builders import make_plan, step
from tests.plans.socket_clients import apart, by_session, by_token, opened, refused


@pytest.fixture
def plan(transactional_db: None, catalog: None, ada: User) -> Plan:
    """Ada's plan that has not started."""
    return make_plan(ada, step(1), start=False)


OWN = ["localhost", "127.0.0.1:8443", "[::1]:8000"]
FOREIGN = [
    "http://evil.example", "null", "", "file:///etc", "http://localhost.evil.example", "http://[", "localhost",
    "https://localhost:8000", "http://localhost", "http://localhost:8001", "http://127.0.0.1:8000",
]  # fmt: skip


def test_origin_must_be_the_sockets_own() -> None:
    """Scheme, host and port: another program on this machine may use another port."""
    assert [host for host in OWN if not is_allowed_origin(f"http://{host}", host)] == []
    assert [origin for origin in FOREIGN if is_allowed_origin(origin, "localhost:8000")] == []
    assert not is_allowed_origin("http://evil.example", "evil.example")


def test_trusted_origin_is_named_with_scheme_and_port(settings) -> None:
    settings.CSRF_TRUSTED_ORIGINS = ["https://gate.example:444", "https://*.team.example"]
    assert is_allowed_origin("https://gate.example:444", "localhost")
    assert is_allowed_origin("https://a.team.example", "localhost")
    assert not is_allowed_origin("http://gate.example:444", "localhost")
    assert not is_allowed_origin("https://gate.example", "localhost")


def test_origin_behind_a_proxy_with_https(settings) -> None:
    settings.TOOLGATE_HTTPS = True
    assert is_allowed_origin("https://localhost", "localhost")
    assert not is_allowed_origin("http://localhost", "localhost")


@pytest.mark.parametrize(
    ("query", "after"), [(b"", 0), (b"after=0", 0), (b"after=17", 17), (b"after=9007199254740991", 2**53 - 1)]
)
def test_after_is_a_number(query: bytes, after: int) -> None:
    assert parse_after(query) == after


NO_NUMBERS = [
    b"after=",
    b"after=-1",
    b"after=1.5",
    b"after=x",
    b"after=1&after=2",
    b"before=1",
    b"after=9007199254740992",
    b"after=" + b"9" * 5000,
    b"after=%D9%A1",
    b"\xff",
]


def test_other_parameters_are_refused():
    """With a code and a reason."""
    for query in NO_NUMBERS:
        with pytest.raises(SocketRefused) as refusal:
            parse_after(query)
        assert refusal.value.code == 4400


async def test_every_refusal_is_a_code_after_accepting(plan: Plan, ada: User, vera: User) -> None:
    """Browsers do not get the code otherwise."""
    path = f"/ws/plans/{plan.public_id}/"
    nobody = [(b"host", b"localhost"), (b"origin", b"http://localhost")]
    assert await refused(path, []) == 4401
    assert await refused(path, nobody) == 4401
    assert await refused(path, [*nobody, (b"cookie", b"toolgate_session=made-up")]) == 4401
    assert await refused(path, await apart(by_session, ada, "http://evil.example")) == 4403
    assert await refused(path, await apart(by_session, ada, None)) == 4403
    assert await refused("/ws/plans/plan_none/", await apart(by_session, ada)) == 4404
    assert await refused(path + "?after=x", await apart(by_session, vera)) == 4400
    assert await refused("/ws/nowhere/", []) == 4404


async def test_a_token_needs_its_scope_and_no_origin(plan: Plan, ada: User, ben: User) -> None:
    """Its cookies are ignored; an agent's token sees its own objects."""
    path = f"/ws/plans/{plan.public_id}/"
    assert await refused(path, [(b"authorization", b"Bearer tg_made-up")]) == 4401
    cookies = await apart(by_session, ada)
    assert await refused(path, [*cookies, (b"authorization", b"Bearer tg_made-up")]) == 4401
    assert await refused(path, await apart(by_token, ada, "tools:read")) == 4403
    assert await refused("/ws/approvals/", await apart(by_token, ada, "plans:read")) == 4403
    assert await refused(path, await apart(by_token, ada, "plans:read", kind="agent")) == 4404
    async with opened(path, await apart(by_token, ben, "plans:read")) as caller:
        assert (await caller.receive_json_from(timeout=60))["seq"] == 1


async def test_someone_without_a_role_sees_only_their_own(plan: Plan, ada: User) -> None:
    """Other objects are not found."""
    stranger = await apart(User.objects.create_user, "stranger", password="secret-stranger")
    assert await refused(f"/ws/plans/{plan.public_id}/", await apart(by_session, stranger)) == 4404


@pytest.fixture
def quick_rechecks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at access again at once: it is done within five seconds."""
    assert access_marks.RECHECK_SECONDS < 5
    monkeypatch.setattr(access_marks, "RECHECK_SECONDS", 0.1)


@pytest.mark.usefixtures("quick_rechecks")
@pytest.mark.parametrize(
    ("change", "code"),
    [("deactivate", 4401), ("sign out", 4401), ("no role", 4403), ("password", 4401)],
)
async def test_socket_is_closed_when_access_is_lost(plan: Plan, ben: User, change: str, code: int) -> None:
    """Whatever the socket is doing."""
    async with opened("/ws/approvals/", await apart(by_session, ben)) as caller:
        await apart(lose, ben, change)
        message = await caller.receive_output(timeout=60)
    assert (message["type"], message["code"]) == ("websocket.close", code)


@pytest.mark.usefixtures("quick_rechecks")
async def test_socket_is_closed_when_access_to_private_data_is_lost(plan: Plan, rosa: User) -> None:
    """The list contains private data; other viewers get another rendering."""
    async with opened("/ws/pages/inbox/", await apart(by_session, rosa)) as caller:
        await caller.receive_json_from(timeout=60)
        viewers, _ = await apart(lambda: Group.objects.get_or_create(name="viewer"))
        await apart(rosa.groups.set, [viewers])
        message = await caller.receive_output(timeout=60)
        while message["type"] != "websocket.close":
            message = await caller.receive_output(timeout=60)
    assert message["code"] == 1013


def lose(user: User, change: str) -> None:
    """Take away the user's access."""
    if change == "deactivate":
        User.objects.filter(pk=user.pk).update(is_active=False)
    elif change == "no role":
        user.groups.clear()
    elif change == "password":
        user.set_password("another-secret")
        user.save()
    else:
        Session.objects.all().delete()


@pytest.mark.usefixtures("quick_rechecks")
async def test_socket_of_a_revoked_token_is_closed(plan: Plan, ben: User) -> None:
    """Like one of an ended session."""
    async with opened("/ws/approvals/", await apart(by_token, ben, "approvals:read")) as caller:
        await apart(lambda: ApiToken.objects.filter(user=ben).update(expires_at=ben.date_joined))
        message = await caller.receive_output(timeout=60)
    assert (message["type"], message["code"]) == ("websocket.close", 4401)
