"""The processes of a cluster: one that serves, two workers that execute."""

from tests.chaos.serving import SERVE

COMMANDS: tuple[tuple[str, ...], ...] = (SERVE, ("worker",), ("worker",))
ENVIRONMENT = {"TOOLGATE_EXECUTOR": "procrastinate"}
