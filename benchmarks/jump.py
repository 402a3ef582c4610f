"""`jump_ms`: one keystroke of Jump over 10,000 tools and 10,000 plans, for an administrator."""

from random import Random
from time import perf_counter

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from django.utils import timezone

from benchmarks.catalog_page import AT_ONCE, OWNERS, PLACES, THINGS, VERBS, fill_tools
from benchmarks.ground import person, prepare
from plans.executor.lifecycle import tune_garbage_collector
from plans.models import Plan

PLANS = 10_000
TEXTS = (
    "",
    "r",
    "re",
    "rea",
    "read inv",
    "oice",
    "create dashboard for",
    "pause",
    "tools",
    "bench",
    "no such thing",
    "creat_invoce_acme",
)
"""Texts to search for: beginnings of words, words inside names, commands, misspelt names."""
AS_FRAGMENT = {"HX-Request": "true", "HX-Target": "jump-results"}


def measure(runs: int) -> list[float]:
    """Return the milliseconds of each keystroke."""
    prepare()
    viewer = person("administrator")
    with transaction.atomic():
        chance = Random(7)  # noqa: S311 - the same catalog each time, nothing secret
        fill_tools(chance)
        Plan.objects.bulk_create(_plans(viewer, chance), AT_ONCE)
    settings.ALLOWED_HOSTS = ["testserver"]
    client = Client(headers=AS_FRAGMENT)
    client.force_login(viewer)
    for text in TEXTS:
        _type(client, text)
    tune_garbage_collector()
    return [_type(client, text) for _ in range(runs) for text in TEXTS]


def _type(client: Client, text: str) -> float:
    started = perf_counter()
    response = client.get("/jump/", {"q": text})
    milliseconds = (perf_counter() - started) * 1000
    if response.status_code != 200:
        raise RuntimeError(f"/jump/?q={text} answered {response.status_code}.")
    return milliseconds


def _plans(author: User, chance: Random) -> list[Plan]:
    words = [[chance.choice(each) for each in (VERBS, THINGS, OWNERS, PLACES)] for _ in range(PLANS)]
    goals = [f"{verb.title()} the {thing} of {owner} for {place}" for verb, thing, owner, place in words]
    return [Plan(goal=goal, author=author, created_at=timezone.now()) for goal in goals]
