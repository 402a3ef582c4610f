"""The terms of a policy in one table: the type of each, its limits, its wording, and its comparison with a call.

Validation, rules, sentences, REST serializers and the fields of the editor are generated from it. A new term needs a
row here, a column of `PolicyRevision`, and the code that applies it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from fnmatch import fnmatchcase
from typing import Any

from django.utils.translation import gettext_noop as _

MAX_MESSAGE = 1000
MIN_SECONDS, MAX_SECONDS = 60, 90 * 86_400
MAX_STOP_COUNT, MAX_STOP_SECONDS = 10_000, 30 * 86_400
GROUP = "group:"
"""Prefix of a requester term that names a group."""


class Kind(Enum):
    """Type of a term's value; if the policy does not use the term, a text or a choice is empty, a document null."""

    TEXT = auto()
    CHOICE = auto()
    FLAG = auto()
    SECONDS = auto()
    CONDITIONS = auto()
    STAGES = auto()
    STOP_AFTER = auto()
    ADDRESSES = auto()
    RECENT = auto()
    SEEN = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One term of a policy.

    Label, hint, placeholder, `suggestions` and `choices` describe its field in the editor; `unit` is the name of a
    duration's field and its seconds per unit; `note` is the description in the API.
    """

    name: str
    kind: Kind
    label: str = ""
    hint: str = ""
    note: str = ""
    is_code: bool = False
    placeholder: str = ""
    suggestions: str = ""
    longest: int = 0
    choices: Mapping[str, str] = field(default_factory=dict)
    least: int = 0
    most: int = 0
    unit: tuple[str, int] = ("", 1)
    is_nullable: bool = False
    fits: Callable[[str, Any], bool] = lambda value, facts: True
    """Returns True if the term's value, if any, matches the facts of a call. Only for terms about the tool."""
    mismatch: str = ""
    """Reason why a call does not match, as a format string with `match` and `facts`."""
    phrase: str = ""
    """Part of the policy's sentence: the calls that it matches."""
    extra: str = ""
    """Sentence on a further requirement, shown if the value differs from the default, with its time or number."""
    usual: bool | str = False
    place: int = 0
    """Position of `extra` among the sentences on further requirements."""

    @property
    def column(self) -> str:
        return "conditions" if self.kind is Kind.CONDITIONS else self.name


def requester_in_words(requester: str) -> str:
    group = requester.removeprefix(GROUP)
    return f"a member of {group}" if group != requester else requester


MATCH = (
    Term(
        name="tool",
        kind=Kind.TEXT,
        longest=128,
        label=_("Tool"),
        hint=_("* matches any text."),
        is_code=True,
        placeholder="send_*",
        note="A name; * and ? are wildcards.",
        fits=lambda value, facts: fnmatchcase(facts.tool_name, value),
        mismatch="{facts.tool_name} is not {match.tool}",
        phrase="of {}",
    ),
    Term(
        name="category",
        kind=Kind.TEXT,
        longest=64,
        label=_("Category"),
        suggestions="categories",
        fits=lambda value, facts: value in facts.categories,
        mismatch="the tool is not in the category {match.category}",
        phrase="in the category {}",
    ),
    Term(
        name="safety_level",
        kind=Kind.CHOICE,
        label=_("Safety level"),
        fits=lambda value, facts: value == facts.safety_level,
        mismatch="the call is {facts.safety_level}, not {match.safety_level}",
    ),
    Term(
        name="source",
        kind=Kind.TEXT,
        longest=128,
        label=_("Source"),
        suggestions="sources",
        fits=lambda value, facts: value == facts.source,
        mismatch="the tool does not come from {match.source}",
        phrase="from the source {}",
    ),
    Term(
        name="requester",
        kind=Kind.TEXT,
        longest=150,
        label=_("Requester"),
        placeholder=_("ada or group:operator"),
        note="A username, or group:NAME.",
        phrase="requested by {}",
    ),
    Term(
        name="plan",
        kind=Kind.TEXT,
        longest=40,
        label=_("Plan"),
        is_code=True,
        placeholder="plan_…",
        phrase="in the plan {}",
    ),
    Term(name="arguments", kind=Kind.CONDITIONS),
    Term(
        name="hours",
        kind=Kind.TEXT,
        longest=64,
        label=_("Hours"),
        hint=_("In UTC unless a time zone follows."),
        placeholder="Mon-Fri 09:00-17:00 Europe/Berlin",
        note="For example Mon-Fri 09:00-17:00, optionally with a time zone.",
        phrase="during {}",
    ),
    Term(
        name="recent",
        kind=Kind.RECENT,
        is_nullable=True,
        note="Matches the count-th call and all later ones within the seconds, counted by requester, token, tool, plan "
        "or argument:PATH; null for every call.",
        phrase="{}",
    ),
    Term(
        name="seen",
        kind=Kind.SEEN,
        is_nullable=True,
        note="Matches if a call of this category, tool or source ended within the seconds before, by the same token, "
        "session, plan or agent; null for every call.",
        phrase="{}",
    ),
)
"""Conditions on calls; an empty condition matches every call."""
TOOL_TERMS = tuple(sorted((term for term in MATCH if term.mismatch), key=lambda term: term.kind is not Kind.CHOICE))
"""Terms that depend on the tool alone, in the order in which their mismatches are reported."""
OPTIONS = (
    Term(
        name="effect",
        kind=Kind.CHOICE,
        label=_("Outcome"),
        choices={
            "hold": _("Calls need approval"),
            "deny": _("Calls are blocked"),
            "allow": _("Calls run without approval, except dangerous ones"),
        },
    ),
    Term(
        name="mode",
        kind=Kind.CHOICE,
        label=_("Mode"),
        hint=_("A policy on trial decides no call. What it would have done is recorded on its page."),
        choices={"enforce": _("Enforced"), "trial": _("On trial")},
        usual="enforce",
        note="A policy on trial decides no call; what it would have done is recorded.",
    ),
    Term(name="message", kind=Kind.TEXT, longest=MAX_MESSAGE, label=_("Message to the agent")),
    Term(
        name="stop_after",
        kind=Kind.STOP_AFTER,
        is_nullable=True,
        note="More refused calls than `count` of one token, or of one person without a token, within `seconds` set a "
        "stop for that token or person. Needs effect deny.",
    ),
    Term(name="stages", kind=Kind.STAGES),
    Term(
        name="expires_seconds",
        kind=Kind.SECONDS,
        least=MIN_SECONDS,
        most=MAX_SECONDS,
        is_nullable=True,
        unit=("expires_minutes", 60),
        label=_("Minutes to answer"),
        hint=_("Leave empty for the installation's default."),
    ),
    Term(
        name="on_expiry",
        kind=Kind.CHOICE,
        label=_("If nobody answers"),
        choices={
            "fail": _("The step fails"),
            "skip": _("The step is skipped"),
            "cancel_plan": _("The plan is cancelled"),
            "escalate": _("Another group is asked as well"),
        },
    ),
    Term(name="escalate_to", kind=Kind.TEXT, longest=150, label=_("Group to escalate to")),
    Term(
        name="remind",
        kind=Kind.FLAG,
        usual=True,
        label=_("Remind reviewers before the request expires"),
        extra="No reminders are sent.",
        place=9,
    ),
    Term(
        name="batchable",
        kind=Kind.FLAG,
        label=_("Several requests can be approved together"),
        extra="Several requests can be approved together.",
        place=8,
    ),
    Term(
        name="allow_self_review",
        kind=Kind.FLAG,
        label=_("Requesters may approve their own calls (for one-person installations; shown on every request)"),
        extra="Requesters may decide their own requests; this is shown on every request.",
        place=6,
    ),
    Term(
        name="editor_may_approve",
        kind=Kind.FLAG,
        usual=True,
        label=_("A reviewer who edits the arguments may approve them alone, if one approval is enough"),
        extra="Reviewers who edit the arguments may not approve them.",
        place=7,
    ),
    Term(
        name="reason_required",
        kind=Kind.FLAG,
        is_nullable=True,
        label=_("Reason for rejecting"),
        choices={"": _("Only if the call cannot be undone"), "yes": _("Always")},
        extra="Rejections need a reason.",
        place=1,
    ),
    Term(
        name="min_review_seconds",
        kind=Kind.SECONDS,
        most=600,
        unit=("min_review_seconds", 1),
        label=_("Seconds on screen before approving"),
        extra="Reviewers must view the request for {} before approving.",
        place=3,
    ),
    Term(
        name="typed_target",
        kind=Kind.FLAG,
        label=_("Reviewers must type the target's name to approve"),
        extra="Reviewers must type the target's name to approve.",
        place=2,
    ),
    Term(
        name="fresh_passkey",
        kind=Kind.FLAG,
        label=_("Reviewers must sign each approval with a passkey (pages only; never covered by a grant)"),
        extra="Reviewers must sign each approval with a passkey.",
        place=11,
    ),
    Term(
        name="envelope",
        kind=Kind.CHOICE,
        label=_("Covered by an approved envelope"),
        choices={
            "default": _("Unless the call cannot be undone or needs one of these confirmations"),
            "allow": _("Always"),
            "never": _("Never"),
        },
        extra="Covered by envelopes: {}.",
        usual="default",
        place=12,
    ),
    Term(
        name="fresh_sign_in_seconds",
        kind=Kind.SECONDS,
        most=30 * 86_400,
        unit=("fresh_sign_in_minutes", 60),
        label=_("Minutes since sign-in, at most"),
        hint=_("0 for no limit."),
        extra="Reviewers must have signed in within the last {}.",
        place=4,
    ),
    Term(
        name="min_role_age_seconds",
        kind=Kind.SECONDS,
        most=365 * 86_400,
        unit=("min_role_age_days", 86_400),
        label=_("Days in the group, at least"),
        hint=_("0 for no minimum."),
        extra="Reviewers must have been in the group for {}.",
        place=5,
    ),
    Term(
        name="notify",
        kind=Kind.ADDRESSES,
        label=_("Also notify"),
        hint=_("One address per line."),
        extra="Further addresses notified: {}.",
        place=10,
    ),
)
"""Terms that say how matching calls and their requests are treated."""
TERMS = {term.name: term for term in (*MATCH, *OPTIONS)}
TERM_COLUMNS = tuple(term.column for term in TERMS.values())
