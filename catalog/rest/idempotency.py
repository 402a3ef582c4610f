"""Idempotency keys: a key is reserved before the work, and its first response is kept for 24 hours.

The transaction of the work marks the key as done, so a repeat after a lost response does not repeat the work. If the
process dies first, a repeat may take the key over after a minute; the first request is then refused if it still runs.
The caller's roles are part of the digest, because a stored response may contain data that the caller can no longer see.
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
    before = getattr(_active_key, "key", None)
    _active_key.key = key.pk
    try:
        yield
    finally:
        _active_key.key = before


def is_key_active() -> bool:
    """Return whether this thread works under a key."""
    return getattr(_active_key, "key", None) is not None


def record_done(ref: str) -> None:
    """Mark the current key as done, in the transaction that writes `ref`. Raises Conflict if a repeat took it over."""
    key: int | None = getattr(_active_key, "key", None)
    if key is None or IdempotencyKey.objects.filter(pk=key, done_ref="").update(done_ref=ref):
        return
    if not IdempotencyKey.objects.filter(pk=key).exists():
        raise Conflict("This request took too long, and a repeat of it has replaced it.")


def release_key(key: IdempotencyKey) -> None:
    """Release a key unless its work was done. If the database is unavailable, this happens later."""
    _keys_to_release.add(key.pk)
    with suppress(DatabaseError):
        release_ended_keys()


def release_ended_keys() -> None:
    """Release the keys of failed work in this process. Raises DatabaseError if the database is unavailable."""
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
    """Return the first response for this key and body. Without a key, always do the work.

    If the work was done but its response was lost, `again` builds a response from the stored reference. Fields named in
    `unstored` are not stored, so repeats lack them. Responds with 409 if body or roles have changed.
    """
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return answer()
    if not IDEMPOTENCY_KEY_PATTERN.fullmatch(key):
        message = "Use 1 to 255 visible ASCII characters without spaces."
        raise ValidationError({"Idempotency-Key": [message]})
    by_token = isinstance(request.auth, ApiToken)
    owner = f"token:{request.auth.pk}" if by_token else f"user:{request.user.pk}"
    # The roles are part of it. A bare digest of a body with a short secret could be brute-forced.
    roles = canonical_text(sorted(roles_of(request.user)))
    whole = digest(str(request.method), request.path, canonical_text(request.data or {}), roles)
    reserved_key, is_first = _reserve_key(owner, key, keyring().fingerprint(whole))
    if is_first:
        return _first_response(reserved_key, answer, unstored)
    return _repeat_response(reserved_key, whole, again)


def run_once(owner: str, key: str, body_digest: str, act: Callable[[], str]) -> str:
    """Call `act` at the first use of this key; return its result then and at every later use.

    Raises Conflict while the first call runs, or for another body. An exception of `act` releases the key.
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
        raise Conflict("This form was already submitted and is still being processed. Check the latest calls.")
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
    old = IdempotencyKey.objects.filter(created_at__lt=now - timedelta(hours=KEY_LIFETIME_HOURS)).order_by("created_at")
    deleted, _ = IdempotencyKey.objects.filter(pk__in=old.values("pk")[:limit]).delete()
    return deleted


def _first_response(key: IdempotencyKey, answer: ResponseFactory, unstored: Collection[str]) -> Response:
    """Do the work and store its response. Raises DatabaseError if the database is unavailable."""
    try:
        with using_idempotency_key(key):
            response = answer()
    except Exception as error:  # noqa: BLE001 - every outcome is a response, and the key must not stay reserved
        response = exception_handler(error, {})
    if response.status_code == 429:
        IdempotencyKey.objects.filter(pk=key.pk).delete()
    elif response.status_code >= 500:
        release_key(key)
    else:
        try:
            _store_response(key, response, unstored)
        except DatabaseError:
            release_key(key)
            raise
    return response


def _store_response(key: IdempotencyKey, response: Response, unstored: Collection[str] = ()) -> None:
    kept = {name: value for name, value in response.data.items() if name not in unstored} if unstored else response.data
    text = JSONRenderer().render(kept).decode()
    IdempotencyKey.objects.filter(pk=key.pk).update(answer_status=response.status_code, answer=text)


def _repeat_response(key: IdempotencyKey, body: str, again: RepeatResponseFactory | None) -> Response:
    if not keyring().is_fingerprint(key.body_digest, body):
        detail = (
            "This Idempotency-Key was used for another request, or before your roles changed. Check what that request "
            "did, and use a new key."
        )
        return ProblemDetails(409, detail, "key_reused").response()
    if key.answer_status is None and key.done_ref:  # the first response was lost
        if again is None:
            detail = f"This request was completed, but its response was lost. See {key.done_ref}."
            return ProblemDetails(409, detail, "already_done").response()
        response = again(key.done_ref)
        _store_response(key, response)
        return response
    if key.answer_status is None:
        detail = "The first request with this Idempotency-Key is still running."
        return ProblemDetails(409, detail, "still_running", headers={"Retry-After": "1"}).response()
    media_type = MEDIA_TYPE if key.answer_status >= 400 else None
    return Response(json.loads(key.answer), key.answer_status, content_type=media_type)
