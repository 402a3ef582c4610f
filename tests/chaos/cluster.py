"""The processes of a cluster: until workers of their own exist, two that serve and execute."""

from tests.chaos.serving import SERVE

COMMANDS: tuple[tuple[str, ...], ...] = (SERVE, SERVE)
ENVIRONMENT: dict[str, str] = {}
