"""Paths that programs call. Their answers are no pages, lead to no page, and have no reader's formats."""

PROGRAM_PATHS = ("/api/", "/healthz", "/readyz", "/metrics")
"""Beginnings of the paths of REST and of the probes."""


def is_client_path(path: str) -> bool:
    """Return whether MCP clients call a path themselves: all of OAuth, registered or not, but the page of consent."""
    is_endpoint = path.startswith("/oauth/") and not path.startswith("/oauth/authorize")
    return is_endpoint or path.startswith("/.well-known") or path == "/register"


def is_program_path(path: str) -> bool:
    return path.startswith(PROGRAM_PATHS) or is_client_path(path)
