"""Text sent to models in place of a call's value; stored only if it differs from the value's JSON.

A tool can hide its value with `exclude_value_from_context` or replace its text with the value's `render()`. People and
the REST API get the value itself. Later tools may receive a hidden value and must hide it in their own results.
"""

from typing import Any

from catalog.dispatch.pipeline import CallOutcome
from catalog.models import Call
from plans.documents import references
from plans.engine.work import Memory
from plans.models import MemoryItem, ModelText, Step

VALUE_HIDDEN = "The tool does not show this value to models. Refer to it by its key where another tool needs it."


def store_model_text(call: Call, outcome: CallOutcome) -> ModelText | None:
    """Store the model text of a call's value, in the transaction that ends the call; return it, None for none."""
    if not outcome.exclude_value_from_context and outcome.rendering is None:
        return None
    is_left_out = outcome.exclude_value_from_context
    row = ModelText(call_id=call.pk, is_left_out=is_left_out, text="" if is_left_out else outcome.rendering or "")
    # It may exist if the lease was lost, which is detected later.
    ModelText.objects.bulk_create([row], ignore_conflicts=True)
    return row


def model_text(call_pk: int) -> ModelText | None:
    """Return the text that replaces the JSON of a call's value for models; None if the JSON is used."""
    return ModelText.objects.filter(call=call_pk).first()


def resolve_for_model(parameters: Any, plan_pk: int) -> Any:
    """Return parameters with references resolved, hidden values replaced by a notice. Raises ParameterError."""
    return references.resolve(
        parameters, Memory(plan_pk), instead=dict.fromkeys(keys_hidden_from_models(plan_pk), VALUE_HIDDEN)
    )


def keys_hidden_from_models(plan_pk: int) -> frozenset[str]:
    steps = Step.objects.filter(plan=plan_pk, call__model_text__is_left_out=True).values_list("step_id", flat=True)
    values = MemoryItem.objects.filter(plan=plan_pk, type=MemoryItem.Type.VALUE, step_id__in=list(steps))
    return frozenset(values.values_list("key", flat=True))
