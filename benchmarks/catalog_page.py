"""`catalog_page_ms`: pages of the list of 10,000 tools with 100,000 calls, for an operator; most pages are searches."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from random import Random
from time import perf_counter

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from django.utils import timezone

from benchmarks.ground import prepare
from catalog.inventory.search import index_changed_tools
from catalog.models import Call, Category, Source, Tool, ToolVersion
from catalog.states import CallStatus
from plans.executor.lifecycle import tune_garbage_collector

TOOLS = 10_000
CALLS = 100_000
DAYS = 20
AT_ONCE = 2000
VERBS = ("read", "list", "search", "create", "update", "delete", "send", "export", "archive", "compare")
THINGS = (
    "invoice",
    "ticket",
    "badge",
    "branch",
    "build",
    "calendar_event",
    "contact",
    "dashboard",
    "document",
    "email",
)
OWNERS = ("acme", "globex", "initech", "umbrella", "hooli", "stark", "wayne", "soylent", "cyberdyne", "tyrell")
PLACES = ("eu", "us", "archive", "staging", "finance", "sales", "legal", "support", "research", "mobile")
LEVELS = ("safe", "safe", "safe", "cautious", "dangerous")
ADDRESSES = (
    "",
    "?q=r",
    "?q=rea",
    "?q=read+inv",
    "?q=oice",
    "?q=customer+page+delete&safety_level=dangerous",
    "?q=dashboard&category=finance&sort=-calls",
    "?q=invoce",
    "?safety_level=cautious&enabled=true&page=20",
    "?sort=-calls",
    "?q=a+an+the",
)


def measure(runs: int) -> list[float]:
    """Return the milliseconds of each page."""
    user = prepare()
    with transaction.atomic():
        _fill(user, Random(7))  # noqa: S311 - the same catalog each time, nothing secret
    settings.ALLOWED_HOSTS = ["testserver"]
    client = Client()
    client.force_login(user)
    for address in ADDRESSES:
        _open(client, address)
    tune_garbage_collector()
    return [_open(client, address) for _ in range(runs) for address in ADDRESSES]


def _open(client: Client, address: str) -> float:
    started = perf_counter()
    response = client.get(f"/tools/{address}")
    milliseconds = (perf_counter() - started) * 1000
    if response.status_code != 200:
        raise RuntimeError(f"/tools/{address} answered {response.status_code}.")
    return milliseconds


def _fill(user: User, chance: Random) -> None:
    """Store the tools and their calls; a few tools have most of the calls."""
    Call.objects.bulk_create(_calls(fill_tools(chance), user, chance), AT_ONCE)


def fill_tools(chance: Random) -> list[ToolVersion]:
    """Store the tools with their versions and search words, and return the versions."""
    sources = [Source.objects.create(name=f"bench.{owner}", kind=Source.Kind.MCP) for owner in OWNERS]
    names = ["_".join(parts) for parts in product(VERBS, THINGS, OWNERS, PLACES)]
    tools = Tool.objects.bulk_create(
        [Tool(name=name, source=chance.choice(sources), enabled=chance.random() > 0.05) for name in names], AT_ONCE
    )
    versions = ToolVersion.objects.bulk_create([_version(tool, chance) for tool in tools], AT_ONCE)
    for tool, version in zip(tools, versions, strict=True):
        tool.current_version = version
    Tool.objects.bulk_update(tools, ["current_version"], AT_ONCE)
    _categorise(tools, chance)
    index_changed_tools()
    return versions


def _version(tool: Tool, chance: Random) -> ToolVersion:
    verb, *thing, owner, place = tool.name.split("_")
    what = " ".join(thing)
    properties = {
        f"{what.replace(' ', '_')}_id": {"type": "string", "description": f"Which {what} of the {place} space."},
        "page": {"type": "integer", "minimum": 1, "description": "Which page of the results, from 1 on."},
        "filter": {"type": "object", "properties": {"customer": {"type": "string", "description": "Whose it is."}}},
    }
    return ToolVersion(
        tool=tool,
        number=1,
        fingerprint=f"{chance.getrandbits(256):064x}",
        description=f"{verb.title()} one {what} that {owner.title()} keeps for {place}, with its history and owner.",
        input_schema={"type": "object", "properties": properties, "additionalProperties": False},
        safety_level=chance.choice(LEVELS),
        reversibility="restorable",
        retry_safe=False,
        timeout=30,
    )


def _categorise(tools: list[Tool], chance: Random) -> None:
    categories = [Category.objects.get_or_create(name=name)[0] for name in (*PLACES, *THINGS)]
    put = Tool.categories.through
    rows = [
        put(tool_id=tool.pk, category_id=category.pk)
        for tool in tools
        for category in chance.sample(categories, chance.choice((1, 1, 2, 3)))
    ]
    put.objects.bulk_create(rows, AT_ONCE)


def _calls(versions: list[ToolVersion], user: User, chance: Random) -> Iterator[Call]:
    weights = [1 / (rank + 1) ** 0.8 for rank in range(len(versions))]
    now = timezone.now()
    for number, version in enumerate(chance.choices(versions, weights, k=CALLS)):
        moment = now - timedelta(days=DAYS) * (1 - number / CALLS)
        yield Call(
            tool_name=version.tool.name,
            version=version,
            arguments='{"page":1}',
            status=CallStatus.FAILED if chance.random() < 0.04 else CallStatus.COMPLETED,
            response='{"success":true,"results":["' + "x" * 300 + '"]}',
            requested_by=user,
            created_at=moment,
            started_at=moment,
            finished_at=moment + timedelta(milliseconds=chance.randint(5, 900)),
        )
