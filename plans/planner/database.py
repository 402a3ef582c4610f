"""The database for tools that wait for models: short looks and writes from a coroutine, each in a thread of few.

A connection lasts as long as what it was opened for, so that however many models are waited for, none is kept.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache
from typing import Any, TypeVar

from django.db import connection

ResultT = TypeVar("ResultT")
AT_ONCE = 2


async def in_database(work: Callable[..., ResultT], *given: Any) -> ResultT:
    """Return what `work` returns, done in a thread with a connection of its own; raises what it raises."""
    done = asyncio.get_running_loop().run_in_executor(_threads(), copy_context().run, _connected, work, *given)
    return await done


def _connected(work: Callable[..., ResultT], *given: Any) -> ResultT:
    try:
        return work(*given)
    finally:
        connection.close()


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(AT_ONCE, thread_name_prefix="toolgate-model-rows")
