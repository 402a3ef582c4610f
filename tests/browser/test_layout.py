"""The layout of every page: loaded once, then asked for all rules at each width and in both colour schemes.

Nothing is loaded again for another width: pages are laid out by media queries alone, no script listens for a resize.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from django.contrib.auth.models import Group, User
from django.contrib.auth.tokens import default_token_generator
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.core import signing
from django.utils.http import urlsafe_base64_encode
from playwright.sync_api import Page, expect

from approvals.audit.log import AuditRecord, append_entry
from approvals.models import ApprovalRequest, Policy, PushDevice, Round
from catalog.access.learnt_waits import record_cut_off
from catalog.access.people import create_person, deactivate_person
from catalog.access.roles import SIGNED_IN_AT_KEY, mark_session_user
from catalog.access.tokens import change_token, create_token
from catalog.accounts.security import MAIL_SALT
from catalog.connections.models import Connection
from catalog.connections.steps import Attempt, record_step
from catalog.core import clock
from catalog.core.canonical_json import canonical_text
from catalog.inventory.overrides import apply_overrides
from catalog.inventory.source_sync import sync_source
from catalog.models import Source
from catalog.tools.registry import _TOOLS, register_tool
from plans.actions.control import pause_plan
from plans.actions.drafts import DraftSource, create_draft
from plans.demo import bar
from plans.demo.installation import demo_created_at, set_up_demo
from plans.store.requesters import Requester
from tests import counts
from tests.approvals.factories import PREVIEW, ask, delivery_to, item, make_tool, propose, send_back, set_rule
from tests.approvals.security.deceptions import DECEPTIONS
from tests.browser import layout_rules as rules
from tests.browser import screenshots
from tests.browser.conftest import PageAs, press_approve
from tests.browser.desk import LONG, PHONE, open_inbox
from tests.builders import act, approve, make_draft, make_http_tool, make_plan, request_of, step, work_off, write_step
from tests.catalog.accounts.factories import add_app, add_passkey
from tests.catalog.accounts.oidc_provider import OidcProvider
from tests.catalog.connections.oauth_client import OAuthClient
from tests.catalogs import fill_catalog
from tests.documents import SHOP
from tests.http_server import serving
from tests.plans.agents.scripted import make_agent
from tests.plans.factories import SessionAgent
from tests.routes import pages_without_parameters
from tests.tools_to_try import TOOLS

pytestmark = [
    pytest.mark.browser,
    pytest.mark.layout,
    pytest.mark.django_db(transaction=True, serialized_rollback=True),
    pytest.mark.timeout(counts.seconds(900)),
]
WIDTHS = (320, 390, 721, 1100, 1440)
AXE = {("light", 390): rules.AXE_STRUCTURE, ("light", 1440): rules.AXE, ("dark", 390): rules.AXE_COLOURS}
"""Axe-core looks at the colours of each scheme at one width, and under `make nightly` at all of a page each time."""
if counts.FULL:
    AXE = dict.fromkeys(product(("light", "dark"), (390, 1440)), rules.AXE)
FOCUS_AT = ((390, 844), (640, 360), (1280, 720))
MORE = ("", "/mcp")
NOT_WALKED = {
    "/approvals/undo/",
    "/audit/export/",
    "/demo/hide/",
    "/demo/steps/",
    "/healthz",
    "/manifest.webmanifest",
    "/metrics",
    *(f"/oauth/{name}{last}" for name in ("token", "register", "revoke") for last in ("", "/")),
    *(f"/.well-known/oauth-{name}{more}" for name in ("protected-resource", "authorization-server") for more in MORE),
    "/policies/coding-agent/",
    "/policies/after-reading/",
    "/policies/sentence/",
    "/profile/choose/",
    "/profile/notifications/devices/",
    "/profile/tokens/tools/",
    "/readyz",
    "/saved-filters/",
    "/profile/security/app/remove/",
    "/profile/security/mail/confirm/",
    "/profile/sign-ins/end-others/",
    "/profile/security/sso/link/",
    "/profile/security/sso/unlink/",
    "/service-worker.js",
    "/sign-in/passkey/",
    "/sign-in/sso/",
    "/sign-in/sso/callback/",
    "/sign-out/",
    "/welcome/",
}
"""Redirects, downloads, probes, fragments, and what clients read."""
PARTS = 12
"""Tests that share the pages of an administrator, so that they run side by side."""
WALKED_BY_OTHERS = {"/ask/", "/oauth/authorize/", "/sign-in/", "/sign-in/code/", "/sign-in/reset/"}
LONG_WORDS = "Featherstonehaugh"
Faults = list[str]
Scheme = Literal["light", "dark"]
Size = tuple[int, int]
Asked = Mapping[str, str]


@dataclass(frozen=True)
class View:
    """A page or a state of one, with rules of its own.

    `also` are further widths for all rules, `own` rules for every width, `at` rules for one size of the window; with
    `tabs` each tab stop is looked at. `act` brings the page into its state; without a path it acts on the page of the
    view before. Its picture shows the `whole` page or, as in documents, a window of it.
    """

    path: str
    name: str = ""
    also: tuple[int, ...] = ()
    own: Asked = field(default_factory=dict)
    at: Mapping[Size, Asked] = field(default_factory=dict)
    act: Callable[[Page], object] | None = None
    tabs: bool = False
    whole: bool = True


DRAW_ROWS = """() => {
    for (const row of document.querySelectorAll(".waterfall.many .row")) row.style.contentVisibility = "visible";
}"""
"""Draws the rows that are out of view, which otherwise keep the colours of the scheme before."""


def walk(page: Page, *views: View) -> Faults:
    """Return the faults of all views, each with its page, size, scheme and rule."""
    page.emulate_media(reduced_motion="reduce")
    page.add_init_script(AXE_SCRIPT)
    return [fault for view in views for fault in faults(page, view)]


def faults(page: Page, view: View) -> Iterator[str]:
    """Open a view and yield its faults."""
    if view.path:
        page.goto(view.path)
        page.wait_for_selector("main, .gate")
    if view.act:
        view.act(page)
    if screenshots.FOLDER:
        screenshots.take_pictures(page, f"{view.path} {view.name}", whole=view.whole)
        return
    dark = (((width, 800), rules_of_colours("dark", width)) for width in (390, 1440))
    schemes: list[tuple[Scheme, Iterable[tuple[Size, Asked]]]] = [("light", looks(view)), ("dark", dark)]
    for scheme, sizes in schemes:
        page.emulate_media(color_scheme=scheme)
        page.evaluate(DRAW_ROWS)
        for (width, height), asked in sizes:
            page.set_viewport_size({"width": width, "height": height})
            if "focus" in asked:
                page.keyboard.press("Tab")  # so that the focus is drawn as for someone who uses the keyboard
            for fault in page.evaluate(rules.asking(asked), [width, height]):
                yield f"{view.path} {view.name} {width}x{height} {scheme}: {fault}"


def looks(view: View) -> Iterator[tuple[Size, Asked]]:
    """Yield the sizes at which a view is looked at in the light, with the rules that are asked there."""
    for width in sorted({*WIDTHS, *view.also}):
        yield (width, 800), {**rules.EVERYWHERE, **view.own, **rules_of_colours("light", width)}
    yield from view.at.items()
    for size in FOCUS_AT if view.tabs else ():
        yield size, {"focus": rules.FOCUS}


def rules_of_colours(scheme: Scheme, width: int) -> Asked:
    """Return the rules for contrast and of axe-core. Contrast first: it waits until no colour fades."""
    contrast = {"contrast": rules.CONTRAST} if width in (390, 1440) else {}
    return contrast | ({"axe": AXE[scheme, width]} if (scheme, width) in AXE else {})


@pytest.fixture
def tools_to_try(stage: object) -> Iterator[None]:
    """The tools of `tests.tools_to_try` in the catalog."""
    for each in TOOLS:
        register_tool(each)
    fill_catalog()
    yield
    for each in TOOLS:
        _TOOLS.pop(each.name)


@pytest.fixture
def names(ada):
    """A person with a long name."""
    ada.first_name, ada.last_name = "Wilhelmina", LONG_WORDS
    ada.save()


@pytest.mark.usefixtures("tools_to_try", "workspace", "names")
@pytest.mark.parametrize("part", range(PARTS))
def test_pages_of_an_administrator(admin, ada, page_as: PageAs, part: int):
    """With a request, an agent, a session, and plans that wait and that are done."""
    held = ask(ada, make_tool("wipe_note", reversibility="irreversible"))
    rows = [{"path": "path", "operator": "starts_with", "value": "r/" * 90}, {"path": "content", "operator": "exists"}]
    envelope = propose(
        Requester(ada, None, "rest", "errand"),
        item("write_file", rows),
        purpose="Save the reports " * 20,
        **{"for": {"session": "errand"}},
    )
    append_entry(
        AuditRecord(action="approval.requested", by=ada, tool_name="send_registration_email", object_ref=held.public_id)
    )
    append_entry(AuditRecord(action="sign_in.refused", actor_name="unknown"))
    make_agent()
    waiting = work_off(make_plan(ada, write_step(1), step(2, dependencies=[1]), goal="Tell " + "everybody " * 20))
    done = work_off(make_plan(ada, step(1)))
    session = SessionAgent(ada, "x" * 120).setup("long" * 100, objective="word " * 90)
    Policy.objects.filter(order=20).update(name="Payments over five hundred need two people of finance")
    token, _ = create_token(
        user=ada, kind="agent", scopes=["tools:read", "calls:create", "plans:read"], name="long " * 25
    )
    for _ in range(2):
        record_cut_off(token.pk, "client" * 20, 9.0)
    client = OAuthClient.registered(client_name="Client " * 15)
    client.connected(ada)
    connection = Connection.objects.get()
    failed = Attempt("token", client=connection.client, user=ada)
    record_step(failed, succeeded=False, words="The code was used before. " * 9)
    change_token(connection.token, {"limits": {"categories": ["c" * 60], "max_level": "cautious"}}, by=admin)
    shop = Source.objects.create(name="shop" * 10, kind=Source.Kind.OPENAPI, document=SHOP)
    sync_source(shop)
    Source.objects.filter(pk=shop.pk).update(base_url="https://other.example")
    sync_source(shop)  # holds all of its tools
    Source.objects.create(name="gone", kind=Source.Kind.MCP, url="https://gone.invalid/mcp", error="Gone. " * 30)
    by_hand = make_http_tool(admin, "https://shop.invalid/" + "orders/" * 20 + "{id}")
    under_actions = {(1280, height): {"under the buttons": rules.UNDER_ACTIONS} for height in (600, 800)}
    group = Group.objects.create(name="finance " * 12)
    group.user_set.add(ada)
    set_rule(stages=[{"group": group.name, "count": 1}])
    policies = [policy.public_id for policy in Policy.objects.order_by("order")]
    views = [
        View("/", tabs=True),
        View("/approvals/", tabs=True),
        *(View(f"/approvals/?{query}") for query in ("status=decided", "status=snoozed", "item=none")),
        View("/approvals/grants/", tabs=True),
        *(View(path) for path in ("/approvals/insights/", "/usage/", "/approvals/several/")),
        View("/approvals/decided/"),
        *(View(path) for path in ("/envelopes/", "/envelopes/new/", f"/envelopes/{envelope.public_id}/")),
        View("/audit/", also=(900, 1081)),
        View("", "/audit/ with the chain checked", act=check_chain),
        View("/audit/deliveries/"),
        *(View(f"/sources/{path}") for path in ("", "http/new/", f"{shop.name}/", "gone/", "new/")),
        View("", "/sources/new/ with a preview", act=preview_a_source),
        *(View(path) for path in (f"/sources/http/{by_hand.name}/change/", f"/tools/{by_hand.name}/")),
        *(View(path, tabs=True) for path in ("/policies/", "/policies/new/")),
        View("", "/policies/new/ with mistakes", at=under_actions, act=make_mistakes),
        View("/policies/simulator/"),
        *(View(f"/policies/{policy}/") for policy in policies[:2]),
        View("/profile/", tabs=True),
        View("/profile/security/", tabs=True),
        View("/profile/sign-ins/", tabs=True),
        *(View(f"/profile/security/{path}/") for path in ("password", "mail", "app", "passkeys/new", "codes")),
        *(View(path) for path in ("/profile/notifications/", "/agents/", "/agents/new/", "/agents/ann/")),
        *(View(path, tabs=True) for path in ("/profile/tokens/", "/profile/tokens/new/", "/tokens/")),
        View(f"/tokens/{token.pk}/"),
        View("", "the text of a new token", act=create_a_token),
        View("/connections/", tabs=True),
        View("/stops/", tabs=True),
        View(f"/connections/{connection.token_id}/", tabs=True),
        View(client.address(resource=None), "consent", tabs=True),
        *(View(path, tabs=True) for path in ("/people/", f"/people/{ada.pk}/", "/people/new/")),
        View("", "the link of an invitation", act=invite_a_person),
        *(View(path) for path in ("/groups/", "/groups/new/", f"/groups/{group.pk}/")),
        View("/plans/", also=(1081,), at={(390, 800): {"overlapping tabs": rules.OVERLAPPING_TABS}}),
        View("/calls/", also=(1081,)),
        View("/plans/new/"),
        View("", "/plans/new/ with mistakes", act=write_a_plan_with_mistakes),
        View(f"/plans/{waiting.public_id}/", tabs=True),
        View(f"/plans/{done.public_id}/"),
        View("/tools/"),
        *(View(f"/tools/{path}/") for path in ("write_file", "write_file/versions")),
        View("/tools/plan_trip/", also=(1280,)),
        *(View(f"/tools/{path}", also=(1280,)) for path in ("plan_trip/try/?example=0", "book_trip/versions/")),
        *(View(path) for path in ("/sessions/", f"/sessions/{session.public_id}/")),
        View("/connect/", also=(1280,), tabs=True),
        *(View(path) for path in ("/calls/", "/approvals/decided/")),
        View("/jump/?q=file"),
        View("", "the dialog of Jump", act=lambda page: page.keyboard.press("Control+k")),
        View("/jump/"),
        View("", "the account's menu", act=lambda page: page.locator(".account-button").click()),
        View("/settings/", tabs=True),
        *(View(f"/help/{path}") for path in ("", "?q=token", "?q=xyz", "policies/", "connect/", "polices/")),
        View("/nothing/here/"),
    ]
    assert {*pages_without_parameters()} - {view.path for view in views} == NOT_WALKED | WALKED_BY_OTHERS
    assert walk(page_as(admin), *part_of(views, part)) == []


def part_of(views: list[View], part: int) -> Iterator[View]:
    """Yield every PARTS-th page with the states that follow it."""
    page = -1
    for view in views:
        page += bool(view.path)
        if page % PARTS == part:
            yield view


def create_a_token(page: Page) -> None:
    """Create a token by its form."""
    page.goto("/profile/tokens/new/")
    page.get_by_label("Name", exact=True).fill("laptop")
    page.get_by_role("button", name="Create token").click()
    expect(page.locator("#token-text")).to_be_visible()


def invite_a_person(page: Page) -> None:
    """Invite someone by the form."""
    page.goto("/people/new/")
    page.get_by_label("Username", exact=True).fill("noor")
    page.get_by_role("button", name="Invite person").click()
    expect(page.locator("#link-text")).to_be_visible()


def preview_a_source(page: Page) -> None:
    """Press Enter in the form of a new source, twice: the second time beside its preview."""
    page.goto("/sources/new/")
    page.locator("[name=kind][value=openapi]").check()
    page.locator("#id_document").set_input_files({"name": "shop.json", "mimeType": "", "buffer": SHOP.encode()})
    for _ in range(2):
        page.get_by_label("Name", exact=True).fill("shop")
        page.keyboard.press("Enter")
        expect(page.locator("#preview-h")).to_be_focused()


def write_a_plan_with_mistakes(page: Page) -> None:
    """Write a step with an unknown tool, which is an error, and one whose output is used by none."""
    steps = ", ".join(
        f'{{"step_id": {n}, "description": "x", "tool": "{tool}"}}' for n, tool in ((1, "x"), (2, "safe"))
    )
    page.locator("#pj").fill(f'{{"goal": "x",\n"steps": [{steps}]}}')
    expect(page.locator("#marks rect").first).to_be_attached()


def make_mistakes(page: Page) -> None:
    """Fill in a policy so that its summary says all it has to say."""
    page.locator("#more-calls > summary").click()
    for label, wrong in (
        ("Tool", "a b"),
        ("Source", "x"),
        ("Requester", "x"),
        ("Hours", "x"),
        ("Number of approvals", "0"),
    ):
        page.get_by_label(label, exact=True).first.fill(wrong)
    expect(page.locator("#sentence li")).to_have_count(5)


def test_notifications_with_devices_and_the_offer_of_a_time_zone(admin, ada, page_as: PageAs):
    PushDevice.objects.create(person=admin, name="Firefox on Windows", address_key="x", created_at=clock.now())
    delivery_to(admin, request=ask(ada), status="failed", last_error="No answer.")
    page = page_as(admin, timezone_id="America/New_York")
    assert walk(page, View("/profile/notifications/", tabs=True), View("/audit/deliveries/")) == []


def test_pages_of_values(ada, stage, page_as: PageAs):
    """Tables, trees and diffs of what nobody would write, and what models get."""
    name = "\u202e\u05e9\u05dc 👩‍👧 " + "x" * 500
    rows = [{"id": number, name: "long words " * 60, "more": [number]} for number in range(6)]
    deep: object = {name: "end", "many": list(range(30))}
    for _ in range(8):
        deep = {"in": deep, "of": name}
    diff = "--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new " + "x" * 500
    values = [act(n, value, expected_key=f"v{n}") for n, value in enumerate((rows, deep, diff, "long words " * 40), 1)]
    use = act(5, "${v1.results.0.id} ${v2}", dependencies=[1, 2])
    plan = work_off(make_plan(ada, *values, use, goal="Keep " + "everything " * 20))
    address = f"/plans/{plan.public_id}"
    views = (View(f"{address}/values/{more}") for more in ("v1/", "v2/", "v3/", "v4/?as=model"))
    assert walk(page_as(ada), *views) == []


@pytest.mark.usefixtures("stage", "workspace", "names")
def test_pages_of_an_operator(ada, rosa, page_as: PageAs):
    """A question, plans in their states, the editor, a request in words and its draft."""
    question = step(1, "ask_user", parameters={"question": "Which one?"})
    work_off(make_plan(ada, question, goal="Answer " + "everybody " * 20))
    paused = make_plan(ada, act(1, "x", "dangerous"), goal="Tell " + "everybody " * 20)
    pause_plan(work_off(paused), by=Requester(ada))
    open_plan = make_plan(ada, act(1, "x"))
    sent_back = work_off(make_plan(ada, write_step(1, path="reports/note.txt", content="line one\nline two\n")))
    send_back(sent_back, rosa, comment="Keep it shorter, and say where the figures are from. " * 4)
    draft = make_draft(ada, None, step(1), write_step(2, dependencies=[1]))
    labels = ("Tell everybody " * 30, "שלום לכולם " * 20, "👩‍👩‍👧 日本語 " * 20, "x" * 500)
    needs = {number: [number - 6] if number > 6 else [] for number in range(1, 61)}
    big = make_plan(ada, *(act(n, dependencies=needs[n], description=labels[n % 4]) for n in needs))
    token, _ = create_token(user=ada, kind="agent", scopes=["calls:create"], name="x" * 128)
    client = OAuthClient.registered(client_name="Client " * 15)
    views = [
        View("/", tabs=True),
        View(f"/connect/{token.pk}/?client=python"),
        View(
            "/plans/",
            also=(900, 901, 1081),
            at={(width, 800): {"narrow goal": rules.NARROW_GOALS} for width in (721, 900, 901, 1081)},
        ),
        View(f"/plans/{paused.public_id}/?step=1"),
        View(
            f"/plans/{open_plan.public_id}/",
            also=(1081, 1181, 1241, 1321),
            at={(width, 800): {"narrow axis": rules.NARROW_AXIS} for width in (1081, 1181, 1241, 1321)},
        ),
        View(f"/plans/{paused.public_id}/change/"),
        View(f"/plans/{sent_back.public_id}/?step=1"),
        View(f"/plans/{sent_back.public_id}/steps/1/input/", also=(1280,)),
        *(View(path, also=(1280,)) for path in ("/ask/", f"/ask/{draft.public_id}/")),
        View(f"/plans/{draft.plan_ref}/prompts/"),
        *(View(f"/plans/{big.public_id}/{query}") for query in ("", "?fold=branch-1&of=0")),
        View(client.address(resource=None)),
    ]
    assert walk(page_as(ada), *views) == []


def test_pages_of_the_builder(ada, page_as: PageAs):
    labels = ("Tell everybody " * 30, "שלום לכולם " * 20, "👩‍👩‍👧 日本語 " * 20, "x" * 500)
    needs = {number: [number - 6] if number > 6 else [] for number in range(1, 61)}
    needs[1] = [55]  # a circle
    steps = [act(n, dependencies=needs[n], description=labels[n % 4]) for n in needs]
    built = create_draft({"goal": labels[0], "steps": steps}, by=ada, source=DraftSource(is_proposal=True))
    empty = create_draft({}, by=ada)
    address = f"/plans/drafts/{built.public_id}/"
    queries = ("", "?view=json", "?view=yaml")
    views = (*(f"{address}{query}" for query in queries), f"/plans/drafts/{empty.public_id}/", "/plans/new/")
    assert walk(page_as(ada), *map(View, views)) == []


@pytest.mark.usefixtures("catalog")
def test_states_of_the_form_of_a_step(ada, page_as: PageAs):
    text = {"template": "For ${found.results.0} ${lost}", "values": {"x" * 80: "${found}"}, "gone": "ש" * 200}
    steps = [
        {"step_id": 1, "description": "👩‍👩‍👧 " * 50, "tool": "no_such_tool", "expected_key": "found"},
        {"step_id": 2, "description": "Write", "tool": "render_text", "parameters": text, "dependencies": [1, 9]},
        {"step_id": 3, "description": "Wait", "dependencies": [2]},
    ]
    steps[1]["done_check"] = "len(found) >= 2 and value in ['a', 'b'] or found is None"
    draft = create_draft({"goal": "Write", "steps": steps}, by=ada)
    address = f"/plans/drafts/{draft.public_id}/steps"

    def press(button: str, shown: str) -> Callable[[Page], object]:
        def act(page: Page) -> None:
            page.locator(f"#step-form [value='{button}']").first.click()
            expect(page.locator(shown)).to_be_visible()

        return act

    views = [
        View(f"{address}/1/"),
        View(f"{address}/2/", tabs=True),
        View("", "a step with the choice of a result", act=press("refer:template", "#step-results")),
        View("", "a step with the choice of a tool", act=press("panel:tool", "#step-tool-hits")),
        View("", "a step to try", act=press("panel:try", "#sample-0")),
    ]
    assert walk(page_as(ada), *views) == []


@pytest.mark.usefixtures("catalog", "workspace")
def test_states_of_the_desk(ada, rosa, page_as: PageAs):
    """A request to read, to edit, to answer, as JSON; with a long list, a long change and a long line; several."""
    short, *_ = [ask(ada) for _ in range(11)]
    long, wide = ask(ada, preview=LONG), ask(ada, make_tool("other_note"))
    Round.objects.filter(request=wide).update(
        arguments=json.dumps({"path": "x\u202ey", "note": "z" * 10240}, ensure_ascii=False)
    )
    at_short, at_long, at_wide = (f"/approvals/?item={each.public_id}" for each in (short, long, wide))
    together = "&".join(f"item={each.public_id}" for each in (short, wide))
    still = {(1440, 500): {"the page scrolls": rules.PAGE_SCROLLS}}
    low = {(640, 360): {"bar over the change": rules.BAR_BELOW_CHANGE}}
    room = {(width, 800): {"room for the note": rules.ROOM_FOR_NOTE} for width in (390, 1280, 1440)}
    line = {"scrolls": rules.SCROLLING_EFFECT}
    views = [
        View("/approvals/", also=(1180,), at={(390, 844): {"foot under the tabs": rules.FOOT_UNDER_TABS}}),
        View(at_long, at=still | low, tabs=True),
        View(at_short, at=still | room),
        View("", f"{at_short} with its menu", act=open_menu),
        View(f"{at_short}&view=edit", at=still),
        View(f"{at_short}&view=respond", at=still),
        View(f"{at_short}&view=json"),
        View(at_wide, own=line),
        View(f"{at_wide}&view=json", own=line),
        View(f"/approvals/several/?{together}"),
    ]
    page = page_as(rosa)
    assert walk(page, *views) == []
    page.goto(at_short)
    page.emulate_media(forced_colors="active")
    assert ask_at(page, {(1440, 800): rules.EVERYWHERE}) == []


def open_menu(page: Page) -> None:
    """Open the menu of the bar."""
    page.locator("details.menu > summary").click()


@pytest.fixture
def grantable(catalog, admin, settings):
    """Writing may be granted, and decisions take effect at once."""
    settings.TOOLGATE_UNDO_SECONDS = 0
    apply_overrides("write_file", {"grantable": {}}, by=admin)


@pytest.mark.usefixtures("grantable")
def test_pages_that_follow_a_decision(ada, rosa, workspace: Path, page_as: PageAs):
    """A grant in each state, the next steps of a plan, a change with hunks, and what a policy asks to be typed."""
    for name in ("may", "june"):
        granted = work_off(make_plan(ada, write_step(1, f"reports/{name}.txt", f"{name} was quiet")))
        approve(granted, rosa)
        work_off(granted)
    was = "one\n" * 40
    (workspace / "note.txt").write_text(was)
    edit = {"path": "note.txt", "original": was, "modified": f"two\n{was[8:]}three\n", "description": "Say it louder"}
    proposed = work_off(make_plan(ada, step(1, "propose_file_edit", parameters=edit)))
    set_rule(typed_target=True)
    lines = "".join(f"line {number}\n" for number in range(80))
    writes = [write_step(number, f"{number}.txt", lines, dependencies=[number - 1]) for number in (2, 3)]
    plan = work_off(make_plan(ada, write_step(1, "one.txt", lines, expected_key="first"), *writes))
    decided = request_of(granted).public_id
    views = [
        View(f"/approvals/?status=decided&item={decided}"),
        View(f"/approvals/{decided}/grant/"),
        View("", "/grant/ checked", act=check_grant),
        View("", "/approvals/grants/", act=remember),
        View(f"/approvals/?item={request_of(proposed).public_id}"),
        View(f"/approvals/?item={request_of(plan).public_id}"),
        View(f"/plans/{plan.public_id}/slice/"),
        View("", "/slice/ asked", act=ask_for_two),
    ]
    assert walk(page_as(rosa), *views) == []


def check_grant(page: Page) -> None:
    """Choose the terms of a grant and compare them with history."""
    with page.expect_response(lambda response: response.request.method == "POST"):  # the summary
        page.get_by_label("Condition for content").select_option("exists")


def remember(page: Page) -> None:
    """Store the grant."""
    page.get_by_role("button", name="Remember", exact=True).click()
    page.wait_for_url("**/approvals/grants/")


def ask_for_two(page: Page) -> None:
    """Ask about the next two steps."""
    page.locator("#count").select_option("2")
    page.locator("button[name=do][value=ask]").click()
    expect(page.locator(".slice-item")).to_have_count(3)


def test_pages_without_a_person(admin, page_as: PageAs):
    """Signing in, refused and not; the link of an invitation, open and unknown."""
    mark_session_user(admin, clock.now().timestamp())
    _person, link = create_person(username="noor" * 30, first_name=LONG_WORDS, by=admin)
    assert link is not None
    views = [
        View("/sign-in/", tabs=True),
        View("", "/sign-in/ refused", act=sign_in_wrongly),
        View("/sign-in/reset/"),
        View("/sign-in/reset/MQ/?key=used"),
        View(f"/welcome/?key={link.key}", tabs=True),
        View("/welcome/?key=unknown"),
    ]
    assert walk(page_as(), *views) == []


def test_pages_of_a_second_factor(rosa, settings, page_as: PageAs):
    """Signing in with a code, every factor, changes after a sign-in of long ago, and a role that requires a factor."""
    settings.ALLOWED_HOSTS = ["*"]
    settings.TOOLGATE_SENDS_MAIL = True
    settings.TOOLGATE_SSO_NAME = "Example " * 10
    link = f"{urlsafe_base64_encode(str(rosa.pk).encode())}/?key={default_token_generator.make_token(rosa)}"
    mail_key = signing.dumps([rosa.pk, rosa.email, f"{LONG_WORDS * 5}@example.org"], salt=MAIL_SALT)
    views = [
        View("/profile/security/", "a factor is required", tabs=True, act=partial(require_factor, settings)),
        View("", "refused without a factor", act=send_refused_form),
    ]
    page = page_as(rosa)
    assert walk(page, *views) == []
    add_app(rosa)
    add_passkey(rosa, "Phone " * 8)
    with serving(OidcProvider()) as provider:
        settings.TOOLGATE_SSO_ISSUER = provider.issuer
        settings.TOOLGATE_EGRESS_ALLOW = [f"127.0.0.1:{provider.server_port}"]
        views = [
            View("/profile/security/", "every factor", tabs=True),
            View("", "the link to the provider", act=lambda page: press(page, "Link")),
            View("/profile/security/codes/", "new"),
            View("/profile/security/codes/", "shown before"),
            View(f"/profile/security/mail/confirm/?key={mail_key}"),
            View("/profile/security/mail/confirm/?key=unknown"),
            View("/profile/security/codes/", "after a sign-in of long ago", act=sign_in_too_long_ago),
        ]
        assert walk(page, *views) == []
    views = [
        View("/sign-in/", "code", tabs=True, act=partial(sign_in, rosa.username, f"secret-{rosa.username}")),
        View("", "wrong code", act=enter_wrong_code),
        View(f"/sign-in/reset/{link}"),
        View("/sign-in/reset/", "sent", act=ask_for_a_reset),
    ]
    assert walk(page_as(), *views) == []


def test_pages_of_people_in_each_state(admin, ada, settings, page_as: PageAs):
    """Invited and deactivated, where mail is sent, then after a sign-in of long ago."""
    settings.TOOLGATE_SENDS_MAIL = True
    mark_session_user(admin, clock.now().timestamp())
    invited, _link = create_person(
        username="noor" * 30,
        first_name=LONG_WORDS,
        last_name=LONG_WORDS,
        email=f"{LONG_WORDS * 3}@example.org",
        by=admin,
    )
    deactivate_person(ada, by=admin)
    page = page_as(admin)
    views = [
        View("/people/", "in each state"),
        *(View(f"/people/{each.pk}/", tabs=True) for each in (invited, ada)),
    ]
    assert walk(page, *views) == []
    sign_in_of_long_ago()
    assert walk(page, *(View(path, "to sign in again") for path in ("/people/new/", "/groups/new/"))) == []


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("catalog", "workspace")
def test_pages_of_the_demo(page_as: PageAs, monkeypatch: pytest.MonkeyPatch):
    """The demo's plans, requests and history, which the pictures in documents show; then with the bar of the demo."""
    set_up_demo()
    change = ApprovalRequest.objects.select_related("call").get(call__tool_name="write_file", status="pending")
    views = [
        View(f"/approvals/?item={change.public_id}", whole=False),
        *(View(path) for path in ("/", "/approvals/insights/", "/approvals/decided/", "/agents/")),
    ]
    rosa, ada = (page_as(User.objects.get(username=name)) for name in ("rosa", "ada"))
    assert walk(rosa, *views) == []
    assert walk(ada, View(f"/plans/{change.call.plan_ref}/", whole=False), View("/plans/"), View("/calls/")) == []
    monkeypatch.setattr(bar, "_created_at", demo_created_at())
    assert walk(ada, View("/", "with its bar", tabs=True)) == []


def press(page: Page, name: str) -> None:
    """Press a button that sends a form, and wait for the answer."""
    with page.expect_navigation():
        page.get_by_role("button", name=name, exact=True).click()


def require_factor(settings, page: Page) -> None:
    """Open a form, then require a second factor of reviewers and look at the page to which they are led."""
    settings.TOOLGATE_SECOND_FACTOR_ROLES = ["reviewer"]
    page.reload()


def send_refused_form(page: Page) -> None:
    """Change the password without the factor that is required."""
    page.goto("/profile/security/app/")
    page.locator("main form").evaluate("form => { form.action = '/profile/'; form.submit(); }")
    expect(page.get_by_role("link", name="Set up a second factor")).to_be_visible()


def sign_in_too_long_ago(page: Page) -> None:
    """Send a change an hour after the sign-in."""
    sign_in_of_long_ago()
    press(page, "Make new codes")


def sign_in_of_long_ago() -> None:
    """Let all sessions have begun more than an hour ago."""
    for each in Session.objects.all():
        session = SessionStore(each.session_key)
        session[SIGNED_IN_AT_KEY] = 0
        session.save()


def enter_wrong_code(page: Page) -> None:
    """Enter a code that is none."""
    page.locator("#id_code").fill("000000")
    press(page, "Continue")
    page.wait_for_selector("#code-e")


def ask_for_a_reset(page: Page) -> None:
    """Ask for a link by mail."""
    page.get_by_role("textbox").fill(f"{LONG_WORDS * 3}@example.org")
    press(page, "Send a link")


def check_chain(page: Page) -> None:
    """Ask whether the chain of the audit log is intact."""
    page.get_by_role("button", name="Verify chain").click()
    page.wait_for_selector("#chain .status")


def sign_in_wrongly(page: Page) -> None:
    """Send a name that nobody has."""
    sign_in("nobody", "wrong", page)
    page.wait_for_selector("[role=alert]")


def sign_in(username: str, password: str, page: Page) -> None:
    """Send the form of the sign-in."""
    page.locator("#id_username").fill(username)
    page.locator("#id_password").fill(password)
    press(page, "Sign in")


STAYS_ARMED = """const later = setTimeout;
    window.setTimeout = (then, after, ...more) => after === 4000 ? 0 : later(then, after, ...more);"""


def test_answers_stay_in_one_row(ada, rosa, page_as: PageAs):
    """Between phone and desk, also while Approve asks for the second press."""
    request = ask(ada, make_tool("wipe_note", reversibility="irreversible"))
    page = page_as(rosa)
    page.add_init_script(STAYS_ARMED)
    open_inbox(page, f"?item={request.public_id}")
    widths = (740, 800, 905, 1100, 1180, 1241, 1301)
    own = {(width, 800): {"one row of answers": rules.ONE_ROW_OF_ANSWERS} for width in widths}
    assert ask_at(page, own) == []
    press_approve(page)
    expect(page.locator(".button.go.armed")).to_be_visible()
    assert ask_at(page, own) == []


@pytest.mark.parametrize("following", [PREVIEW, LONG], ids=["short", "long"])
def test_a_toast_covers_no_answer(ada, rosa, settings, page_as: PageAs, following):
    """It stands above the bar, so that nobody who reaches for an answer undoes the last one."""
    settings.TOOLGATE_UNDO_SECONDS = 600
    requests = [ask(ada), ask(ada, preview=following)]
    page = page_as(rosa)
    open_inbox(page, f"?item={requests[0].public_id}")
    press_approve(page)
    expect(page.locator(f"#detail[data-shown=q-{requests[1].public_id}]")).to_be_visible()
    expect(page.locator(".toast")).to_be_visible()
    widths = (390, 800, 1280, 1310, 1440, 1600)
    assert ask_at(page, {(width, 800): {"toast": rules.TOAST_OVER_BAR} for width in widths}) == []


@pytest.mark.usefixtures("catalog", "workspace")
def test_an_edit_stands_beside_what_was_where_there_is_room(ada, rosa, page_as: PageAs):
    """Else below it; each line has the room of its column, also where the first row is a gap."""
    request = request_of(work_off(make_plan(ada, write_step(1, "note.txt", "one\n" * 9))))
    page = page_as(rosa)
    open_inbox(page, f"?item={request.public_id}&view=edit")
    page.locator("#f-path").fill("other.txt")
    expect(page.locator("#edited .both td:last-child")).to_contain_text("other.txt")
    assert ask_at(page, {(width, 800): {"edit": rules.EDIT_COLUMNS} for width in (390, 1280)}) == []


def ask_at(page: Page, at: Mapping[Size, Asked]) -> Faults:
    """Return the faults of the page as it is, at each size by the rules for it."""
    found = []
    for (width, height), asked in at.items():
        page.set_viewport_size({"width": width, "height": height})
        found += [f"{width}x{height}: {each}" for each in page.evaluate(rules.asking(asked), [width, height])]
    return found


def test_a_thumb_selects_several(ada, rosa, page_as: PageAs):
    """On a phone the boxes are there, large enough; what is pressed next lies above the tabs."""
    set_rule(batchable=True)
    requests = [ask(ada), ask(ada)]
    page = page_as(rosa, **PHONE)
    open_inbox(page)
    for request in requests:
        box = page.locator(f"#q-{request.public_id} label.hit")
        size = box.bounding_box()
        assert size is not None and min(size["width"], size["height"]) >= 40
        title = page.locator(f"#q-{request.public_id} .title").bounding_box()
        assert title is not None and title["x"] < 80, "the title begins beside the box"
        box.click()
    page.get_by_role("button", name="Answer together").click()
    expect(page.locator("#several [name=item]")).to_have_count(2)


def test_deceptions_are_inert_in_a_browser(ada, rosa, page_as: PageAs):
    """No script runs, nothing is loaded, nothing scrolls sideways, and the bar is where it was."""
    request, page = ask(ada), page_as(rosa, **PHONE)
    some = DECEPTIONS[::9]
    for start in range(0, len(some), 8):
        values = {f"part{number}": each.value for number, each in enumerate(some[start : start + 8])}
        Round.objects.update(arguments=canonical_text(values), preview="")
        page.goto(f"/approvals/?item={request.public_id}")
        expect(page.locator(".button.go")).to_have_count(1)
        found = page.evaluate(rules.asking({"wide": rules.SIDEWAYS, "scrolls": rules.SCROLLING_EFFECT}), [390, 844])
        assert found == [], list(values.values())
        assert page.locator("main form").count() == page.locator("main form[method]").count()
    assert not request.reviews.exists()


PLANTED = """() => {
    document.querySelector("main").innerHTML = `<h1>one</h1><h1>two</h1><button id="a" data-css="width: 10px"></button>
        <i id="a" aria-labelledby="gone"></i><div data-css="width: 2000px; height: 10px"></div>
        <a href="#" data-css="outline: none">ring</a>
        <div data-css="position: relative"><a href="#">under</a>
            <div data-css="position: absolute; inset: 0"></div></div>
        <p data-css="color: #999; background: #ccc">grey</p>
        <p data-css="color: #fff; background: #3450c4; opacity: 0.4">half</p>
        <p data-css="color: #000; background: #fff">well</p>`;
    document.querySelector("main").insertAdjacentHTML("beforeend", `
        <ol role="log"><li>lost</li></ol> <button aria-label="Another">Planted</button>
        <p>See <a href="/" data-css="text-decoration: none">this page</a> for more.</p>
        <div aria-label="nothing">x</div>
        <div data-css="height: 20px; overflow: auto"><div data-css="height: 90px"></div></div>
        <table class="args unknown"><tr><td>path</td></tr></table>`);
    for (const part of document.querySelectorAll("[data-css]")) part.style.cssText = part.dataset.css;
    document.querySelector("h1").animate({ opacity: [0.9, 1] }, { duration: 9e9 });
}"""


def test_planted_faults_are_found(admin, page_as: PageAs):
    """Every rule that all pages are asked for can fail, contrast, axe-core and focus too."""
    page = page_as(admin, viewport={"width": 390, "height": 844})
    page.add_init_script(AXE_SCRIPT)
    page.goto("/policies/")
    page.evaluate(PLANTED)
    page.keyboard.press("Tab")
    asked = {**rules.EVERYWHERE, **rules_of_colours("light", 1440), "focus": rules.FOCUS}
    found = [fault.split(": ", 1) for fault in page.evaluate(rules.asking(asked), [390, 844])]
    assert {name for name, _ in found} == asked.keys() - {"cut off"}
    assert [said.split()[-1] for name, said in found if name == "contrast"] == ["grey", "half"]
    assert {"color-contrast", "button-name"} <= {said.split()[0] for name, said in found if name == "axe"}
    focus = [said for name, said in found if name == "focus"]
    assert any("no ring" in said and ">ring<" in said for said in focus)
    assert any("covered" in said and ">under<" in said for said in focus)


def test_a_rule_that_finds_nothing_to_look_at_fails(admin, page_as: PageAs):
    """So does a window that does not take its size."""
    page = page_as(admin, viewport={"width": 390, "height": 844})
    page.goto("/policies/")
    page.evaluate("""document.body.innerHTML = '<main><i class="form-actions"></i></main>'""")
    asked = {
        "focus": rules.FOCUS,
        "foot": rules.FOOT_UNDER_TABS,
        "goals": rules.NARROW_GOALS,
        "tabs": rules.OVERLAPPING_TABS,
        "effect": rules.SCROLLING_EFFECT,
        "buttons": rules.UNDER_ACTIONS,
    }
    found = page.evaluate(rules.asking(asked), [390, 844])
    assert {fault.split(": ")[0] for fault in found} == asked.keys()
    assert page.evaluate(rules.asking({}), [391, 844]) == ["window: 390 x 844 px"]
