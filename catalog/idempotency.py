"""One answer per `Idempotency-Key`: the key is reserved before the work, the first answer kept for 24 hours.

A process that dies in between leaves its key reserved: better a refusal than the work done twice.
"""

import json
import re
from collections.abc import Callable
from datetime import timedelta

from django.utils import timezone
from rest_framework.exceptions import ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.canonical import canonical_text, digest
from catalog.models import ApiToken, IdempotencyKey
from catalog.problems import MEDIA_TYPE, Problem, exception_handler

HOURS_KEPT = 24
KEY = re.compile(r"[\x21-\x7e]{1,255}")


def answer_once(request: Request, answer: Callable[[], Response]) -> Response:
    """Return the first answer given to this key and body; without a key, a new one."""
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return answer()
    if not KEY.fullmatch(key):
        message = "Send 1 to 255 visible ASCII characters, without spaces."
        raise ValidationError({"Idempotency-Key": [message]})
    row, is_first = _reserve(_owner(request), key, _digest(request))
    return _first_answer(row, answer) if is_first else _later_answer(row, _digest(request))


def _reserve(owner: str, key: str, body_digest: str) -> tuple[IdempotencyKey, bool]:
    keys = IdempotencyKey.objects.filter(owner=owner)
    keys.filter(created_at__lt=timezone.now() - timedelta(hours=HOURS_KEPT)).delete()
    return keys.get_or_create(owner=owner, key=key, defaults={"body_digest": body_digest})


def _first_answer(row: IdempotencyKey, answer: Callable[[], Response]) -> Response:
    try:
        response = answer()
    except Exception as error:  # noqa: BLE001 - every way to end is an answer, and the key must not stay reserved
        response = exception_handler(error, {})
    mine = IdempotencyKey.objects.filter(pk=row.pk)
    if response.status_code == 429 or response.status_code >= 500:
        mine.delete()
    else:
        mine.update(answer_status=response.status_code, answer=_text(response))
    return response


def _later_answer(row: IdempotencyKey, body_digest: str) -> Response:
    if row.body_digest != body_digest:
        detail = "This Idempotency-Key was used for another request; take a new one."
        return Problem(409, detail, "key_reused").response()
    if row.answer_status is None:
        detail = "The first request with this Idempotency-Key is still running."
        return Problem(409, detail, "still_running", headers={"Retry-After": "1"}).response()
    media_type = MEDIA_TYPE if row.answer_status >= 400 else None
    return Response(json.loads(row.answer), row.answer_status, content_type=media_type)


def _owner(request: Request) -> str:
    if isinstance(request.auth, ApiToken):
        return f"token:{request.auth.pk}"
    return f"user:{request.user.pk}"


def _digest(request: Request) -> str:
    """Return what makes two requests the same: method, path and body, however the body is laid out."""
    return digest(str(request.method), request.path, canonical_text(request.data or {}))


def _text(response: Response) -> str:
    rendered: bytes = JSONRenderer().render(response.data)
    return rendered.decode()
