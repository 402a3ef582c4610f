"""Exceptions of starting an approved call and of creating a grant."""

from enum import StrEnum

from catalog.errors import Conflict, ParameterError


class Drift(StrEnum):
    """Aspect of a call that has changed since its request was opened."""

    ARGUMENTS = "arguments"
    STATE = "state"
    DEFINITION = "definition"
    CODE = "code"
    POLICY = "policy"
    REVIEWERS = "reviewers"
    TOOL = "tool"
    OTHER = "other"


class Invalidated(Conflict):
    """The call differs from what was approved, or the approval no longer suffices; the message gives the reason."""

    def __init__(self, message: str, drift: Drift = Drift.OTHER) -> None:
        super().__init__(message)
        self.what = drift


class AuditUnavailable(Conflict):
    """Checkpoints of the audit log cannot be read or written; no dangerous call starts until they can."""

    code = "audit_unavailable"


class ApprovalExpired(Conflict):
    """The time in which the approved call had to start is over."""


class GrantRefused(ParameterError):
    """A grant cannot be created with these terms; names the field and the reason. → 422"""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message, {"field": field, "errors": [{"path": field, "code": "invalid", "message": message}]})
