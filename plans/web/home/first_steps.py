"""First steps of an installation, from the sign-in to the first approval: done or not, and who may take them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef
from django.urls import reverse_lazy
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from approvals.models import ApprovalRequest, Review
from approvals.policy_language.envelopes import PROPOSE_ENVELOPE
from approvals.states import ReviewVerdict
from catalog.access.roles import ADMINISTRATOR, OPERATOR, REVIEWER, has_role
from catalog.models import ApiToken, Call, Tool
from plans.llm.tools import EXCLUDED_CATEGORIES

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise


@dataclass(frozen=True, slots=True)
class FirstStep:
    """One step: its name, an explanation, and the page where users with one of `roles` take it (all if empty)."""

    name: "StrOrPromise"
    about: "StrOrPromise"
    roles: tuple[str, ...] = ()
    who: "StrOrPromise" = ""
    link: "StrOrPromise" = ""
    address: "StrOrPromise" = ""


ADMINISTRATORS = (ADMINISTRATOR,), _("An administrator does this.")
OPERATORS = (OPERATOR, ADMINISTRATOR), _("An operator or an administrator does this.")
REVIEWERS = (REVIEWER, ADMINISTRATOR), _("A reviewer or an administrator does this, but not the requester.")

SIGN_IN = FirstStep(_("Sign in"), _("You are signed in."))
STEPS = (
    FirstStep(
        _("First colleague"),
        _("Nobody approves their own requests, so invite a second person as a reviewer."),
        *ADMINISTRATORS,
        _("Invite person"),
        reverse_lazy("person-new"),
    ),
    FirstStep(
        _("First tools"),
        _("Enable a set that ships with Toolgate, or add an MCP server or an HTTP API."),
        *ADMINISTRATORS,
        _("Open sources"),
        reverse_lazy("sources"),
    ),
    FirstStep(
        _("First agent"),
        _("Choose the client of your agent. It signs in, or sends a token."),
        *OPERATORS,
        _("Connect an agent"),
        reverse_lazy("connect"),
    ),
    FirstStep(
        _("First call"),
        _("The agent calls a tool, or you try one on its page."),
        *OPERATORS,
        _("Choose a safe tool"),
        format_lazy("{}?enabled=true&safety_level=safe", reverse_lazy("tools")),
    ),
    FirstStep(
        _("First dangerous call"),
        _("It does not run yet: it waits until a person approves it."),
        *OPERATORS,
        _("Choose a dangerous tool"),
        format_lazy("{}?enabled=true&safety_level=dangerous", reverse_lazy("tools")),
    ),
    FirstStep(
        _("First approval"),
        _("Someone other than the requester reads what will change, then approves it."),
        *REVIEWERS,
        _("Open approvals"),
        reverse_lazy("approvals"),
    ),
)


@dataclass(frozen=True, slots=True)
class ShownStep:
    """A step for one viewer; `may_take` is False if they lack the role for it."""

    step: FirstStep
    is_done: bool
    may_take: bool = True


@dataclass(frozen=True, slots=True)
class FirstSteps:
    steps: Sequence[ShownStep]

    @property
    def done(self) -> int:
        return sum(step.is_done for step in self.steps)

    @property
    def next(self) -> ShownStep | None:
        """The first step that is not done."""
        return next((step for step in self.steps if not step.is_done), None)


_is_complete = False
"""True once this process has found all steps done; then they stay done."""


def first_steps_for(viewer: User) -> FirstSteps | None:
    """Return the steps for a viewer; None once all are done. One query until then."""
    global _is_complete
    if _is_complete:
        return None
    tools = Tool.objects.filter(enabled=True, registered=True, source__enabled=True).exclude(name=PROPOSE_ENVELOPE)
    # Asked beside the viewer's row, so that one statement answers all.
    [done] = User.objects.filter(pk=viewer.pk).values_list(
        Exists(User.objects.exclude(pk=OuterRef("pk"))),
        Exists(tools.exclude(categories__name__in=EXCLUDED_CATEGORIES)),  # those are there from the beginning
        Exists(ApiToken.objects.filter(kind=ApiToken.Kind.AGENT)),
        Exists(Call.objects.all()),
        Exists(ApprovalRequest.objects.all()),
        Exists(Review.objects.filter(verdict=ReviewVerdict.APPROVE, undone_at=None)),
    )
    _is_complete = all(done)
    if _is_complete:
        return None
    later = [ShownStep(step, is_done, has_role(viewer, *step.roles)) for step, is_done in zip(STEPS, done, strict=True)]
    return FirstSteps([ShownStep(SIGN_IN, is_done=True), *later])
