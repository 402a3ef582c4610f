"""What the suite's processes are told where nothing else is said: loaded by pytest before the settings are."""

import os

# The key that the suite keeps secrets with.
os.environ.setdefault("TOOLGATE_SECRET_KEYS", "Zm9yLXRoZS10ZXN0cy1vbmx5LWZvci10aGUtdGVzdHM=")
# Processes are killed here, machines are not: a commit that waits for no disk outlives the one, and takes less time.
os.environ.setdefault("TOOLGATE_SQLITE_SYNCHRONOUS", "NORMAL")
