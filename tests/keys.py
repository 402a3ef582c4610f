"""The key that the suite keeps secrets with where none is given: loaded by pytest before the settings are."""

import os

os.environ.setdefault("TOOLGATE_SECRET_KEYS", "Zm9yLXRoZS10ZXN0cy1vbmx5LWZvci10aGUtdGVzdHM=")
