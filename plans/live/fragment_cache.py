"""Shared renderings: page fragments rendered once per process for all viewers of the same page, and kept up to date.

A rendering has only the current state. Each viewer gets the difference from what it was sent last, so a slow viewer
skips intermediate states and costs no memory.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from catalog.core.transactions import log_unexpected
from plans.live.feed import Feed, WaitEvent

log = logging.getLogger("toolgate.renderings")
REST_FACTOR = 3
"""Pause after rendering, as a multiple of the time that rendering took."""


@dataclass(frozen=True, slots=True)
class Fragments:
    """HTML fragments by key, rendered when the last event was number `seq`; `exact` if they contain nothing newer.

    `numbers` has the event number of each fragment that never changes; `says` is the text for screen readers. A
    fragment with an entry in `marks` is sent again only when that changes.
    """

    fragments: Mapping[str, str]
    seq: int | None = None
    exact: bool = True
    numbers: Mapping[str, int] = field(default_factory=dict)
    says: str = ""
    marks: Mapping[str, Hashable] = field(default_factory=dict)

    def mark(self, key: str) -> Hashable:
        """Return the value by which a change of a fragment is noticed; None if there is no such fragment."""
        return self.marks.get(key, self.fragments.get(key))


@dataclass(frozen=True, slots=True)
class RenderSource:
    """Fragments to render after each notification.

    At least `rest_seconds` lie between a rendering that changed something and the next one; with `always_rests` also
    after one that changed nothing. What `may_wait` is rendered for each person and must not delay what many share.
    """

    key: Hashable
    draw: Callable[[], Fragments]
    listen: Callable[[Feed], AbstractContextManager[WaitEvent]]
    rest_seconds: float
    always_rests: bool = False
    may_wait: bool = False


class CurrentFragments:
    """The current fragments, with the messages that bring viewers up to date: each is written once for all of them."""

    def __init__(self, fragments: Fragments | None = None) -> None:
        self.drawn = fragments

    @property
    def drawn(self) -> Fragments | None:
        return self._drawn

    @drawn.setter
    def drawn(self, fragments: Fragments | None) -> None:
        self._drawn = fragments
        self._first: dict[int | None, str] = {}
        self._differences: list[tuple[Fragments, str]] = []

    def message(self, sent_fragments: Fragments | None, after: int | None) -> str:
        """Return the message, as JSON, for a client that has `sent_fragments` or a page of event number `after`.

        It is empty for a client that is up to date.
        """
        if self.drawn is None or self.drawn is sent_fragments:
            return ""
        if sent_fragments is None:
            if after not in self._first:
                self._first[after] = _text(_first_message(self.drawn, after))
            return self._first[after]
        for earlier, text in self._differences:
            if earlier is sent_fragments:
                return text
        text = _text(_difference(sent_fragments, self.drawn))
        self._differences.append((sent_fragments, text))
        return text


def _text(message: dict[str, object] | None) -> str:
    return json.dumps(message, ensure_ascii=False) if message else ""


def _difference(sent_fragments: Fragments, fragments: Fragments) -> dict[str, object] | None:
    changed = [html for key, html in fragments.fragments.items() if sent_fragments.mark(key) != fragments.mark(key)]
    announced = {"announce": fragments.says} if fragments.says != sent_fragments.says else {}
    return _message(fragments.seq, changed) | announced if changed else None


def _first_message(fragments: Fragments, after: int | None) -> dict[str, object] | None:
    """Return all fragments that may differ from a page that was rendered at event number `after`."""
    seq = fragments.seq
    if seq is None or after is None:
        return _message(seq, list(fragments.fragments.values()))
    if fragments.exact and seq == after:
        return None
    known = {key for key, number in fragments.numbers.items() if number <= after}
    newer = [html for key, html in fragments.fragments.items() if key not in known]
    return _message(seq if seq > after else None, newer)


def _message(seq: int | None, fragments: list[str]) -> dict[str, object]:
    """Return a message. With `seq`, clients ignore it if they have newer fragments; without, they always apply it."""
    return {"fragments": fragments} if seq is None else {"seq": seq, "fragments": fragments}


class SharedRendering(CurrentFragments):
    """The current fragments of a source, rendered again after each notification."""

    def __init__(self, feed: Feed, source: RenderSource) -> None:
        super().__init__()
        self.viewers: set[WaitEvent] = set()
        self._feed = feed
        self._source = source
        self.task = asyncio.ensure_future(self._keep_up())

    async def _keep_up(self) -> None:
        clock = asyncio.get_running_loop().time
        run = self._feed.run_later if self._source.may_wait else self._feed.run
        with self._source.listen(self._feed) as news:
            while True:
                began, rest = clock(), self._source.rest_seconds
                try:
                    drawn = await run(self._source.draw)
                except Exception as error:  # noqa: BLE001 - logged without its message, which may hold arguments
                    log.warning("a page fragment could not be rendered; the next notification tries again")
                    log_unexpected(error)
                else:
                    if drawn != self.drawn:
                        self.drawn = drawn
                        for viewer in self.viewers:
                            viewer.set()
                    elif not self._source.always_rests:
                        # No pause: `listen_to_all` notifies every second without news, and news right after that must
                        # not wait.
                        rest = 0
                await asyncio.sleep(max(rest, REST_FACTOR * (clock() - began)))
                await news.wait()
                news.clear()


class ViewerState:
    """State of a shared rendering that was last sent to one client."""

    def __init__(self, current: CurrentFragments, after: int | None = None) -> None:
        self._current = current
        self._after = after
        self._sent: Fragments | None = None

    def news(self) -> str:
        """Return the message that brings the client up to date, as JSON; empty if it is up to date."""
        sent, self._sent = self._sent, self._current.drawn or self._sent
        return self._current.message(sent, self._after)


_renderings: WeakKeyDictionary[Feed, dict[Hashable, SharedRendering]] = WeakKeyDictionary()


@contextmanager
def shared_rendering(feed: Feed, source: RenderSource, changed: WaitEvent) -> Iterator[SharedRendering]:
    """Yield the rendering that all viewers of a source share; `changed` is set whenever it changes."""
    renderings = _renderings.setdefault(feed, {})
    rendering = renderings.get(source.key) or renderings.setdefault(source.key, SharedRendering(feed, source))
    rendering.viewers.add(changed)
    if rendering.drawn is not None:
        changed.set()
    try:
        yield rendering
    finally:
        rendering.viewers.discard(changed)
        if not rendering.viewers:
            renderings.pop(source.key, None)
            rendering.task.cancel()
