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
from functools import cached_property
from typing import Any, Protocol

from django.db import connection
from django.db.models import Q, QuerySet

from approvals.models import CallHistory, PolicyRevision, RecentCall
from approvals.policy_language.history import Recent, Seen, read_recent
from catalog.calls.vault import keyring
from catalog.connections.models import Connection
from catalog.core.canonical_json import canonical_text
from catalog.core.database import bind_datetime, on_sqlite
from catalog.core.locks import LockSpace, lock_all_until_commit
from catalog.core.rate_limits import MAX_CLEARED_ROWS
from catalog.models import Call, Tool
from catalog.states import CallStatus

MAX_CALLS_NAMED = 20
"""Earlier calls that are kept with a held call for its reviewers; further ones are only counted."""
WAITS = Q(call__status__in=(CallStatus.CREATED, CallStatus.HELD, CallStatus.READY))
COUNTS = Q(is_started=True) | Q(call__started_at__isnull=False) | WAITS
# A call that ended without having started, such as a rejected one, does not count.
COUNT = (
    "WITH asked(revision_id, value, since) AS (VALUES {asked}) SELECT asked.revision_id, (SELECT count(*) "
    "FROM approvals_recentcall AS counted WHERE counted.revision_id = asked.revision_id "
    "AND counted.value = asked.value AND counted.at > asked.since AND (counted.is_started OR EXISTS (SELECT 1 "
    "FROM catalog_call AS call WHERE call.id = counted.call_id AND (call.started_at IS NOT NULL "
    "OR (call.id <> %s AND call.status IN ('created', 'held', 'ready')))))) FROM asked"
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

    `find_plan_calls` returns the calls of its plan; it is None for a call that is a plan of its own.
    """

    requested_by: int | None
    token_id: int | None = None
    session: str = ""
    plan_ref: str = ""
    tool_name: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    find_plan_calls: "Callable[[], QuerySet[Call]] | None" = None


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
        keys = {rule.revision_id: (rule.revision_id, self._value(rule)) for rule in rules}
        self._rules |= {rule.revision_id: rule for rule in rules}
        known = self._kept | self._new
        unjudged = [rule for rule in rules if keys[rule.revision_id] not in known]
        if self.is_exact:
            # Also for what is known: if the call now starts, it counts from now on.
            locked = [f"{revision}:{value}" for revision, value in keys.values() if value]
            if not lock_all_until_commit(LockSpace.RECENT_CALLS, locked, waits=self.waits):
                raise HistoryBusy
        if unjudged:
            self._judge(unjudged)
            known |= self._new
        return {revision: known[key] for revision, key in keys.items()}

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
            revision, value = rule.revision_id, self._value(rule)
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
            for value in self._digests(rule.recent):
                asked += (rule.revision_id, value, since)
                number += 1
        if not number:
            return {}
        with connection.cursor() as cursor:
            cursor.execute(COUNT.format(asked=", ".join([row] * number)), [*asked, self.replaced or 0])
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
        own = _own_calls(origin)
        scopes = [] if own is None else [calls.filter(own, requested_by=origin.requested_by)]
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
            since = self.now - timedelta(seconds=rule.recent.seconds)
            counted = RecentCall.objects.filter(revision=finding.revision_id, value=finding.value, at__gt=since)
            found = counted.filter(COUNTS).exclude(call=self.replaced).order_by("-at", "-pk")
            calls = list(found.values_list("call_id", flat=True)[:MAX_CALLS_NAMED])
        elif rule.seen is not None:
            newest = (part.order_by("-pk").values_list("pk", flat=True) for part in self._calls_before(rule.seen))
            calls = sorted({pk for part in newest for pk in part[:MAX_CALLS_NAMED]}, reverse=True)[:MAX_CALLS_NAMED]
        return Finding(finding.revision_id, finding.fits, finding.count, finding.value, tuple(calls))

    def _value(self, rule: RuleTerms) -> str:
        return self._digests(rule.recent)[0] if rule.recent is not None else ""

    def _digests(self, recent: Recent) -> tuple[str, ...]:
        """Return the digests of the value by which a rule counts the call, under all keys: the newest first."""
        found = self._values.get(recent.by)
        if found is None:
            key = count_key(recent, self.origin, self._client if recent.by == "token" else "")
            found = self._values[recent.by] = tuple(keyring().fingerprints(f"recent calls\0{key}"))
        return found

    @cached_property
    def _client(self) -> str:
        return client_of(self.origin)


def count_key(recent: Recent, origin: CallOrigin, client: str) -> str:
    """Return the text of the value by which a rule counts a call; `client` is that of `client_of`.

    Calls without a text, number or truth value at the path of an argument share one value.
    """
    if recent.path:
        value = recent.value_in(origin.arguments)
        return f"{recent.by}\0{'' if value is None else canonical_text(value)}"
    values = {
        "requester": origin.requested_by,
        "token": client,
        "tool": origin.tool_name,
        "plan": origin.plan_ref,
    }
    return f"{recent.by}\0{values[recent.by]}"


def client_of(origin: CallOrigin) -> str:
    """Return a name for the token of a call; connections of one person and client share one.

    Without a token, it is that of the person.
    """
    token = origin.token_id
    if token is None:
        return f"person {origin.requested_by}"
    connections = Connection.objects.filter(token=token)
    made = connections.values_list("token__user", "client_name", "client_host").first()
    return f"token {token}" if made is None else "client {} {} {}".format(*made)


def kept_history(
    call: Call, arguments: Mapping[str, Any], *, now: datetime, is_exact: bool = False, waits: bool = True
) -> History:
    """Return the history of a stored call with these arguments; what was found before is kept."""
    origin = CallOrigin(
        requested_by=call.requested_by_id,
        token_id=call.token_id,
        session=call.session,
        plan_ref=call.plan_ref,
        tool_name=call.tool_name,
        arguments=arguments,
    )
    return History(origin, now=now, call=call, is_exact=is_exact, waits=waits)


def findings_of(call: Call) -> list[Finding]:
    """Return what was found for a stored call, in the order in which it was judged."""
    stored = CallHistory.objects.filter(call=call).values_list("findings", flat=True).first()
    return [_from_document(document) for document in stored or ()]


def _own_calls(origin: CallOrigin) -> Q | None:
    """Return a condition for the calls of the same token or session, or of the same person if there is no token."""
    if origin.requested_by is None:
        return None
    if origin.token_id is None:
        return Q()
    own = Q(token=origin.token_id)
    made = Connection.objects.filter(token=origin.token_id).first()
    if made is not None:
        same = Connection.objects.filter(client_name=made.client_name, client_host=made.client_host)
        if made.client_id is not None:
            same = same | Connection.objects.filter(client=made.client_id)
        own |= Q(token__in=same.values("token"))
    if origin.plan_ref:
        own |= Q(plan_ref=origin.plan_ref)
    return own | Q(session=origin.session) if origin.session else own


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
