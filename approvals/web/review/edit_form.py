"""Form for "edit and approve": a reviewer changes the arguments as form fields or as JSON. Stores nothing."""

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
from catalog.schemas.defaults import dotted_paths
from catalog.text.diff import TextDiff, diff_texts, unshown_lines
from catalog.ui.forms.editor import ArgumentsEditor


@dataclass(slots=True, kw_only=True)
class EditForm(ArgumentsEditor):
    """A reviewer's arguments next to the requested ones; `edit` is the checked result, `cannot_run` a failed check."""

    request: ApprovalRequest
    viewer: User
    edit: Edit | None = None
    cannot_run: bool = False
    answered_with: int = 200

    @property
    def by_agent(self) -> bool:
        """True if the requested arguments were written by an agent."""
        token = self.request.call.token
        return token is not None and token.kind == ApiToken.Kind.AGENT

    @property
    def change(self) -> TextDiff | None:
        """Line-by-line comparison of the current and the edited arguments; None while the edited ones are invalid."""
        if self.edit is None:
            return None
        schema = self.request.tool_version.input_schema
        return diff_texts(arguments_as_lines(self.original, schema), arguments_as_lines(self.edit.arguments, schema))

    @property
    def preview_change(self) -> TextDiff | None:
        """Diff from the preview of the edit, or else the difference between both previews; None if there is none."""
        shown = (self.edit.preview if self.edit else None) or {}
        if shown.get("kind") == "diff":
            return diff_texts(shown.get("before"), shown.get("after"))
        change = diff_texts(effect_lines(current_round(self.request).preview_json), effect_lines(shown))
        return change if shown and (change.added or change.removed) else None

    @property
    def unshown_lines(self) -> int:
        """Number of lines of both comparisons that the page leaves out."""
        return sum(unshown_lines(change.rows) for change in (self.change, self.preview_change) if change is not None)

    @property
    def changes(self) -> int:
        """Number of changed arguments."""
        return len(self.edit.fields) if self.edit else 0

    @property
    def all_problems(self) -> list[str]:
        at_fields = (
            f"{each.path}: {text}" for each in (self.form.every() if self.form else ()) for text in each.problems
        )
        return [*self.problems, *at_fields]

    @property
    def raised(self) -> int:
        """Number of approvals that the edit needs if this is more than before; otherwise 0."""
        quorum = self.edit.quorum if self.edit else 0
        return quorum if quorum > current_round(self.request).quorum else 0

    @property
    def counts(self) -> bool:
        """True if the reviewer's approval of their own edit counts; it does not if several people must approve."""
        return self.edit is None or (self.edit.quorum == 1 and self.edit.rule.editor_may_approve)

    def check(self) -> Mapping[str, Any]:
        """Check the arguments and return them. Raises the same exceptions as `check_edit`."""
        arguments = self.arguments()
        self.edit = check_edit(self.request, arguments)
        self.default_paths = dotted_paths(self.edit.defaults)
        return arguments

    def check_while_editing(self) -> None:
        """Check the arguments while the form changes; problems are not shown until the user asks for a check."""
        try:
            if self.arguments() != self.original:
                self.check()
        except ToolgateError:
            self.cannot_run = True

    def refuse(self, error: ToolgateError) -> None:
        """Mark the arguments as refused, and show the error at the field that it is about."""
        self.edit, self.cannot_run = None, True
        self.answered_with = self.show_error(error)


def initial_form(request: ApprovalRequest, viewer: User) -> EditForm:
    """Return the form filled with the current arguments; its first field has the focus."""
    editing = _empty_form(request, viewer)
    editing.fill(editing.original)
    editing.render_or_show_json()
    if editing.form is not None and editing.form.children:
        editing.form.focus(editing.form.children[0].name)
    return editing


def bind_form(request: ApprovalRequest, viewer: User, sent: QueryDict) -> EditForm:
    """Return the submitted form, checked or changed by its pressed button. `answered_with` is the HTTP status."""
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
    """Return the form of arguments submitted for approval, and the error if they are invalid."""
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
    schema, round_ = request.tool_version.input_schema, current_round(request)
    arguments, default_paths = round_.arguments_json, round_.default_paths
    return EditForm(request=request, viewer=viewer, schema=schema, original=arguments, default_paths=default_paths)
