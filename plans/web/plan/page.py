"""One plan as a page shows it to one person: the overview, the step they look at, what was said, what they may do.

The request, the questions of its steps and the reply are between the requester and Toolgate: the owner, reviewers and
administrators read them, as they read the plan's private values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from django.contrib.auth.models import User
from django.http import Http404, QueryDict

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
from plans.web.graph import Drawing
from plans.web.plan.agent_work import AgentActivity, load_activity
from plans.web.plan.overview import PlanOverview, StepOverview, graph_drawing, load_overview
from plans.web.plan.step_detail import MaskedField, StepCard, default_step, load_step_card

MODEL_READS_WARNING = "Tell it only what it needs, never a password."


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question that waits for its answer; without its text for who may not read it.

    `told_by` says whose words it is, for it is not Toolgate's, `read_by` which model reads the answer, if one does.
    """

    number: int
    text: str = ""
    told_by: str = ""
    read_by: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a page shows."""

    questions: Sequence[OpenQuestion] = ()
    request: str = ""
    reply: str = ""
    is_hidden: bool = False


def conversation_of(picture: PlanOverview, *, may_read: bool) -> Conversation:
    """Return what was said around a plan; a query only when a step of it asks something."""
    plan = picture.plan
    waiting = {step.step.pk: step for step in picture.steps if waits_for_answer(step.step)}
    if not may_read:
        asked = [OpenQuestion(step.number) for step in waiting.values()]
        return Conversation(asked, is_hidden=bool(plan.request or plan.reply))
    rows = Question.objects.filter(step__in=waiting, answered_at=None).order_by("step__step_id") if waiting else ()
    asked = [_open_question(picture, waiting[row.step_id], row.text) for row in rows]
    return Conversation(asked, plan.request, plan.reply)


def _open_question(picture: PlanOverview, step: StepOverview, text: str) -> OpenQuestion:
    plan = picture.plan
    if step.parent is not None:
        name = picture.by_number[step.parent].step.agent
        told_by = f"Written by the agent {name}, a language model. {MODEL_READS_WARNING}"
        return OpenQuestion(step.number, text, told_by, f"the provider of the model of {name}")
    if plan.request:
        told_by = f"Written by the planner, a language model. {MODEL_READS_WARNING}"
        return OpenQuestion(step.number, text, told_by, "the language model")
    if plan.token is not None and plan.token.kind == ApiToken.Kind.AGENT:
        return OpenQuestion(step.number, text, f"Written by the agent {plan.token.name}. {MODEL_READS_WARNING}")
    return OpenQuestion(step.number, text, "Written in the plan by whoever submitted it.")


def conversation_state(picture: PlanOverview) -> str:
    """Say what is to be seen of it, without a word of it: when this changes, a page asks for it again."""
    waiting = [f"{step.number}:{step.step.attempt}" for step in picture.steps if waits_for_answer(step.step)]
    return f"{' '.join(waiting)} {len(picture.plan.reply)}"


MAX_COMMENT = 4000
DETAILS = "details"
TABS = ((DETAILS, "Details", "1"), ("input", "Input", "2"), ("output", "Output", "3"))
Verdict = Literal["happened", "did_not_happen", "request_again"]


@dataclass(frozen=True, slots=True)
class PlanPage:
    """What the templates are given.

    `chosen` when the person asked for this step; `setback` says why the last thing asked for was not done, `text` is
    the answer that was not taken; `stake` is what cancelling would cut short, while the person is asked to confirm it.
    """

    picture: PlanOverview
    drawing: Drawing | None
    card: StepCard | None
    may_control: bool
    owner: str
    may_reveal: bool
    chosen: bool = False
    tab: str = DETAILS
    setback: str = ""
    comment: str = ""
    stake: AtStake | None = None
    may_write: bool = False
    clone_links: CloneLinks = NO_CLONE_LINKS
    said: Conversation = field(default_factory=Conversation)
    text: str = ""
    has_prompts: bool = False
    work: AgentActivity | None = None
    tabs = TABS

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.picture.plan

    @property
    def address(self) -> str:
        """The address of the page with this step and tab open."""
        step = self.card.number if self.card else ""
        return f"/plans/{self.plan.public_id}/?step={step}" + ("" if self.tab == DETAILS else f"&tab={self.tab}")

    @property
    def error(self) -> str:
        """Why the open step failed, as far as this person may read it."""
        if self.card is None or not self.card.step.error:
            return ""
        return PRIVATE_NOTICE if self.card.is_private and not self.may_reveal else self.card.step.error

    @property
    def may_take_further(self) -> bool:
        """Whether this person may have the plan do more: its owner no longer, once they have lost the role."""
        return self.may_control and self.may_write

    @property
    def may_start(self) -> bool:
        """Whether it can be started, by this person."""
        return self.may_take_further and self.plan.status == PlanStatus.PENDING

    @property
    def may_pause(self) -> bool:
        """Whether it can be paused, by this person."""
        return self.may_control and self.plan.status == PlanStatus.IN_PROGRESS and self.plan.paused_at is None

    @property
    def may_resume(self) -> bool:
        """Whether it is paused and can go on, by this person."""
        return self.may_take_further and self.plan.status == PlanStatus.IN_PROGRESS and self.plan.paused_at is not None

    @property
    def may_cancel(self) -> bool:
        """Whether it can be cancelled, by this person."""
        return self.may_control and not self.picture.over

    @property
    def may_retry(self) -> bool:
        """Whether it has failed and can go on, by this person."""
        return self.may_take_further and self.plan.status == PlanStatus.FAILED

    @property
    def may_retry_step(self) -> bool:
        """Whether the open step has stopped and can be tried again, by this person."""
        on_its_way = self.plan.status in (PlanStatus.FAILED, PlanStatus.IN_PROGRESS)
        stopped = self.card is not None and self.card.step.status in STOPPED and self.card.step.parent_id is None
        return self.may_take_further and on_its_way and stopped

    @property
    def may_skip(self) -> bool:
        """Whether nobody works on the open step, or it failed, so that this person can skip it."""
        waits = not self.picture.over and self.card is not None and is_idle(self.card.step)
        return self.may_retry_step or (self.may_take_further and waits)

    @property
    def may_edit_step(self) -> bool:
        """Whether the open step failed and can be tried again with other arguments, by this person."""
        has_arguments = self.card is not None and bool(self.card.step.tool)
        return self.may_retry_step and self.plan.can_modify and has_arguments

    @property
    def may_change(self) -> bool:
        """Whether steps that nobody has begun can be changed, by this person."""
        return self.may_take_further and is_open_to_change(self.plan)

    @property
    def may_clone(self) -> bool:
        """Whether this person can store it anew as their own."""
        return self.may_write and not (self.picture.private.steps and not self.may_reveal)


def plan_page(viewer: User, plan: Plan, query: Mapping[str, str], **said: str) -> PlanPage:
    """Return the page of a plan with a step open: the one that the query names, else the one that needs attention."""
    picture, tab = load_overview(plan), query.get("tab", "")
    asked = load_step_card(picture, step_in_query(query) or 0)
    card, may_reveal = asked or load_step_card(picture, default_step(picture)), can_see_private_in_plan(viewer, plan)
    return PlanPage(
        picture=picture,
        drawing=graph_drawing(picture),
        card=card,
        chosen=asked is not None,
        may_control=may_control(viewer, None, plan),
        owner=user_display_name(plan.author),
        may_reveal=may_reveal,
        tab=tab if tab in {name for name, *_ in TABS} else DETAILS,
        may_write=has_role(viewer, OPERATOR, ADMINISTRATOR),
        clone_links=clone_links(plan, viewer),
        has_prompts=may_read_prompts(viewer, plan) and has_prompts(plan),
        setback=said.get("setback", ""),
        comment=said.get("comment", ""),
        said=conversation_of(picture, may_read=may_reveal),
        text=said.get("text", ""),
        work=load_activity(picture, card.number, may_read=may_reveal) if card and card.step.agent else None,
    )


def step_in_query(query: Mapping[str, str]) -> int | None:
    """Return the number of the step that a query names, None when it names none."""
    return parse_number(query.get("step", ""), most_digits=9)


def with_revealed_field(page: PlanPage, shown: MaskedField) -> PlanPage:
    """Return the page with one private value of the open step revealed."""
    card = page.card
    if card is None or card.masked is None:
        return page
    return replace(page, card=replace(card, masked=card.masked.with_field(shown)))


def settle(plan: Plan, step_id: int, form: QueryDict, by: Requester) -> None:
    """Settle an unknown outcome as a form says. Raises Http404, Conflict, and ParameterError for the form."""
    verdict, comment = form.get("verdict", ""), form.get("comment", "").replace("\r\n", "\n").strip()
    if verdict not in VERDICT_HANDLERS:
        raise field_error("verdict", "invalid", "Choose one of the three answers.")
    if not comment or len(comment) > MAX_COMMENT or "\x00" in comment:
        message = f"Say how you know, in at most {MAX_COMMENT:,} characters: it is kept in the audit log."
        raise field_error("comment", "invalid", message)
    try:
        settlement = Settlement(cast("Verdict", verdict), comment=comment)
        settle_outcome(plan, step_id, settlement=settlement, by=by)
    except Step.DoesNotExist:
        raise Http404 from None
