"""Edits: a reviewer changes the arguments of a call, or accepts only some hunks of its change, in a new round.

Earlier reviews no longer count. Schema, policy and preview are evaluated before anything is locked.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from django.contrib.auth.models import User
from pydantic_core import to_jsonable_python

from approvals.audit.log import AuditRecord, append_entry
from approvals.models import ApprovalRequest, Round
from approvals.policies.combined_rules import store_rule
from approvals.policies.gate import can_look_back, gate
from approvals.policies.history import History, kept_history
from approvals.policies.rulebook import Rule, call_facts, rule_from_revision
from approvals.policy_language.envelopes import PROPOSE_ENVELOPE, check_end, read_proposal, require_narrower
from approvals.requests.digests import ApprovalBinding, action_digest
from approvals.requests.queries import current_round
from approvals.requests.text_warnings import is_deceptive
from approvals.states import RequestStatus
from catalog.access.limits import outside_message
from catalog.access.roles import acting_token_of, user_display_name
from catalog.calls import vault
from catalog.calls.vault import SecretScope
from catalog.core import clock
from catalog.core.canonical_json import canonical_text
from catalog.core.json_paths import without_paths
from catalog.definitions.tool import Tool
from catalog.dispatch import pipeline
from catalog.dispatch.arguments import (
    CallArguments,
    paths_to_store,
    prepare_arguments,
    stored_arguments,
    validator_of,
    without_unchanged_defaults,
)
from catalog.errors import Conflict, OutsideLimits, ParameterError, ToolError, field_error
from catalog.inventory import snapshot
from catalog.models import Call
from catalog.results import Preview
from catalog.schemas.defaults import paths_from_store
from catalog.secrets.placeholders import Secret, without_macs
from catalog.signals import record_fact
from catalog.states import CallStatus
from catalog.text.diff import HunkedDiff
from catalog.tools.registry import get_tool

APPROVED = (RequestStatus.APPROVED, RequestStatus.CONSUMED)
MAX_FIELDS_NAMED = 50
"""Maximum number of changed fields that are listed, and of characters of each name."""


@dataclass(frozen=True)
class DivisibleChange:
    """A change that can be accepted in part: the tool's parameter, and the texts before and after."""

    tool: Tool[Any, Any]
    parameter: str
    before: str | None
    after: str

    @cached_property
    def division(self) -> HunkedDiff:
        """The change split into hunks; slow for long texts."""
        return HunkedDiff(self.before, self.after)

    @property
    def total(self) -> int:
        return len(self.division)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Result of an edit of the request with the digest `base`: new arguments, preview and rule.

    `text` are the arguments with secrets cut out, `fields` the dotted paths of the changed arguments, `hunks` the
    numbers of the accepted hunks, `of` the number of all hunks.
    """

    base: str
    text: str
    defaults: str | None
    omitted: str | None
    preview: Mapping[str, Any] | None
    state_token: str
    rule: Rule
    fields: Sequence[str] = ()
    hunks: Sequence[int] | None = None
    of: int = 0
    secrets: tuple[Secret, ...] = field(default=(), repr=False)
    checked: CallArguments | None = field(default=None, repr=False)
    """The arguments as the tool would get them; None if earlier ones are restored."""

    @property
    def quorum(self) -> int:
        """Number of approvals that the edited call needs."""
        return self.rule.quorum

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments for display, without secrets."""
        arguments: dict[str, Any] = json.loads(without_macs(self.text))
        return arguments

    @property
    def audit_details(self) -> dict[str, Any]:
        """Details for history and audit log: names and numbers, no values."""
        parts = {} if self.hunks is None else {"hunks": list(self.hunks), "of": self.of}
        return {"fields": list(self.fields), "quorum": self.quorum, **parts}


def find_divisible_change(round_: Round, tool_name: str) -> DivisibleChange | None:
    """Return the change of a round that can be accepted in part; None if there is no such change."""
    tool, preview = get_tool(tool_name), round_.preview_json or {}
    if tool is None or tool.hunks is None or preview.get("kind") != "diff":
        return None
    text = json.loads(round_.arguments).get(tool.hunks)
    if not isinstance(text, str) or text != preview.get("after"):
        return None
    return DivisibleChange(tool, tool.hunks, preview.get("before"), text)


def hunk_progress(request: ApprovalRequest) -> str:
    """Return the numbers of applied, rejected and pending hunks as text; empty for an indivisible change."""
    rounds = sorted(request.rounds.all(), key=lambda round_: round_.number)
    first = find_divisible_change(rounds[0], request.call.tool_name)
    last = find_divisible_change(rounds[-1], request.call.tool_name) if len(rounds) > 1 else first
    if first is None or last is None or first.total < 2:
        return ""
    is_open, is_approved = request.status == RequestStatus.PENDING, request.status in APPROVED
    applied = last.total if is_approved else 0
    pending = last.total if is_open else 0
    return f"Progress: {applied}/{first.total} applied, {first.total - applied - pending} rejected, {pending} pending"


def narrow_to_hunks(request: ApprovalRequest, hunks: Collection[int]) -> Edit | None:
    """Return the edit that accepts only these hunks; None if they are the whole change. Slow: call before locking.

    Raises ParameterError for unknown hunks, and Conflict if a policy refuses the narrowed call.
    """
    round_ = current_round(request)
    part = find_divisible_change(round_, request.call.tool_name)
    if part is None:
        raise field_error("hunks", "not_divisible", "This change can only be decided as a whole. Leave hunks out.")
    accepted, total = sorted(set(hunks)), part.total
    unknown = sorted(set(accepted).difference(range(total)))
    if unknown:
        listed = ", ".join(map(str, unknown[:5]))
        message = f"Unknown hunks: {listed}. This change has the hunks 0 to {total - 1}."
        raise field_error("hunks", "unknown_hunk", message)
    if len(accepted) == part.total:
        return None
    after, before = part.division.apply(accepted), json.loads(round_.arguments)
    defaults = [path for path in paths_from_store(round_.defaults) if path[0] != part.parameter]
    narrowed = canonical_text(without_paths(before | {part.parameter: after}, defaults))
    arguments = prepare_arguments(part.tool, vault.load_complete(narrowed, request.call.plan_ref))
    cut = vault.redact_arguments(part.tool, arguments.storable)
    preview = {**(round_.preview_json or {}), "after": after, "rows": HunkedDiff(part.before, after).rows}
    return Edit(
        base=request.digest,
        text=cut.text,
        defaults=paths_to_store(arguments, json.loads(cut.text)),
        omitted=round_.omitted,
        secrets=cut.secrets,
        preview=preview,
        state_token=round_.state_token,
        rule=_rule_for_edit(request, arguments),
        checked=arguments,
        fields=(part.parameter,),
        hunks=accepted,
        of=part.total,
    )


def require_edit_within_limits(request: ApprovalRequest, *, by: User) -> None:
    """Write an audit entry and raise OutsideLimits if `by` acts through a token that may not call the request's tool.

    Call before any transaction, which would roll the entry back. To decide a call is no call, to edit it is: the tool
    then runs with the reviewer's arguments.
    """
    token, target = acting_token_of(by), snapshot.callable_tool(request.call.tool_name)
    if token is None or target is None:
        return
    tool = target.tool
    message = outside_message(
        token.limits, tool.name, level=tool.safety_level, categories=tool.categories, source=target.source
    )
    if message:
        append_entry(
            AuditRecord(
                action="limits.refused",
                by=by,
                object_ref=request.public_id,
                tool_name=tool.name,
                plan_ref=request.plan_ref,
                details={"token": token.pk, "reason": message, "via": "rest"},
            )
        )
        raise OutsideLimits(message)


def check_edit(request: ApprovalRequest, arguments: Mapping[str, Any]) -> Edit:
    """Check edited arguments and return the resulting edit; nothing is locked or stored.

    Raises ParameterError, with paths relative to the arguments, and Conflict if a policy refuses the call.
    """
    call, round_ = request.call, current_round(request)
    target = snapshot.callable_tool(call.tool_name)
    if target is None or target.drifted or target.version_pk != request.tool_version_id:
        raise Conflict(f"{call.tool_name} has changed since the request was opened, so the call cannot be edited.")
    if not target.enabled:
        raise Conflict(f"{call.tool_name} is disabled, so the call cannot be edited.")
    target = target.select_implementation(call.plan_ref, call.implementation_id)
    given = without_unchanged_defaults(target.tool, arguments, round_.arguments, round_.defaults)
    restored = vault.restore_edited_arguments(given, round_.arguments, request.call.plan_ref)
    checked = prepare_arguments(target.tool, restored.in_place())
    cut = vault.redact_arguments(target.tool, checked.storable)
    restored.check(cut)
    if call.tool_name == PROPOSE_ENVELOPE:
        before = vault.load_available(round_.arguments, request.call.plan_ref)
        narrowed = read_proposal(checked.given)
        require_narrower(read_proposal(before), narrowed, call.created_at)
        check_end(narrowed, call.created_at, now=clock.now())
    rule = _rule_for_edit(request, checked)
    try:
        preview = compute_preview(call, checked.given)
    except ParameterError:
        raise
    except ToolError as error:
        raise field_error("", "refused_by_tool", error.user_message()) from None
    return Edit(
        base=request.digest,
        text=cut.text,
        defaults=paths_to_store(checked, json.loads(cut.text)),
        omitted=json.dumps(checked.omitted),
        secrets=cut.secrets,
        preview=to_jsonable_python(preview) if preview else None,
        state_token=(preview.state_token or "") if preview else "",
        rule=rule,
        checked=checked,
        fields=changed_fields(json.loads(round_.arguments), json.loads(cut.text)),
    )


def changed_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the dotted paths at which two stored sets of arguments differ, up to MAX_FIELDS_NAMED."""
    paths = sorted({without_macs(path) for path in _differing(before, after)})
    return tuple(path[:MAX_FIELDS_NAMED] for path in paths[:MAX_FIELDS_NAMED])


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in before.keys() | after.keys():
        old, new = before.get(name), after.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from (f"{name}.{path}" for path in _differing(old, new))
        elif name not in before or name not in after or canonical_text(old) != canonical_text(new):
            yield name


def apply_edit(request: ApprovalRequest, edit: Edit, *, by: User, comment: str = "") -> None:
    """Open a new round with this edit; the caller has locked the request. Raises Conflict."""
    if edit.base != request.digest:
        raise Conflict("The request has been changed meanwhile. Check the changes, then decide.")
    edit = _judged_exactly(request, edit)
    _open_round(request, edit, editor=by)
    details = {"reviewer": user_display_name(by), "reason": comment} if comment else {"reviewer": user_display_name(by)}
    _record(request, edit, by=by, **details)


def _record(request: ApprovalRequest, edit: Edit, *, by: User, **more: str) -> None:
    names = {"approval": request.public_id, "digest": request.digest, "edited_digest": edit.base}
    record_fact("approval.edited", call=request.call, by=by, **names, **edit.audit_details, **more)


def undo_edit(request: ApprovalRequest, *, by: User) -> None:
    """Begin a new round with the previous arguments, after the decision that edited them was undone."""
    round_ = current_round(request)
    if round_.editor_id != by.pk:
        return
    before = request.rounds.select_related("policy_revision__policy").get(number=round_.number - 1)
    edit = Edit(
        base=request.digest,
        text=before.arguments,
        defaults=before.defaults,
        omitted=before.omitted,
        preview=before.preview_json,
        state_token=before.state_token,
        rule=_rule_for_original(request, before),
        fields=changed_fields(json.loads(round_.arguments), json.loads(before.arguments)),
    )
    _open_round(request, edit, editor=None)
    _record(request, edit, by=by)


def _rule_for_original(request: ApprovalRequest, previous_round: Round) -> Rule:
    """Return the current rule for the arguments before an edit; if a policy refuses them now, that of their round."""
    try:
        arguments = vault.load_available(previous_round.arguments, request.call.plan_ref)
        validator = validator_of(request.call.version.input_schema)
        return _rule_for_edit(request, stored_arguments(validator, arguments, previous_round.defaults))
    except Conflict:  # the policy is checked again before the call starts
        return rule_from_revision(previous_round.policy_revision)


def _open_round(request: ApprovalRequest, edit: Edit, *, editor: "User | None") -> None:
    call, rule = request.call, store_rule(edit.rule)
    code = call.implementation.digest if call.implementation else ""
    binding = ApprovalBinding(call.version.fingerprint, code, edit.text, edit.state_token)
    digest, number = action_digest(call, binding, rule), request.round_number + 1
    Round.objects.create(
        request=request,
        number=number,
        arguments=edit.text,
        defaults=edit.defaults,
        omitted=edit.omitted,
        digest=digest,
        preview=json.dumps(edit.preview) if edit.preview else "",
        state_token=edit.state_token,
        is_deceptive=is_deceptive(edit.text, call.reason),
        policy_revision_id=rule.revision_id,
        quorum=rule.quorum,
        editor=editor,
        created_at=clock.now(),
    )
    open_one = ApprovalRequest.objects.filter(pk=request.pk, digest=request.digest, status=RequestStatus.PENDING)
    if not open_one.update(digest=digest, round_number=number, policy_revision_id=rule.revision_id):
        raise Conflict("The request has been answered meanwhile.")
    query_type = str(edit.arguments.get("query_type", "")) if call.query_type else ""
    columns = {"arguments": edit.text, "defaults": edit.defaults, "omitted": edit.omitted, "query_type": query_type}
    if not Call.objects.filter(pk=call.pk, status=CallStatus.HELD).update(**columns):
        raise Conflict("The call is no longer waiting for approval, so its arguments cannot be changed.")
    for name, value in columns.items():
        setattr(call, name, value)
    if edit.secrets:
        vault.store_secrets(SecretScope(call.plan_ref, call.step_ref), edit.secrets)
    request.refresh_from_db(fields=["digest", "round_number", "policy_revision"])


def _judged_exactly(request: ApprovalRequest, edit: Edit) -> Edit:
    """Return the edit with the rule that holds it now, if rules look back at what came before calls of this tool.

    With other arguments the call may be counted under another value. Raises Conflict on a denial.
    """
    call, checked = request.call, edit.checked
    if checked is None or not can_look_back(call_facts(call, checked)):
        return edit
    history = kept_history(call, checked, now=clock.now(), is_exact=True)
    rule = _rule_for_edit(request, checked, history)
    history.keep(call, is_started=False, held_by=rule.revision_id)
    return replace(edit, rule=rule)


def _rule_for_edit(request: ApprovalRequest, arguments: CallArguments, history: History | None = None) -> Rule:
    """Return the rule that holds the edited call, or the request's rule if none does. Raises Conflict on a denial."""
    verdict = gate(call_facts(request.call, arguments, history=history))
    if isinstance(verdict, pipeline.Deny):
        raise Conflict(f"A policy blocks the edited call: {verdict.message}")
    rule = verdict.terms if isinstance(verdict, pipeline.Hold) else None
    return rule if isinstance(rule, Rule) else rule_from_revision(request.policy_revision)


@dataclass(frozen=True, slots=True)
class EditSummary:
    """Reviewers who edited a call before its approval, and the dotted paths of the changed arguments."""

    by: Sequence[str]
    fields: Sequence[str]


def summarise_edits(request: ApprovalRequest) -> EditSummary | None:
    """Return the summary of all edits of a request; None if the arguments are unchanged."""
    rounds = list(request.rounds.select_related("editor").order_by("number"))
    fields = changed_fields(json.loads(rounds[0].arguments), json.loads(rounds[-1].arguments))
    if not fields:
        return None
    return EditSummary(list(dict.fromkeys(user_display_name(each.editor) for each in rounds if each.editor)), fields)


Previewer = Callable[[Call, Mapping[str, Any]], Preview | None]
_previewers: list[Previewer] = []


def register_previewer(previewer: Previewer) -> None:
    _previewers[:] = [previewer]


def compute_preview(call: Call, arguments: Mapping[str, Any]) -> Preview | None:
    """Return the preview of a call; None if its tool has none. Must run outside transactions. Raises ToolError."""
    if not _previewers:
        raise LookupError("No previewer is registered; call register_previewer first.")
    return _previewers[0](call, arguments)
