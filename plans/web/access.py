"""Access to the pages of plans: finding a plan its viewer may see, acting on it, and the status of what is refused."""

from collections.abc import Callable

from django.contrib.auth.models import User
from django.http import Http404

from catalog.access.roles import ADMINISTRATOR, OPERATOR, NotAllowed, has_role, user_display_name
from catalog.errors import Conflict, ParameterError, ToolgateError
from catalog.ui.requests import PageRequest
from plans.models import Plan
from plans.sessions.lists import require_no_session_list
from plans.store.requesters import Requester
from plans.store.selectors import may_control, plan_for

STATUS_BY_ERROR = {Conflict: 409, NotAllowed: 403, ParameterError: 422}


def plan_or_404(viewer: User, public_id: str) -> Plan:
    """Return a plan that the viewer may see. Raises Http404."""
    try:
        return plan_for(viewer, None, public_id)
    except Plan.DoesNotExist:
        raise Http404 from None


def control_plan(viewer: User, plan: Plan, act: Callable[[Requester], None], *, further: bool = False) -> None:
    """Do something to a plan for its owner or an administrator; what takes it `further` needs a role that may write.

    Raises NotAllowed, and what the act raises.
    """
    if not may_control(viewer, None, plan):
        raise NotAllowed(f"Only {user_display_name(plan.author)} or an administrator may do this. Nothing was changed.")
    if further and not has_role(viewer, OPERATOR, ADMINISTRATOR):
        raise NotAllowed("This needs the role operator or administrator. Nothing was changed.")
    require_no_session_list(plan)
    act(Requester(viewer))


def error_status(error: ToolgateError) -> int:
    """Return the HTTP status of what an action may raise."""
    return next((status for kind, status in STATUS_BY_ERROR.items() if isinstance(error, kind)), 422)


NEEDS_ROLE = NotAllowed("Starting plans needs the role operator or administrator. Nothing was stored.")


def may_write(request: PageRequest) -> bool:
    """Say whether the person may store plans."""
    return has_role(request.user, OPERATOR, ADMINISTRATOR)
