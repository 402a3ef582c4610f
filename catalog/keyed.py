"""The Idempotency-Key that this thread's work is done under.

The work says on the key that it is done, in its own transaction: when its answer was lost or its process died, whoever
repeats the request learns that, and nothing is done twice.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from django.db import DatabaseError

from catalog.errors import Conflict
from catalog.models import IdempotencyKey

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
