"""Preparing the call of a step: its tool version, arguments and secrets, its row, and its `ToolContext`."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import Any

from django.conf import settings

from approvals.policies import trials
from approvals.policies.gate import rules_in_force
from approvals.policies.history import CallOrigin, History
from catalog.access.limits import Limits
from catalog.calls import vault
from catalog.calls.vault import SecretScope
from catalog.client_tools.facts import facts_finder
from catalog.context import Budget, CancelToken, Deadline, ToolContext
from catalog.core import clock
from catalog.core.database import new_row
from catalog.core.tracing import trace_id_of
from catalog.dispatch import pipeline
from catalog.dispatch.arguments import CallArguments, prepare_arguments
from catalog.errors import ToolDisabled, ToolDrifted, ToolHeld
from catalog.inventory import snapshot
from catalog.inventory.snapshot import CallableTool
from catalog.models import Call, new_call_id
from catalog.schemas.defaults import given_text, paths_from_store
from catalog.secrets.placeholders import RedactedArguments
from catalog.sources.loading import runs_in_client
from catalog.states import CallStatus
from catalog.styles.class_tools import CallerContext
from catalog.tools.registry import STEP_TOOLS
from plans.documents import references
from plans.engine import extensions
from plans.engine.work import Memory, PlanSnapshot, PreparedCall, RunningCall
from plans.models import Step
from plans.sessions.lists import StoredSession
from plans.store.requesters import RequesterIds, extra_requesters
from plans.store.statements import ClaimedStep, Lease
from plans.store.transactions import PlanTransaction


def new_lease(owner: str, tx: PlanTransaction) -> Lease:
    """Return a lease of TOOLGATE_LEASE_SECONDS that begins at the transaction's time."""
    return Lease(owner, tx.now, tx.now + timedelta(seconds=settings.TOOLGATE_LEASE_SECONDS))


def prepare_step_call(plan: PlanSnapshot, step: ClaimedStep) -> PreparedCall:
    """Resolve references and validate arguments by the tool's definition. Raises the errors of `prepare_call`."""
    text, old = step.parameters, None
    if step.attempt > 1:  # the call of a retried step is replaced by its next
        retried = Call.objects.filter(pk__in=Step.objects.filter(pk=step.pk).values("retry_of"), replacements=None)
        old = retried.select_related("token").first()
    given = edited_arguments(step, plan.ref) if step.attempt > 1 else None
    parameters = vault.load_complete(text, plan.ref) if given is None else given
    is_literal = (
        plan.is_call or given is not None or (old is not None and given_text(old.arguments, old.defaults) == text)
    )
    restored = vault.RestoredArguments(parameters)
    if not is_literal and ("${" in text or step.parent_pk is not None):  # text of models is escaped too
        memory = Memory(step.plan_pk, stored=True)
        restored = vault.load_references(references.resolve(parameters, memory), plan.ref)
    prepared = prepare_call(step.tool, restored.arguments, plan_ref=plan.ref)
    if prepared.target.tool.runs_in_client:
        raise runs_in_client(step.tool, prepared.target.source)
    restored.check_references(RedactedArguments(prepared.text, prepared.secrets))
    prepared = replace(prepared, reason=extensions.model_text_with_call(step))
    return prepared if old is None else replace(prepared, replaces=old, asker=requester_ids_of(old))


def edited_arguments(step: ClaimedStep, plan_ref: str) -> dict[str, Any] | None:
    """Return the arguments that a person entered in place of the step's parameters, or None."""
    text = Step.objects.values_list("given_arguments", flat=True).get(pk=step.pk)
    return vault.load_complete(text, plan_ref) if text else None


def prepare_call(
    tool_name: str, arguments: Mapping[str, Any], *, plan_ref: str = "", kept: int | None = None
) -> PreparedCall:
    """Look up the tool, select its implementation and prepare the arguments.

    `kept` is the primary key of the implementation to select, if the call is stored already.

    Raises UnknownTool, ToolDisabled, NoImplementation, ToolDrifted, ParameterError and other ToolErrors.
    """
    target = _find_target(tool_name, plan_ref, kept)
    return _sealed(target, prepare_arguments(target.tool, arguments))


def prepare_for_plan(
    tool_name: str, arguments: Mapping[str, Any], plan_ref: str = "", prepared: PreparedCall | None = None
) -> PreparedCall:
    """Prepare a direct call like `prepare_call`, even if the tool's code in this process differs from the catalog.

    Such a call is stored and left to a process that has the right code. `prepared` is the same call, prepared before
    its plan was known; unless the tool has changed since, only the implementation is then selected.
    """
    target = _find_target(tool_name, plan_ref, None, to_leave=True)
    if prepared is not None and prepared.target.tool is target.tool:
        return replace(prepared, target=target)
    return _sealed(target, prepare_arguments(target.tool, arguments))


def _find_target(tool_name: str, plan_ref: str, kept: int | None, *, to_leave: bool = False) -> CallableTool:
    target = snapshot.callable_tool(tool_name)
    if target is None:
        raise snapshot.missing_tool_error(tool_name)
    if not target.enabled:
        raise ToolDisabled(f"The tool {tool_name}, or its source, is disabled. An administrator can enable it.")
    if target.held:
        raise ToolHeld(tool_name)
    target = target.select_implementation(plan_ref, kept)
    if target.drifted:
        left = target.with_catalog_contract() if to_leave else None
        if left is None:
            raise tool_drifted(tool_name)
        target = left
    return target


def _sealed(callable_tool: CallableTool, arguments: CallArguments) -> PreparedCall:
    sealed = vault.redact_arguments(callable_tool.tool, arguments.storable)
    return PreparedCall(target=callable_tool, arguments=arguments, text=sealed.text, secrets=sealed.secrets)


def tool_drifted(tool_name: str) -> ToolDrifted:
    """Return the error for a tool whose code in this process differs from the catalog."""
    return ToolDrifted(
        f"The loaded code of {tool_name} does not match the catalog. Restart this server, or run sync_tools if its "
        "code is newer; then try again."
    )


def store_call_secrets(prepared: PreparedCall, plan_ref: str, step_id: int) -> None:
    """Store the secrets redacted from a call's arguments, in the transaction that stores the call."""
    if prepared.secrets:
        vault.store_secrets(SecretScope(plan_ref, str(step_id)), prepared.secrets)


def prepare_replacement(call: Call, given: Mapping[str, Any] | None = None) -> PreparedCall:
    """Return a prepared call that replaces `call`, with arguments `given` or its own. Raises like `prepare_call`."""
    if given is None:
        given = vault.load_complete(given_text(call.arguments, call.defaults), call.plan_ref)
    prepared = prepare_call(call.tool_name, given, plan_ref=call.plan_ref)
    return replace(prepared, replaces=call, asker=requester_ids_of(call), cwd=cwd_of(call))


def prepare_stored_call(call: Call) -> PreparedCall:
    """Return a stored call, prepared with its implementation, requester and arguments. Raises like `prepare_call`."""
    arguments = vault.load_call_arguments(call)
    target = _find_target(call.tool_name, call.plan_ref, call.implementation_id)
    prepared = _sealed(target, prepare_arguments(target.tool, arguments, stored=paths_from_store(call.defaults)))
    return replace(prepared, asker=requester_ids_of(call), cwd=cwd_of(call))


def prepare_reported_call(call: Call) -> PreparedCall:
    """Return a call that its client has run, prepared to be ended, even if its tool is disabled by now.

    Raises ToolRemoved or UnknownTool if its tool cannot be loaded.
    """
    target = snapshot.callable_tool(call.tool_name)
    if target is None:
        raise snapshot.missing_tool_error(call.tool_name)
    arguments = CallArguments(vault.load_available(call.arguments, call.plan_ref), is_stored=True)
    secrets = tuple(vault.load_call_secrets(call))
    return PreparedCall(target, arguments, call.arguments, asker=requester_ids_of(call), secrets=secrets)


def cwd_of(call: Call) -> str:
    """Return the working directory that a client claims for a call that it runs itself; empty for other calls."""
    target = snapshot.callable_tool(call.tool_name)
    return call.client_run.cwd if target is not None and target.tool.runs_in_client else ""


def requester_ids_of(call: Call) -> RequesterIds | None:
    """Return the requester of a call, for the call that replaces it; None if the call has no requester."""
    user_id = call.requested_by_id
    limits = call.token.limits if call.token is not None else None
    return RequesterIds(user_id, call.token_id, call.via, call.session, limits) if user_id else None


def history_of(
    prepared: PreparedCall,
    plan: PlanSnapshot,
    call: Call | None = None,
    *,
    tx: PlanTransaction | None = None,
    waits: bool = True,
) -> History:
    """Return the history of a call, which is stored already if `call` is given.

    In the transaction `tx`, which stores or starts the call, it is exact, and kept with the call. It waits for locks
    there only if `waits`.
    """
    asker = prepared.asker or plan.asker
    origin = CallOrigin(
        requested_by=asker.user_id,
        token_id=asker.token_id,
        session=asker.session,
        plan_ref=plan.ref,
        tool_name=prepared.target.tool.name,
        forms=prepared.arguments.forms,
        find_plan_calls=None if plan.is_call or not plan.pk else lambda: Call.objects.filter(step__plan=plan.pk),
    )
    replaced = prepared.replaces.pk if prepared.replaces else None
    return History(origin, tx.now if tx else clock.now(), call, replaced, is_exact=tx is not None, waits=waits)


def facts_for_rules(
    prepared: PreparedCall, plan: PlanSnapshot, step_pk: int | None = None, history: History | None = None
) -> pipeline.CallFacts:
    """Return the facts that the gate evaluates, for the call of a stored step if `step_pk` is given.

    Without a `history`, what came before is that of the moment.
    """
    target = prepared.target
    return pipeline.CallFacts(
        tool_name=target.tool.name,
        safety_level=target.tool.safety_level,
        categories=target.tool.categories,
        arguments=prepared.arguments.passed,
        requested_by=(prepared.asker or plan.asker).user_id,
        plan_ref=plan.ref,
        source=target.source,
        limits=limits_on(target, prepared.asker or plan.asker),
        prepared=prepared.arguments,
        find_requesters=cache(lambda: requesters_of(plan, prepared, step_pk)),
        find_derived=facts_finder(target.source, target.tool.client_tool, prepared.arguments.passed, prepared.cwd),
        find_history=(history or history_of(prepared, plan)).answers,
        is_asked_again=prepared.replaces is not None,
    )


def record_trials(
    call: Call | None,
    prepared: PreparedCall,
    plan: PlanSnapshot,
    *,
    step_pk: int | None = None,
    history: History | None = None,
) -> None:
    """Record what rules on trial would have done to a call, in the transaction that stores it; None if it is refused.

    `history` is what came before the call, if it was judged. Without such rules, this does nothing.
    """
    if rules_in_force().trials:
        trials.record_trials(facts_for_rules(prepared, plan, step_pk, history), call, now=clock.now())


PLAN_MACHINERY = STEP_TOOLS | {"compose_reply", "plan_on"}
"""Tools of steps with which a plan asks a person, asks an agent's model, or plans on: no limits hold for them."""
ADDS_STEPS = ("agent_turn", "plan_on")
"""Tools whose steps add others to their plan."""


def limits_on(callable_tool: CallableTool, requester: RequesterIds) -> Limits | None:
    """Return the limits that hold for a requester's call of this tool; None if there are none."""
    return None if callable_tool.tool.name in PLAN_MACHINERY else requester.limits


def requesters_of(plan: PlanSnapshot, prepared: PreparedCall, step_pk: int | None) -> set[int]:
    """Return the keys of all people who shaped a call's arguments, and so may not decide or grant the call."""
    people = {each.user_id for each in (plan.asker, prepared.asker) if each} | {plan.author_id}
    return people if step_pk is None else people | extra_requesters(step_pk)


def context_for_handler(running_call: RunningCall) -> ToolContext:
    """Return the context for a handler; all attempts of a call have the same idempotency key."""
    plan, call, seconds = running_call.plan, running_call.call, running_call.seconds
    return _context(
        plan,
        running_call.step.step_id,
        running_call.prepared,
        running_call.sent,
        requested_by=call.requested_by_id,
        deadline=_deadline(plan, seconds, running_call.stop),
        budget=replace(running_call.budget, seconds=seconds) if running_call.budget else Budget(seconds),
        call_id=call.public_id,
        idempotency_key=call.public_id,
        attempt=call.attempt,
        target_state=running_call.target_state,
        **extensions.agent_context(running_call.step),
    )


def context_for_preview(plan: PlanSnapshot, step_id: int, prepared: PreparedCall) -> ToolContext:
    timeout = prepared.target.tool.timeout
    return _context(plan, step_id, prepared, [], deadline=_deadline(plan, timeout), budget=Budget(timeout))


def _context(plan: PlanSnapshot, step_id: int, prepared: PreparedCall, sent: list[Any], **own: Any) -> ToolContext:
    memory, asker = Memory(plan.pk), prepared.asker or plan.asker
    session, tool = StoredSession(asker, sent), prepared.target.tool
    # On an event loop the database cannot be used, so what the tool may look at is read before.
    reads_ahead = tool.is_async and tool.takes_context
    if reads_ahead:
        session.read_ahead()
    fields = {
        "plan_id": plan.ref,
        "step_id": step_id,
        "requested_by": asker.user_id,
        "session": session,
        "trace_id": trace_id_of(plan.traceparent),
        "memory": dict(memory) if reads_ahead else memory,
        "cwd": prepared.cwd,
        **own,
    }
    if not plan.caller_ids:
        return ToolContext(**fields)
    given = json.loads(plan.caller_ids)
    return CallerContext(**fields | {"trace_id": given.get("trace_id") or fields["trace_id"]}, given=given)


def _deadline(plan: PlanSnapshot, seconds: float, token: CancelToken | None = None) -> Deadline:
    ends = clock.now() + timedelta(seconds=seconds)
    return Deadline(min(ends, plan.deadline_at) if plan.deadline_at else ends, token)


def new_call(plan: PlanSnapshot, step_id: int, prepared: PreparedCall, *, status: CallStatus) -> Call:
    """Return an unsaved call for a step of the plan."""
    target, asker = prepared.target, prepared.asker or plan.asker
    values = {
        "public_id": prepared.call_id or new_call_id(),
        "tool_name": target.tool.name,
        "version_id": target.version_pk,
        "implementation_id": target.implementation_pk,
        "query_type": str(prepared.arguments.passed.get("query_type", "")) if target.tool.query_types else "",
        "arguments": prepared.text,
        "defaults": prepared.defaults_text,
        "omitted": prepared.omitted_text,
        "status": status,
        "requested_by_id": asker.user_id,
        "token_id": asker.token_id,
        "via": asker.via,
        "session": asker.session,
        "reason": prepared.reason or (prepared.replaces.reason if prepared.replaces else ""),
        "plan_ref": plan.ref,
        "step_ref": str(step_id),
    }
    call = new_row(Call, values)
    if prepared.replaces:
        call.replaces = prepared.replaces
    return call
