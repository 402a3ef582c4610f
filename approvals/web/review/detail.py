"""Detail of one request for its reviewers: effect, targets, requester, and users who may decide it.

Texts of agents are passed on complete and unchanged; the templates escape them and spell out hidden characters.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User

from approvals.models import ApprovalRequest, Review
from approvals.policies.eligibility import candidate_reviewers, extra_approval_reason, is_input_author, may_decide
from approvals.policies.rulebook import Rule, rule_for
from approvals.policy_language.sentences import expiry_consequence
from approvals.queue.precedents import precedents_for
from approvals.queue.saved_views import duplicates_of
from approvals.requests.privacy import SecretField, hidden_from, may_reveal, secret_fields
from approvals.requests.queries import answered_by, current_round, last_review, status_sentence
from approvals.reviews.confirmation import (
    ApprovalSubject,
    Confirmation,
    ConfirmationRequirements,
    ConfirmationTerms,
    confirmation_requirements,
)
from approvals.reviews.edits import Edit, find_divisible_change, hunk_progress
from approvals.web.review.actions import ReviewActions
from approvals.web.review.call_result import CallResult, result_of
from approvals.web.review.edit_form import EditForm, initial_form
from approvals.web.review.rendering import (
    ArgumentRow,
    ArgumentWarnings,
    RenderedEdits,
    RenderedRequestChange,
    argument_warnings,
    render_argument,
    render_edits,
    render_request_change,
)
from approvals.web.review.timeline import QuorumProgress, TimelineEntry, quorum_progress, timeline_of
from catalog.access.roles import can_see_all, user_display_name
from catalog.calls.privacy import PrivateCallParts
from catalog.core import clock
from catalog.definitions.levels import Reversibility
from catalog.secrets.placeholders import PLACEHOLDER_KEY, describe_placeholders
from catalog.text.diff import MAX_DIFF_ROWS, Hunk, HunkedDiff, TextDiff, diff_texts


class RequestDetail:
    """All that the page shows of one request, to one viewer; each part is worked out when it is asked for."""

    def __init__(
        self,
        request: ApprovalRequest,
        viewer: User,
        hidden: PrivateCallParts | None,
        submitted: Confirmation | None = None,
        edited: ApprovalSubject | None = None,
    ) -> None:
        self.request = request
        self.viewer = viewer
        self.hidden = hidden
        self.submitted = submitted
        self.edited = edited
        arguments = current_round(request).arguments_json
        self.is_private = hidden is not None
        self.arguments: Mapping[str, Any] = hidden.mask_arguments(arguments) if hidden else arguments
        self.reason = "" if hidden else request.call.reason
        self.preview: Mapping[str, Any] = {} if hidden else current_round(request).preview_json or {}

    def after(self, submitted: Confirmation, edited: ApprovalSubject | None) -> "RequestDetail":
        """Return the briefing after an answer that was not recorded: with what was typed, and what was made of it."""
        return RequestDetail(self.request, self.viewer, self.hidden, submitted, edited)

    @cached_property
    def secrets(self) -> list[SecretField]:
        """Where in the arguments secrets are."""
        return secret_fields(self.arguments)

    @property
    def nested_secrets(self) -> list[SecretField]:
        """Those of them that are a part of an argument; the others are revealed where the argument stands."""
        whole = {each.secret for each in self.named_arguments}
        return [field for field in self.secrets if field not in whole]

    @cached_property
    def may_reveal(self) -> bool:
        """Say whether the viewer may see them."""
        return may_reveal(self.request, self.viewer)

    @property
    def kind(self) -> str:
        """What the tool shows of its effect: diff, rows, text or none."""
        return str(self.preview.get("kind", "none"))

    @cached_property
    def title(self) -> tuple[str, str, str]:
        """The summary, cut before and after the argument that it is about, if it names that."""
        summary = str(self.preview.get("summary", ""))
        if not summary:
            return ("Run ", self.request.call.tool_name, "")
        target = find_target(self.request, self.arguments, summary)
        lead, _, rest = summary.partition(target) if target else (summary, "", "")
        return (describe_placeholders(lead), describe_placeholders(target), describe_placeholders(rest))

    @cached_property
    def change(self) -> TextDiff | None:
        """The change from what is there to what would be; None when the tool shows none."""
        return diff_texts(self.preview.get("before"), self.preview.get("after")) if self.kind == "diff" else None

    @cached_property
    def hunks(self) -> tuple[Hunk, ...]:
        """The parts of the change that the viewer may accept one by one; nothing where there is nothing to choose."""
        part = find_divisible_change(current_round(self.request), self.request.call.tool_name) if self.change else None
        if part is None or not self.may_answer:
            return ()
        hunks = HunkedDiff(part.before, part.after).hunks
        return hunks if len(hunks) > 1 and not self.is_cut else ()

    @property
    def is_cut(self) -> bool:
        """Say whether the change is too long for a page to draw it whole; it is then decided as one."""
        return self.change is not None and len(self.change.rows) > MAX_DIFF_ROWS

    @property
    def progress(self) -> str:
        """How far a change that is accepted in parts has come; empty for any other."""
        return hunk_progress(self.request) if self.change else ""

    @property
    def sizes(self) -> tuple[int | None, int | None]:
        """Bytes before and after; None where there is, or will be, nothing."""
        texts = (self.preview.get("before"), self.preview.get("after"))
        before, after = (None if text is None else len(text.encode(errors="replace")) for text in texts)
        return (before, after)

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """The rows that the call would affect, as the tool lists them."""
        return self.preview.get("rows") or ()

    @property
    def columns(self) -> list[str]:
        """The names in the rows, in the order they first appear."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    @cached_property
    def table(self) -> list[list[Any]]:
        """The rows' values, column by column."""
        return [[row.get(name, "") for name in self.columns] for row in self.rows]

    @cached_property
    def named_arguments(self) -> list[ArgumentRow]:
        """Every argument in full, then the defaults that the call leaves to the tool."""
        given = [self._argument(name, value) for name, value in self.arguments.items()]
        properties = self.request.tool_version.input_schema.get("properties", {})
        defaults = (
            render_argument(name, schema["default"], is_default=True)
            for name, schema in properties.items()
            if name not in self.arguments and isinstance(schema, Mapping) and "default" in schema
        )
        return [*sorted(given, key=lambda each: each.is_before or each.is_after), *defaults]

    def _argument(self, name: str, value: Any) -> ArgumentRow:
        if self.kind != "diff" or not isinstance(value, str):
            is_secret = isinstance(value, Mapping) and value.keys() == {PLACEHOLDER_KEY}
            return render_argument(name, value, secret=self._secret_at(name) if is_secret else None)
        is_before = "\n" in value and value == self.preview.get("before")
        return ArgumentRow(name, value, is_before=is_before, is_after=value == self.preview.get("after"))

    def _secret_at(self, path: str) -> SecretField | None:
        return next((field for field in self.secrets if field.path == path), None)

    @cached_property
    def duplicates(self) -> list[ApprovalRequest]:
        """The others that wait for the very same call."""
        return duplicates_of(self.viewer, self.request)

    @cached_property
    def warnings(self) -> ArgumentWarnings:
        """What is to be said before what the agent wrote is read."""
        return argument_warnings(self.arguments, self.reason)

    @cached_property
    def actions(self) -> ReviewActions:
        """What the viewer may do about it."""
        return ReviewActions(self.request, self.viewer)

    @property
    def may_answer(self) -> bool:
        """Say whether the viewer may answer now."""
        return self.actions.may_answer

    @property
    def is_open(self) -> bool:
        """Say whether an answer is still waited for and there is time to give it."""
        return self.actions.is_open

    @property
    def why_not(self) -> str | None:
        """Why the viewer may not decide; None when they may."""
        return self.actions.why_not

    @cached_property
    def rule(self) -> Rule:
        """The rule that holds it."""
        return rule_for(self.request)

    @cached_property
    def confirmation(self) -> ConfirmationRequirements:
        """What the rule asks of the viewer before an approval counts; of what they made of it, once that is known."""
        return confirmation_requirements(self.request, self.viewer, self.edited or self.subject, self.submitted)

    @property
    def terms(self) -> ConfirmationTerms:
        """The terms that say what approving takes: those of what the viewer made of it, once that is known."""
        return (self.edited or self.subject).terms

    @property
    def subject(self) -> ApprovalSubject:
        """What is asked, and by which terms."""
        return ApprovalSubject(self.request.policy_revision, self.title[1])

    @cached_property
    def vote_progress(self) -> QuorumProgress:
        """How far the people who must agree have agreed."""
        return quorum_progress(self.request)

    @cached_property
    def timeline(self) -> list[TimelineEntry]:
        """What happened to it, oldest first."""
        return timeline_of(self.request)

    @cached_property
    def drift(self) -> RenderedRequestChange | None:
        """What changed since the request that this one replaces was open; None where nothing did."""
        return None if self.is_private else render_request_change(self.request)

    @cached_property
    def revised(self) -> RenderedEdits | None:
        """What reviewers made of the arguments; None where they stand as they were asked for."""
        return None if self.is_private else render_edits(self.request)

    @cached_property
    def result(self) -> CallResult | None:
        """The call's result so far, once the request is decided; None where its call is not carried out."""
        return result_of(self.request)

    @property
    def editing(self) -> EditForm:
        """The form in which the viewer writes other arguments, filled with those that are asked for."""
        return initial_form(self.request, self.viewer)

    @cached_property
    def who_may(self) -> list[str]:
        """The people who may decide: members of the groups that are asked, and to whom one of them handed it."""
        people = candidate_reviewers(get_user_model().objects.filter(is_active=True), self.request)
        handed = {each.to_id: each.to for each in self.request.delegations.all()}
        found = people.distinct().order_by("first_name", "username")
        # A delegation counts only as long as who gave it might decide.
        return [
            user_display_name(each) for each in found if each.pk not in handed or may_decide(self.request, each) is None
        ]

    @property
    def after_expiry(self) -> str:
        """What becomes of it when nobody answers in time: another group is asked once."""
        return expiry_consequence(self.rule.on_expiry, "" if self.request.escalated_at else self.rule.escalate_to)

    @property
    def lacking(self) -> int:
        """How many people's approvals are missing, the viewer's among them."""
        asked = sum(stage.count for stage in self.vote_progress.lacking)
        if not self.one_more:
            return asked
        return max(asked, 1 if self.actions.has_answered or not is_input_author(self.request, self.viewer) else 2)

    @cached_property
    def one_more(self) -> str:
        """Why one more person must approve than the policy asks for; empty where none must."""
        return extra_approval_reason(self.request, self.viewer) if self.is_open else ""

    @property
    def is_irreversible(self) -> bool:
        """Say whether nothing brings back what the call changes."""
        return self.request.tool_version.reversibility == Reversibility.IRREVERSIBLE

    @property
    def second_press(self) -> str:
        """Why approving takes a second press, as the button says it; empty where one press is enough."""
        if self.is_irreversible:
            return "this cannot be undone"
        return "read the warning first" if self.warnings.any else ""

    @cached_property
    def answer(self) -> Review | None:
        """The review that counts, if there is one."""
        return last_review(self.request)

    @property
    def status_text(self) -> str:
        """Where the request stands, in a sentence."""
        return status_sentence(self.request)

    @property
    def undo_seconds(self) -> int:
        """Seconds left in which the viewer may take their answer back; 0 when they may not."""
        request, review = self.request, self.answer
        if review is None or review.person_id != self.viewer.pk or request.effective_at is None or request.applied_at:
            return 0
        return max(0, int((request.effective_at - clock.now()).total_seconds()))

    @cached_property
    def precedent(self) -> list[tuple[ApprovalRequest, Review | None, str]]:
        """The last answers about the same tool, with their reviews and who gave them, for who may see them."""
        earlier = precedents_for(self.request) if can_see_all(self.viewer) else []
        return [(each.request, each.review, answered_by(each.request)) for each in earlier]


def find_target(request: ApprovalRequest, arguments: Mapping[str, Any], summary: str) -> str:
    """Return what a call is about, as its summary says it: the first text that its tool needs; empty where in doubt.

    Which parameter that is, only the tool's author says: an argument that repeats the summary is about nothing.
    """
    schema = request.tool_version.input_schema
    properties = schema.get("properties", {})
    needed = schema.get("required") or (properties if len(properties) == 1 else ())
    texts = (name for name in needed if isinstance(arguments.get(name), str) and "enum" not in properties.get(name, {}))
    text = arguments.get(next(texts, ""), "")
    return str(text) if text and text in summary else ""


def subject_of_edit(request: ApprovalRequest, edit: Edit) -> ApprovalSubject:
    """Return what is approved by an edit."""
    summary = str((edit.preview or {}).get("summary", ""))
    return ApprovalSubject(edit.rule, find_target(request, edit.arguments, summary))


def detail_for(request: ApprovalRequest, viewer: User) -> RequestDetail:
    """Return the briefing on a request that was loaded whole."""
    return details_for([request], viewer)[0]


def details_for(requests: Sequence[ApprovalRequest], viewer: User) -> list[RequestDetail]:
    """Return the briefing on each of these requests; what is private in them is asked for once."""
    hidden = hidden_from(viewer, requests)
    return [RequestDetail(request, viewer, hidden.get(request.call_id)) for request in requests]
