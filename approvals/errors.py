"""What can go wrong when an approved call is about to start, or when a grant is made."""

from enum import StrEnum

from catalog.errors import Conflict, ParameterError


class Drift(StrEnum):
    """What is another one than it was when people were asked."""

    ARGUMENTS = "arguments"
    STATE = "state"
    DEFINITION = "definition"
    CODE = "code"
    POLICY = "policy"
    REVIEWERS = "reviewers"
    TOOL = "tool"
    OTHER = "other"


class Invalidated(Conflict):
    """What would run is not what people approved, or may no longer be approved so; the message says why."""

    def __init__(self, message: str, what: Drift = Drift.OTHER) -> None:
        super().__init__(message)
        self.what = what


class AuditUnavailable(Conflict):
    """The checkpoint of a dangerous start could not be written, so nothing dangerous starts until it can."""

    code = "audit_unavailable"


class ApprovalExpired(Conflict):
    """The run window of the approval has passed."""


class GrantRefused(ParameterError):
    """A grant that cannot be made as it was asked for: says which field, and what it takes. → 422"""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message, {"field": field, "errors": [{"path": field, "code": "invalid", "message": message}]})
