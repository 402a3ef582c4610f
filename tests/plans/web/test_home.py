"""The home page without JavaScript: what each role sees, requests answered in place, first steps, and agents today."""

import re
from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import User

from approvals.models import ApprovalRequest
from approvals.reviews.decisions import decide
from catalog.access.tokens import create_token
from catalog.core import clock
from catalog.errors import ToolError
from catalog.models import ApiToken
from plans.actions.call import CallOrder, create_call
from plans.models import AgentRun, Plan
from plans.store.requesters import Requester
from plans.web.home import first_steps
from plans.web.home.agents_today import agents_today
from plans.web.home.first_steps import first_steps_for
from tests.approvals.factories import approval, ask, make_tool, page_of_request
from tests.builders import act, make_plan, request_of, work_off, write_step
from tests.conftest import person
from tests.pages import Pages
from tests.plans.agents.scripted import make_agent
from tests.plans.factories import act_raising
from tests.tools_for_tests import Stage

pytestmark = pytest.mark.django_db


def listed(pages: Pages) -> list[str]:
    """Return the ids of the requests in the list of the open page."""
    return re.findall(r'id="q-([^"]+)"', pages.html)


def home_of(user: User) -> Pages:
    pages = Pages(user)
    pages.open("/")
    return pages


def test_the_oldest_three_are_answered_in_place(ada, rosa, settings):
    settings.TOOLGATE_UNDO_SECONDS = 0
    first, second, third, fourth = (ask(ada) for _ in range(4))
    pages = home_of(rosa)
    assert listed(pages) == [each.public_id for each in (first, second, third)]
    assert f'id="decide-{first.public_id}"' in pages.html
    assert f'href="/approvals/?status=needs_me&amp;item={second.public_id}"' in pages.html  # where phones open it
    form = {name: pages.field(name) for name in ("status", "seen_digest")} | {"verdict": "approve"}
    pages.send(page_of_request(first, "decision"), form)
    first.refresh_from_db()
    assert first.status == "approved"
    assert listed(pages) == [each.public_id for each in (second, third, fourth)]
    assert f'data-shown="q-{second.public_id}"' in pages.html


def test_what_expires_soon_comes_first(ada, rosa):
    requests = [ask(ada) for _ in range(5)]
    ApprovalRequest.objects.filter(pk=requests[4].pk).update(expires_at=clock.now() + timedelta(minutes=4))
    assert listed(home_of(rosa)) == [requests[number].public_id for number in (4, 0, 1)]


def test_htmx_gets_the_list_of_the_home_page(ada, rosa):
    first, second = ask(ada), ask(ada)
    pages = home_of(rosa)
    form = {"status": "home", "seen_digest": first.digest, "verdict": "reject", "comment": "No."}
    answer = pages.swap(page_of_request(first, "decision"), "pane", form)
    body = answer.content.decode()
    assert answer["HX-Replace-Url"] == f"/?item={second.public_id}"
    assert re.findall(r'id="q-([^"]+)"', body) == [second.public_id]
    assert 'id="views"' not in body


def test_an_old_digest_is_refused_as_on_the_desk(ada, rosa):
    request = ask(ada)
    pages = home_of(rosa)
    page = pages.send(
        page_of_request(request, "decision"), {"status": "home", "seen_digest": "0" * 64, "verdict": "approve"}, 409
    )
    request.refresh_from_db()
    assert request.status == "pending"
    assert "Approvals" in page and 'id="views"' in pages.html  # the whole desk, with the request and the reason


def test_what_is_not_shown_whole_is_not_answered_here(catalog, workspace, ada, rosa):
    request = request_of(work_off(make_plan(ada, write_step(1, content="word " * 8000))))
    pages = home_of(rosa)
    assert 'value="approve"' not in pages.html
    assert re.search(rf'id="to-desk" href="/approvals/\?item={request.public_id}"', pages.html)
    for view in ("edit", "respond", "json"):
        pages.open(f"/?item={request.public_id}&view={view}")
        assert 'name="verdict"' not in pages.html
    pages.open(page_of_request(request))
    assert 'value="approve"' in pages.html


@pytest.fixture
def failed(stage: Stage, ada: User) -> Plan:
    stage.acts["safe"] = act_raising(ToolError("No."))
    return work_off(make_plan(ada, act(1), goal="Fails"))


@pytest.mark.parametrize(
    ("name", "sees", "retries"),
    [("ada", True, True), ("ben", True, False), ("rosa", True, False), ("vera", True, False), ("admin", True, True)],
)
def test_each_role_sees_what_it_may(name, sees, retries, failed, request):
    pages = home_of(request.getfixturevalue(name))
    assert (f'id="failed-{failed.public_id}"' in pages.html) == sees
    assert (f'formaction="/plans/{failed.public_id}/retry/"' in pages.html) == retries
    assert 'id="last-days"' in pages.html and 'id="no-role"' not in pages.html


def test_someone_without_a_role_sees_only_their_own(failed, ada, rosa):
    running = make_plan(ada, act(1, "x", tool="dangerous"))
    pages = home_of(person("stranger"))
    assert failed.public_id not in pages.html and running.public_id not in pages.html
    assert 'id="last-days"' not in pages.html and 'id="no-role"' in pages.html
    assert f'id="runs-{running.public_id}"' in home_of(rosa).html


def test_failed_plan_is_retried(failed, ada):
    pages = home_of(ada)
    assert '<form method="post" id="retrying">' in pages.html
    pages.send(f"/plans/{failed.public_id}/retry/", {"next": pages.field("next")})
    failed.refresh_from_db()
    assert failed.status == "in_progress"
    assert f'id="runs-{failed.public_id}"' in pages.html


def test_first_steps_tick_themselves_and_go(ada, rosa, admin, vera, monkeypatch):
    """The first is done by whoever reads it; the others follow the tables, which have further people."""
    monkeypatch.setattr(first_steps, "_is_complete", False)

    def done(viewer: User) -> int:
        steps = first_steps_for(viewer)
        return steps.done if steps else 7

    assert done(admin) == 2
    pages = home_of(admin)
    assert 'href="/sources/"' in pages.html.partition('id="first-steps"')[2].partition("</section>")[0]
    assert "An administrator does this." in Pages(vera).open("/")
    make_tool()
    create_token(user=ada, kind=ApiToken.Kind.AGENT, scopes=["calls:create"], name="Laptop")
    assert done(admin) == 4
    request = ask(ada)
    assert done(admin) == 6
    assert 'href="/approvals/"' in home_of(rosa).html.partition('id="first-steps"')[2].partition("</section>")[0]
    decide(request, by=rosa, decision=approval(request))
    assert done(admin) == 7
    assert 'id="first-steps"' not in home_of(admin).html


def test_agents_today(stage, ada, ben, rosa):
    """A token's calls and waiting requests; an agent's runs, of which one ended yesterday."""
    token, _ = create_token(user=ada, kind=ApiToken.Kind.AGENT, scopes=["calls:create"], name="Laptop")
    for tool in ("safe", "dangerous"):
        call = create_call(CallOrder(tool, {"value": 1}), by=Requester(ada, token, via="rest"))
        work_off(Plan.objects.get(public_id=call.plan_ref))
    now, made = clock.now(), make_agent()
    for ended_at in (None, now - timedelta(days=1)):
        counts = {"calls": 5, "tokens": 1200, "cost": Decimal("0.0125")}
        step = make_plan(ben, act(1)).steps.get()
        AgentRun.objects.create(step=step, agent=made, settings="{}", started_at=now, ended_at=ended_at, **counts)
    rows = agents_today(rosa)
    assert [(row.name, row.calls, row.waiting, row.tokens, row.cost) for row in rows] == [
        ("ann", 5, 0, 1200, Decimal("0.0125")),
        ("Laptop", 2, 1, None, None),
    ]
    assert [row.token_pk for row in rows] == [None, None]
    stranger = person("stranger")
    assert agents_today(stranger) == []
    ApiToken.objects.update(user=stranger)
    assert [(row.calls, row.token_pk) for row in agents_today(stranger)] == [(2, token.pk)]
