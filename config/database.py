"""How PostgreSQL is reached: what a connection is opened with, so that nothing waits without end for a lost process.

A process may freeze, or its host lose power, inside a transaction. The server then ends that transaction by itself, and
whoever waits for a row of it is told that the lock was not to be had, long before a lease is over.
"""

from collections.abc import Mapping
from typing import Any

LOCK_SECONDS = 5
"""How long a statement waits for a lock; who may wait longer tries again (`catalog.core.transactions`)."""
IDLE_SECONDS = 15
"""After which the server ends a transaction that says nothing. Nothing else is done while one is open, so that ours say
something within milliseconds; shorter than five waits for a lock, and than a lease lasts."""
CONNECT_SECONDS = 5
GONE_SECONDS = 20
"""After which either side gives a peer up that acknowledges nothing."""

FOR_SESSIONS: Mapping[str, str] = {
    "lock_timeout": f"{LOCK_SECONDS}s",
    "idle_in_transaction_session_timeout": f"{IDLE_SECONDS}s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "2",
}


def options(given: Mapping[str, Any], *, connections: int) -> dict[str, Any]:
    """Return the OPTIONS of a database: what its URL gives (`sslmode`, a setting by `options`) comes before ours."""
    sessions = " ".join(f"-c {name}={value}" for name, value in FOR_SESSIONS.items())
    return {
        "connect_timeout": CONNECT_SECONDS,
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 2,
        "tcp_user_timeout": GONE_SECONDS * 1000,
        **given,
        "options": f"{sessions} {given.get('options', '')}".strip(),
        "server_side_binding": True,
        "prepare_threshold": 2,
        "pool": {
            "min_size": 2,
            "max_size": connections,
            "timeout": 10,
            # Left alone it tries less and less often while the database is away, and is late when that is back.
            "reconnect_timeout": 3,
        },
    }
