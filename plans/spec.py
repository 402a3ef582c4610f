"""Documents of plans: the contract's Plan and PlanStep, and the strict models of submitted plans."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from catalog.core.canonical_json import check_json, json_size
from catalog.core.json_paths import value_at
from catalog.errors import MalformedJSON

MAX_STEPS = 500
MAX_BYTES = 256 * 1024
MAX_STEP_ID = 2**31 - 1
MAX_CALLS = 1_000_000
MAX_SECONDS = 30 * 24 * 3600
Status = Literal["pending", "in_progress", "completed", "failed", "cancelled"]
KEY = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"


class PlanStep(BaseModel):
    """One step: its tool or agent, dependencies, the key of its result, and its status."""

    step_id: int
    description: str
    tool: str | None = None
    agent: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    dependencies: list[int] = Field(default_factory=list)
    expected_key: str | None = None
    output_path: list[str] | None = None
    done_check: str | None = None
    status: Status = "pending"
    completed_at: str | None = None
    skipped: bool = False


class Plan(BaseModel):
    """A goal and the steps that lead to it."""

    goal: str
    steps: list[PlanStep] = Field(default_factory=list)
    status: Status = "pending"
    created_at: str
    completed_at: str | None = None
    owner: str = "agent"
    can_modify: bool = True


RUN_TIME_FIELDS = frozenset({"status", "skipped", "completed_at", "created_at"})


def extract_value(result: Any, path: Sequence[str | int] | None) -> Any:
    """Return the value at a path of a result: the whole result for an empty path, None for a path that is missing."""
    return value_at(result, path or ())


def _plain_text(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("blank", "This must not be blank.")
    if "\0" in text:
        raise PydanticCustomError("nul", "This must not contain the NUL character.")
    return text


def _limit_size(value: dict[str, Any]) -> dict[str, Any]:
    try:
        size = json_size(check_json(value))
    except MalformedJSON as problem:
        raise PydanticCustomError("not_json", "{message}", {"message": problem.message}) from None
    if size > MAX_BYTES:
        message = "This has {size} bytes; at most {limit} are allowed."
        raise PydanticCustomError("too_large", message, {"size": f"{size:,}", "limit": f"{MAX_BYTES:,}"})
    return value


Text = Annotated[str, AfterValidator(_plain_text)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Key = Annotated[str, StringConstraints(pattern=KEY)]
PathStep = Annotated[str, StringConstraints(max_length=200)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class StepDocument(_Strict):
    """A submitted step: the contract's definition fields only."""

    step_id: int = Field(ge=1, le=MAX_STEP_ID)
    description: Annotated[Text, Field(max_length=500)]
    tool: Name | None = None
    agent: Name | None = None
    parameters: Annotated[dict[str, Any], AfterValidator(_limit_size)] = Field(default_factory=dict)
    dependencies: list[int] = Field(default_factory=list, max_length=MAX_STEPS)
    expected_key: Key | None = None
    output_path: list[PathStep] | None = Field(default=None, max_length=32)
    done_check: str | None = Field(default=None, max_length=500)


class BudgetDocument(_Strict):
    """The budget of a plan: calls started, and total seconds that its tools run."""

    calls: int | None = Field(default=None, ge=1, le=MAX_CALLS)
    seconds: int | None = Field(default=None, ge=1, le=MAX_SECONDS)


class PlanDocument(_Strict):
    """A submitted plan. Values are not coerced and unknown fields are refused."""

    goal: Annotated[Text, Field(max_length=2000)]
    steps: list[StepDocument] = Field(min_length=1, max_length=MAX_STEPS)
    owner: Annotated[Text, Field(max_length=150)] = "agent"
    can_modify: bool = True
    deadline_seconds: int | None = Field(default=None, ge=1, le=MAX_SECONDS)
    budget: BudgetDocument | None = None
    start: bool = True
    memory: Annotated[dict[Key, Any], AfterValidator(_limit_size)] = Field(default_factory=dict)
