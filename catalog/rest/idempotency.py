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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

from django.db import DatabaseError
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
from catalog.rest.problems import MEDIA_TYPE, Problem, exception_handler

_under = threading.local()
_ended: set[int] = set()


@contextmanager
def working_under(key: IdempotencyKey) -> Iterator[None]:
    """Do what follows on this thread under a key."""
    before = getattr(_under, "key", None)
    _under.key = key.pk
    try:
        yield
    finally:
        _under.key = before


def note_done(ref: str) -> None:
    """Keep with the key, if there is one, which plan was written; call it inside the transaction that writes it.

    Raises Conflict when the key was taken over by a repeated request: that one does the work.
    """
    key: int | None = getattr(_under, "key", None)
    if key is None or IdempotencyKey.objects.filter(pk=key, done_ref="").update(done_ref=ref):
        return
    if not IdempotencyKey.objects.filter(pk=key).exists():
        raise Conflict("This took so long that the same request, sent again, has taken its place.")


def free(key: IdempotencyKey) -> None:
    """Let a key be used again, unless something was done under it; when the database is away, as soon as it is back."""
    _ended.add(key.pk)
    with suppress(DatabaseError):
        free_ended()


def free_ended() -> None:
    """Free the keys whose work has ended in this process. Raises DatabaseError when the database is away."""
    if ended := tuple(_ended):
        IdempotencyKey.objects.filter(pk__in=ended, done_ref="").delete()
        _ended.difference_update(ended)


HOURS_KEPT = 24
RESERVED_SECONDS = 60
KEY = re.compile(r"[\x21-\x7e]{1,255}")


Answer = Callable[[], Response]
Again = Callable[[str], Response]


def answer_once(request: Request, answer: Answer, again: Again | None = None) -> Response:
    """Return the first answer given to this key and body; without a key, a new one. 409 once the roles differ.

    `again` answers for work that was done and whose answer was lost; it is given the plan that was written.
    """
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return answer()
    if not KEY.fullmatch(key):
        message = "Send 1 to 255 visible ASCII characters, without spaces."
        raise ValidationError({"Idempotency-Key": [message]})
    row, is_first = _reserve(_owner(request), key, _digest(request))
    return _first_answer(row, answer) if is_first else _later_answer(row, _digest(request), again)


def act_once(owner: str, key: str, body_digest: str, act: Callable[[], str]) -> str:
    """Return what `act` returned when this key was first used. Raises what `act` raises (the key is free again then),
    and Conflict while the first use has not ended, or for another body.
    """
    row, is_first = _reserve(owner, key, body_digest)
    mine = IdempotencyKey.objects.filter(pk=row.pk)
    if is_first:
        try:
            with working_under(row):
                answer = act()
        except BaseException:
            free(row)
            raise
        mine.update(answer_status=201, answer=answer)
        return answer
    if row.body_digest != body_digest or row.answer_status is None:
        raise Conflict("This was sent already, and its first sending has not ended. Look at the last calls.")
    return row.answer


def _reserve(owner: str, key: str, body_digest: str) -> tuple[IdempotencyKey, bool]:
    free_ended()
    keys = IdempotencyKey.objects.filter(owner=owner)
    now = clock.now()
    keys.filter(created_at__lt=now - timedelta(hours=HOURS_KEPT)).delete()
    reserved = keys.filter(key=key, answer_status=None, done_ref="")
    reserved.filter(created_at__lt=now - timedelta(seconds=RESERVED_SECONDS)).delete()
    return keys.get_or_create(owner=owner, key=key, defaults={"body_digest": body_digest})


def clear_keys(*, now: datetime, limit: int = 1000) -> int:
    """Delete some of the keys, whosever they are, whose answers are no longer kept; return how many."""
    old = IdempotencyKey.objects.filter(created_at__lt=now - timedelta(hours=HOURS_KEPT)).order_by("created_at")
    deleted, _ = IdempotencyKey.objects.filter(pk__in=old.values("pk")[:limit]).delete()
    return deleted


def _first_answer(row: IdempotencyKey, answer: Callable[[], Response]) -> Response:
    try:
        with working_under(row):
            response = answer()
    except Exception as error:  # noqa: BLE001 - every way to end is an answer, and the key must not stay reserved
        response = exception_handler(error, {})
    if response.status_code == 429:
        IdempotencyKey.objects.filter(pk=row.pk).delete()
    elif response.status_code >= 500:
        free(row)
    else:
        _keep_or_free(row, response)
    return response


def _keep_or_free(row: IdempotencyKey, response: Response) -> None:
    """Keep the answer. Raises DatabaseError when the database is away; the key is not reserved for long then."""
    try:
        _keep(row, response)
    except DatabaseError:
        free(row)
        raise


def _keep(row: IdempotencyKey, response: Response) -> None:
    IdempotencyKey.objects.filter(pk=row.pk).update(answer_status=response.status_code, answer=_text(response))


def _later_answer(row: IdempotencyKey, body_digest: str, again: Again | None) -> Response:
    if row.body_digest != body_digest:
        detail = (
            "This Idempotency-Key was used for another request, or before your roles changed; look at what it has "
            "done, and take a new one for more."
        )
        return Problem(409, detail, "key_reused").response()
    if row.answer_status is None and row.done_ref:
        return _answer_for_done(row, again)
    if row.answer_status is None:
        detail = "The first request with this Idempotency-Key is still running."
        return Problem(409, detail, "still_running", headers={"Retry-After": "1"}).response()
    media_type = MEDIA_TYPE if row.answer_status >= 400 else None
    return Response(json.loads(row.answer), row.answer_status, content_type=media_type)


def _answer_for_done(row: IdempotencyKey, again: Again | None) -> Response:
    """Answer for work whose own answer was lost."""
    if again is None:
        return Problem(409, f"This was done; its answer was lost. Look at {row.done_ref}.", "already_done").response()
    response = again(row.done_ref)
    _keep(row, response)
    return response


def _owner(request: Request) -> str:
    if isinstance(request.auth, ApiToken):
        return f"token:{request.auth.pk}"
    return f"user:{request.user.pk}"


def _digest(request: Request) -> str:
    """Return what makes two requests the same: method, path, body, however it is laid out, and the caller's roles."""
    roles = canonical_text(sorted(roles_of(request.user)))
    whole = digest(str(request.method), request.path, canonical_text(request.data or {}), roles)
    return keyring().fingerprint(whole)  # a body may hold a short secret, which its bare digest could be guessed from


def _text(response: Response) -> str:
    rendered: bytes = JSONRenderer().render(response.data)
    return rendered.decode()
