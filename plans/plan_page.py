"""One plan as a page shows it to one person: the picture everyone sees, the step they look at, what they may do."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, cast

from django.http import Http404, QueryDict

from catalog.access.roles import ADMINISTRATOR, OPERATOR, NotAllowed, has_role, name_of
from catalog.calls.privacy import WORDS
from catalog.errors import Conflict, ParameterError, ToolgateError
from plans.actions.change import is_open_to_change
from plans.actions.clone import NO_KIN, Kin, kin_of
from plans.actions.control import AtStake
from plans.actions.retry import STOPPED
from plans.actions.settle import SETTLE, Settlement, settle_outcome
from plans.actions.skip import is_idle
from plans.agents.work import Work, work_at
from plans.drawing import Drawing, drawing_of
from plans.llm.transcripts import has_prompts, may_read_prompts
from plans.masked import MaskedField
from plans.models import Plan, Step
from plans.picture import Picture, draw
from plans.said import Conversation, conversation_of
from plans.sessions.lists import see_that_it_is_no_list
from plans.states import PlanStatus
from plans.step_card import StepCard, card_of, default_step
from plans.store.privacy import sees_through
from plans.store.requesters import Requester
from plans.store.selectors import may_control, plan_for

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MAX_COMMENT = 4000
DETAILS = "details"
TABS = ((DETAILS, "Details", "1"), ("input", "Input", "2"), ("output", "Output", "3"))
Verdict = Literal["happened", "did_not_happen", "request_again"]
STATUS = {Conflict: 409, NotAllowed: 403, ParameterError: 422}


@dataclass(frozen=True, slots=True)
class PlanPage:
    """What the templates are given.

    `chosen` when the person asked for this step; `setback` says why the last thing asked for was not done, `text` is
    the answer that was not taken; `stake` is what cancelling would cut short, while the person is asked to confirm it.
    """

    picture: Picture
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
    kin: Kin = NO_KIN
    said: Conversation = field(default_factory=Conversation)
    text: str = ""
    has_prompts: bool = False
    work: Work | None = None
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
        return WORDS if self.card.is_private and not self.may_reveal else self.card.step.error

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


def plan_or_404(viewer: "User", public_id: str) -> Plan:
    """Return a plan that the viewer may see. Raises Http404."""
    try:
        return plan_for(viewer, None, public_id)
    except Plan.DoesNotExist:
        raise Http404 from None


def plan_page(viewer: "User", plan: Plan, query: Mapping[str, str], **said: str) -> PlanPage:
    """Return the page of a plan with a step open: the one that the query names, else the one that needs attention."""
    picture, tab = draw(plan), query.get("tab", "")
    asked = card_of(picture, step_of(query) or 0)
    card, may_reveal = asked or card_of(picture, default_step(picture)), sees_through(viewer, plan)
    return PlanPage(
        picture=picture,
        drawing=drawing_of(picture),
        card=card,
        chosen=asked is not None,
        may_control=may_control(viewer, None, plan),
        owner=name_of(plan.author),
        may_reveal=may_reveal,
        tab=tab if tab in {name for name, *_ in TABS} else DETAILS,
        may_write=has_role(viewer, OPERATOR, ADMINISTRATOR),
        kin=kin_of(plan, viewer),
        has_prompts=may_read_prompts(viewer, plan) and has_prompts(plan),
        setback=said.get("setback", ""),
        comment=said.get("comment", ""),
        said=conversation_of(picture, may_read=may_reveal),
        text=said.get("text", ""),
        work=work_at(picture, card.number, may_read=may_reveal) if card and card.step.agent else None,
    )


def step_of(query: Mapping[str, str]) -> int | None:
    """Return the number of the step that a query names, None when it names none."""
    text = query.get("step", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def with_field(page: PlanPage, shown: MaskedField) -> PlanPage:
    """Return the page with one private value of the open step revealed."""
    card = page.card
    if card is None or card.masked is None:
        return page
    return replace(page, card=replace(card, masked=card.masked.with_field(shown)))


def control(viewer: "User", plan: Plan, act: Callable[[Requester], None], *, further: bool = False) -> None:
    """Do something to a plan for its owner or an administrator; what takes it `further` needs a role that may write.

    Raises NotAllowed, and what the act raises.
    """
    if not may_control(viewer, None, plan):
        raise NotAllowed(f"Only {name_of(plan.author)} or an administrator may do this. Nothing was changed.")
    if further and not has_role(viewer, OPERATOR, ADMINISTRATOR):
        raise NotAllowed("This needs the role operator or administrator. Nothing was changed.")
    see_that_it_is_no_list(plan)
    act(Requester(viewer))


def settle(plan: Plan, step_id: int, form: QueryDict, by: Requester) -> None:
    """Settle an unknown outcome as a form says. Raises Http404, Conflict, and ParameterError for the form."""
    verdict, comment = form.get("verdict", ""), form.get("comment", "").replace("\r\n", "\n").strip()
    if verdict not in SETTLE:
        raise _refused("verdict", "Choose one of the three answers.")
    if not comment or len(comment) > MAX_COMMENT or "\x00" in comment:
        raise _refused(
            "comment", f"Say how you know, in at most {MAX_COMMENT:,} characters: it is kept in the audit log."
        )
    try:
        settlement = Settlement(cast("Verdict", verdict), comment=comment)
        settle_outcome(plan, step_id, settlement=settlement, by=by)
    except Step.DoesNotExist:
        raise Http404 from None


def _refused(field: str, message: str) -> ParameterError:
    return ParameterError(message, {"field": field, "errors": [{"path": field, "code": "invalid", "message": message}]})


def status_of(error: ToolgateError) -> int:
    """Return the HTTP status of what an action may raise."""
    return next((status for kind, status in STATUS.items() if isinstance(error, kind)), 422)
