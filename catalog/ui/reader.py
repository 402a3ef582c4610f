"""Middleware that writes times and numbers of every page in the formats of the person who reads it."""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from catalog.access.personal_settings import formats_of
from catalog.rest.program_paths import is_program_path
from catalog.text.formats import written_for


class ReaderMiddleware:
    """Applies a signed-in person's time zone and locale to pages. The body of a streamed answer is not concerned.

    Programs read ISO 8601 in UTC. For a probe, not even a person may be read from the database.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        # Without the cookie nobody is signed in, and the default of the installation applies.
        if is_program_path(request.path) or settings.SESSION_COOKIE_NAME not in request.COOKIES:
            return self.get_response(request)
        with written_for(formats_of(request.user)):
            return self.get_response(request)
