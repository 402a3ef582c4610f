"""Terms of a policy: validation of the submitted document, and its conversion to the columns of a revision.

Each problem names its path in the document: match.hours, stages.0.group. Addresses to notify are stored encrypted and
displayed without secrets; to keep a stored address, a client sends it back as displayed.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from django.contrib.auth.models import Group, User

from approvals.messaging.addresses import MAIL, read_address
from approvals.models import PolicyRevision
from approvals.policy_language.conditions import check_conditions
from approvals.policy_language.history import recent_problems, seen_problems, span_in_words
from approvals.policy_language.hours import read_hours
from approvals.policy_language.stages import MAX_COUNT, MAX_STAGES
from approvals.policy_language.terms import (
    GROUP,
    MAX_MESSAGE,
    MAX_STOP_COUNT,
    MAX_STOP_SECONDS,
    OPTIONS,
    TERM_COLUMNS,
    TERMS,
    Kind,
)
from catalog.definitions.levels import SafetyLevel
from catalog.errors import ParameterError
from catalog.models import Source
from catalog.schemas import ArgumentProblem, raise_for_problems

MAX_NOTIFY = 10
StoredAddress = dict[str, str]
"""Channel, ciphertext, and displayed text (`shown`) of an address."""
ADDRESS_MARK_LENGTH = 8
"""Length of the keyed hash that distinguishes addresses with the same displayed text."""


def addresses_to_store(sent: Any, before: Sequence[StoredAddress]) -> tuple[list[StoredAddress], list[ArgumentProblem]]:
    """Return the addresses to store, and the problems of invalid addresses; `sent` None keeps those in `before`."""
    if sent is None:
        return list(before), []
    if not isinstance(sent, list) or len(sent) > MAX_NOTIFY or not all(isinstance(each, str) for each in sent):
        return [], [ArgumentProblem("notify", "invalid", f"This must be a list of at most {MAX_NOTIFY} addresses.")]
    known = {each["shown"]: each for each in before}
    kept: dict[str, StoredAddress] = {}
    problems = []
    for number, text in enumerate(sent):
        try:
            stored = known.get(text.strip())
            if stored is None:
                address = read_address(text)
                mark = "" if address.channel == MAIL else address.key[:ADDRESS_MARK_LENGTH]
                stored = address.kept() | {"shown": f"{address.shown}{mark}"}
            kept[stored["shown"]] = known.get(stored["shown"], stored)
        except ParameterError as error:
            problems.append(ArgumentProblem(f"notify.{number}", "invalid", error.message))
    return list(kept.values()), problems


NO_SUCH_GROUP = "There is no group with this name."
GLOB = re.compile(r"[A-Za-z0-9_.*?-]{1,128}")
INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def term_columns(document: Mapping[str, Any], base_revision: PolicyRevision | None = None) -> dict[str, Any]:
    """Return the columns of a revision with these terms. `base_revision`, or else defaults, supply missing terms.

    Raises ParameterError with all problems.
    """
    columns = {name: getattr(base_revision or PolicyRevision(), name) for name in TERM_COLUMNS}
    match = dict(document.get("match") or {})
    rows = match.pop("arguments", columns["conditions"])
    columns |= match | {term.name: document[term.name] for term in OPTIONS if term.name in document}
    columns["notify"], wrong = addresses_to_store(document.get("notify"), base_revision.notify if base_revision else [])
    problems = [*_problems(columns, base_revision.source if base_revision else ""), *wrong]
    try:
        # Stored rows that are inexact fit no call. They are not refused, so that their policy can be switched off.
        stored = (base_revision.conditions, base_revision.effect) if base_revision is not None else None
        is_kept = (rows, columns["effect"]) == stored
        allows = columns["effect"] == PolicyRevision.Effect.ALLOW and not is_kept
        columns["conditions"] = check_conditions(rows, "match.arguments", allows=allows)
    except ParameterError as error:
        problems += [ArgumentProblem(each["path"], each["code"], each["message"]) for each in error.details["errors"]]
    raise_for_problems(problems)
    return columns


def check_name(name: str) -> str:
    """Return the name without surrounding space. Raises ParameterError for an empty, too long or invisible name."""
    stripped = name.strip()
    if not stripped or len(stripped) > 128 or _has_invisible(stripped):
        raise_for_problems([ArgumentProblem("name", "invalid", "A name must have 1 to 128 visible characters.")])
    return stripped


def _has_invisible(text: str) -> bool:
    return any(unicodedata.category(letter) in INVISIBLE_CATEGORIES for letter in text)


def _problems(columns: Mapping[str, Any], kept_source: str) -> Iterator[ArgumentProblem]:
    """Yield the problems of all terms except conditions and addresses; `kept_source` need not exist any more."""
    yield from _problems_of_match(columns)
    if columns["effect"] not in PolicyRevision.Effect.values:
        yield ArgumentProblem("effect", "invalid", "This must be one of allow, hold, deny.")
    if columns["mode"] not in PolicyRevision.Mode.values:
        yield ArgumentProblem("mode", "invalid", "This must be one of enforce, trial.")
    yield from _problems_of_stop(columns)
    message, source = columns["message"], columns["source"]
    if len(message) > MAX_MESSAGE or _has_invisible(message.replace("\n", "")):
        yield ArgumentProblem("message", "invalid", f"Enter at most {MAX_MESSAGE:,} visible characters.")
    yield from _problems_of_stages(columns)
    for term in OPTIONS:
        value = columns[term.column]
        if term.kind is Kind.SECONDS and value is not None and not term.least <= value <= term.most:
            default = ", or null for the installation's default" if term.is_nullable else ""
            message = f"This must be {span_in_words(term.least, term.most)}{default}."
            yield ArgumentProblem(term.name, "invalid", message)
    on_expiry, escalate_to = columns["on_expiry"], columns["escalate_to"]
    escalates = on_expiry == PolicyRevision.OnExpiry.ESCALATE
    if on_expiry not in PolicyRevision.OnExpiry.values:
        yield ArgumentProblem("on_expiry", "invalid", "This must be one of fail, skip, cancel_plan, escalate.")
    if columns["envelope"] not in PolicyRevision.Envelope.values:
        yield ArgumentProblem("envelope", "invalid", "This must be one of default, allow, never.")
    if escalates != bool(escalate_to):
        remedy = (
            "Choose the group to escalate to." if escalates else "This requires on_expiry escalate. Leave it empty."
        )
        yield ArgumentProblem("escalate_to", "invalid", remedy)
    elif escalates and not Group.objects.filter(name=escalate_to).exists():
        yield ArgumentProblem("escalate_to", "unknown", NO_SUCH_GROUP)
    known = list(Source.objects.values_list("name", flat=True)) if source not in ("", kept_source) else [source]
    if source not in known:
        near = get_close_matches(source[:128], known, n=3, cutoff=0.4) or sorted(known)[:5]
        there = f" Did you mean {' or '.join(near)}?" if near else ""
        yield ArgumentProblem("match.source", "unknown", f"There is no source with this name.{there}")


def _problems_of_match(columns: Mapping[str, Any]) -> Iterator[ArgumentProblem]:
    tool, requester, hours = columns["tool"], columns["requester"], columns["hours"]
    if tool and not GLOB.fullmatch(tool):
        yield ArgumentProblem("match.tool", "invalid", "Enter a tool's name; * matches any text, ? one character.")
    if columns["safety_level"] and columns["safety_level"] not in list(SafetyLevel):
        yield ArgumentProblem("match.safety_level", "invalid", "This must be one of safe, cautious, dangerous.")
    for name in ("category", "source", "plan", "hours"):  # compared literally: with such letters they match nothing
        text, longest = columns[name], TERMS[name].longest
        if _has_invisible(text):
            yield ArgumentProblem(f"match.{name}", "invalid", "This contains an invisible character. Remove it.")
        elif text != text.strip():
            yield ArgumentProblem(f"match.{name}", "invalid", "This begins or ends with a space. Remove it.")
        if len(text) > longest:
            yield ArgumentProblem(f"match.{name}", "too_long", f"This can have at most {longest} characters.")
    people = User.objects.filter(username=requester)
    groups = Group.objects.filter(name=requester.removeprefix(GROUP))
    if requester and ("\x00" in requester or not (groups if requester.startswith(GROUP) else people).exists()):
        message = "Enter a username, or group: followed by the name of a group."
        yield ArgumentProblem("match.requester", "unknown", message)
    try:
        _ = hours and read_hours(hours)
    except ValueError as error:
        yield ArgumentProblem("match.hours", "invalid", str(error))
    if columns["recent"] is not None:
        yield from recent_problems(columns["recent"])
    if columns["seen"] is not None:
        yield from seen_problems(columns["seen"])


def _problems_of_stop(columns: Mapping[str, Any]) -> Iterator[ArgumentProblem]:
    stop_after = columns["stop_after"]
    if stop_after is None:
        return
    if columns["effect"] != PolicyRevision.Effect.DENY:
        message = "Only a policy that blocks calls can set a stop. Use effect deny, or null."
        yield ArgumentProblem("stop_after", "invalid", message)
    for name, most in (("count", MAX_STOP_COUNT), ("seconds", MAX_STOP_SECONDS)):
        value = stop_after.get(name)
        if value is None:
            yield ArgumentProblem(f"stop_after.{name}", "required", "A stop needs both a count and a time.")
        elif not 1 <= value <= most:
            wanted = span_in_words(1, most) if name == "seconds" else f"1 to {most:,}"
            yield ArgumentProblem(f"stop_after.{name}", "invalid", f"This must be {wanted}.")


def _problems_of_stages(columns: Mapping[str, Any]) -> Iterator[ArgumentProblem]:
    stages = columns["stages"]
    if columns["effect"] == PolicyRevision.Effect.HOLD and not stages:
        yield ArgumentProblem("stages", "required", "Add at least one group and the number of approvals it must give.")
    if len(stages) > MAX_STAGES:
        yield ArgumentProblem("stages", "too_many", f"There can be at most {MAX_STAGES} stages.")
    groups = [stage["group"] for stage in stages]
    known = set(Group.objects.filter(name__in=groups).values_list("name", flat=True)) if groups else set()
    for number, stage in enumerate(stages[:MAX_STAGES]):
        path = f"stages.{number}.group"
        if stage["group"] not in known:
            yield ArgumentProblem(path, "unknown", NO_SUCH_GROUP)
        elif stage["group"] in groups[:number]:
            message = "This group is already in an earlier stage. Increase its count instead."
            yield ArgumentProblem(path, "repeated", message)
        if not 1 <= stage["count"] <= MAX_COUNT:
            yield ArgumentProblem(f"stages.{number}.count", "invalid", f"This must be 1 to {MAX_COUNT}.")
