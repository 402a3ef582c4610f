"""The history of a call: the answers to rules that look back at what came before it, by `recent` and `seen`.

A call is judged exactly once by each rule, in the transaction that stores it: under locks, with a row that counts it.
What was found is kept with the call, and every later check of the call uses that, so that an approval stays valid
although the window has moved. A rule that is new or changed since then is judged when it is first asked about.

Elsewhere, as in a rehearsal or before a direct call is stored, the answers are those of the moment.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, reduce
from itertools import chain
from operator import or_
from typing import Any, Protocol

from django.db import connection
from django.db.models import Q, QuerySet

from approvals.models import CallHistory, PolicyRevision, RecentCall
from approvals.policy_language.history import Recent, Seen, read_recent
from catalog.calls.vault import keyring
from catalog.connections.models import Connection
from catalog.core.canonical_json import MAX_SAFE_INTEGER, canonical_text
from catalog.core.database import bind_datetime, on_sqlite
from catalog.core.locks import LockSpace, lock_all_until_commit
from catalog.core.rate_limits import MAX_CLEARED_ROWS
from catalog.dispatch.arguments import CallArguments
from catalog.models import ApiToken, Call, Tool
from catalog.states import CallStatus

MAX_CALLS_NAMED = 20
"""Earlier calls that are kept with a held call for its reviewers; further ones are only counted."""
COUNTED = (
    "counted.call_id <> %s AND (counted.is_started OR EXISTS (SELECT 1 FROM catalog_call AS call "
    "WHERE call.id = counted.call_id AND (call.started_at IS NOT NULL "
    "OR (call.id <> %s AND call.status IN ('created', 'held', 'ready')))))"
)
"""Condition on a row that counts for another call: parameters are that call, and the one that it replaces.

A call that ended without having started, such as a rejected one, does not count.
"""
COUNT = (
    "WITH asked(revision_id, value, since) AS (VALUES {asked}) SELECT asked.revision_id, (SELECT count(*) "
    "FROM approvals_recentcall AS counted WHERE counted.revision_id = asked.revision_id "
    "AND counted.value = asked.value AND counted.at > asked.since AND {counted}) FROM asked"
)
NEWEST = (
    "SELECT counted.call_id FROM approvals_recentcall AS counted WHERE counted.revision_id = %s "
    "AND counted.value IN ({values}) AND counted.at > %s AND {counted} "
    "ORDER BY counted.at DESC, counted.id DESC LIMIT %s"
)


class RuleTerms(Protocol):
    """The terms of a rule about what came before; `revision_id` is the key of its revision."""

    @property
    def recent(self) -> Recent | None: ...
    @property
    def seen(self) -> Seen | None: ...
    @property
    def revision_id(self) -> int | None: ...


class HistoryBusy(Exception):
    """Another transaction holds the lock of a count, and this one may not wait for it: try again in a new one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to one rule about one call; `count` includes the call itself, None if the rule does not count.

    `value` is the digest under which the rule counts the call, and `calls` the keys of the newest calls before it.
    """

    revision_id: int | None
    fits: bool
    count: int | None = None
    value: str = ""
    calls: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOrigin:
    """Facts of a call by which earlier calls are found: its requester, token, session, plan, tool and arguments.

    `forms` are the arguments as given and with defaults, so that a default counts the same, given or left out.
    `find_plan_calls` returns the calls of its plan; it is None for a call that is a plan of its own.
    """

    requested_by: int | None
    token_id: int | None = None
    session: str = ""
    plan_ref: str = ""
    tool_name: str = ""
    forms: Sequence[Mapping[str, Any]] = ()
    find_plan_calls: "Callable[[], QuerySet[Call]] | None" = None


@dataclass(frozen=True, slots=True)
class CallingClient:
    """The client through whose token a call was made.

    Connections of one person are of the same client if they have the same registration, or the same name and host: a
    client stays the same if it registers anew or is renamed. `names` are the names and hosts of its connections, that
    of the token first. There are none for a token that is no connection's, and without a token.
    """

    person: int | None
    token_id: int | None
    names: tuple[tuple[str, str], ...] = ()

    @property
    def texts(self) -> list[str]:
        """The texts by which calls through the client are counted, that of the token first; without a token, one."""
        if self.token_id is None:
            return [f"person {self.person}"]
        return [f"client {self.person} {name} {host}" for name, host in self.names] or [f"token {self.token_id}"]

    @property
    def calls(self) -> Q:
        """Condition for the calls through the client; without a token, for all calls."""
        if self.token_id is None:
            return Q()
        if not self.names:
            return Q(token=self.token_id)
        named = reduce(or_, (Q(client_name=name, client_host=host) for name, host in self.names))
        return Q(token__in=Connection.objects.filter(named, token__user=self.person).values("token"))


def calling_client(origin: CallOrigin) -> CallingClient:
    """Return the client of a call; one query if it has a token."""
    token = origin.token_id
    if token is None:
        return CallingClient(origin.requested_by, None)
    person = ApiToken.objects.filter(pk=token).values("user")
    columns = ("token_id", "token__user_id", "client_id", "client_name", "client_host")
    rows = Connection.objects.filter(token__user__in=person).order_by("pk").values_list(*columns)
    connections = [(made, user, client, (name, host)) for made, user, client, name, host in rows]
    own = [(user, name) for made, user, _, name in connections if made == token]
    if not own:
        return CallingClient(origin.requested_by, token)
    [(person_id, first)] = own
    names = found = {first: None}
    while found:
        clients = {client for _, _, client, name in connections if name in names and client is not None}
        found = {name: None for _, _, client, name in connections if client in clients and name not in names}
        names = names | found
    return CallingClient(person_id, token, tuple(names))


@dataclass
class History:
    """The answers to rules that look back at what came before one call; a rule is judged once.

    `call` is the call itself once it is stored, `replaced` the key of the call that it replaces. `is_exact` belongs to
    the transaction that stores or starts the call. It waits for locks only if `waits`: not after the lock of the audit
    head.
    """

    origin: CallOrigin
    now: datetime
    call: Call | None = None
    replaced: int | None = None
    is_exact: bool = False
    waits: bool = True
    _new: dict[tuple[int | None, str], Finding] = field(default_factory=dict)
    _rules: dict[int | None, RuleTerms] = field(default_factory=dict)
    _values: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def was_asked(self) -> bool:
        """True if a rule that looks back fits the call otherwise."""
        return bool(self._rules)

    def answers(self, rules: Sequence[RuleTerms]) -> dict[int | None, Finding]:
        """Return what was found for each of these rules. Raises HistoryBusy."""
        self._rules |= {rule.revision_id: rule for rule in rules}
        values = {rule.revision_id: self._values_of(rule) for rule in rules}
        if self.is_exact:
            # Also for what is known: if the call now starts, it counts from now on.
            locked = [f"{revision}:{value}" for revision, each in values.items() for value in each if value]
            if not lock_all_until_commit(LockSpace.RECENT_CALLS, locked, waits=self.waits):
                raise HistoryBusy
        found = self._known(values)
        if unjudged := [rule for rule in rules if rule.revision_id not in found]:
            self._judge(unjudged)
            found = self._known(values)
        return found

    def _known(self, values: Mapping[int | None, Sequence[str]]) -> dict[int | None, Finding]:
        """Return the findings for the values of these rules. After a new key, they are known under the old one."""
        known = self._kept | self._new
        keys = ((revision, value) for revision, each in values.items() for value in each)
        return {key[0]: known[key] for key in keys if key in known}

    def keep(self, call: Call, *, is_started: bool, held_by: int | None = None) -> None:
        """Store what was found with the call, which was stored or started in this transaction, and count it.

        `held_by` is the key of the revision that holds the call: its reviewers see the calls that came before.
        """
        if not self._rules:
            return
        kept = self._kept
        if is_started and any(finding.value for finding in kept.values()):
            RecentCall.objects.filter(call_id=call.pk).update(at=self.now, is_started=True)
        if not self._new:
            return
        named = {key: self._with_calls(finding) for key, finding in self._new.items() if key[0] == held_by}
        counted = {"call": call, "at": self.now, "is_started": is_started}
        RecentCall.objects.bulk_create(
            RecentCall(revision_id=finding.revision_id, value=finding.value, **counted)
            for finding in self._new.values()
            if finding.count is not None
        )
        findings = [_as_document(finding) for finding in (kept | self._new | named).values()]
        if kept:
            CallHistory.objects.filter(call=call).update(findings=findings)
        else:
            CallHistory.objects.create(call=call, findings=findings)

    @cached_property
    def _kept(self) -> dict[tuple[int | None, str], Finding]:
        """The findings that were stored with the call, by rule and value."""
        if self.call is None:
            return {}
        return {(finding.revision_id, finding.value): finding for finding in findings_of(self.call)}

    def _judge(self, rules: Sequence[RuleTerms]) -> None:
        seen = self._seen({rule.seen for rule in rules if rule.seen is not None})
        counting = [rule for rule in rules if rule.recent is not None and (rule.seen is None or rule.seen in seen)]
        counts = self._counts(counting) if counting else {}
        for rule in rules:
            revision, value = rule.revision_id, self._values_of(rule)[0]
            fits, count = rule.seen is None or rule.seen in seen, None
            if fits and rule.recent is not None:
                count = counts.get(revision, 0) + 1
                fits = count >= rule.recent.count
            self._new[revision, value] = Finding(revision, fits, count, value)

    def _counts(self, rules: Sequence[RuleTerms]) -> Mapping[int | None, int]:
        """Return how many earlier calls each rule counts, with one query."""
        row = "(%s, %s, %s)" if on_sqlite() else "(%s::bigint, %s::text, %s::timestamptz)"
        asked, number, times = list[Any](), 0, dict[int, Any]()
        for rule in rules:
            if rule.recent is None or rule.revision_id is None:
                continue
            seconds = rule.recent.seconds
            since = times[seconds] = times.get(seconds) or bind_datetime(self.now - timedelta(seconds=seconds))
            for value in self._values_of(rule):
                asked += (rule.revision_id, value, since)
                number += 1
        if not number:
            return {}
        with connection.cursor() as cursor:
            statement = COUNT.format(asked=", ".join([row] * number), counted=COUNTED)
            cursor.execute(statement, [*asked, *self._uncounted])
            counts = Counter[int | None]()
            for revision_id, count in cursor.fetchall():
                counts[revision_id] += count
            return counts

    def _seen(self, seen_terms: Iterable[Seen]) -> set[Seen]:
        """Return the terms that fit, with one query."""
        asked = list(seen_terms)
        if not asked:
            return set()
        columns, parameters = list[str](), list[Any]()
        for term in asked:
            parts = []
            for calls in self._calls_before(term):
                sql, values = calls.values("pk")[:1].query.sql_with_params()
                parts.append(f"EXISTS ({sql})")
                parameters += values
            columns.append(f"({' OR '.join(parts)})" if parts else "(1 = 0)")
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(columns)}", parameters)
            return {term for term, found in zip(asked, cursor.fetchone(), strict=True) if found}

    def _calls_before(self, seen: Seen) -> Iterator["QuerySet[Call]"]:
        """Yield the calls of this kind that came before, in parts of which each is found by an index.

        A category or source is that of the tool now. A call that never started brought nothing in. One that its client
        runs counts when it was handed out, and one whose outcome is unknown when it started.
        """
        origin, since = self.origin, self.now - timedelta(seconds=seen.within)
        names: Any = [seen.name]
        if seen.kind != "tool":
            path = "categories__name" if seen.kind == "category" else "source__name"
            names = Tool.objects.filter(**{path: seen.name}).values("name")
        calls = Call.objects.filter(tool_name__in=names, started_at__isnull=False)
        if self.call is not None:
            calls = calls.exclude(pk=self.call.pk)
        scopes = []
        if origin.requested_by is not None:
            scopes.append(calls.filter(self._own_calls, requested_by=origin.requested_by))
        if origin.find_plan_calls is not None:
            scopes.append(calls.filter(pk__in=origin.find_plan_calls().values("pk")))
        for scope in scopes:
            yield scope.filter(finished_at__gt=since)
            yield scope.filter(status=CallStatus.OUTCOME_UNKNOWN, started_at__gt=since)
            yield scope.filter(client_run__allowed_until__isnull=False, client_run__allowed_at__gt=since)

    def _with_calls(self, finding: Finding) -> Finding:
        """Return the finding with the newest calls that the rule counted or found."""
        rule, calls = self._rules[finding.revision_id], list[int]()
        if not finding.fits:
            return finding
        if rule.recent is not None:
            values, since = self._values_of(rule), self.now - timedelta(seconds=rule.recent.seconds)
            sql = NEWEST.format(values=", ".join(["%s"] * len(values)), counted=COUNTED)
            named = finding.revision_id, *values, bind_datetime(since), *self._uncounted, MAX_CALLS_NAMED
            with connection.cursor() as cursor:
                cursor.execute(sql, named)
                calls = [call for (call,) in cursor.fetchall()]
        elif rule.seen is not None:
            newest = (part.order_by("-pk").values_list("pk", flat=True) for part in self._calls_before(rule.seen))
            calls = sorted({pk for part in newest for pk in part[:MAX_CALLS_NAMED]}, reverse=True)[:MAX_CALLS_NAMED]
        return Finding(finding.revision_id, finding.fits, finding.count, finding.value, tuple(calls))

    @property
    def _uncounted(self) -> tuple[int, int]:
        """The keys of the call itself and of the call that it replaces; 0 for none."""
        return (self.call.pk if self.call is not None else 0), self.replaced or 0

    def _values_of(self, rule: RuleTerms) -> tuple[str, ...]:
        """Return the digests of the values by which a rule counts the call; an empty text if it does not count.

        The first one is stored with the call: its own value under the newest key. Calls under the others count too.
        """
        if rule.recent is None:
            return ("",)
        found = self._values.get(rule.recent.by)
        if found is None:
            texts = count_texts(rule.recent, self.origin, lambda: self._client)
            fingerprints = (keyring().fingerprints(f"recent calls\0{text}") for text in texts)
            found = self._values[rule.recent.by] = tuple(chain.from_iterable(fingerprints))
        return found

    @cached_property
    def _client(self) -> CallingClient:
        return calling_client(self.origin)

    @property
    def _own_calls(self) -> Q:
        """Condition for the calls of the same client, plan or session; without a token, for all calls."""
        own = self._client.calls
        if self.origin.token_id is not None and self.origin.plan_ref:
            own |= Q(plan_ref=self.origin.plan_ref)
        if self.origin.token_id is not None and self.origin.session:
            own |= Q(session=self.origin.session)
        return own


def count_texts(recent: Recent, origin: CallOrigin, find_client: Callable[[], CallingClient]) -> list[str]:
    """Return the texts of the values by which a rule counts a call, that of the call itself first.

    Calls without a text, number or truth value at the path of an argument share one value.
    """
    if recent.path:
        value = recent.value_in(*origin.forms)
        return [f"{recent.by}\0{'' if value is None else _counted_text(value)}"]
    if recent.by == "token":
        return [f"{recent.by}\0{text}" for text in find_client().texts]
    values = {"requester": origin.requested_by, "tool": origin.tool_name, "plan": origin.plan_ref}
    return [f"{recent.by}\0{values[recent.by]}"]


def _counted_text(value: str | int | float) -> str:
    """Return the canonical text of a value; of an integer that JSON cannot hold exactly, its digits."""
    is_large = type(value) is int and abs(value) > MAX_SAFE_INTEGER
    return str(value) if is_large else canonical_text(value)


def kept_history(
    call: Call, arguments: CallArguments, *, now: datetime, is_exact: bool = False, waits: bool = True
) -> History:
    """Return the history of a stored call with these arguments; what was found before is kept."""
    origin = CallOrigin(
        requested_by=call.requested_by_id,
        token_id=call.token_id,
        session=call.session,
        plan_ref=call.plan_ref,
        tool_name=call.tool_name,
        forms=arguments.forms,
    )
    return History(origin, now=now, call=call, is_exact=is_exact, waits=waits)


def findings_of(call: Call) -> list[Finding]:
    """Return what was found for a stored call, in the order in which it was judged."""
    stored = CallHistory.objects.filter(call=call).values_list("findings", flat=True).first()
    return [_from_document(document) for document in stored or ()]


def clear_recent_calls(*, now: datetime) -> int:
    """Delete counted calls that no window reaches any more, up to MAX_CLEARED_ROWS of each revision.

    Return the number of deleted rows.
    """
    deleted = 0
    for revision in PolicyRevision.objects.filter(recent__isnull=False).only("recent"):
        recent = read_recent(revision.recent)
        if recent is None:
            continue
        old = RecentCall.objects.filter(revision=revision, at__lt=now - timedelta(seconds=recent.seconds))
        keys = list(old.values_list("pk", flat=True)[:MAX_CLEARED_ROWS])
        deleted += RecentCall.objects.filter(pk__in=keys).delete()[0] if keys else 0
    return deleted


def _as_document(finding: Finding) -> dict[str, Any]:
    document: dict[str, Any] = {"revision": finding.revision_id, "fits": finding.fits}
    if finding.value:
        document |= {"value": finding.value}
    if finding.count is not None:
        document |= {"count": finding.count}
    return document | ({"calls": list(finding.calls)} if finding.calls else {})


def _from_document(document: Mapping[str, Any]) -> Finding:
    calls = tuple(document.get("calls", ()))
    return Finding(document["revision"], document["fits"], document.get("count"), document.get("value", ""), calls)
