"""What the suite's processes are told where nothing else is said: loaded by pytest before the settings are."""

import os
import sys

# The key that the suite keeps secrets with.
os.environ.setdefault("TOOLGATE_SECRET_KEYS", "Zm9yLXRoZS10ZXN0cy1vbmx5LWZvci10aGUtdGVzdHM=")
# Processes are killed here, machines are not: a commit that waits for no disk outlives the one, and takes less time.
os.environ.setdefault("TOOLGATE_SQLITE_SYNCHRONOUS", "NORMAL")
# Containers often tell Python to keep nothing that it has compiled. Then each of the suite's processes, and each of the
# dozens that its tests start, would compile the product again, and pytest every file of tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
