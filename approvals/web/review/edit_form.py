"""Edit and approve: what the page shows while a reviewer writes other arguments, as a form or as JSON.

The check is that of `approvals.reviews.edits`; nothing is stored before the answer is sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.http import QueryDict

from approvals.models import ApprovalRequest
from approvals.requests.queries import current_round
from approvals.reviews.edits import Edit, check_edit
from approvals.web.review.rendering import arguments_as_lines, effect_lines
from catalog.errors import ToolgateError
from catalog.models import ApiToken
from catalog.text.diff import TextDiff, diff_texts
from catalog.ui.forms.editor import ArgumentsEditor


@dataclass(slots=True, kw_only=True)
class EditForm(ArgumentsEditor):
    """The arguments as a reviewer would have them, beside those that were asked for.

    `edit` is what the check made of them; with `cannot_run` it refused them. Neither: nothing is changed yet.
    """

    request: ApprovalRequest
    viewer: User
    edit: Edit | None = None
    cannot_run: bool = False
    answered_with: int = 200

    @property
    def by_agent(self) -> bool:
        """Whether an agent gave the arguments that were asked for, and no person."""
        token = self.request.call.token
        return token is not None and token.kind == ApiToken.Kind.AGENT

    @property
    def before(self) -> Mapping[str, Any]:
        """The arguments that are asked for now."""
        return current_round(self.request).arguments_json

    @property
    def change(self) -> TextDiff | None:
        """The arguments asked for beside the reviewer's, line by line; None while those are not sound."""
        return (
            diff_texts(arguments_as_lines(self.before), arguments_as_lines(self.edit.arguments)) if self.edit else None
        )

    @property
    def preview_change(self) -> TextDiff | None:
        """What the tool would change now, or else what it shows now beside what it showed; None where that is alike."""
        shown = (self.edit.preview if self.edit else None) or {}
        if shown.get("kind") == "diff":
            return diff_texts(shown.get("before"), shown.get("after"))
        change = diff_texts(effect_lines(current_round(self.request).preview_json), effect_lines(shown))
        return change if shown and (change.added or change.removed) else None

    @property
    def changes(self) -> int:
        """How many arguments are different."""
        return len(self.edit.fields) if self.edit else 0

    @property
    def all_problems(self) -> list[str]:
        """All that is wrong, each with its place."""
        at_fields = (
            f"{each.path}: {text}" for each in (self.form.every() if self.form else ()) for text in each.problems
        )
        return [*self.problems, *at_fields]

    @property
    def raised(self) -> int:
        """How many people the rule needs for what is written, where they are more than before; else 0."""
        quorum = self.edit.quorum if self.edit else 0
        return quorum if quorum > current_round(self.request).quorum else 0

    @property
    def counts(self) -> bool:
        """Whether the reviewer's own approval counts for what they write: not where several people must agree."""
        return self.edit is None or (self.edit.quorum == 1 and self.edit.rule.editor_may_approve)

    def check(self) -> Mapping[str, Any]:
        """Return the arguments, checked. Raises what `check_edit` raises."""
        arguments = self.arguments()
        self.edit = check_edit(self.request, arguments)
        return arguments

    def check_while_editing(self) -> None:
        """Check what is written while its form changes: what is wrong with it is not told before somebody asks."""
        try:
            if self.arguments() != self.before:
                self.check()
        except ToolgateError:
            self.cannot_run = True

    def refuse(self, error: ToolgateError) -> None:
        """Say that this cannot run, and put what is wrong where it belongs."""
        self.edit, self.cannot_run = None, True
        self.answered_with = self.show_error(error)


def initial_form(request: ApprovalRequest, viewer: User) -> EditForm:
    """Return the form filled with what is asked for, the cursor in its first field."""
    editing = _empty_form(request, viewer)
    editing.fill(editing.before)
    editing.render_or_show_json()
    if editing.form is not None and editing.form.children:
        editing.form.focus(editing.form.children[0].name)
    return editing


def bind_form(request: ApprovalRequest, viewer: User, sent: QueryDict) -> EditForm:
    """Do what a button of the form says, else check what is written; `answered_with` is the HTTP status."""
    editing = _empty_form(request, viewer)
    wanted, _, place = sent.get("do", "check").partition(":")
    try:
        editing.read(sent)
        if wanted == "check":
            editing.check()
        else:
            editing.press(wanted, place)
            editing.check_while_editing()
        editing.draw()
    except ToolgateError as error:
        editing.refuse(error)
    return editing


def validate_submission(
    request: ApprovalRequest, viewer: User, sent: QueryDict
) -> tuple[EditForm, ToolgateError | None]:
    """Return the arguments that were sent to be approved, checked, or what is wrong with them."""
    editing = _empty_form(request, viewer)
    try:
        editing.read(sent)
        editing.check()
        editing.draw()
    except ToolgateError as error:
        editing.refuse(error)
        return editing, error
    return editing, None


def _empty_form(request: ApprovalRequest, viewer: User) -> EditForm:
    return EditForm(request=request, viewer=viewer, schema=request.tool_version.input_schema)
