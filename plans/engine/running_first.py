"""Safe calls that run before they are stored: the thread that admitted a call stores it when it has ended.

One transaction then stores plan, step, call and events, instead of one for the start and one for the end in another
thread. A call that has not ended within 50 ms is stored as running and goes on like every other. If the process dies
before, no trace is left, and the client, which got no answer, may repeat the call: it is safe.

Its start takes no lock of stops: one that is committed after its thread has read them for the last time does not keep
the handler from beginning, and a call that began before a stop may be stored after it.
"""

from functools import partial

from django.db import connection

from catalog.definitions.levels import SafetyLevel
from catalog.dispatch import pipeline
from catalog.errors import Stopped
from catalog.rest.idempotency import is_key_active
from catalog.tools.registry import output_key_of
from plans.engine import calls, extensions, late_results, limits, reports, stops
from plans.engine.work import PreparedCall, UnstoredCall


def may_run_first(prepared: PreparedCall) -> bool:
    """Return whether an allowed call may run before it is stored.

    It may if it is safe and of a synchronous tool, and nothing but the call itself is stored with it: no value in the
    plan's memory, no secret, no key that makes its request idempotent.
    """
    tool = prepared.target.tool
    return (
        tool.safety_level == SafetyLevel.SAFE
        and not tool.is_async
        and not prepared.secrets
        and prepared.replaces is None
        and not limits.tool_limit(tool.name)
        and not extensions.has_result_handler(tool.name)
        and not output_key_of(tool.name)
        and not connection.in_atomic_block
        and not is_key_active()
    )


def may_begin(unstored_call: UnstoredCall) -> bool:
    """Return whether no stop covers a call that is not stored yet, read by its thread just before the handler begins.

    The call may have waited for the thread since it was admitted.
    """
    running_call = unstored_call.running_call
    try:
        stops.require_not_stopped_now(running_call.plan, running_call.step.step_id, running_call.prepared)
    except Stopped as stopped:
        unstored_call.stopped = stopped
    return unstored_call.stopped is None


def run_handler(unstored_call: UnstoredCall) -> pipeline.CallOutcome:
    """Run the handler of a call that is not stored yet."""
    running_call = unstored_call.running_call
    with reports.log_context(running_call):
        run = partial(
            pipeline.run_call,
            running_call.prepared.target.tool,
            running_call.prepared.arguments,
            calls.context_for_handler(running_call),
            lambda: unstored_call.stored is None or late_results.may_undo(unstored_call.stored),
        )
        return reports.run_in_span(running_call, run)
