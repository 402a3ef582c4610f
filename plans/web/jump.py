"""Jump: find pages, commands, tools, requests, plans and people by a few letters or by an id.

Each query includes the viewer's access. A command that changes something is a form for the page's own URL, so that the
page's service decides who may do it; no command decides an approval.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from urllib.parse import unquote

from django.contrib.auth.models import Group, User
from django.db.models import Q
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import NoReverseMatch, reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from approvals.models import ApprovalRequest, Policy
from approvals.requests.queries import pending_for, requests_for
from approvals.web.review.inbox import summarised_requests
from catalog.access.roles import ADMINISTRATOR, OPERATOR, REVIEWER, ROLES, roles_of, user_display_name
from catalog.connections.selectors import connections_for
from catalog.core import clock
from catalog.core.database import on_sqlite
from catalog.inventory.search import MAX_QUERY_LENGTH, matching_words, name_match_rank, search_words
from catalog.inventory.selectors import offered_tools, similar_tool_names
from catalog.models import Call, Source
from catalog.ui.labels import status_badge
from catalog.ui.requests import PageRequest, is_fragment_request, sign_in_required
from plans.models import Agent, Plan, Step
from plans.states import PlanStatus
from plans.store.selectors import plans_for

TOOLS_SHOWN = 8
OTHERS_SHOWN = 5
"""Most results of every other kind."""
MIN_WHOLE_SEARCH = 3
"""Characters; for shorter texts only the beginnings of tool names are searched."""
MOST_SIMILAR = 5
MOST_COMPARED_PARTS = 2
ID_PATTERN = re.compile(r"(apr|plan|call)_[A-Za-z0-9_-]{4,40}")
PERSON_COLUMNS = ("username", "first_name", "last_name", "email")
LAST_CHARACTER = "\x7f"
"""Sorts after every character of an id where texts are compared by their bytes, as on SQLite."""
EVERYONE = frozenset[str]()
ANY_ROLE, PLANNERS, ADMINISTRATORS = frozenset(ROLES), frozenset({OPERATOR, ADMINISTRATOR}), frozenset({ADMINISTRATOR})
STOPPERS = frozenset({REVIEWER, ADMINISTRATOR})
PAUSE, RESUME = gettext_lazy("Pause plan"), gettext_lazy("Resume plan")


@dataclass(frozen=True, slots=True)
class Place:
    """A page or command with the address of a page: its URL name, the roles that may open it, and words for it."""

    label: str | Promise
    url_name: str
    icon: str
    roles: frozenset[str] = EVERYONE
    words: str = ""
    query: str = ""

    @property
    def address(self) -> str:
        """The address; empty if this installation has no such page."""
        try:
            return reverse(self.url_name) + self.query
        except NoReverseMatch:
            return ""


COMMANDS = (
    Place(gettext_lazy("Open the next request"), "approvals", "approve", words="review", query="?status=needs_me"),
    Place(gettext_lazy("Ask for a plan"), "ask", "ask", PLANNERS, "new draft"),
    Place(gettext_lazy("New plan"), "plan-new", "plan", PLANNERS, "write create json yaml"),
    Place(gettext_lazy("New token"), "token-new", "lock", words="create api key"),
    Place(gettext_lazy("Connect an agent"), "connect", "plug", words="mcp client claude cursor"),
    Place(gettext_lazy("Stop…"), "stops", "stop", STOPPERS, "emergency everything halt kill switch pause"),
    Place(gettext_lazy("New policy"), "policy-new", "filter", ADMINISTRATORS, "create rule"),
    Place(gettext_lazy("Add source"), "source-new", "source", ADMINISTRATORS, "new mcp openapi server"),
    Place(gettext_lazy("New HTTP tool"), "http-tool-new", "tools", ADMINISTRATORS, "create api"),
    Place(gettext_lazy("New agent"), "agent-new", "bot", ADMINISTRATORS, "create model"),
    Place(gettext_lazy("Invite person"), "person-new", "people", ADMINISTRATORS, "new create user account people"),
    Place(gettext_lazy("New group"), "group-new", "people", ADMINISTRATORS, "create reviewers people"),
)
PAGES = (
    Place(gettext_lazy("Home"), "home", "home", words="start overview"),
    Place(gettext_lazy("Approvals"), "approvals", "approve", words="requests desk queue inbox waiting"),
    Place(gettext_lazy("Decided requests"), "decided", "approve", words="history approvals"),
    Place(gettext_lazy("Grants"), "grants", "ok", words="remembered approvals"),
    Place(gettext_lazy("Insights"), "insights", "insights", words="statistics reviews"),
    Place(gettext_lazy("Usage and cost"), "usage", "insights", ANY_ROLE, "statistics calls tokens dollars price"),
    Place(gettext_lazy("Plans"), "plans", "plan"),
    Place(gettext_lazy("Calls"), "calls", "play", words="direct tried"),
    Place(gettext_lazy("Sessions"), "sessions", "todo", words="lists to-do"),
    Place(gettext_lazy("Agents"), "agents", "bot", ANY_ROLE, "models"),
    Place(gettext_lazy("Tools"), "tools", "tools", words="catalog"),
    Place(gettext_lazy("Sources"), "sources", "source", ADMINISTRATORS, "mcp openapi servers"),
    Place(gettext_lazy("Policies"), "policies", "filter", ANY_ROLE, "rules"),
    Place(gettext_lazy("Stops"), "stops", "stop", ANY_ROLE, "stopped lifted resume"),
    Place(gettext_lazy("People"), "people", "people", ADMINISTRATORS, "users accounts members invitations"),
    Place(gettext_lazy("Roles and groups"), "groups", "people", ADMINISTRATORS, "people reviewers permissions"),
    Place(gettext_lazy("Which policy decides?"), "policy-simulator", "filter", ANY_ROLE, "simulator test"),
    Place(gettext_lazy("Audit log"), "audit", "audit", ADMINISTRATORS, "history chain entries"),
    Place(gettext_lazy("Deliveries"), "deliveries", "bell", ADMINISTRATORS, "notifications mail failed"),
    Place(gettext_lazy("All tokens"), "tokens", "lock", ADMINISTRATORS),
    Place(gettext_lazy("Your tokens"), "own-tokens", "lock", words="api keys"),
    Place(gettext_lazy("Connections"), "connections", "plug", words="oauth clients connected agents claude chatgpt"),
    Place(gettext_lazy("Profile"), "profile", "human", words="name time zone locale theme account"),
    Place(gettext_lazy("Notifications"), "notifications", "bell", words="mail preferences profile"),
    Place(
        gettext_lazy("Settings"),
        "settings",
        "settings",
        ADMINISTRATORS,
        "configuration environment health version licence",
    ),
    Place(gettext_lazy("Help"), "help", "info", words="documentation shortcuts keyboard"),
)


@dataclass(frozen=True, slots=True)
class Hit:
    """One result. With `is_command` its address takes a POST, as it changes something."""

    label: str
    address: str
    icon: str
    detail: str = ""
    is_name: bool = False
    is_command: bool = False


@dataclass(frozen=True, slots=True)
class HitGroup:
    key: str
    name: str
    hits: Sequence[Hit]


@dataclass(frozen=True, slots=True)
class JumpPage:
    """Results for a text; `similar` are tools and pages with a similar name if there is no result."""

    text: str
    groups: Sequence[HitGroup]
    similar: Sequence[Hit]

    @property
    def count(self) -> int:
        return sum(len(group.hits) for group in self.groups) + len(self.similar)


def jump_page(viewer: User, typed: str) -> JumpPage:
    """Return what the viewer may jump to for a text, in a fixed number of queries; without a text, places only."""
    text = typed.replace("\x00", "").strip()[:MAX_QUERY_LENGTH]
    if ID_PATTERN.fullmatch(text):
        groups = [HitGroup("ids", _("Ids"), list(_hits_by_id(viewer, text)))]
    else:
        words = search_words(text)
        groups = [
            HitGroup("commands", _("Commands"), [*_places(viewer, COMMANDS, words), *_plan_commands(viewer, words)]),
            HitGroup("pages", _("Pages"), _places(viewer, PAGES, words)),
        ]
        if words:
            groups += [HitGroup(key, name, list(found(viewer, text))) for key, name, found in _searches(viewer)]
    groups = [group for group in groups if group.hits]
    return JumpPage(text, groups, [] if groups else similar_hits(viewer, text))


def similar_hits(viewer: User, text: str) -> list[Hit]:
    """Return tools and pages whose name is similar to a text, and plans whose goal has its words; best first."""
    tools = [_tool_hit(name) for name in similar_tool_names(text, most=MOST_SIMILAR)]
    places = {str(place.label).casefold(): place for place in PAGES if _may_open(viewer, place) and place.address}
    near = get_close_matches(text.casefold(), places, n=MOST_SIMILAR)
    plans = _plans(viewer, re.sub(r"[-_]+", " ", text)) if text else ()
    return [*(_place_hit(places[label]) for label in near), *tools, *plans][:MOST_SIMILAR]


def nearest_to_path(viewer: User, path: str) -> list[Hit]:
    """Return what has a name similar to the parts of the path of a page that does not exist."""
    parts = [part for part in unquote(path)[:MAX_QUERY_LENGTH].replace("\x00", "").split("/") if part]
    addresses = {place.address: place for place in PAGES if _may_open(viewer, place) and place.address}
    unknown = [part for part in parts if f"/{part}/" not in addresses][:MOST_COMPARED_PARTS]
    found = {hit.address: hit for part in unknown for hit in similar_hits(viewer, part)}
    for address in get_close_matches(f"/{parts[0]}/" if parts else "", addresses, n=1):
        found.setdefault(address, _place_hit(addresses[address]))
    return list(found.values())[:MOST_SIMILAR]


def _may_open(viewer: User, place: Place) -> bool:
    return not place.roles or not place.roles.isdisjoint(roles_of(viewer))


def _place_hit(place: Place) -> Hit:
    return Hit(str(place.label), place.address, place.icon)


def _places(viewer: User, places: Iterable[Place], words: Sequence[str]) -> list[Hit]:
    """Return the places that have, for every word, a word that begins with it."""
    found = []
    for place in places:
        known = search_words(f"{place.label} {place.words}")
        if all(any(own.startswith(word) for own in known) for word in words):
            address = place.address if _may_open(viewer, place) else ""
            found += [_place_hit(place)] if address else []
    return found


def _plan_commands(viewer: User, words: Sequence[str]) -> Iterator[Hit]:
    """Yield commands that pause or resume a plan, if the first word is the beginning of one of these verbs."""
    verb, rest = (words[0], words[1:]) if words else ("", ())
    if len(verb) < 2:
        return
    roles = roles_of(viewer)
    offered = [("pause", PAUSE, "plan-pause", True)] if "pause".startswith(verb) else []
    offered += [("resume", RESUME, "plan-resume", False)] if "resume".startswith(verb) and roles & PLANNERS else []
    for icon, label, url_name, is_running in offered:
        running = plans_for(viewer).filter(kind=Plan.Kind.PLAN, status=PlanStatus.IN_PROGRESS)
        if ADMINISTRATOR not in roles:
            running = running.filter(Q(author=viewer) | Q(token__user=viewer))
        running = running.filter(_goal_has([word for word in rest if word != "plan"]), paused_at__isnull=is_running)
        for ref, goal in running.values_list("public_id", "goal")[:OTHERS_SHOWN]:
            icon = "pause" if is_running else "play"
            yield Hit(f"{label}: {goal}", reverse(url_name, args=[ref]), icon, is_command=True)


def _searches(viewer: User) -> Iterator[tuple[str, str, Callable[[User, str], Iterable[Hit]]]]:
    roles = roles_of(viewer)
    yield "tools", _("Tools"), _tools
    yield "requests", _("Open requests"), _requests
    yield "plans", _("Plans"), _plans
    yield "connections", _("Connections"), _connections
    if roles:
        yield "policies", _("Policies"), _policies
        yield "agents", _("Agents"), _agents
    if ADMINISTRATOR in roles:
        yield "sources", _("Sources"), _sources
        yield "people", _("People"), _people
        yield "groups", _("Groups"), _groups


def _tool_hit(name: str, description: str = "") -> Hit:
    return Hit(name, reverse("tool", args=[name]), "tools", description, is_name=True)


def _tools(_viewer: User, text: str) -> Iterator[Hit]:
    # One or two letters begin a word of nearly every description; ranking all of those tools would take too long.
    is_short = len(text) < MIN_WHOLE_SEARCH
    found = offered_tools().filter(Q(name__istartswith=text) if is_short else matching_words(text))
    found = found.order_by("name") if is_short else found.order_by(name_match_rank(text), "name")
    for name, description in found.values_list("name", "current_version__description")[:TOOLS_SHOWN]:
        yield _tool_hit(name, description)


def _requests(viewer: User, text: str) -> Iterator[Hit]:
    waiting = pending_for(viewer).order_by("opened_at", "pk")
    found = summarised_requests(viewer, waiting, text.split(), most=OTHERS_SHOWN)
    return (_request_hit(request) for request in found)


def _request_hit(request: ApprovalRequest) -> Hit:
    asker, tool = request.call.requested_by, request.call.tool_name
    detail = _("%(tool)s for %(person)s") % {"tool": tool, "person": user_display_name(asker)} if asker else tool
    summary = str(request.summary)  # type: ignore[attr-defined] # see summarised_requests
    return Hit(summary, f"{reverse('approvals')}?item={request.public_id}", "hand", detail)


def _goal_has(words: Iterable[str]) -> Q:
    return Q(*(Q(goal__icontains=word) for word in words))


def _plans(viewer: User, text: str) -> Iterator[Hit]:
    found = plans_for(viewer).select_related(None).filter(_goal_has(text.split()), kind=Plan.Kind.PLAN).order_by("-id")
    return (_plan_hit(plan) for plan in found.only("public_id", "goal", "kind", "status")[:OTHERS_SHOWN])


def _plan_hit(plan: Plan) -> Hit:
    page = "session" if plan.kind == Plan.Kind.SESSION else "plan"
    badge = status_badge(plan.status)
    return Hit(plan.goal, reverse(page, args=[plan.public_id]), badge.icon, str(badge.label))


def _connections(viewer: User, text: str) -> Iterator[Hit]:
    live = connections_for(viewer).filter(token__revoked_at=None, token__expires_at__gt=clock.now())
    found = live.filter(Q(client_name__icontains=text) | Q(client_host__icontains=text))
    for connection in found[:OTHERS_SHOWN]:
        detail = f"{connection.client_host} · {user_display_name(connection.token.user)}"
        yield Hit(connection.client_name, reverse("connection", args=[connection.token_id]), "plug", detail)


def _policies(_viewer: User, text: str) -> Iterator[Hit]:
    found = Policy.objects.filter(name__icontains=text, ended_at=None)
    for ref, name in found.values_list("public_id", "name")[:OTHERS_SHOWN]:
        yield Hit(name, reverse("policy", args=[ref]), "filter")


def _agents(_viewer: User, text: str) -> Iterator[Hit]:
    for name in Agent.objects.filter(name__icontains=text).values_list("name", flat=True)[:OTHERS_SHOWN]:
        yield Hit(name, reverse("agent", args=[name]), "bot", is_name=True)


def _sources(_viewer: User, text: str) -> Iterator[Hit]:
    found = Source.objects.filter(name__icontains=text).order_by("name")
    for name in found.values_list("name", flat=True)[:OTHERS_SHOWN]:
        yield Hit(name, reverse("source", args=[name]), "source", is_name=True)


def _people(_viewer: User, text: str) -> Iterator[Hit]:
    people = User.objects.order_by("username")
    for word in text.split():
        people = people.filter(Q(*((f"{name}__icontains", word) for name in PERSON_COLUMNS), _connector=Q.OR))
    for person in people[:OTHERS_SHOWN]:
        yield Hit(user_display_name(person), reverse("person", args=[person.pk]), "human", person.username)


def _groups(_viewer: User, text: str) -> Iterator[Hit]:
    for number, name in (
        Group.objects.filter(name__icontains=text).order_by("name").values_list("pk", "name")[:OTHERS_SHOWN]
    ):
        yield Hit(name, reverse("group", args=[number]), "people", _("role") if name in ROLES else _("group"))


def _hits_by_id(viewer: User, text: str) -> Iterator[Hit]:
    """Yield the visible rows whose id begins with the text."""
    # LIKE uses an index on PostgreSQL, where collations order texts; on SQLite it ignores case and reads all rows.
    terms = {"gte": text, "lt": text + LAST_CHARACTER} if on_sqlite() else {"startswith": text}
    begins = Q(**{f"public_id__{name}": value for name, value in terms.items()})
    match text.partition("_")[0]:
        case "apr":
            found = requests_for(viewer).filter(begins).order_by("public_id")
            yield from (_request_hit(request) for request in summarised_requests(viewer, found, most=OTHERS_SHOWN))
        case "plan":
            plans = plans_for(viewer).select_related(None).filter(begins).order_by("public_id")
            yield from (_plan_hit(plan) for plan in plans[:OTHERS_SHOWN])
        case _:
            calls = Call.objects.filter(begins).order_by("public_id")[:OTHERS_SHOWN]
            steps = Step.objects.filter(call__in=calls.values("pk"), plan__in=plans_for(viewer).order_by().values("pk"))
            columns = ("call__tool_name", "step_id", "plan__public_id")
            for tool, number, plan in steps.order_by("call__public_id").values_list(*columns)[:OTHERS_SHOWN]:
                detail = _("step %(number)s of its plan") % {"number": number}
                yield Hit(tool, f"{reverse('plan', args=[plan])}?step={number}", "run", detail, is_name=True)


@require_safe
@sign_in_required
def jump(request: PageRequest) -> HttpResponse:
    page = jump_page(request.user, request.GET.get("q", ""))
    is_list = is_fragment_request(request, "jump-results")
    shown = {"section": "jump", "page": page, "as_options": is_list}
    return render(request, "jump/_results.html" if is_list else "jump/jump.html", shown)
