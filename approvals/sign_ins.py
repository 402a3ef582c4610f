"""Sign-ins, sign-outs, and failed and refused attempts to sign in, in the audit log."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.http import HttpRequest

from approvals.audit import Line, append
from catalog.access.roles import SIGNED_IN
from catalog.access.sign_in import client_address
from catalog.core import clock

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def on_sign_in(sender: object, *, request: HttpRequest, user: "User", **kwargs: Any) -> None:
    """Keep that a person signed in, and with the session when: other sessions of theirs are as old as they were."""
    request.session[SIGNED_IN] = clock.now().timestamp()
    append(Line(action="sign_in.succeeded", by=user, object_ref=_ref(user), details=_origin(request)))


def on_sign_out(sender: object, *, request: HttpRequest, user: "User | None", **kwargs: Any) -> None:
    """Keep that a person signed out; without one there was no session to end."""
    if user is not None:
        append(Line(action="sign_in.ended", by=user, object_ref=_ref(user), details=_origin(request)))


def on_failure(
    sender: object, *, credentials: Mapping[str, Any], request: HttpRequest | None = None, **kwargs: Any
) -> None:
    """Keep that someone failed to sign in; the name only if it is one, as people type passwords there too."""
    _append_for("sign_in.failed", str(credentials.get("username", "")), _origin(request))


def on_refusal(sender: object, *, request: HttpRequest, username: str, retry_after: int, **kwargs: Any) -> None:
    """Keep that attempts to sign in are refused for a while, once for each wait."""
    _append_for("sign_in.refused", username, {**_origin(request), "retry_after": retry_after})


def _append_for(action: str, username: str, details: Mapping[str, Any]) -> None:
    user = get_user_model().objects.filter(username=username).first()
    line = Line(
        action=action,
        actor_name=user.get_username() if user else "unknown",
        object_ref=_ref(user) if user else "",
        details=details,
    )
    append(line)


def _ref(user: "User") -> str:
    return f"user_{user.pk}"


def _origin(request: HttpRequest | None) -> dict[str, str]:
    return {"address": client_address(request)} if request is not None else {}
