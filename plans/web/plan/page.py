"""Page of one plan for one viewer: overview, open step, conversation, and available actions.

The conversation is visible to the owner, reviewers and administrators, like the plan's private values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from django.contrib.auth.models import User
from django.http import Http404, QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

from catalog.access.roles import ADMINISTRATOR, OPERATOR, has_role, user_display_name
from catalog.calls.privacy import PRIVATE_NOTICE
from catalog.errors import field_error
from catalog.models import ApiToken
from catalog.ui.requests import parse_number
from plans.actions.change import is_open_to_change
from plans.actions.clone import NO_CLONE_LINKS, CloneLinks, clone_links
from plans.actions.control import AtStake
from plans.actions.retry import STOPPED
from plans.actions.settle import VERDICT_HANDLERS, Settlement, settle_outcome
from plans.actions.skip import is_idle
from plans.engine.questions import waits_for_answer
from plans.llm.transcripts import has_prompts, may_read_prompts
from plans.models import Plan, Question, Step
from plans.states import PlanStatus
from plans.store.privacy import can_see_private_in_plan
from plans.store.requesters import Requester
from plans.store.selectors import may_control
from plans.web.graph import FOLDS, UNFOLDED, Drawing, Fold, fold_named
from plans.web.plan.agent_work import AgentActivity, load_activity
from plans.web.plan.event_list import NO_FILTER, EventFilter, EventList, load_events
from plans.web.plan.next_action import Controls, NextAction, next_action
from plans.web.plan.overview import PlanOverview, StepOverview, graph_drawing, load_overview
from plans.web.plan.step_detail import MaskedField, StepCard, default_step, load_step_card
from plans.web.plan.waits import TOLD_ON_CARD, StepWait

MODEL_READS_WARNING = gettext_noop("Tell it only what it needs, never a password.")


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question that waits for an answer; without its text for viewers who may not read it.

    `author_note` names the author, because the text is not Toolgate's; `read_by` names the model that reads the answer.
    """

    number: int
    text: str = ""
    author_note: str = ""
    read_by: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    questions: Sequence[OpenQuestion] = ()
    request: str = ""
    reply: str = ""
    is_hidden: bool = False


def conversation_of(overview: PlanOverview, *, may_read: bool) -> Conversation:
    """Return the conversation of a plan; needs a query only if a step asks a question."""
    plan = overview.plan
    waiting = {step.step.pk: step for step in overview.steps if waits_for_answer(step.step)}
    if not may_read:
        asked = [OpenQuestion(step.number) for step in waiting.values()]
        return Conversation(asked, is_hidden=bool(plan.request or plan.reply))
    rows = Question.objects.filter(step__in=waiting, answered_at=None).order_by("step__step_id") if waiting else ()
    asked = [_open_question(overview, waiting[row.step_id], row.text) for row in rows]
    return Conversation(asked, plan.request, plan.reply)


def _open_question(overview: PlanOverview, step: StepOverview, text: str) -> OpenQuestion:
    plan = overview.plan
    if step.parent is not None:
        name = overview.by_number[step.parent].step.agent
        author_note = _("Written by the agent %(agent)s, a language model.") % {"agent": name}
        read_by = _("the model provider of %(agent)s") % {"agent": name}
        return OpenQuestion(step.number, text, f"{author_note} {_(MODEL_READS_WARNING)}", read_by)
    if plan.request:
        author_note = _("Written by the planner, a language model.")
        return OpenQuestion(step.number, text, f"{author_note} {_(MODEL_READS_WARNING)}", _("the language model"))
    if plan.token is not None and plan.token.kind == ApiToken.Kind.AGENT:
        author_note = _("Written by the agent %(agent)s.") % {"agent": plan.token.name}
        return OpenQuestion(step.number, text, f"{author_note} {_(MODEL_READS_WARNING)}")
    return OpenQuestion(step.number, text, _("Written in the plan by its submitter."))


def conversation_state(overview: PlanOverview) -> str:
    """Return a value that changes when a page must reload the conversation, and contains none of its text."""
    waiting = [f"{step.number}:{step.step.attempt}" for step in overview.steps if waits_for_answer(step.step)]
    return f"{' '.join(waiting)} {len(overview.plan.reply)}"


MAX_COMMENT = 4000
DETAILS = "details"
TABS = (
    (DETAILS, gettext_lazy("Details"), "1"),
    ("input", gettext_lazy("Input"), "2"),
    ("output", gettext_lazy("Output"), "3"),
)
Verdict = Literal["happened", "did_not_happen", "request_again"]


@dataclass(frozen=True, slots=True)
class PlanPage:
    """Data for the templates.

    `chosen`: the viewer selected this step; `setback`: why the last action failed; `text`: the answer that was not
    accepted; `stake`: what cancelling would cut short, while the viewer is asked to confirm.
    """

    overview: PlanOverview
    card: StepCard | None
    may_control: bool
    owner: str
    may_reveal: bool
    chosen: bool = False
    tab: str = DETAILS
    fold: Fold = UNFOLDED
    event_filter: EventFilter = NO_FILTER
    setback: str = ""
    comment: str = ""
    stake: AtStake | None = None
    may_write: bool = False
    clone_links: CloneLinks = NO_CLONE_LINKS
    conversation: Conversation = field(default_factory=Conversation)
    text: str = ""
    has_prompts: bool = False
    work: AgentActivity | None = None
    next_action: NextAction | None = None
    step_action: NextAction | None = None
    tabs = TABS
    folds = FOLDS
    told = TOLD_ON_CARD

    @property
    def plan(self) -> Plan:
        return self.overview.plan

    @property
    def address(self) -> str:
        """The URL of the page with this step and tab open, the graph folded and the events filtered like this."""
        shown = {"step": self.card and self.card.number, "tab": tab_named(self.tab), "fold": self.fold}
        return page_address(self.plan, shown, self.event_filter)

    @property
    def events(self) -> EventList:
        return load_events(self.plan, self.event_filter)

    @property
    def root_wait(self) -> StepWait | None:
        """The wait at the beginning of the chain behind which the open step waits."""
        return self.overview.waits.root_of(self.card.number) if self.card else None

    @property
    def drawing(self) -> Drawing | None:
        return graph_drawing(self.overview, self.fold)

    @property
    def error(self) -> str:
        """Error of the open step, masked if the viewer may not read it."""
        if self.card is None or not self.card.step.error:
            return ""
        return PRIVATE_NOTICE if self.card.is_private and not self.may_reveal else self.card.step.error

    @property
    def may_take_further(self) -> bool:
        """True if the viewer may continue the plan; owners need a role that may write."""
        return self.may_control and self.may_write

    @property
    def may_start(self) -> bool:
        return self.may_take_further and self.plan.status == PlanStatus.PENDING

    @property
    def may_pause(self) -> bool:
        return self.may_control and self.plan.status == PlanStatus.IN_PROGRESS and self.plan.paused_at is None

    @property
    def may_resume(self) -> bool:
        return self.may_take_further and self.plan.status == PlanStatus.IN_PROGRESS and self.plan.paused_at is not None

    @property
    def may_cancel(self) -> bool:
        return self.may_control and not self.overview.over

    @property
    def may_retry(self) -> bool:
        runs_elsewhere = self.plan.kind == Plan.Kind.CALL and self.card is not None and self.card.client_run is not None
        return self.may_take_further and self.plan.status == PlanStatus.FAILED and not runs_elsewhere

    @property
    def may_retry_step(self) -> bool:
        on_its_way = self.plan.status in (PlanStatus.FAILED, PlanStatus.IN_PROGRESS)
        stopped = self.card is not None and self.card.step.status in STOPPED and self.card.step.parent_id is None
        runs_here = self.card is not None and self.card.client_run is None
        return self.may_take_further and on_its_way and stopped and runs_here

    @property
    def may_skip(self) -> bool:
        waits = not self.overview.over and self.card is not None and is_idle(self.card.step)
        return self.may_retry_step or (self.may_take_further and waits)

    @property
    def may_edit_step(self) -> bool:
        has_arguments = self.card is not None and bool(self.card.step.tool)
        return self.may_retry_step and self.plan.can_modify and has_arguments

    @property
    def may_change(self) -> bool:
        return self.may_take_further and is_open_to_change(self.plan)

    @property
    def may_clone(self) -> bool:
        return self.may_write and not (self.overview.private.steps and not self.may_reveal)


def plan_page(viewer: User, plan: Plan, query: Mapping[str, str], **typed: str) -> PlanPage:
    """Return the page of a plan with an open step: the one in the query, or the one that needs attention."""
    overview = load_overview(plan)
    asked = load_step_card(overview, step_in_query(query) or 0)
    card, may_reveal = asked or load_step_card(overview, default_step(overview)), can_see_private_in_plan(viewer, plan)
    may_write = has_role(viewer, OPERATOR, ADMINISTRATOR)
    controls = Controls(plan, viewer, may_control=may_control(viewer, None, plan), may_write=may_write)
    return PlanPage(
        overview=overview,
        card=card,
        chosen=asked is not None,
        may_control=controls.may_control,
        owner=user_display_name(plan.author),
        may_reveal=may_reveal,
        tab=tab_named(query.get("tab", "")) or DETAILS,
        fold=fold_named(query.get("fold", "")),
        event_filter=EventFilter.of_query(query),
        may_write=may_write,
        clone_links=clone_links(plan, viewer),
        has_prompts=may_read_prompts(viewer, plan) and has_prompts(plan),
        setback=typed.get("setback", ""),
        comment=typed.get("comment", ""),
        conversation=conversation_of(overview, may_read=may_reveal),
        text=typed.get("text", ""),
        work=load_activity(overview, card.number, may_read=may_reveal) if card and card.step.agent else None,
        next_action=next_action(overview.waits.first, controls),
        step_action=next_action(card.overview.wait, controls) if card else None,
    )


def page_address(plan: Plan, query: Mapping[str, object], event_filter: EventFilter) -> str:
    """Return the URL of a plan's page; members of `query` that are empty are left out."""
    shown = "&".join(f"{name}={value}" for name, value in query.items() if value)
    return f"/plans/{plan.public_id}/?" + "&".join(filter(None, [shown, event_filter.address_query]))


def tab_named(name: str) -> str:
    """Return the tab of this name, or nothing for the first."""
    return name if name in {tab for tab, *_ in TABS[1:]} else ""


def step_in_query(query: Mapping[str, str]) -> int | None:
    return parse_number(query.get("step", ""), most_digits=9)


def with_revealed_field(page: PlanPage, field: MaskedField) -> PlanPage:
    card = page.card
    if card is None or card.masked is None:
        return page
    return replace(page, card=replace(card, masked=card.masked.with_field(field)))


def settle(plan: Plan, step_id: int, form: QueryDict, by: Requester) -> None:
    """Settle an unknown outcome with the values of a form. Raises Http404, Conflict, and ParameterError."""
    verdict, comment = form.get("verdict", ""), form.get("comment", "").replace("\r\n", "\n").strip()
    if verdict not in VERDICT_HANDLERS:
        raise field_error("verdict", "invalid", _("Choose one of the three answers."))
    if not comment or len(comment) > MAX_COMMENT or "\x00" in comment:
        message = _("Explain how you know, in at most %(max)s characters. The text is kept in the audit log.") % {
            "max": f"{MAX_COMMENT:,}"
        }
        raise field_error("comment", "invalid", message)
    try:
        settlement = Settlement(cast("Verdict", verdict), comment=comment)
        settle_outcome(plan, step_id, settlement=settlement, by=by)
    except Step.DoesNotExist:
        raise Http404 from None
