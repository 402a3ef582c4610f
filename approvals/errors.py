"""What can go wrong when an approved call is about to start. Both are conflicts for whoever does not handle them."""

from catalog.errors import Conflict


class Invalidated(Conflict):
    """What would run is not what people approved, or may no longer be approved so; the message says why."""


class ApprovalExpired(Conflict):
    """The run window of the approval has passed."""
