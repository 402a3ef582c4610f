"""Detail of one request for its reviewers: effect, targets, requester, and users who may decide it.

Texts from agents are passed on complete and unchanged; the templates escape them and spell out hidden characters.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.utils.translation import gettext, ngettext

from approvals.envelopes.reading import EnvelopeView, Outside, views_of
from approvals.models import ApprovalRequest, Envelope, Review
from approvals.policies.eligibility import candidate_reviewers, is_input_author, may_decide
from approvals.policies.quorum import extra_approval_reason
from approvals.policies.rulebook import Rule, rule_for
from approvals.policy_language.envelopes import PROPOSE_ENVELOPE
from approvals.policy_language.sentences import expiry_consequence
from approvals.queue.precedents import precedents_for
from approvals.queue.saved_views import duplicates_of
from approvals.requests.privacy import SecretField, hidden_from, may_reveal, secret_fields
from approvals.requests.queries import (
    EarlierCalls,
    answered_by,
    current_round,
    earlier_calls,
    is_last_decision,
    last_review,
    status_sentence,
)
from approvals.requests.text_warnings import ArgumentWarnings, argument_warnings
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
    RenderedEdits,
    RenderedRequestChange,
    render_argument,
    render_edits,
    render_request_change,
)
from approvals.web.review.timeline import QuorumProgress, TimelineEntry, quorum_progress, timeline_of
from catalog.access.roles import can_see_all, user_display_name
from catalog.calls.argument_notes import notes_on_missing
from catalog.calls.privacy import PrivateCallParts
from catalog.client_tools.facts import DerivedFacts, facts_finder
from catalog.core import clock
from catalog.definitions.levels import Reversibility
from catalog.inventory.snapshot import loaded_tool
from catalog.models import ClientRun
from catalog.schemas.description import in_schema_order
from catalog.secrets.placeholders import PLACEHOLDER_KEY, describe_placeholders
from catalog.text.diff import Hunk, HunkedDiff, TextDiff, diff_texts, unshown_lines

LONG_CHANGE_CHARACTERS = 32_768
"""Length of arguments and preview, as stored, from which a change is shown on the review desk only."""


class RequestDetail:
    """One request as its page shows it to one viewer; each property is computed on access."""

    def __init__(
        self,
        request: ApprovalRequest,
        viewer: User,
        private_parts: PrivateCallParts | None,
        confirmation: Confirmation | None = None,
        edited_subject: ApprovalSubject | None = None,
    ) -> None:
        self.request = request
        self.viewer = viewer
        self.hidden = private_parts
        self.submitted = confirmation
        self.edited = edited_subject
        arguments = current_round(request).arguments_json
        self.is_private = private_parts is not None
        shown = private_parts.mask_arguments(arguments) if private_parts else arguments
        self.arguments: Mapping[str, Any] = in_schema_order(shown, request.tool_version.input_schema)
        purpose = str(arguments.get("purpose", "")) if request.call.tool_name == PROPOSE_ENVELOPE else ""
        self.reason = "" if private_parts else request.call.reason or purpose
        self.preview: Mapping[str, Any] = {} if private_parts else current_round(request).preview_json or {}

    def after(self, confirmation: Confirmation, edited_subject: ApprovalSubject | None) -> "RequestDetail":
        """Return the detail after a failed submission, with the submitted confirmation and edit."""
        return RequestDetail(self.request, self.viewer, self.hidden, confirmation, edited_subject)

    @cached_property
    def secrets(self) -> list[SecretField]:
        return secret_fields(self.arguments)

    @property
    def nested_secrets(self) -> list[SecretField]:
        """Secrets that are only a part of an argument. A secret that is a whole argument is shown with the argument."""
        whole = {each.secret for each in self.named_arguments}
        return [field for field in self.secrets if field not in whole]

    @cached_property
    def may_reveal(self) -> bool:
        return may_reveal(self.request, self.viewer)

    @property
    def kind(self) -> str:
        """Kind of the tool's preview: diff, rows, text or none."""
        return str(self.preview.get("kind", "none"))

    @cached_property
    def title(self) -> tuple[str, str, str]:
        """The summary split into the text before its target, the target, and the text after it."""
        summary = str(self.preview.get("summary", ""))
        if not summary:
            return (gettext("Run") + " ", self.request.call.tool_name, "")
        target = find_target(self.request, self.arguments, summary)
        lead, _, rest = summary.partition(target) if target else (summary, "", "")
        return (describe_placeholders(lead), describe_placeholders(target), describe_placeholders(rest))

    @cached_property
    def change(self) -> TextDiff | None:
        """The change that the tool previews; None if the preview is not a diff."""
        return diff_texts(self.preview.get("before"), self.preview.get("after")) if self.kind == "diff" else None

    @cached_property
    def client_run(self) -> ClientRun | None:
        """The run of a call by its client; None for calls that run here, and for viewers without access."""
        tool = loaded_tool(self.request.call.tool_name)
        if self.is_private or tool is None or not tool.runs_in_client:
            return None
        return ClientRun.objects.filter(call=self.request.call_id).first()

    @cached_property
    def derived(self) -> DerivedFacts | None:
        """Facts of a call that its client runs, as policies see it."""
        run = self.client_run
        arguments = current_round(self.request).arguments_json if run else {}
        find = facts_finder(run.client, run.client_tool, arguments, run.cwd) if run else None
        return find() if find is not None else None

    @cached_property
    def envelope(self) -> EnvelopeView | None:
        """The envelope that the call proposes; None for other calls, and for viewers without access."""
        proposed = getattr(self.request.call, "proposed_envelope", None)
        return None if proposed is None or self.is_private else self._view_of(proposed)

    @cached_property
    def outside(self) -> Outside | None:
        """The envelope outside of which the call fell, and the promise that it broke; None if there is none."""
        mismatch = getattr(self.request.call, "envelope_mismatch", None)
        return None if mismatch is None else Outside(self._view_of(mismatch.envelope), mismatch.mismatch)

    def _view_of(self, envelope: Envelope) -> EnvelopeView:
        """Return the envelope without its private parts, which this call may not have."""
        [view] = views_of(self.viewer, [envelope])
        return view

    @cached_property
    def earlier(self) -> EarlierCalls | None:
        """The calls because of which a rule holds this one; None if the rule does not look back."""
        return earlier_calls(self.request, self.viewer)

    @cached_property
    def hunks(self) -> tuple[Hunk, ...]:
        """Hunks of the change that the viewer may accept individually; empty if there is no choice."""
        part = find_divisible_change(current_round(self.request), self.request.call.tool_name) if self.change else None
        if part is None or not self.may_answer:
            return ()
        hunks = HunkedDiff(part.before, part.after).hunks
        return hunks if len(hunks) > 1 and not self.is_cut else ()

    @property
    def is_cut(self) -> bool:
        """True if the page leaves out lines of the change, which can then only be decided as a whole."""
        return self.unshown_lines > 0

    @property
    def is_long(self) -> bool:
        """True if the change is not shown beside other things, but only on the review desk."""
        judged = current_round(self.request)
        return len(judged.arguments) + len(judged.preview) > LONG_CHANGE_CHARACTERS or self.is_cut

    @property
    def progress(self) -> str:
        """Progress of a change that is accepted in parts; empty for any other request."""
        return hunk_progress(self.request) if self.change else ""

    @property
    def sizes(self) -> tuple[int | None, int | None]:
        """Size of the target in bytes before and after; None on the side where the target does not exist."""
        texts = (self.preview.get("before"), self.preview.get("after"))
        before, after = (None if text is None else len(text.encode(errors="replace")) for text in texts)
        return (before, after)

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        return self.preview.get("rows") or ()

    @property
    def columns(self) -> list[str]:
        """Names of the columns of `rows`, in the order of their first appearance."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    @cached_property
    def table(self) -> list[list[dict[str, Any]]]:
        return [[{"column": name, "value": row.get(name, "")} for name in self.columns] for row in self.rows]

    @cached_property
    def named_arguments(self) -> list[ArgumentRow]:
        """All arguments in full, with notes on defaults; then the arguments that were left out, with notes."""
        given = [self._argument(name, value) for name, value in self.arguments.items()]
        given.sort(key=lambda each: each.is_before or each.is_after)
        schema, omitted = self.request.tool_version.input_schema, current_round(self.request).omitted_paths
        for note in notes_on_missing(loaded_tool(self.request.call.tool_name), schema, self.arguments, omitted):
            if note.has_value:
                given.append(render_argument(note.path, note.value, is_default=True, note=note.label))
            else:
                given.append(ArgumentRow(note.path, "", is_default=True, note=note.label))
        return given

    def _argument(self, name: str, value: Any) -> ArgumentRow:
        is_default = name in self._default_paths
        inside = [path for path in self._default_paths if path.startswith(f"{name}.")]
        note = gettext("default: %(paths)s") % {"paths": ", ".join(inside)} if inside and not is_default else ""
        if self.kind != "diff" or not isinstance(value, str):
            is_secret = isinstance(value, Mapping) and value.keys() == {PLACEHOLDER_KEY}
            secret = next((field for field in self.secrets if field.path == name), None) if is_secret else None
            return render_argument(name, value, secret=secret, is_default=is_default, note=note)
        is_before = "\n" in value and value == self.preview.get("before")
        is_after = value == self.preview.get("after")
        return ArgumentRow(name, value, is_before=is_before, is_after=is_after, is_default=is_default)

    @cached_property
    def _default_paths(self) -> list[str]:
        return current_round(self.request).default_paths

    @cached_property
    def duplicates(self) -> list[ApprovalRequest]:
        return duplicates_of(self.viewer, self.request)

    @cached_property
    def warnings(self) -> ArgumentWarnings:
        return argument_warnings(self.arguments, self.reason)

    @cached_property
    def actions(self) -> ReviewActions:
        return ReviewActions(self.request, self.viewer)

    @property
    def may_answer(self) -> bool:
        return self.actions.may_answer

    @property
    def is_open(self) -> bool:
        return self.actions.is_open

    @property
    def seconds_left(self) -> int:
        """Whole seconds until the request expires; 0 if it has."""
        return max(0, int((self.request.expires_at - clock.now()).total_seconds()))

    @property
    def why_not(self) -> str | None:
        return self.actions.why_not

    @cached_property
    def rule(self) -> Rule:
        return rule_for(self.request)

    @cached_property
    def confirmation(self) -> ConfirmationRequirements:
        """Confirmations that the viewer must still give to approve the request, or their edit if there is one."""
        return confirmation_requirements(self.request, self.viewer, self.edited or self.subject, self.submitted)

    @property
    def terms(self) -> ConfirmationTerms:
        """Terms that apply if the viewer approves: those of their edit if there is one, else of the request."""
        return (self.edited or self.subject).terms

    @property
    def subject(self) -> ApprovalSubject:
        """Subject of an approval by the viewer without an edit: the terms and the target."""
        return ApprovalSubject(self.request.policy_revision, self.title[1])

    @cached_property
    def vote_progress(self) -> QuorumProgress:
        return quorum_progress(self.request)

    @cached_property
    def timeline(self) -> list[TimelineEntry]:
        return timeline_of(self.request)

    @property
    def has_comments(self) -> bool:
        """True if somebody wrote in the thread or gave a vote with a note: the page then shows the thread unfolded."""
        return any(moment.text for moment in self.timeline)

    @cached_property
    def drift(self) -> RenderedRequestChange | None:
        """Changes since the request that this one replaces; None if there are none."""
        return None if self.is_private else render_request_change(self.request)

    @cached_property
    def revised(self) -> RenderedEdits | None:
        """Changes of reviewers to the arguments; None if there are none."""
        return None if self.is_private else render_edits(self.request)

    @cached_property
    def result(self) -> CallResult | None:
        """Current result of the call; None if the request is undecided or its call does not run."""
        return result_of(self.request)

    @property
    def editing(self) -> EditForm:
        return initial_form(self.request, self.viewer)

    @cached_property
    def who_may(self) -> list[str]:
        """Names of the users who may decide: members of the rule's groups, and delegates of such members."""
        people = candidate_reviewers(get_user_model().objects.filter(is_active=True), self.request)
        handed = {each.to_id: each.to for each in self.request.delegations.all()}
        found = people.distinct().order_by("first_name", "username")
        # A delegation counts only while the user who made it may decide.
        return [
            user_display_name(each) for each in found if each.pk not in handed or may_decide(self.request, each) is None
        ]

    @property
    def after_expiry(self) -> str:
        """Sentence on what happens if nobody answers in time."""
        return expiry_consequence(self.rule.on_expiry, "" if self.request.escalated_at else self.rule.escalate_to)

    @property
    def lacking(self) -> int:
        """Number of missing approvals, including the viewer's."""
        asked = sum(stage.count for stage in self.vote_progress.lacking)
        if not self.one_more:
            return asked
        return max(asked, 1 if self.actions.has_answered or not is_input_author(self.request, self.viewer) else 2)

    @cached_property
    def one_more(self) -> str:
        """Reason why one more approval is needed than the policy requires; empty if that is not so."""
        return extra_approval_reason(self.request, self.viewer) if self.is_open else ""

    @property
    def is_irreversible(self) -> bool:
        return self.request.tool_version.reversibility == Reversibility.IRREVERSIBLE

    @cached_property
    def unshown_lines(self) -> int:
        """Number of lines of the change that the page leaves out until they are loaded."""
        return unshown_lines(self.change.rows) if self.change is not None else 0

    @property
    def second_press(self) -> str:
        """Reason why approving needs a second press of the button; empty if one press is enough."""
        return self.second_press_for(self.unshown_lines)

    @property
    def second_press_when_shown(self) -> str:
        """Value of `second_press` after all lines of the change were loaded."""
        return self.second_press_for(0)

    def second_press_for(self, unshown: int) -> str:
        """Return the reason for a second press if this many lines were not shown."""
        lasting = ""
        if self.is_irreversible:
            lasting = gettext("this cannot be undone")
        elif self.warnings.any:
            lasting = gettext("read the warning first")
        if not unshown:
            return lasting
        shown = ngettext("%(count)s line was not shown", "%(count)s lines were not shown", unshown) % {"count": unshown}
        return f"{shown}, {lasting}" if lasting else shown

    @cached_property
    def answer(self) -> Review | None:
        """The last review that counts; None if there is none."""
        return last_review(self.request)

    @property
    def status_text(self) -> str:
        return status_sentence(self.request)

    @property
    def undo_seconds(self) -> int:
        """Seconds left in which the viewer can undo their decision; 0 if they cannot."""
        request, review = self.request, self.answer
        if review is None or review.person_id != self.viewer.pk or request.effective_at is None or request.applied_at:
            return 0
        return max(0, int((request.effective_at - clock.now()).total_seconds()))

    @cached_property
    def is_last_decision(self) -> bool:
        """True if no later decision of the viewer exists; the keyboard shortcut undoes the latest decision."""
        return self.answer is not None and is_last_decision(self.answer)

    @cached_property
    def precedent(self) -> list[tuple[ApprovalRequest, Review | None, str]]:
        """Recent decisions on the same tool with their reviews and reviewers; empty if the viewer may not see them."""
        earlier = precedents_for(self.request) if can_see_all(self.viewer) else []
        return [(each.request, each.review, answered_by(each.request)) for each in earlier]


def find_target(request: ApprovalRequest, arguments: Mapping[str, Any], summary: str) -> str:
    """Return the target of a call: its first required text argument, if the summary contains it; empty if in doubt.

    The schema, which the tool's author wrote, selects the argument, so that an agent cannot choose another one.
    """
    schema = request.tool_version.input_schema
    properties = schema.get("properties", {})
    needed = schema.get("required") or (properties if len(properties) == 1 else ())
    texts = (name for name in needed if isinstance(arguments.get(name), str) and "enum" not in properties.get(name, {}))
    text = arguments.get(next(texts, ""), "")
    return str(text) if text and text in summary else ""


def subject_of_edit(request: ApprovalRequest, edit: Edit) -> ApprovalSubject:
    summary = str((edit.preview or {}).get("summary", ""))
    return ApprovalSubject(edit.rule, find_target(request, edit.arguments, summary))


def detail_for(request: ApprovalRequest, viewer: User) -> RequestDetail:
    """Return the detail of a request from `with_related`."""
    return details_for([request], viewer)[0]


def details_for(requests: Sequence[ApprovalRequest], viewer: User) -> list[RequestDetail]:
    """Return the detail of each request; private parts are loaded in one query for all."""
    hidden = hidden_from(viewer, requests)
    return [RequestDetail(request, viewer, hidden.get(request.call_id)) for request in requests]
