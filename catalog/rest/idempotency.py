"""One answer per `Idempotency-Key`: the key is reserved before the work, the first answer kept for 24 hours.

The work's own transaction says on the key that it is done: a request whose answer was lost is answered when it is
repeated, and not done again. Work that ended in an error frees its key at once, or when the database is back. A process
that dies before that leaves its key reserved for a minute; then a repeated request takes it over, and the work of the
first, should it live after all, is refused. An answer is for the roles it was given to: it may show what its reader
must not see without them.
"""

import json
import re
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

from django.db import DatabaseError
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.access.roles import roles_of
from catalog.calls.vault import keyring
from catalog.core import clock
from catalog.core.canonical_json import canonical_text, digest
from catalog.errors import Conflict
from catalog.models import ApiToken, IdempotencyKey
from catalog.rest.problems import MEDIA_TYPE, ProblemDetails, exception_handler

_active_key = threading.local()
_keys_to_release: set[int] = set()


@contextmanager
def using_idempotency_key(key: IdempotencyKey) -> Iterator[None]:
    """Do what follows on this thread under a key."""
    before = getattr(_active_key, "key", None)
    _active_key.key = key.pk
    try:
        yield
    finally:
        _active_key.key = before


def record_done(ref: str) -> None:
    """Keep with the key, if there is one, which plan was written; call it inside the transaction that writes it.

    Raises Conflict when the key was taken over by a repeated request: that one does the work.
    """
    key: int | None = getattr(_active_key, "key", None)
    if key is None or IdempotencyKey.objects.filter(pk=key, done_ref="").update(done_ref=ref):
        return
    if not IdempotencyKey.objects.filter(pk=key).exists():
        raise Conflict("This took so long that the same request, sent again, has taken its place.")


def release_key(key: IdempotencyKey) -> None:
    """Let a key be used again, unless something was done under it; when the database is away, as soon as it is back."""
    _keys_to_release.add(key.pk)
    with suppress(DatabaseError):
        release_ended_keys()


def release_ended_keys() -> None:
    """Free the keys whose work has ended in this process. Raises DatabaseError when the database is away."""
    if ended := tuple(_keys_to_release):
        IdempotencyKey.objects.filter(pk__in=ended, done_ref="").delete()
        _keys_to_release.difference_update(ended)


KEY_LIFETIME_HOURS = 24
RESERVATION_SECONDS = 60
IDEMPOTENCY_KEY_PATTERN = re.compile(r"[\x21-\x7e]{1,255}")
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "pattern": "^[\\x21-\\x7e]{1,255}$"},
    OpenApiParameter.HEADER,
    description="A key of your choice. A repeat within 24 hours with the same key and body returns the first response.",
)


ResponseFactory = Callable[[], Response]
RepeatResponseFactory = Callable[[str], Response]


def respond_once(
    request: Request,
    answer: ResponseFactory,
    again: RepeatResponseFactory | None = None,
    *,
    unstored: Collection[str] = (),
) -> Response:
    """Return the first answer given to this key and body; without a key, a new one. 409 once the roles differ.

    `again` answers for work that was done and whose answer was lost; it is given the plan that was written. `unstored`
    names the fields of the answer that a repeated request does not get, because they are stored nowhere.
    """
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return answer()
    if not IDEMPOTENCY_KEY_PATTERN.fullmatch(key):
        message = "Send 1 to 255 visible ASCII characters, without spaces."
        raise ValidationError({"Idempotency-Key": [message]})
    row, is_first = _reserve_key(_key_owner(request), key, _request_digest(request))
    return (
        _store_first_response(row, answer, unstored)
        if is_first
        else _repeat_response(row, _request_digest(request), again)
    )


def run_once(owner: str, key: str, body_digest: str, act: Callable[[], str]) -> str:
    """Return what `act` returned when this key was first used. Raises what `act` raises (the key is free again then),
    and Conflict while the first use has not ended, or for another body.
    """
    row, is_first = _reserve_key(owner, key, body_digest)
    mine = IdempotencyKey.objects.filter(pk=row.pk)
    if is_first:
        try:
            with using_idempotency_key(row):
                answer = act()
        except BaseException:
            release_key(row)
            raise
        mine.update(answer_status=201, answer=answer)
        return answer
    if row.body_digest != body_digest or row.answer_status is None:
        raise Conflict("This was sent already, and its first sending has not ended. Look at the last calls.")
    return row.answer


def _reserve_key(owner: str, key: str, body_digest: str) -> tuple[IdempotencyKey, bool]:
    release_ended_keys()
    keys = IdempotencyKey.objects.filter(owner=owner)
    now = clock.now()
    keys.filter(created_at__lt=now - timedelta(hours=KEY_LIFETIME_HOURS)).delete()
    reserved = keys.filter(key=key, answer_status=None, done_ref="")
    reserved.filter(created_at__lt=now - timedelta(seconds=RESERVATION_SECONDS)).delete()
    return keys.get_or_create(owner=owner, key=key, defaults={"body_digest": body_digest})


def delete_expired_keys(*, now: datetime, limit: int = 1000) -> int:
    """Delete some of the keys, whosever they are, whose answers are no longer kept; return how many."""
    old = IdempotencyKey.objects.filter(created_at__lt=now - timedelta(hours=KEY_LIFETIME_HOURS)).order_by("created_at")
    deleted, _ = IdempotencyKey.objects.filter(pk__in=old.values("pk")[:limit]).delete()
    return deleted


def _store_first_response(row: IdempotencyKey, answer: ResponseFactory, unstored: Collection[str]) -> Response:
    try:
        with using_idempotency_key(row):
            response = answer()
    except Exception as error:  # noqa: BLE001 - every way to end is an answer, and the key must not stay reserved
        response = exception_handler(error, {})
    if response.status_code == 429:
        IdempotencyKey.objects.filter(pk=row.pk).delete()
    elif response.status_code >= 500:
        release_key(row)
    else:
        _store_or_release(row, response, unstored)
    return response


def _store_or_release(row: IdempotencyKey, response: Response, unstored: Collection[str]) -> None:
    """Keep the answer. Raises DatabaseError when the database is away; the key is not reserved for long then."""
    try:
        _store_response(row, response, unstored)
    except DatabaseError:
        release_key(row)
        raise


def _store_response(row: IdempotencyKey, response: Response, unstored: Collection[str] = ()) -> None:
    kept = {name: value for name, value in response.data.items() if name not in unstored} if unstored else response.data
    text = JSONRenderer().render(kept).decode()
    IdempotencyKey.objects.filter(pk=row.pk).update(answer_status=response.status_code, answer=text)


def _repeat_response(row: IdempotencyKey, body_digest: str, again: RepeatResponseFactory | None) -> Response:
    if row.body_digest != body_digest:
        detail = (
            "This Idempotency-Key was used for another request, or before your roles changed; look at what it has "
            "done, and take a new one for more."
        )
        return ProblemDetails(409, detail, "key_reused").response()
    if row.answer_status is None and row.done_ref:
        return _response_for_done(row, again)
    if row.answer_status is None:
        detail = "The first request with this Idempotency-Key is still running."
        return ProblemDetails(409, detail, "still_running", headers={"Retry-After": "1"}).response()
    media_type = MEDIA_TYPE if row.answer_status >= 400 else None
    return Response(json.loads(row.answer), row.answer_status, content_type=media_type)


def _response_for_done(row: IdempotencyKey, again: RepeatResponseFactory | None) -> Response:
    """Answer for work whose own answer was lost."""
    if again is None:
        return ProblemDetails(
            409, f"This was done; its answer was lost. Look at {row.done_ref}.", "already_done"
        ).response()
    response = again(row.done_ref)
    _store_response(row, response)
    return response


def _key_owner(request: Request) -> str:
    if isinstance(request.auth, ApiToken):
        return f"token:{request.auth.pk}"
    return f"user:{request.user.pk}"


def _request_digest(request: Request) -> str:
    """Return what makes two requests the same: method, path, body, however it is laid out, and the caller's roles."""
    roles = canonical_text(sorted(roles_of(request.user)))
    whole = digest(str(request.method), request.path, canonical_text(request.data or {}), roles)
    return keyring().fingerprint(whole)  # a body may hold a short secret, which its bare digest could be guessed from
