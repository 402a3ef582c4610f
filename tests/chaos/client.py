"""A REST client that survives crashes of the server: it repeats unanswered requests with the same key."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from django.contrib.auth.models import User

from catalog.access.tokens import SCOPES, create_token
from tests.chaos.history import History

TIMEOUT_SECONDS = 8.0
MOST_TRIES = 30
MOST_AT_ONCE = 8
TRIES_WHILE_RESERVED = 4
"""Tries of a key that stays reserved because the process of its first request was killed."""


@dataclass(slots=True)
class Deed:
    """One request that changes something, repeated until it is answered."""

    action: str
    key: str
    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    tries: int = 0
    reserved: int = 0

    def is_hopeless(self) -> bool:
        """Say whether another try is useless."""
        return self.tries >= MOST_TRIES or self.reserved >= TRIES_WHILE_RESERVED


@dataclass(slots=True)
class Client:
    """Creates plans as one person, approves requests as another, and records every answer in the history.

    `places` returns the URLs of the processes that serve at the moment.
    """

    places: Callable[[], Sequence[str]]
    history: History
    chance: random.Random
    author: dict[str, str]
    reviewer: dict[str, str]
    open: dict[str, Deed] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    given_up: Counter[str] = field(default_factory=Counter)
    retried: int = 0
    http: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=TIMEOUT_SECONDS))

    def create(self, key: str, steps: list[dict[str, Any]]) -> None:
        """Submit a plan whose goal is its key."""
        self.send(Deed("plan", key, "plans/", {"goal": key, "steps": steps}, self.author))

    def approve_what_waits(self) -> None:
        """Approve some of the open requests on the first page, except those with an unanswered approval."""
        waiting = self._pending()
        for each in self.chance.sample(waiting, min(len(waiting), MOST_AT_ONCE)):
            body = {"verdict": "approve", "seen_digest": each["digest"]}
            key = self._fresh(f"approve-{each['id']}-{each['digest'][:12]}")
            if key is not None:
                self.send(Deed("review", key, f"approvals/{each['id']}/reviews/", body, self.reviewer))

    def settle(self, plan: str, step_id: int, call: str, verdict: str) -> None:
        """Settle an unknown outcome by what the sink shows."""
        key = self._fresh(f"settle-{call}-{verdict}")
        if key is not None:
            body = {"verdict": verdict, "comment": "The sink says so."}
            self.send(Deed("settle", key, f"plans/{plan}/steps/{step_id}/outcome/", body, self.author))

    def try_again(self) -> None:
        """Repeat unanswered requests with their keys."""
        for deed in list(self.open.values()):
            self.send(deed)

    def send(self, deed: Deed) -> None:
        """Send a request and record its answer."""
        places = self.places()
        if not places:
            self.open[deed.key] = deed
            return
        self.retried += deed.tries > 0
        deed.tries += 1
        self.history.add("invoke", deed.action, deed.key)
        url, headers = f"{self.chance.choice(places)}/api/v1/{deed.path}", {**deed.headers, "Idempotency-Key": deed.key}
        try:
            answer = self.http.post(url, json=deed.body, headers=headers)
        except httpx.ConnectError:
            # It never arrived, so it does not count as a try.
            deed.tries -= 1
            self._unknown(deed, "not sent")
            threading.Event().wait(0.1)
            return
        except httpx.HTTPError as error:
            self._unknown(deed, type(error).__name__)
            return
        self._judge(deed, answer)

    def _judge(self, deed: Deed, answer: httpx.Response) -> None:
        code = _code(answer)
        if answer.status_code < 300:
            self._close(deed)
            self.history.add("ok", deed.action, deed.key, id=str(answer.json().get("id", "")))
        elif code == "still_running":
            deed.reserved += 1
            self._unknown(deed, code)
        elif answer.status_code >= 500 or answer.status_code == 429:
            self._unknown(deed, str(answer.status_code))
        else:
            self._close(deed)
            self.history.add("fail", deed.action, deed.key, status=str(answer.status_code), code=code)

    def _unknown(self, deed: Deed, reason: str) -> None:
        self.history.add("info", deed.action, deed.key, reason=reason)
        if deed.is_hopeless():
            self.open.pop(deed.key, None)
            self.given_up[deed.key.partition("#")[0]] += 1
        else:
            self.open[deed.key] = deed

    def _close(self, deed: Deed) -> None:
        self.open.pop(deed.key, None)
        self.answered.add(deed.key)

    def _fresh(self, wish: str) -> str | None:
        """Return a key for a request that may safely be repeated: a new one after each that was given up.

        None while one is under way, or if it was answered.
        """
        key = f"{wish}#{self.given_up[wish]}"
        return None if key in self.open or key in self.answered else key

    def _pending(self) -> list[dict[str, Any]]:
        places = self.places()
        if not places:
            return []
        url = f"{self.chance.choice(places)}/api/v1/approvals/"
        try:
            answer = self.http.get(url, params={"status": "pending"}, headers=self.reviewer)
            rows: list[dict[str, Any]] = answer.json()["results"] if answer.status_code == 200 else []
        except httpx.HTTPError:
            return []
        return rows


def _code(answer: httpx.Response) -> str:
    try:
        return str(answer.json().get("type", "")).rpartition(":")[2].rpartition("/")[2]
    except (ValueError, AttributeError):
        return ""


def signed_in(user: User) -> dict[str, str]:
    """Return the headers of a personal token with every scope."""
    _, text = create_token(user=user, kind="personal", scopes=SCOPES)
    return {"Authorization": f"Bearer {text}"}
