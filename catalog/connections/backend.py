"""Requests of Django as the OAuth library reads them."""

from django.http import HttpRequest
from oauth2_provider.oauth2_backends import OAuthLibCore


class ConnectionCore(OAuthLibCore):
    """Hands on the parameters that Django has decoded, so that both read the same; of others the library fails."""

    def _get_escaped_full_path(self, request: HttpRequest) -> str:
        query = request.GET.urlencode()
        return f"{request.path}?{query}" if query else request.path


class QueryCore(ConnectionCore):
    """Reads the parameters from the query alone: the body holds the form of a person."""

    def extract_body(self, request: HttpRequest) -> list[tuple[str, str]]:
        return []
