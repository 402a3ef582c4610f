"""Access to the pages of plans: find a visible plan, act on it, and map errors to HTTP status codes."""

from collections.abc import Callable

from django.contrib.auth.models import User
from django.http import Http404
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from catalog.access.roles import ADMINISTRATOR, OPERATOR, NotAllowed, has_role, user_display_name
from catalog.errors import Conflict, ParameterError, ToolgateError
from catalog.ui.requests import PageRequest
from plans.models import Plan
from plans.sessions.lists import require_no_session_list
from plans.store.requesters import Requester
from plans.store.selectors import may_control, plan_for

FORM_EXPIRED = gettext_noop("This form has expired. Reload the page and submit it again.")
NUL_CHARACTER = gettext_noop("The text contains a NUL character, which is not allowed.")
STATUS_BY_ERROR = {Conflict: 409, NotAllowed: 403, ParameterError: 422}


def plan_or_404(viewer: User, public_id: str) -> Plan:
    try:
        return plan_for(viewer, None, public_id)
    except Plan.DoesNotExist:
        raise Http404 from None


def control_plan(viewer: User, plan: Plan, act: Callable[[Requester], None], *, further: bool = False) -> None:
    """Run the action `act` for a viewer who may control the plan: its owner or an administrator.

    Actions that continue the plan (`further`) also need a write role. Raises NotAllowed, and the errors of the action.
    """
    if not may_control(viewer, None, plan):
        raise NotAllowed(
            _("Only %(owner)s or an administrator may do this. Nothing was changed.")
            % {"owner": user_display_name(plan.author)}
        )
    if further and not has_role(viewer, OPERATOR, ADMINISTRATOR):
        raise NotAllowed(_("This needs the role operator or administrator. Nothing was changed."))
    require_no_session_list(plan)
    act(Requester(viewer))


def error_status(error: ToolgateError) -> int:
    return next((status for kind, status in STATUS_BY_ERROR.items() if isinstance(error, kind)), 422)


def role_required() -> NotAllowed:
    return NotAllowed(_("Starting plans needs the role operator or administrator. Nothing was stored."))


def may_write(request: PageRequest) -> bool:
    return has_role(request.user, OPERATOR, ADMINISTRATOR)
